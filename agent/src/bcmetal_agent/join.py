"""Joining: one message, kept on the disk before it is first sent, asked again until somebody decides.

1. Make a key and a request, read the identifiers (and the TPM), write the whole message down.
2. Fetch the pinned root; open a connection that this root vouches for.
3. Send the message with the token. A TPM's challenge is answered in the same breath.
4. Admitted: check that the certificate is for our key and comes from a root of the bundle; make it current.
   Deferred, or no answer: the very same message again, later. Refused: a person has to look.
"""

from __future__ import annotations

import base64
import dataclasses
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cryptography import x509

from bcmetal_agent import attesting, client, identifiers, keys, trust, wire
from bcmetal_agent.bearer import TokenSource
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import Refused
from bcmetal_agent.pace import Clock, SystemClock
from bcmetal_agent.state import Admission, Attempt, Identity, StateFolder
from bcmetal_agent.tpm import AttestationKey
from bcmetal_agent.trust import Endpoint, Pin

SKEW_S: Final = 60
log = logging.getLogger("bcmetal_agent")

Attestor = Literal["token", "discovery", "tpm"]


class Denied(Exception):
    """The control plane's refusal."""

    def __init__(self, answer: Refused) -> None:
        code = f" {answer.code}" if answer.code else ""
        super().__init__(f"the control plane refused ({answer.status}{code}): {answer.message}")
        self.answer = answer


class NotConfigured(Exception):
    """An option is missing for what is to be done."""


@dataclass(frozen=True)
class Waiting:
    """Not yet, and why. `after_s`: what the server asked for."""

    reason: str
    after_s: float | None = None
    request_id: str = ""


@dataclass(frozen=True)
class Plan:
    """What the administrator said. Without a token `tenant` and `pool` say where to."""

    server: Endpoint
    node_server: Endpoint
    pin: Pin | None = None
    token: TokenSource | None = None
    attestor: Attestor = "token"
    tcti: str | None = None
    tenant: str | None = None
    pool: str | None = None
    root: Path = Path("/")
    gpu_tool: str = "nvidia-smi"
    call_s: float = client.CALL_S


@dataclass
class Joiner:
    """One machine's join, from its first call to its identity; the pinned root is fetched once in its life."""

    plan: Plan
    state: StateFolder
    random: Callable[[], float]
    clock: Clock = field(default_factory=SystemClock)
    _root: str | None = None

    def begin(self, *, anew: bool = False) -> Attempt:
        """The attempt on the disk; one is made where there is none, or where the options say something else.

        `anew`: with a new key whatever is there, for a request that was denied or a node that was evicted; an identity
        stays in place until the new one is admitted.
        """
        found = None if anew else self.state.attempt("join")
        if found is not None and self._fits(found):
            return found
        if self.plan.token is None and (self.plan.tenant is None or self.plan.pool is None):
            raise NotConfigured("without a token --tenant and --pool say where to join")
        key = keys.read_key(found.key) if found else keys.new_key()
        csr = wire.decode(wire.Join, found.message.encode()).csr if found else keys.request_pem(key)
        claim, ak = attesting.claim(self.plan.tcti) if self.plan.attestor == "tpm" else (None, None)
        message = wire.Join(
            csr=csr,
            identifiers=identifiers.read(self.plan.root, gpu_tool=self.plan.gpu_tool),
            attestor=self.plan.attestor,
            tpm=claim,
            tenant_id=self.plan.tenant if self.plan.token is None else None,
            pool_id=self.plan.pool if self.plan.token is None else None,
        )
        attempt = Attempt(
            key=keys.key_pem(key),
            message=wire.encode(message).decode(),
            replaces=self.state.current_name(),
            ak_public=attesting.text(ak.public) if ak else "",
            ak_private=attesting.text(ak.private) if ak else "",
        )
        self.state.keep("join", attempt)
        return attempt

    def once(self) -> Identity | Waiting:
        """One call, or two with a challenge. Raises Denied, Untrusted, NoToken, NotConfigured, TpmError, StateError."""
        attempt = self.begin()
        bearer = self.plan.token.read() if self.plan.token else None
        root = self.pinned()
        if isinstance(root, RetryLater):
            return Waiting(root.reason, root.after_s)
        server = client.Client(self.plan.server, trust.verified(root), self.plan.call_s)
        answer = server.join(attempt.message.encode(), bearer)
        if isinstance(answer, wire.Challenge):
            answer = server.join(self._prove(attempt, answer), bearer)
        if isinstance(answer, wire.Challenge):
            return Waiting("the server answered the proof with another challenge")
        where = (self.plan.server, self.plan.node_server)
        return settle(answer, attempt.key, where, self.state, self.clock, self.random)

    def pinned(self) -> str | RetryLater:
        """The root that the pin names, fetched once. Raises Untrusted, NotConfigured."""
        if self.plan.pin is None:
            raise NotConfigured("--ca names the CA's fingerprint, without which the agent sends no token")
        if self._root is None:
            root = client.pinned_root(self.plan.server, self.plan.pin, deadline_s=self.plan.call_s)
            if isinstance(root, RetryLater):
                return root
            self._root = root
        return self._root

    def _fits(self, attempt: Attempt) -> bool:
        try:
            message = wire.decode(wire.Join, attempt.message.encode())
        except wire.BadMessage:
            return False
        there = (message.attestor, message.tenant_id, message.pool_id)
        where = (self.plan.tenant, self.plan.pool) if self.plan.token is None else (None, None)
        return there == (self.plan.attestor, *where)

    def _prove(self, attempt: Attempt, challenge: wire.Challenge) -> bytes:
        ak = AttestationKey(base64.b64decode(attempt.ak_public), base64.b64decode(attempt.ak_private))
        message = wire.decode(wire.Join, attempt.message.encode())
        proof = attesting.prove(self.plan.tcti, ak, challenge, keys.request_der(message.csr))
        return wire.encode(dataclasses.replace(message, challenge=proof))


# ---------------------------------------------------------------- what an answer means, for joins and renewals


def settle(
    answer: wire.Admitted | wire.Deferred | Refused | RetryLater,
    key: str,
    where: tuple[Endpoint, Endpoint],
    state: StateFolder,
    clock: Clock,
    random: Callable[[], float],
) -> Identity | Waiting:
    """Raises Denied."""
    if isinstance(answer, Refused):
        raise Denied(answer)
    if isinstance(answer, RetryLater):
        return Waiting(answer.reason, answer.after_s)
    _notice_skew(answer.server_time, state, clock)
    if isinstance(answer, wire.Deferred):
        shown = "".join(char for char in answer.request_id if char.isascii() and (char.isalnum() or char == "_"))
        return Waiting(f"waits for approval: bcmetal request show {shown}", float(answer.retry_after_seconds), shown)
    try:
        chain, roots = _checked(answer, key)
    except keys.BadCertificate as error:
        return Waiting(f"the server admitted this machine, but its answer cannot be used: {error}")
    leaf = keys.facts(chain[0])
    renew_after = _renew_after(answer, leaf)
    renew_at = renew_after + (leaf.not_after - renew_after) * (0.1 * random())
    admission = Admission(
        node_id=answer.node_id,
        server=str(where[0]),
        node_server=str(where[1]),
        admitted_at=(_time(answer.server_time) or clock.now()).isoformat(timespec="seconds"),
        renew_after=renew_after.isoformat(timespec="seconds"),
        renew_at=renew_at.isoformat(timespec="seconds"),
    )
    return state.commit(key, "".join(keys.pem(one) for one in chain), roots, admission)


def _checked(answer: wire.Admitted, key: str) -> tuple[list[x509.Certificate], str]:
    chain, roots = keys.split_pem(answer.certificate), trust.check_roots(answer.trust_bundle)
    leaf = keys.facts(chain[0])
    if leaf.spki != keys.public_der(keys.read_key(key)):
        raise keys.BadCertificate("the certificate is for another key")
    if leaf.node_id is None or leaf.node_id != answer.node_id or not leaf.client or leaf.authority:
        raise keys.BadCertificate("the certificate does not name the node")
    for child, issuer in itertools.pairwise(chain):
        keys.verify_issued(child, issuer)
    tops = keys.split_pem(roots)
    if not any(chain[-1].subject == root.subject or chain[-1].issuer == root.subject for root in tops):
        raise keys.BadCertificate("the certificate comes from none of the roots in the trust bundle")
    for root in tops:
        if chain[-1] == root:
            return chain, roots
        if chain[-1].issuer == root.subject:
            try:
                keys.verify_issued(chain[-1], root)
            except keys.BadCertificate:
                continue  # another root of that name may have signed it
            return chain, roots
    raise keys.BadCertificate("none of the roots in the trust bundle signed the certificate's issuer")


def _renew_after(answer: wire.Admitted, leaf: keys.Facts) -> datetime:
    """What the server said if it lies within the certificate's life, else half of it."""
    half = leaf.not_before + (leaf.not_after - leaf.not_before) / 2
    at = _time(answer.renew_after)
    return at if at is not None and leaf.not_before <= at < leaf.not_after else half


def _notice_skew(server_time: str, state: StateFolder, clock: Clock) -> None:
    theirs = _time(server_time)
    skew = (clock.now() - theirs) if theirs is not None else timedelta(0)
    seconds = round(skew.total_seconds())
    if abs(seconds) > SKEW_S:
        way = "ahead of" if seconds > 0 else "behind"
        log.warning("this machine's clock is %d s %s the control plane's", abs(seconds), way)
    state.note(clock_skew_s=seconds if abs(seconds) > SKEW_S else 0)


def _time(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
