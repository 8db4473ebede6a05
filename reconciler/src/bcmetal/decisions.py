"""Pure decisions over the state table: may this start? What an outcome does then is `settling`, whose names are offered here too.

No I/O, no clock, no randomness: `now` comes in as microseconds since the epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from bcmetal.settling import (
    SECOND,
    Again,
    Back,
    Done,
    Ended,
    EndStatus,
    Failed,
    LastError,
    Micros,
    Outcome,
    Run,
    Trouble,
    backoff_s,
    counted_us,
    settle,
)
from bcmetal.states import (
    ABORTABLE,
    ADOPTABLE,
    BMC_WRITES,
    BUSY,
    DEEP_INSPECT_BUDGET_S,
    ERASING,
    REMOVABLE,
    SIDE_TABLE,
    TAKES_DOWN,
    WORKFLOWS,
    Disks,
    SideVerb,
    State,
    System,
    Verb,
    failure_of,
    retryable_in,
    success_of,
)

__all__ = [
    "SECOND",
    "Again",
    "AllowedVerb",
    "Back",
    "Done",
    "EndStatus",
    "Ended",
    "Failed",
    "LastError",
    "Micros",
    "Move",
    "NodeFacts",
    "Outcome",
    "Params",
    "PoolMode",
    "PoolPolicy",
    "Refusal",
    "Refused",
    "Run",
    "Trouble",
    "allowed_verbs",
    "backoff_s",
    "confirmation_of",
    "counted_us",
    "decide",
    "erases_disks",
    "is_protected",
    "needs_confirmation",
    "settle",
]


class PoolMode(StrEnum):
    MANAGE = "manage"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """What a decision needs to know of a pool (`settings.Pool` makes it)."""

    pool_id: str
    owner: str
    mode: PoolMode = PoolMode.MANAGE
    erase_on_arrival: bool = False
    trust_bmc_erase: bool = False
    has_rescue_iso: bool = False
    agent: str = "none"  # "none" or "bcd"
    commission_erases: bool = True  # the default commission profile has an erase method
    release_erases: bool = True


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a decision needs to know of a node."""

    node_id: str
    state: State
    disks: Disks = Disks.FOREIGN
    system: System = System.NONE
    serial: str | None = None  # a usable one; None when the machine has none or it is a placeholder
    bmc_scheme: str | None = None  # redfish, redfish+http, ipmi; None: not yet probed
    maintenance: bool = False
    quiet: bool = False
    protected: bool = False
    protected_until: Micros | None = None
    protected_reason: str | None = None
    fenced_reason: str | None = None
    not_erased: bool = False  # `erasure: not-erased`: it stays with the tenant that had it
    held_by_another_tenant: bool = False  # a drive's last holder is another tenant
    failed_verb: Verb | None = None  # what `retry` would do again
    failed_origin: State | None = None


@dataclass(frozen=True, slots=True)
class Params:
    """The part of a verb's input that decides."""

    rebuild: bool = False
    confirm_erase: str | None = None
    erases: bool | None = None  # the named profile's erase; None: the pool's default
    waiver: bool = False
    waiver_machine: bool = False
    abandon: str | None = None
    kind: str = "iso"  # deploy: "iso" or "image"
    deep: bool = False
    ssh_keys: bool = False
    password_hash: bool = False
    power: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The table allows it. `during` is None for verbs that end at once (adopt, remove, abort) and for side operations."""

    verb: Verb | SideVerb
    origin: State
    during: State | None
    success: State | None
    failure: State | None
    budget_s: int = 0


class Refused(StrEnum):
    INVALID_STATE = "INVALID_STATE"
    INVALID_INPUT = "INVALID_INPUT"
    PERMISSION_DENIED = "PERMISSION_DENIED"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The table does not allow it. `reason` is a stable word for programs, `message` a sentence for people."""

    code: Refused
    reason: str
    message: str
    field: str | None = None
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllowedVerb:
    verb: Verb | SideVerb
    needs: str | None = None  # the input that this state demands, such as `rebuild` or `confirmErase`


def is_protected(node: NodeFacts, now: Micros) -> bool:
    return node.protected and (node.protected_until is None or now < node.protected_until)


def decide(node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy, now: Micros) -> Move | Refusal:
    """The move that this verb makes, or why not. Asked by the API, by `plan`, by `allowed_verbs` and by the engine alike.

    For `retry`, `params` are those of the failed operation's stored input. Every refusal's `details` name the present state; what
    would be allowed instead is `allowed_verbs`, which the API adds.
    """
    refusal = _refused_by_table(node, verb, params) or _refused_by_policy(node, verb, params, pool, now)
    if refusal is not None:
        return replace(refusal, details={"state": node.state, **refusal.details})
    if isinstance(verb, SideVerb):
        return Move(verb, node.state, None, None, None)
    if verb is Verb.ADOPT:
        return Move(verb, node.state, None, State.DEPLOYED, None)
    if verb in (Verb.REMOVE, Verb.ABORT):
        return Move(verb, node.state, None, None, None)
    origin = node.state
    if verb is Verb.RETRY:
        if node.failed_verb is None:  # _refused_by_table saw to it; this is for the type checker
            return _not_allowed(node, verb, "there is no failed operation to do again")
        verb = node.failed_verb
    row = WORKFLOWS[verb]
    deep = params.deep or (node.bmc_scheme == "ipmi" and pool.agent != "none")
    budget_s = DEEP_INSPECT_BUDGET_S if verb is Verb.INSPECT and deep else row.budget_s
    return Move(verb, origin, row.during, success_of(row, origin), failure_of(row, origin), budget_s)


def _not_allowed(node: NodeFacts, verb: Verb | SideVerb, why: str) -> Refusal:
    return Refusal(Refused.INVALID_STATE, "not-allowed-now", f"{verb} is not allowed: {why}")


def _refused_by_table(node: NodeFacts, verb: Verb | SideVerb, params: Params) -> Refusal | None:
    state = node.state
    if isinstance(verb, SideVerb):
        if state not in SIDE_TABLE[verb]:
            return _not_allowed(node, verb, f"the node is {state}, and an operation is under way")
        return None
    if verb is Verb.ENROLL:
        return _not_allowed(node, verb, "the node exists already")
    if verb is Verb.ABORT:
        if state in ABORTABLE:
            return None
        if state in BUSY:
            return _not_allowed(node, verb, f"a node that is {state} cannot be aborted")
        return _not_allowed(node, verb, f"the node is {state}: nothing is under way")
    if verb is Verb.ADOPT:
        if state not in ADOPTABLE:
            return _not_allowed(node, verb, f"the node is {state}; only an inspected machine is adopted")
        if node.disks is not Disks.FOREIGN:
            return _not_allowed(
                node, verb, f"its disks are {node.disks}; only a machine with its own system is adopted"
            )
        return None
    if verb is Verb.RETRY:
        if node.failed_verb is None or not retryable_in(node.failed_verb, state):
            return _not_allowed(node, verb, f"the node is {state}: no failed operation is to be done again")
        return None
    if verb is Verb.REMOVE:
        return _refused_removal(node, params)
    if state not in WORKFLOWS[verb].allowed_from:
        return _not_allowed(node, verb, f"the node is {state}")
    if verb is Verb.DEPLOY and state is State.DEPLOYED and not params.rebuild:
        return Refusal(
            Refused.INVALID_STATE,
            "needs-rebuild",
            "the node is deployed: say `rebuild: true` to write over it",
            "rebuild",
        )
    return None


def _refused_removal(node: NodeFacts, params: Params) -> Refusal | None:
    if node.state not in REMOVABLE:
        return _not_allowed(node, Verb.REMOVE, f"the node is {node.state}")
    if node.state is State.INSPECTED and node.disks is not Disks.FOREIGN:
        return _not_allowed(node, Verb.REMOVE, f"its disks are {node.disks}; retire it first")
    if node.state is State.DEPLOYED and node.disks is not Disks.FOREIGN and not params.abandon:
        return Refusal(
            Refused.INVALID_STATE,
            "needs-abandon",
            "the node is deployed by us: retire it, or give a reason to `abandon` it as it is",
            "abandon",
        )
    return None


def erases_disks(verb: Verb, params: Params, pool: PoolPolicy) -> bool:
    """Whether this verb would write to, or erase, the machine's disks."""
    if verb is Verb.DEPLOY:
        return True
    if verb in (Verb.COMMISSION, Verb.RELEASE, Verb.RETIRE):
        default = pool.commission_erases if verb is Verb.COMMISSION else pool.release_erases
        return default if params.erases is None else params.erases
    return False


def needs_confirmation(node: NodeFacts, verb: Verb, pool: PoolPolicy) -> bool:
    """Whether `confirmErase` must name the machine: its disks are foreign, and the verb takes them over.

    A commission that erased nothing was confirmed, and says `not_erased`: a deploy after it does not ask again. Without that mark the
    disks became foreign later, by a drive that a refresh found.
    """
    if node.disks is not Disks.FOREIGN or pool.erase_on_arrival:
        return False
    return verb in ERASING or (verb is Verb.DEPLOY and (node.state is State.DEPLOYED or not node.not_erased))


def confirmation_of(node: NodeFacts) -> str:
    """What `confirmErase` must say: the usable serial, else the node's id."""
    return node.serial or node.node_id


def _refused_by_policy(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy, now: Micros
) -> Refusal | None:
    if verb is Verb.RETRY and node.failed_verb is not None:
        verb = node.failed_verb
    if node.fenced_reason and verb in BMC_WRITES:
        return Refusal(Refused.INVALID_STATE, "fenced", f"the node is fenced: {node.fenced_reason}")
    if pool.mode is PoolMode.OBSERVE and verb in BMC_WRITES:
        return Refusal(
            Refused.INVALID_STATE, "observe-mode", f"pool {pool.pool_id} only observes: nothing may be written to a BMC"
        )
    if is_protected(node, now) and verb in TAKES_DOWN:
        return Refusal(
            Refused.INVALID_STATE,
            "protected",
            f"the node is protected: {node.protected_reason or 'no reason given'}",
            details={"protectedUntil": node.protected_until},
        )
    if isinstance(verb, SideVerb):
        return None
    refusal = _refused_by_disks(node, verb, params, pool)
    if refusal is not None:
        return refusal
    return _refused_by_machine(node, verb, params, pool)


def _refused_by_disks(node: NodeFacts, verb: Verb, params: Params, pool: PoolPolicy) -> Refusal | None:
    if needs_confirmation(node, verb, pool):
        wanted = confirmation_of(node)
        if params.confirm_erase is None:
            return Refusal(
                Refused.INVALID_STATE,
                "needs-confirm-erase",
                f"the disks hold what the machine came with: say `confirmErase: {wanted}` to give it up",
                "confirmErase",
                {"confirmErase": wanted},
            )
        if params.confirm_erase.strip().casefold() != wanted.casefold():
            return Refusal(
                Refused.INVALID_INPUT,
                "wrong-confirm-erase",
                f"does not name this machine: it is {wanted}",
                "confirmErase",
            )
    if params.waiver_machine and verb is not Verb.RETIRE:
        return Refusal(
            Refused.INVALID_INPUT,
            "waiver-for-retire-only",
            "a waiver for the whole machine is for retire only; name serials",
            "eraseWaiver.machine",
        )
    return _refused_by_last_holder(node, verb, params, pool)


def _refused_by_last_holder(node: NodeFacts, verb: Verb, params: Params, pool: PoolPolicy) -> Refusal | None:
    """What is not erased stays with the tenant that wrote it. A retire may end in a waiver, whose record says who keeps the drives."""
    if not node.held_by_another_tenant or node.disks is Disks.CLEAN or verb not in ERASING:
        return None
    passes_over = not erases_disks(verb, params, pool)
    if verb is Verb.RETIRE:
        if not passes_over or params.waiver_machine:
            return None
        return Refusal(
            Refused.INVALID_STATE,
            "held-by-another-tenant",
            "a drive was last held by another tenant: erase it, or waive the erase of the whole machine",
            "eraseWaiver",
        )
    if not passes_over and not params.waiver:
        return None
    return Refusal(
        Refused.INVALID_STATE,
        "held-by-another-tenant",
        "a drive was last held by another tenant: only a profile that erases, and no waiver, may make it available",
        "eraseWaiver" if params.waiver else "profile",
    )


def _refused_by_machine(node: NodeFacts, verb: Verb, params: Params, pool: PoolPolicy) -> Refusal | None:
    if verb is Verb.DEPLOY:
        return _refused_deploy(node, params, pool)
    if verb is Verb.INSPECT and params.deep and pool.agent == "none":
        return _no_agent(pool, "a deep inspect is the agent's", "deep")
    if verb is Verb.RESCUE:
        return _refused_rescue(node, params, pool)
    return None


def _no_agent(pool: PoolPolicy, what: str, field: str) -> Refusal:
    why = f'{what}, and the machines of pool {pool.pool_id} run none (agent = "none")'
    return Refusal(Refused.INVALID_STATE, "no-agent", why, field)


def _refused_deploy(node: NodeFacts, params: Params, pool: PoolPolicy) -> Refusal | None:
    if params.kind == "image" and pool.agent == "none":
        return _no_agent(pool, "an image is written to the disk by the agent", "kind")
    if params.kind == "iso" and node.bmc_scheme == "ipmi":
        return Refusal(
            Refused.INVALID_STATE, "no-virtual-media", "IPMI has no virtual media: no ISO can be inserted there", "kind"
        )
    return None


def _refused_rescue(node: NodeFacts, params: Params, pool: PoolPolicy) -> Refusal | None:
    """By the agent, for whom keys or a password were given; else by the pool's rescue ISO, which carries its own access."""
    named = "sshKeys" if params.ssh_keys else "passwordHash" if params.password_hash else None
    if named is not None:
        if pool.agent != "none":
            return None
        return Refusal(
            Refused.INVALID_INPUT,
            "cannot-deliver-keys",
            "the pool's rescue ISO carries its own access: keys and passwords cannot be delivered to it",
            named,
        )
    if node.bmc_scheme == "ipmi" and pool.agent == "none":
        return Refusal(
            Refused.INVALID_STATE, "no-virtual-media", "IPMI has no virtual media: no rescue ISO can be inserted there"
        )
    if pool.has_rescue_iso and node.bmc_scheme != "ipmi":
        return None
    if pool.agent != "none":
        return Refusal(
            Refused.INVALID_STATE,
            "needs-keys",
            "say who may log in: `sshKeys`, or a `passwordHash`",
            "sshKeys",
        )
    return Refusal(Refused.INVALID_STATE, "no-rescue-iso", f"pool {pool.pool_id} names no `rescue_iso`")


def allowed_verbs(node: NodeFacts, pool: PoolPolicy, now: Micros) -> tuple[AllowedVerb, ...]:
    """What may be asked of the node now, in the table's order: each verb that `decide` accepts with some input.

    `needs` names the input without which it would refuse. `cleanup` is the daemon's own, and not for the asking.
    """
    found: list[AllowedVerb] = []
    for verb in (*Verb, *SideVerb):
        if verb is SideVerb.CLEANUP:
            continue
        for needs, params in _attempts(node, verb, pool):
            if isinstance(decide(node, verb, params, pool, now), Move):
                found.append(AllowedVerb(verb, needs))
                break
    return tuple(found)


def _attempts(node: NodeFacts, verb: Verb | SideVerb, pool: PoolPolicy) -> tuple[tuple[str | None, Params], ...]:
    """Inputs to try, the plainest first, each with the field that makes it pass."""
    needs = _needed_input(node, verb, pool)
    plain = Params(
        rebuild=True,
        confirm_erase=confirmation_of(node),
        abandon="asked" if needs == "abandon" else None,
    )
    named: Verb | SideVerb | None = node.failed_verb if verb is Verb.RETRY else verb
    if named in (Verb.COMMISSION, Verb.RELEASE):
        other, needed = replace(plain, erases=True), "profile"
    elif named is Verb.RETIRE:
        other, needed = replace(plain, waiver=True, waiver_machine=True), "eraseWaiver"
    elif named is Verb.DEPLOY:
        other, needed = replace(plain, kind="image"), "image"
    elif named is Verb.RESCUE:
        other, needed = replace(plain, ssh_keys=True), "sshKeys"
    else:
        return ((needs, plain),)
    # A retry's input is stored: there is nothing to ask for.
    return (needs, plain), (None if verb is Verb.RETRY else needs or needed, other)


def _needed_input(node: NodeFacts, verb: Verb | SideVerb, pool: PoolPolicy) -> str | None:
    if verb is Verb.DEPLOY and node.state is State.DEPLOYED:
        return "rebuild"
    if isinstance(verb, Verb) and needs_confirmation(node, verb, pool):
        return "confirmErase"
    if verb is Verb.REMOVE and node.state is State.DEPLOYED and node.disks is not Disks.FOREIGN:
        return "abandon"
    return None
