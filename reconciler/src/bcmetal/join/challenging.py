"""One challenge for a TPM, made in one transaction and answered in another: bound to who asked, for what, with which EK.

Only the digest of the right answer is stored, so that any daemon of the deployment, before or after a restart, can judge it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Fault, InvalidInput
from bcmetal.join import tpm
from bcmetal.store import certificates
from bcmetal.store.certificates import ChallengeRow
from bcmetal_agent import wire

CHALLENGE_US: Final = 60 * SECOND
_ID: Final = re.compile(r"jc_[0-9a-hjkmnp-tv-z]{26}")


class ChallengeRefused(Exception):
    """The answer proves nothing; `reason` is for whoever watches."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TpmCase:
    """What the machine claims of its TPM, and its answer to a challenge, once it has one."""

    claim: tpm.Claim = field(repr=False)
    ek_sha256: str
    vendor: str | None  # whose CA signed the EK's certificate; None: nobody's that is known here
    challenge_id: str | None
    proof: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class About:
    """What a challenge is good for, and nothing else. `bearer`: the join token's id, or the operation whose boot token it was.

    `subject`: the bytes that the proof is over, `subject_sha256` their digest in hex; `claim_sha256`: what else must be repeated.
    """

    pool_id: str
    bearer: str | None
    subject: bytes = field(repr=False)
    subject_sha256: str
    claim_sha256: str


@dataclass(frozen=True, slots=True)
class Challenged:
    challenge_id: str
    credential: tpm.Credential = field(repr=False)

    def message(self) -> wire.Challenge:
        blob, secret = (
            base64.b64encode(one).decode() for one in (self.credential.id_object, self.credential.encrypted_secret)
        )
        return wire.Challenge(self.challenge_id, blob, secret, CHALLENGE_US // SECOND)


def read_case(claimed: wire.TpmClaim, answer: wire.Proof | None) -> TpmCase:
    """With no maker yet: that is for whoever knows the makers. Raises TpmRefused, InvalidInput."""
    claim = tpm.read_claim(claimed.ek_public, claimed.ak_public, claimed.ek_certificate)
    proof = None
    if answer is not None:
        if not _ID.fullmatch(answer.challenge_id):  # PostgreSQL takes no text with a NUL
            raise InvalidInput([Fault("challenge.challengeId", "is no challenge's id")])
        try:
            proof = base64.b64decode(answer.proof, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput([Fault("challenge.proof", "is no base64")]) from None
    return TpmCase(claim, tpm.ek_sha256(claim.ek), None, None if answer is None else answer.challenge_id, proof)


def make_challenge(
    c: Connection, about: About, case: TpmCase, challenge_id: str, entropy: Callable[[int], bytes], now: Micros
) -> Challenged:
    secret = entropy(tpm.SECRET_BYTES)
    credential = tpm.make_credential(case.claim.ek, case.claim.ak.name, secret)
    proof = tpm.proof(secret, challenge_id, about.subject)
    row = ChallengeRow(
        challenge_id=challenge_id,
        pool_id=about.pool_id,
        token_id=about.bearer,
        csr_sha256=about.subject_sha256,
        claim_sha256=about.claim_sha256,
        ek_sha256=case.ek_sha256,
        proof_sha256=hashlib.sha256(proof).digest(),
        expires_at=Micros(now + CHALLENGE_US),
    )
    certificates.challenge(c, row)
    return Challenged(challenge_id, credential)


def check_proof(c: Connection, about: About, case: TpmCase, challenge_id: str, proof: bytes, now: Micros) -> None:
    """The challenge is used up by the right answer. Raises ChallengeRefused."""
    known = certificates.challenge_of(c, challenge_id)
    asked = (about.pool_id, about.bearer, about.subject_sha256, about.claim_sha256, case.ek_sha256)
    if known is None or asked != (known.pool_id, known.token_id, known.csr_sha256, known.claim_sha256, known.ek_sha256):
        raise ChallengeRefused("challenge-of-another")
    if not hmac.compare_digest(known.proof_sha256, hashlib.sha256(proof).digest()):
        raise ChallengeRefused("challenge-failed")
    if not certificates.use_challenge(c, challenge_id, now):
        raise ChallengeRefused("challenge-replayed")
