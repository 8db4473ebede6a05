"""Hello: an agent in the ramdisk shows its operation's boot token, and binds its own key to it. One transaction.

The same key again gets the same answer: the first one was lost. A second key means that somebody else has the token, and nobody can tell
who is who: it ends, and with it the session that it began.

Where the machine's TPM is on record (its EK, from a join that proved it), the token alone begins nothing: the TPM has to open a challenge,
and vouch so for the key. Whoever read the token off the wire cannot, and what he says neither gets a session nor ends one. A node
without such a record is not asked, and what a hello shows unasked is not kept: a TPM comes on record by a join, which a person or a
list allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import PermissionDenied, RateLimited
from bcmetal.join.challenging import (
    CHALLENGE_US,
    About,
    Challenged,
    ChallengeRefused,
    TpmCase,
    check_proof,
    make_challenge,
)
from bcmetal.join.claims import Claim
from bcmetal.states import REST, State
from bcmetal.store import agents, boot_tokens, certificates, identifiers, members, nodes, outbox, rescues
from bcmetal.store.agents import AgentRow
from bcmetal.store.boot_tokens import BootTokenRow
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import Identifier, NewEvent, SetCondition
from bcmetal_agent import wire_tasks

CONDITION: Final = "agent"
CONFLICT: Final = "security.boot-token.conflict"
RESCUED: Final = "rescued"
_OUT_OF_RESCUE: Final = frozenset(one.value for one in REST - {State.RESCUED})
OPEN_CHALLENGES: Final = 16  # of one operation: an agent has one, and one more each time that it is started again


class HelloRefused(PermissionDenied):
    """The hello is refused."""


@dataclass(frozen=True, slots=True)
class Saying:
    """A hello whose token was proven."""

    sha256: bytes
    public_key: bytes
    claim: Claim
    version: str
    address: str
    tpm: TpmCase | None = None
    no_tpm: str | None = None  # why none can be shown, in the agent's words


@dataclass(frozen=True, slots=True)
class Welcomed:
    agent: AgentRow


@dataclass(frozen=True, slots=True)
class Turned:
    """What a refusal left behind is written; this says why. `wake`: the operation has to look. `condition`: the node's is to say it too."""

    node_id: str
    reason: str
    message: str
    wake: bool = False
    condition: bool = False


Answer = Welcomed | Turned | Challenged | wire_tasks.ShowTpm


def hello(c: Connection, said: Saying, entropy: Callable[[int], bytes], now: Micros) -> Answer:
    """Raises HelloRefused: the token is no more. Raises RateLimited: too many challenges of this operation are unanswered."""
    found = boot_tokens.shown(c, said.sha256, lock=True)
    if found is None:
        raise HelloRefused("this boot token is forgotten", reason="unknown")
    token = found.token
    if found.over:
        return _not_ours(c, token, now)
    known = agents.of_token(c, token.operation_id, token.n)
    if token.ended_at is not None:
        return Turned(token.node_id, "ended", "this boot token has ended: boot the machine by its newest medium")
    if known is not None and known.public_key == said.public_key:
        return Welcomed(known)
    if known is None and token.expires_at <= now:
        return Turned(token.node_id, "expired", "this boot token's time is over")
    eks = members.eks_of_machine(c, token.node_id)
    if eks:
        unproven = _unproven(c, token, said, eks, entropy, now)
        if isinstance(unproven, Turned) and unproven.condition and known is None:
            # Of a node whose own machine has proven itself nothing is told: it is somebody else's fault.
            told = SetCondition(CONDITION, "warning", "warning", unproven.reason, unproven.message)
            _tell(c, token.node_id, told, now)
        if unproven is not None:
            return unproven
    if known is not None:
        return _conflict(c, token, said, known, now)
    stranger = differs(said.claim, identifiers.of_node(c, token.node_id), _anothers(c, token.node_id, said.claim))
    if stranger is not None:
        why = f"another machine than this one booted its medium: {stranger}"
        _tell(c, token.node_id, SetCondition(CONDITION, "warning", "warning", "other-machine", why), now)
        return Turned(token.node_id, "other-machine", f"this is not the machine that the boot token is for: {stranger}")
    agent = AgentRow(
        session_id=new_id("as", now, entropy(ENTROPY_BYTES)),
        operation_id=token.operation_id,
        token_n=token.n,
        node_id=token.node_id,
        public_key=said.public_key,
        identifiers={name: value for name, value in said.claim.doc.items() if value},
        version=said.version,
        address=said.address,
        hello_at=now,
        seen_at=now,
        sequence=0,
        ended_at=None,
        tpm_proven=bool(eks),
    )
    agents.add(c, agent)
    _tell(c, token.node_id, SetCondition(CONDITION, "ok", "info", "", ""), now)
    agents.wake(c, token.node_id, token.operation_id, now)
    return Welcomed(agent)


def _unproven(
    c: Connection,
    token: BootTokenRow,
    said: Saying,
    eks: frozenset[str],
    entropy: Callable[[int], bytes],
    now: Micros,
) -> Turned | Challenged | wire_tasks.ShowTpm | None:
    """What to answer before the TPM has vouched for this key; None: it has. Raises RateLimited.

    Nothing is written for whoever shows another EK than those on record.
    """
    if said.tpm is None:
        if said.no_tpm is None:
            return wire_tasks.ShowTpm()
        why = f"the node's TPM is on record and has to vouch for the agent at hello, and the agent has none to show: {said.no_tpm}"
        return Turned(token.node_id, "no-tpm", why, condition=True)
    if said.tpm.ek_sha256 not in eks:
        why = "another TPM than the one on record for this node was shown at hello: its mainboard was changed, or it is another machine"
        return Turned(token.node_id, "other-tpm", why, condition=True)
    owner = nodes.owner(c, token.node_id)
    about = About(
        pool_id="" if owner is None else owner.pool_id,
        bearer=token.operation_id,
        subject=wire_tasks.hello_statement(said.public_key),
        subject_sha256=hashlib.sha256(said.public_key).hexdigest(),
        claim_sha256=hashlib.sha256(token.sha256 + said.claim.sha256.encode()).hexdigest(),
    )
    if said.tpm.challenge_id is None or said.tpm.proof is None:
        if certificates.open_challenges(c, token.operation_id, now) >= OPEN_CHALLENGES:
            raise RateLimited(
                "too many challenges of this operation are unanswered", retryAfterS=CHALLENGE_US // SECOND
            )
        challenge_id = new_id("jc", now, entropy(ENTROPY_BYTES))
        return make_challenge(c, about, said.tpm, challenge_id, entropy, now)
    try:
        check_proof(c, about, said.tpm, said.tpm.challenge_id, said.tpm.proof, now)
    except ChallengeRefused as refused:
        return Turned(token.node_id, refused.reason, "the TPM's answer does not hold: say hello anew")
    return None


def differs(claim: Claim, known: Iterable[Identifier], anothers: str | None = None) -> str | None:
    """Why it is not the machine that is known by these; None: it may well be.

    One identifier that agrees is enough: BMCs and firmware disagree on the others often (a board's serial for the system's, a GUID of the
    BMC's own). `anothers`: a kind by which it is another machine that is known here, whatever else agrees.
    """
    if anothers is not None:
        return f"by its {anothers} it is another node's machine"
    usable = {(one.kind, one.value_norm) for one in known if one.usable}
    if usable & claim.usable:
        return None
    both = sorted({kind for kind, _ in usable} & {kind for kind, _ in claim.usable})
    return f"it has another {' and another '.join(both)}" if both else None


def _anothers(c: Connection, node_id: str, claim: Claim) -> str | None:
    return next((kind for kind, holder in identifiers.holders(c, claim.usable) if holder != node_id), None)


def _not_ours(c: Connection, token: BootTokenRow, now: Micros) -> Turned:
    """An agent whose operation is over: it gets nothing, and somebody has to see that the machine is not in its own system.

    A rescued machine is there by its rescue, and stays until that is undone: nobody has to see to it.
    """
    if _is_in_its_rescue(c, token):
        return Turned(token.node_id, RESCUED, "the machine is rescued: nothing is to be done until that is over")
    why = "an agent in the ramdisk calls home, but is not ours to run: no operation of this machine waits for it"
    _tell(c, token.node_id, SetCondition(CONDITION, "warning", "warning", "not-ours-to-run", why), now)
    return Turned(token.node_id, "not-ours-to-run", "the operation that this boot token was for is over")


def _is_in_its_rescue(c: Connection, token: BootTokenRow) -> bool:
    owner, rescue = nodes.owner(c, token.node_id), rescues.of(c, token.node_id)
    if owner is None or rescue is None or rescue.operation_id != token.operation_id:
        return False
    return owner.state not in _OUT_OF_RESCUE


def _conflict(c: Connection, token: BootTokenRow, said: Saying, known: AgentRow, now: Micros) -> Turned:
    boot_tokens.conflict(c, token, now)
    agents.wake(c, token.node_id, token.operation_id, now)
    owner = nodes.owner(c, token.node_id)
    if owner is not None:
        data = {
            "operationId": token.operation_id,
            "conflicts": boot_tokens.conflicts(c, token.operation_id),
            "addresses": sorted({known.address, said.address}),
        }
        id_ = outbox.derived_id(now, CONFLICT, token.operation_id, token.n)
        event = NewEvent(id_, token.node_id, owner.tenant_id, owner.pool_id, owner.site_id, CONFLICT, data)
        outbox.add(c, [event], now)
    message = "this boot token was used with two keys and is void: boot the machine by its newest medium"
    return Turned(token.node_id, "conflict", message, wake=True)


def _tell(c: Connection, node_id: str, condition: SetCondition, now: Micros) -> None:
    if nodes.owner(c, node_id) is not None:
        nodes.apply(c, node_id, [condition], now)
