"""Pure decisions over the state table: may this start, and what does this outcome do?

No I/O, no clock, no randomness: `now` comes in as microseconds since the epoch, and the jitter of a retry is a hash of the operation,
the step and the attempt, so that the same history always settles in the same way.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NewType

from bcmetal.states import (
    ABORTABLE,
    ADOPTABLE,
    AWAY_UNCOUNTED_S,
    BACKS_ALLOWED,
    BUSY,
    BY_BUSY,
    CLEANUP_BUDGET_S,
    DEEP_INSPECT_BUDGET_S,
    ERASING,
    FAILED,
    NOT_IN_THIS_BUILD,
    REMOVABLE,
    SIDE_TABLE,
    WORKFLOWS,
    Disks,
    SideVerb,
    State,
    System,
    Verb,
    failure_of,
    success_of,
)

Micros = NewType("Micros", int)
SECOND: Final = 1_000_000


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
    """The move that this verb makes, or why not. Asked by the API, by `plan`, by `allowed_verbs` and by the engine alike."""
    refusal = _refused_by_table(node, verb, params)
    if refusal is not None:
        return refusal
    refusal = _refused_by_policy(node, verb, params, pool, now)
    if refusal is not None:
        return refusal
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
    budget_s = DEEP_INSPECT_BUDGET_S if verb is Verb.INSPECT and params.deep else row.budget_s
    return Move(verb, origin, row.during, success_of(row, origin), failure_of(row, origin), budget_s)


def _not_allowed(node: NodeFacts, verb: Verb | SideVerb, why: str) -> Refusal:
    return Refusal(
        Refused.INVALID_STATE, "not-allowed-now", f"{verb} is not allowed: {why}", details={"state": node.state}
    )


def _refused_by_table(node: NodeFacts, verb: Verb | SideVerb, params: Params) -> Refusal | None:
    state = node.state
    if verb in NOT_IN_THIS_BUILD:
        return Refusal(Refused.INVALID_STATE, "not-in-this-build", f"this build does not have {verb} yet")
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
        if state not in FAILED or node.failed_verb is None:
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
    """Whether `confirmErase` must name the machine: its disks are foreign, and the verb takes them over."""
    if node.disks is not Disks.FOREIGN or pool.erase_on_arrival:
        return False
    return verb in ERASING or (verb is Verb.DEPLOY and node.state is State.DEPLOYED)


def confirmation_of(node: NodeFacts) -> str:
    """What `confirmErase` must say: the usable serial, else the node's id."""
    return node.serial or node.node_id


def _refused_by_policy(
    node: NodeFacts, verb: Verb | SideVerb, params: Params, pool: PoolPolicy, now: Micros
) -> Refusal | None:
    reading = verb in (Verb.INSPECT, SideVerb.REFRESH, Verb.ABORT)
    writes_bmc = verb in WORKFLOWS or verb in (Verb.RETRY, SideVerb.SET_POWER)
    if verb is Verb.RETRY and node.failed_verb is not None:
        verb = node.failed_verb
        reading = verb is Verb.INSPECT
    if node.fenced_reason and writes_bmc and not reading:
        return Refusal(Refused.INVALID_STATE, "fenced", f"the node is fenced: {node.fenced_reason}")
    if pool.mode is PoolMode.OBSERVE and writes_bmc and not reading:
        return Refusal(
            Refused.INVALID_STATE, "observe-mode", f"pool {pool.pool_id} only observes: nothing may be written to a BMC"
        )
    if is_protected(node, now) and (
        verb in ERASING or verb in (Verb.DEPLOY, Verb.RESCUE, Verb.UNRESCUE, SideVerb.SET_POWER)
    ):
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
    if (
        node.held_by_another_tenant
        and verb in (Verb.COMMISSION, Verb.RELEASE)
        and not erases_disks(verb, params, pool)
        and node.disks is not Disks.CLEAN
    ):
        return Refusal(
            Refused.INVALID_STATE,
            "held-by-another-tenant",
            "a drive was last held by another tenant: only a profile that erases may make it available",
        )
    return None


def _refused_by_machine(node: NodeFacts, verb: Verb, params: Params, pool: PoolPolicy) -> Refusal | None:
    ipmi = node.bmc_scheme == "ipmi"
    if verb is Verb.DEPLOY:
        if params.kind != "iso":
            return Refusal(
                Refused.INVALID_STATE,
                "not-in-this-build",
                "this build deploys images of kind `iso` only",
                "kind",
            )
        if ipmi:
            return Refusal(
                Refused.INVALID_STATE,
                "no-virtual-media",
                "IPMI has no virtual media: deploying over the network is not in this build",
            )
    if verb is Verb.INSPECT and params.deep:
        return Refusal(Refused.INVALID_STATE, "not-in-this-build", "this build does not inspect deep yet", "deep")
    if verb is Verb.RESCUE:
        if ipmi:
            return Refusal(
                Refused.INVALID_STATE,
                "no-virtual-media",
                "IPMI has no virtual media: rescue over the network is not in this build",
            )
        if not pool.has_rescue_iso:
            return Refusal(Refused.INVALID_STATE, "no-rescue-iso", f"pool {pool.pool_id} names no `rescue_iso`")
        if params.ssh_keys or params.password_hash:
            named = "sshKeys" if params.ssh_keys else "passwordHash"
            return Refusal(
                Refused.INVALID_INPUT,
                "cannot-deliver-keys",
                "the pool's rescue ISO carries its own access: keys and passwords cannot be delivered to it",
                named,
            )
    return None


def allowed_verbs(node: NodeFacts, pool: PoolPolicy, now: Micros) -> tuple[AllowedVerb, ...]:
    """What may be asked of the node now, in the table's order; `needs` names the input that it would demand."""
    found: list[AllowedVerb] = []
    for verb in (*Verb, *SideVerb):
        if verb is SideVerb.CLEANUP:
            continue
        needs = _needed_input(node, verb, pool)
        params = Params(
            rebuild=True,
            confirm_erase=confirmation_of(node),
            abandon="asked" if needs == "abandon" else None,
        )
        if isinstance(decide(node, verb, params, pool, now), Move):
            found.append(AllowedVerb(verb, needs))
    return tuple(found)


def _needed_input(node: NodeFacts, verb: Verb | SideVerb, pool: PoolPolicy) -> str | None:
    if verb is Verb.DEPLOY and node.state is State.DEPLOYED:
        return "rebuild"
    if isinstance(verb, Verb) and needs_confirmation(node, verb, pool):
        return "confirmErase"
    if verb is Verb.REMOVE and node.state is State.DEPLOYED and node.disks is not Disks.FOREIGN:
        return "abandon"
    return None


# ---------------------------------------------------------------- outcomes of a step


@dataclass(frozen=True, slots=True)
class Done:
    """The step's goal is there."""


@dataclass(frozen=True, slots=True)
class Again:
    """Not yet: look again after some seconds. `why` is a sentence; operators read it. `progress` from 0 to 1, None unknown."""

    why: str
    after_s: float
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """The ground was lost: go back to a step by its name."""

    step: str
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done. `code` is one of `errors.LAST_ERRORS`."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A transient error inside the step: try again with backoff. Made by the engine from a driver's Transient."""

    code: str
    why: str
    retry_after_s: float | None = None


Outcome = Done | Again | Back | Failed | Trouble


@dataclass(frozen=True, slots=True)
class LastError:
    code: str
    message: str
    step: str
    at: Micros


@dataclass(frozen=True, slots=True)
class Run:
    """The durable cursor of a workflow: a row of `operations`, and nothing else decides how it goes on.

    `steps` and `cleanup` are the workflow's step names, from its file. While `cleaning`, `step` is one of `cleanup` and `error` is why.
    """

    operation_id: str
    node_id: str
    verb: Verb
    origin: State
    steps: tuple[str, ...]
    cleanup: tuple[str, ...]
    step: str
    budget_us: int
    counted_at: Micros
    attempt: int = 0  # transient errors in this step so far, in a row
    backs: int = 0
    touched: bool = False
    abort: bool = False
    cleaning: bool = False
    error: LastError | None = None  # while it runs: the last transient error; while cleaning: why it failed
    budget_used_us: int = 0
    asked_wait_us: int = 0
    wake_at: Micros = Micros(0)
    waiting_for: str | None = None
    waiting_since: Micros | None = None
    progress: float | None = None
    held: bool = False  # maintenance or freeze, as of now
    away_since: Micros | None = None  # the BMC's breaker is open since


class EndStatus(StrEnum):
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Ended:
    """The workflow is over, and this is the node's state from now on."""

    operation_id: str
    node_id: str
    verb: Verb
    status: EndStatus
    state: State
    touched: bool
    error: LastError | None = None


BACKOFF_FIRST_S: Final = 2.0
BACKOFF_LAST_S: Final = 60.0
UNASKED_S: Final = 60  # what a step's own work may count for when it asked for no wait
CLEANUP_ATTEMPTS: Final = 3


def backoff_s(operation_id: str, step: str, attempt: int) -> float:
    """Doubling from two seconds to a minute, times 0.75 to 1.25 by a hash, so that forty machines do not come back at once."""
    digest = hashlib.sha256(f"{operation_id}\0{step}\0{attempt}".encode()).digest()
    jitter = 0.75 + int.from_bytes(digest[:4], "big") / 2**33
    return float(min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(max(attempt - 1, 0), 10)) * jitter)


def counted_us(run: Run, now: Micros) -> int:
    """What this settle adds to the budget: the time since the last one, at most twice the wait that was asked."""
    since = max(0, now - run.counted_at)
    counted = min(since, max(2 * run.asked_wait_us, UNASKED_S * SECOND))
    if run.held:
        return 0
    away = run.away_since is not None and now - run.away_since < AWAY_UNCOUNTED_S * SECOND
    if away and run.touched and run.verb is not Verb.INSPECT:
        return 0
    return counted


def settle(run: Run, outcome: Outcome, now: Micros) -> Run | Ended:
    """What the outcome of the run's present step does."""
    used = run.budget_used_us + counted_us(run, now)
    run = replace(run, budget_used_us=used, counted_at=now, asked_wait_us=0)
    if run.cleaning:
        return _settle_cleanup(run, outcome, now)
    if run.abort:
        return _fail(run, Failed("aborted", "somebody aborted it"), now)
    if isinstance(outcome, Failed):
        return _fail(run, outcome, now)
    if isinstance(outcome, Done):
        return _advance(run, now)
    if used >= run.budget_us:
        minutes = run.budget_us // (60 * SECOND)
        last = outcome.why.rstrip(".")
        return _fail(
            run, Failed("deadline", f"the {minutes} minutes for {run.verb} are used up; it waited: {last}"), now
        )
    if isinstance(outcome, Back):
        return _go_back(run, outcome, now)
    return _wait(run, outcome, now)


def _advance(run: Run, now: Micros) -> Run | Ended:
    at = run.steps.index(run.step)
    if at + 1 == len(run.steps):
        row = WORKFLOWS[run.verb]
        return Ended(run.operation_id, run.node_id, run.verb, EndStatus.DONE, success_of(row, run.origin), run.touched)
    return replace(_fresh(run, run.steps[at + 1], now), error=None)


def _fresh(run: Run, step: str, now: Micros) -> Run:
    return replace(run, step=step, attempt=0, wake_at=now, waiting_for=None, waiting_since=None, progress=None)


def _go_back(run: Run, outcome: Back, now: Micros) -> Run | Ended:
    if outcome.step not in run.steps:
        return _fail(run, Failed("internal", f"{run.step} wants to go back to {outcome.step}, which is no step"), now)
    if run.backs >= BACKS_ALLOWED:
        return _fail(run, Failed("ground-lost", f"it went back {run.backs} times already; now: {outcome.why}"), now)
    return replace(_fresh(run, outcome.step, now), backs=run.backs + 1, waiting_for=outcome.why, waiting_since=now)


def _wait(run: Run, outcome: Again | Trouble, now: Micros) -> Run:
    if isinstance(outcome, Again):
        wait_us = int(outcome.after_s * SECOND)
        attempt, error, progress = 0, None, outcome.progress
    else:
        attempt = run.attempt + 1
        after_s = max(backoff_s(run.operation_id, run.step, attempt), min(outcome.retry_after_s or 0.0, 600.0))
        wait_us, progress = int(after_s * SECOND), run.progress
        error = LastError(outcome.code, outcome.why, run.step, now)
    same = run.waiting_for == outcome.why and run.waiting_since is not None
    return replace(
        run,
        attempt=attempt,
        error=error,
        asked_wait_us=wait_us,
        wake_at=Micros(now + wait_us),
        waiting_for=outcome.why,
        waiting_since=run.waiting_since if same else now,
        progress=progress,
    )


def _fail(run: Run, failure: Failed, now: Micros) -> Run | Ended:
    error = LastError(failure.code, failure.why, run.step, now)
    run = replace(run, error=error)
    if run.touched and run.cleanup:
        cleaning = _fresh(run, run.cleanup[0], now)
        return replace(cleaning, cleaning=True, budget_used_us=0, budget_us=CLEANUP_BUDGET_S * SECOND)
    return _end(run)


def _settle_cleanup(run: Run, outcome: Outcome, now: Micros) -> Run | Ended:
    """Bounded and best effort: a cleanup step that cannot be done is passed over."""
    spent = run.budget_used_us >= run.budget_us
    if not spent and isinstance(outcome, Again | Trouble) and run.attempt + 1 < CLEANUP_ATTEMPTS:
        keep = run.error
        waited = _wait(run, outcome, now)
        return replace(waited, error=keep, attempt=run.attempt + 1)
    at = run.cleanup.index(run.step)
    if at + 1 < len(run.cleanup):
        return _fresh(run, run.cleanup[at + 1], now)
    return _end(run)


def _end(run: Run) -> Ended:
    aborted = run.error is not None and run.error.code == "aborted"
    status = EndStatus.ABORTED if aborted else EndStatus.FAILED
    row = BY_BUSY[WORKFLOWS[run.verb].during]
    back = not run.touched and (run.verb is not Verb.INSPECT or aborted)
    state = run.origin if back else failure_of(row, run.origin)
    return Ended(run.operation_id, run.node_id, run.verb, status, state, run.touched, run.error)
