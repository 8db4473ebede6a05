"""The plain values that go into and come out of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from bcmetal.decisions import Micros, NodeFacts
from bcmetal.states import Disks, SideVerb, System, Verb
from bcmetal_drivers.connection import BmcAddress

P = ParamSpec("P")
T = TypeVar("T")
Json = Mapping[str, Any]


class Store(Protocol):
    """The two seams. Each call is one transaction; `write` answers only after the commit."""

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def close(self) -> None: ...


# ---------------------------------------------------------------- nodes and BMCs


@dataclass(frozen=True, slots=True)
class BmcRow:
    """`learned` is what drivers remember of this BMC. `breaker_until_at`: it did not answer the last time, and the
    sweep leaves it alone until then; what is under way tries it from the slow lane."""

    bmc_id: str
    network: str
    scheme: str  # "" while not yet probed
    host: str
    port: int
    trust_kind: str
    trust_value: str
    generation: int
    cred_ref: str | None = None  # a named credential of the configuration; None: its own, sealed
    cred_verified_at: Micros | None = None
    proven_at: Micros | None = None  # a login succeeded: only then (scheme, host, port) is exclusive
    maker: str | None = None
    model: str | None = None
    firmware: str | None = None
    learned: Json = field(default_factory=dict)
    breaker_failures: int = 0
    breaker_since_at: Micros | None = None  # unreachable since; None: it answers
    breaker_until_at: Micros | None = None

    @property
    def address(self) -> BmcAddress:
        """Where a driver is opened; `system_path` is the node's, not the BMC's."""
        return BmcAddress(self.scheme, self.host, self.port)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its BMC and what belongs to a decision. `facts` is what `decide` wants."""

    facts: NodeFacts
    tenant_id: str
    site_id: str
    pool_id: str
    name: str
    generation: int
    bmc: BmcRow | None
    system_path: str | None
    desired_power: str | None
    location_room: str | None
    location_rack: str | None
    location_unit: str | None
    asset_tag: str | None
    boot_mac: str | None
    root_device: Json | None
    labels: Mapping[str, str]
    identifiers: tuple[Identifier, ...]
    operation_id: str | None  # the workflow under way
    last_error: Json | None
    maintenance_reason: str | None
    maintenance_until: Micros | None
    profile: str | None  # the commission profile that the machine was last commissioned by
    created_at: Micros
    updated_at: Micros

    @property
    def node_id(self) -> str:
        return self.facts.node_id


@dataclass(frozen=True, slots=True)
class Identifier:
    """One identifier of a machine. `kind`: uuid, mac, serial, sku. `value_norm` is what is compared; uuid: the smaller byte order."""

    kind: str
    value_norm: str
    raw: str
    source: str  # bmc, agent, operator
    usable: bool  # False: a placeholder


@dataclass(frozen=True, slots=True)
class NewBmc:
    network: str
    scheme: str
    host: str
    port: int
    trust_kind: str
    trust_value: str
    cred_ref: str | None = None


@dataclass(frozen=True, slots=True)
class NewNode:
    node_id: str
    tenant_id: str
    site_id: str
    pool_id: str
    name: str
    bmc_id: str
    bmc: NewBmc
    system_path: str | None = None
    boot_mac: str | None = None
    location_room: str | None = None
    location_rack: str | None = None
    location_unit: str | None = None
    asset_tag: str | None = None
    root_device: Json | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed secret's row. `owner_kind` bmc, operation, credential; `slot` current, candidate, previous."""

    owner_kind: str
    owner_id: str
    field: str
    slot: str
    key_id: str
    nonce: bytes
    blob: bytes


# ---------------------------------------------------------------- operations, claims


@dataclass(frozen=True, slots=True)
class NewOperation:
    """`input` holds no secret: those are in `sealed`. `steps` is empty for side operations and for what ends at once."""

    operation_id: str
    kind: str  # workflow, side, instant
    verb: Verb | SideVerb | str  # str: instant ones such as setMaintenance
    by: str
    input: Json
    first_step: str | None = None
    budget_us: int = 0
    sealed: Sequence[Sealed] = ()
    steps: Sequence[str] = ()  # the workflow's step names, for the view


@dataclass(frozen=True, slots=True)
class NewAudit:
    audit_id: str
    identity: str
    tenant_id: str
    address: str
    action: str
    resource: str
    outcome: str  # allowed, refused, failed
    trace_id: str
    node_id: str | None = None
    doc: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewEvent:
    event_id: str
    node_id: str | None
    tenant_id: str
    pool_id: str
    site_id: str
    type: str
    data: Json


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A known key: `digest` of the input tells whether it is the same call."""

    tenant_id: str
    identity: str
    key: str
    method: str
    digest: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease on a node: `until` by the database's clock; every write carries `epoch`."""

    node_id: str
    owner: str
    epoch: int
    until: Micros


@dataclass(frozen=True, slots=True)
class OperationRow:
    operation_id: str
    node_id: str
    tenant_id: str
    kind: str
    verb: str
    status: str  # queued, running, done, failed, aborted, refused
    origin_state: str
    input: Json
    by: str
    step: str | None
    step_attempt: int
    backs: int
    touched: bool
    abort: bool
    cleaning: bool
    wake_at: Micros | None
    asked_wait_us: int
    counted_at: Micros
    budget_us: int
    budget_used_us: int
    waiting_for: str | None
    waiting_since: Micros | None
    progress: float | None
    error: Json | None
    memo: Json  # what the workflow must remember between steps: job references, when something was asked
    created_at: Micros
    started_at: Micros | None
    ended_at: Micros | None


@dataclass(frozen=True, slots=True)
class Work:
    """All that the engine needs for one claimed node, read in one transaction."""

    node: NodeRow
    workflow: OperationRow | None
    side: tuple[OperationRow, ...]  # queued side operations, oldest first
    sealed: tuple[Sealed, ...]  # the BMC's and those of the operations above
    frozen: str | None  # reason of a freeze that covers the node's site, pool or rack
    sighting: Json | None


@dataclass(frozen=True, slots=True)
class StepRun:
    """One attempt at a step, for the timeline."""

    step: str
    attempt: int
    outcome: str  # done, again, back, failed, trouble
    why: str | None
    started_at: Micros
    ended_at: Micros


# ---------------------------------------------------------------- facts: what a step found or did, written with its settle


@dataclass(frozen=True, slots=True)
class SetNode:
    """Columns of the node's row: disks, system, desired_power, not_erased, profile, system_path, fenced_reason …"""

    columns: Mapping[str, Disks | System | str | int | bool | None]


@dataclass(frozen=True, slots=True)
class SetBmc:
    """Columns of the BMC's row: scheme, port, maker, model, firmware, learned, proven_at, cred_verified_at, breaker_* …"""

    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetIdentifiers:
    """All identifiers from one source. Raises `IdentityHeld` when a live node has an exclusive one (uuid, mac) already."""

    source: str
    identifiers: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class StoreInventory:
    """A new row only when its digest differs from the last one of that source, whose document is brought up to date otherwise.

    `changes` are told in the event, `more` how many they are beyond those.
    """

    inventory_id: str
    source: str
    digest: str
    sections: Json
    doc: Json
    changes: tuple[Json, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class DriveSeen:
    serial: str
    model: str | None
    wwn: str | None
    capacity_bytes: int | None


@dataclass(frozen=True, slots=True)
class SetDrives:
    """The drives now in the machine; one that is new to us gets `may_hold_data`."""

    drives: tuple[DriveSeen, ...]


@dataclass(frozen=True, slots=True)
class MarkDrives:
    """`may_hold_data` of drives by serial; `holder_tenant` is who may have written there (None: unchanged)."""

    serials: tuple[str, ...]
    may_hold_data: bool
    holder_tenant: str | None = None


@dataclass(frozen=True, slots=True)
class StoreBaseline:
    digest: str
    doc: Json


@dataclass(frozen=True, slots=True)
class DropBaseline:
    """What was recorded is of another BMC."""


@dataclass(frozen=True, slots=True)
class SignedText:
    """The record's very text (ASCII), and the signature over its bytes."""

    text: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class AddErasureRecord:
    """`signed` takes the place of `doc`, which is then what its text says; None: the record is stored without a signature."""

    record_id: str
    serial: str
    doc: Json
    signed: SignedText | None = None


@dataclass(frozen=True, slots=True)
class SetCondition:
    """`status` ok, warning, error. ok clears it. `weak`: said only where nothing else of that type is."""

    type: str
    status: str
    severity: str
    reason: str
    message: str
    weak: bool = False


@dataclass(frozen=True, slots=True)
class SetSighting:
    power: str | None = None
    boot_mode: str | None = None
    health: str | None = None
    certificate_fp: str | None = None
    clock_skew_ms: int | None = None  # how far the BMC's clock is ahead of the daemon's


@dataclass(frozen=True, slots=True)
class MoveSealed:
    """Rows of `slot` take the place of those of `to` with the same field, or (`accept` False) are dropped."""

    owner_id: str
    accept: bool
    slot: str = "candidate"
    to: str = "current"


@dataclass(frozen=True, slots=True)
class PutSealed:
    """A secret sealed anew, such as under a BMC's new address."""

    sealed: Sealed


@dataclass(frozen=True, slots=True)
class DropSealed:
    """All secrets of one owner are forgotten."""

    owner_id: str


@dataclass(frozen=True, slots=True)
class SetMemo:
    """The operation's `memo`, whole."""

    memo: Json


@dataclass(frozen=True, slots=True)
class Emit:
    """An event for the outbox; the store fills in node, tenant, pool and site."""

    event_id: str
    type: str
    data: Json


Fact = (
    SetNode
    | SetBmc
    | SetIdentifiers
    | StoreInventory
    | SetDrives
    | MarkDrives
    | StoreBaseline
    | DropBaseline
    | AddErasureRecord
    | SetCondition
    | SetSighting
    | MoveSealed
    | PutSealed
    | DropSealed
    | SetMemo
    | Emit
)


@dataclass(frozen=True, slots=True)
class Intent:
    """An act that cannot be observed. `open`: it was begun by an earlier run and never closed."""

    operation_id: str
    n: int
    name: str
    open: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """What may hold a mutating act, read just before it. `ours`: the claim's epoch is still the node's."""

    ours: bool
    abort: bool
    maintenance: bool
    quiet: bool
    frozen: str | None
