"""The provision state table, as data. The API, the engine, the command line and the documentation read it; none repeats it.

A node is in exactly one state: a *rest* state, a *failed* state, or a *busy* one, which has exactly one workflow, one success and
one failure. A verb moves a node from a rest or failed state into a busy one; side operations change no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class State(StrEnum):
    ENROLLED = "enrolled"
    INSPECTED = "inspected"
    AVAILABLE = "available"
    DEPLOYED = "deployed"
    RESCUED = "rescued"
    RETIRED = "retired"

    INSPECTING = "inspecting"
    COMMISSIONING = "commissioning"
    DEPLOYING = "deploying"
    SERVICING = "servicing"
    RESCUING = "rescuing"
    UNRESCUING = "unrescuing"
    RELEASING = "releasing"
    RETIRING = "retiring"

    INSPECT_FAILED = "inspect-failed"
    COMMISSION_FAILED = "commission-failed"
    DEPLOY_FAILED = "deploy-failed"
    RESCUE_FAILED = "rescue-failed"
    RELEASE_FAILED = "release-failed"
    RETIRE_FAILED = "retire-failed"


class Verb(StrEnum):
    """What moves a node. `enroll` makes one and `remove` ends one, so neither has a row with a busy state."""

    ENROLL = "enroll"
    INSPECT = "inspect"
    COMMISSION = "commission"
    ADOPT = "adopt"
    DEPLOY = "deploy"
    SERVICE = "service"
    RESCUE = "rescue"
    UNRESCUE = "unrescue"
    RELEASE = "release"
    RETIRE = "retire"
    ABORT = "abort"
    RETRY = "retry"
    REMOVE = "remove"


class SideVerb(StrEnum):
    """Side operations: they change no state, are recorded and queued like verbs, and run between steps under the node's claim."""

    REFRESH = "refresh"
    SET_POWER = "setPower"
    SET_BMC_CREDENTIALS = "setBmcCredentials"
    ROTATE_BMC_CREDENTIALS = "rotateBmcCredentials"
    UPDATE = "update"
    RESET_BMC = "resetBmc"
    IDENTIFY = "identify"
    CONSOLE = "console"
    READ_SENSORS = "readSensors"
    READ_EVENT_LOG = "readEventLog"
    CLEAR_EVENT_LOG = "clearEventLog"
    CLEANUP = "cleanup"  # what an abort in maintenance left to be undone; queued by the daemon alone


class Disks(StrEnum):
    FOREIGN = "foreign"  # what the machine came with
    CLEAN = "clean"  # erased and verified
    TENANT = "tenant"
    HALF = "half"  # an erase or a write began


class System(StrEnum):
    NONE = "none"
    INSTALLING = "installing"
    PRESENT = "present"


S, V, X = State, Verb, SideVerb
MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Budgets in seconds; `cap` bounds the running workflows of this verb for each daemon."""

    verb: Verb
    allowed_from: frozenset[State]
    during: State
    success: State | None  # None: the state that it came from
    failure: State
    budget_s: int
    cap: int
    abortable: bool = True


def _row(
    verb: Verb,
    allowed_from: set[State],
    during: State,
    success: State | None,
    failure: State,
    minutes: int,
    cap: int,
    abortable: bool = True,
) -> Row:
    return Row(verb, frozenset(allowed_from), during, success, failure, minutes * MINUTE_S, cap, abortable)


REST: Final = frozenset({S.ENROLLED, S.INSPECTED, S.AVAILABLE, S.DEPLOYED, S.RESCUED, S.RETIRED})
FAILED: Final = frozenset(
    {
        S.INSPECT_FAILED,
        S.COMMISSION_FAILED,
        S.DEPLOY_FAILED,
        S.RESCUE_FAILED,
        S.RELEASE_FAILED,
        S.RETIRE_FAILED,
    }
)
BUSY: Final = frozenset(State) - REST - FAILED

# fmt: off
TABLE: Final[tuple[Row, ...]] = (
    #    verb           allowed from                                                                                during            success       failure          min  cap
    _row(V.INSPECT,    {S.ENROLLED, S.INSPECTED, S.INSPECT_FAILED, S.COMMISSION_FAILED},                            S.INSPECTING,    S.INSPECTED,  S.INSPECT_FAILED,    15, 50),
    _row(V.COMMISSION, {S.INSPECTED, S.AVAILABLE, S.COMMISSION_FAILED},                                             S.COMMISSIONING, S.AVAILABLE,  S.COMMISSION_FAILED, 360, 20),
    # From `deployed` only with `rebuild`.
    _row(V.DEPLOY,     {S.AVAILABLE, S.DEPLOY_FAILED, S.DEPLOYED},                                                  S.DEPLOYING,     S.DEPLOYED,   S.DEPLOY_FAILED,     90, 40),
    # A service that fails from `available` fails into `commission-failed`: see `failure_of`.
    _row(V.SERVICE,    {S.DEPLOYED, S.AVAILABLE},                                                                   S.SERVICING,     None,         S.DEPLOYED,         180, 20),
    _row(V.RESCUE,     {S.DEPLOYED, S.RESCUED, S.RESCUE_FAILED},                                                    S.RESCUING,      S.RESCUED,    S.RESCUE_FAILED,     45, 10),
    _row(V.UNRESCUE,   {S.RESCUED, S.RESCUE_FAILED},                                                                S.UNRESCUING,    S.DEPLOYED,   S.RESCUE_FAILED,     45, 10),
    _row(V.RELEASE,    {S.DEPLOYED, S.DEPLOY_FAILED, S.RESCUED, S.RESCUE_FAILED, S.RELEASE_FAILED, S.RETIRE_FAILED}, S.RELEASING,    S.AVAILABLE,  S.RELEASE_FAILED,    60, 40, abortable=False),
    _row(V.RETIRE,     set((REST | FAILED) - {S.RETIRED}),                                                          S.RETIRING,      S.RETIRED,    S.RETIRE_FAILED,     60, 40, abortable=False),
)
# fmt: on

WORKFLOWS: Final = MappingProxyType({row.verb: row for row in TABLE})
BY_BUSY: Final = MappingProxyType({row.during: row for row in TABLE})

ABORTABLE: Final = frozenset(row.during for row in TABLE if row.abortable)
ADOPTABLE: Final = frozenset({S.INSPECTED})  # while the disks are foreign
# `inspected` and `deployed` only while the disks are foreign; `deployed` also with `abandon`.
REMOVABLE: Final = frozenset({S.ENROLLED, S.INSPECT_FAILED, S.RETIRED, S.INSPECTED, S.DEPLOYED})

SIDE_TABLE: Final = MappingProxyType(
    {
        X.REFRESH: REST | FAILED,
        X.SET_POWER: REST | FAILED,
        X.SET_BMC_CREDENTIALS: frozenset(State),
        X.ROTATE_BMC_CREDENTIALS: frozenset(State),
        X.UPDATE: REST | FAILED,
        X.RESET_BMC: REST | FAILED,
        X.IDENTIFY: REST | FAILED,
        X.CONSOLE: REST | FAILED,
        X.READ_SENSORS: REST | FAILED,
        X.READ_EVENT_LOG: REST | FAILED,
        X.CLEAR_EVENT_LOG: REST | FAILED,
        X.CLEANUP: REST | FAILED,
    }
)

# Verbs that erase what is on the disks; a deploy writes over it.
ERASING: Final = frozenset({V.COMMISSION, V.RELEASE, V.RETIRE})
# What a `protected` node refuses: all that powers the machine, or writes to its disks.
TAKES_DOWN: Final[frozenset[Verb | SideVerb]] = ERASING | {V.DEPLOY, V.SERVICE, V.RESCUE, V.UNRESCUE, X.SET_POWER}
# What a pool in observe mode refuses: all that writes to a BMC. New credentials are only tried there by a login.
BMC_WRITES: Final[frozenset[Verb | SideVerb]] = frozenset(
    {
        *(row.verb for row in TABLE if row.verb is not V.INSPECT),
        X.SET_POWER,
        X.ROTATE_BMC_CREDENTIALS,
        X.RESET_BMC,
        X.IDENTIFY,
        X.CONSOLE,
        X.CLEAR_EVENT_LOG,
        X.CLEANUP,
    }
)

DEEP_INSPECT_BUDGET_S: Final = 45 * MINUTE_S
BACKS_ALLOWED: Final = 3
AWAY_UNCOUNTED_S: Final = (
    24 * 3600
)  # a touched operation waits this long for a BMC that is away before its budget runs on
CLEANUP_BUDGET_S: Final = 5 * MINUTE_S


def success_of(row: Row, origin: State) -> State:
    """The state that a workflow's success leads to, given the state that it came from."""
    if row.success is not None:
        return row.success
    return S.AVAILABLE if origin is S.COMMISSION_FAILED else origin  # a retried service returns to its first origin


def failure_of(row: Row, origin: State) -> State:
    """The state that a workflow's failure leads to, once it touched the machine."""
    if row.verb is V.SERVICE and origin in (S.AVAILABLE, S.COMMISSION_FAILED):
        return S.COMMISSION_FAILED
    return row.failure


def fails_into(verb: Verb, state: State) -> bool:
    """Whether a failure of this verb leads to this failed state."""
    row = WORKFLOWS.get(verb)
    return state in FAILED and row is not None and state in {failure_of(row, origin) for origin in row.allowed_from}


def retryable_in(verb: Verb, state: State) -> bool:
    """Whether `retry` may do this verb, the last one that failed, again: in its own failed state, or in one that it returned to."""
    return state in FAILED and verb in WORKFLOWS and (fails_into(verb, state) or state in WORKFLOWS[verb].allowed_from)
