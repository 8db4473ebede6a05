"""Showing the machine's TPM to the daemon, and answering its challenge: for a join, and for hello."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from bcmetal_agent import wire
from bcmetal_agent.tpm import AttestationKey, Tpm, TpmError


def claim(tcti: str | None) -> tuple[wire.TpmClaim, AttestationKey]:
    """With a new attestation key, which `prove` needs again. Raises TpmError."""
    with Tpm.open(tcti) as tpm:
        certificate, ak = tpm.ek_certificate(), tpm.ak()
        shown = wire.TpmClaim(text(tpm.ek_public()), text(ak.public), text(certificate) if certificate else None)
    return shown, ak


def prove(tcti: str | None, ak: AttestationKey, challenge: wire.Challenge, subject: bytes) -> wire.Proof:
    """`subject`: what the TPM vouches for. Raises TpmError."""
    try:
        blob = base64.b64decode(challenge.credential_blob, validate=True)
        encrypted = base64.b64decode(challenge.encrypted_secret, validate=True)
    except (ValueError, binascii.Error):
        raise TpmError("the server's challenge is no base64") from None
    with Tpm.open(tcti) as tpm:
        secret = tpm.activate(ak, blob, encrypted)
    digest = hashlib.sha256(subject).digest()
    proof = hmac.new(secret, challenge.challenge_id.encode() + digest, hashlib.sha256).digest()
    return wire.Proof(challenge.challenge_id, text(proof))


def text(raw: bytes) -> str:
    """As it goes over the wire."""
    return base64.b64encode(raw).decode()
