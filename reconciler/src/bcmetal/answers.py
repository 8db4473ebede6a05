"""The shape of the API's answers, for the OpenAPI document alone: what is answered comes from the store as ready JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bcmetal.states import Disks, State, System


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="allow")


class AllowedVerb(Answer):
    verb: str
    needs: str | None = None


class LastErrorView(Answer):
    code: str
    message: str
    step: str | None
    at: str | None
    hint: str


class OperationView(Answer):
    """The one under way, or the one that this very call asked for (`status`: also when it ended already)."""

    id: str
    verb: str
    status: str | None = None
    step: str | None
    step_number: int | None
    steps: int | None
    cleaning: bool | None = Field(None, description="it failed, and undoes what it did")
    aborting: bool | None = None
    progress: float | None = Field(description="0 to 1")
    waiting_for: str | None
    since: str | None
    started_at: str | None = None
    budget_left_s: int | None = None
    attempts: int
    next_try_at: str | None
    touched: bool
    error: LastErrorView | None = None


class SideOperationView(Answer):
    """Queued, or the last of its verb that failed and was not followed by one that succeeded."""

    id: str
    verb: str
    status: str
    by: str
    waiting_for: str | None
    since: str | None
    next_try_at: str | None
    ended_at: str | None
    error: LastErrorView | None


class BmcTls(Answer):
    verify: str
    fingerprint: str | None


class BmcView(Answer):
    address: str
    driver: str | None
    network: str | None
    maker: str | None
    model: str | None
    firmware: str | None
    credential_ref: str | None
    credentials_set: bool
    credentials_verified_at: str | None
    pending: bool = Field(
        description="new credentials, or a new address or trust, that the BMC was not proven with yet"
    )
    tls: BmcTls
    learned: dict[str, Any] = Field(
        description="what was found out about this BMC by trying, such as `login`: `session` or `basic`; ends with its maker, model or firmware"
    )
    unreachable_since: str | None


class PowerView(Answer):
    observed: str | None
    desired: str | None
    observed_at: str | None


class IdentityView(Answer):
    product_uuid: str | None = Field(description="in the BMC's own byte order")
    serial: str | None
    sku: str | None
    macs: list[str]


class LocationView(Answer):
    room: str | None
    rack: str | None
    unit: str | None


class ConditionView(Answer):
    type: str
    status: str
    severity: str
    reason: str | None
    message: str | None
    since: str | None


class MaintenanceView(Answer):
    on: bool
    quiet: bool
    reason: str | None
    until: str | None


class ProtectedView(Answer):
    on: bool
    reason: str | None
    until: str | None


class AgentView(Answer):
    """The node as a member of its pool."""

    joined: bool
    certificate_expires_at: str | None
    last_seen_at: str | None
    trust: str | None


class RescueView(Answer):
    """How a machine that its agent rescued is reached. `hostKeys`: lines as in known_hosts, without the name."""

    user: str | None
    addresses: list[str]
    port: int | None
    host_keys: list[str]
    fingerprints: list[str]
    ends_at: str | None = Field(
        description="then it goes back to its own system by itself; null: only when it is asked to"
    )


class NodeView(Answer):
    """A node's metal view. It never holds a secret."""

    node_id: str
    name: str
    pool_id: str
    tenant_id: str
    site_id: str
    state: State
    generation: int
    allowed_verbs: list[AllowedVerb]
    bmc: BmcView | None
    power: PowerView
    health: str | None
    identity: IdentityView
    hardware: dict[str, Any] | None
    disks: Disks
    system: System
    not_erased: bool = Field(description="it came to `available` by a profile that erases nothing")
    profile: str | None = Field(description="the profile that it was commissioned by")
    location: LocationView
    asset_tag: str | None
    boot_mac: str | None
    root_device: dict[str, Any] | None
    labels: dict[str, str]
    conditions: list[ConditionView]
    needs_attention: bool
    maintenance: MaintenanceView
    protected: ProtectedView
    fenced: str | None = Field(description="why no step may touch it")
    rescue: RescueView | None = Field(None, description="of a rescued node: how it is reached")
    operation: OperationView | None
    side_operations: list[SideOperationView]
    last_error: LastErrorView | None
    agent: AgentView
    created_at: str
    updated_at: str
    removed_at: str | None = Field(None, description="of a node that is gone: this is its last view")


class NodeList(Answer):
    nodes: list[NodeView]
    cursor: str | None


class InventoryView(Answer):
    inventory_id: str
    source: str
    taken_at: str
    digest: str
    sections: dict[str, Any]
    doc: dict[str, Any]


class InventoryAnswer(Answer):
    node: NodeView
    inventory: InventoryView | None
    deep: InventoryView | None = Field(
        description="what the agent in the ramdisk saw; `doc` is its own message, `sections` what it could not read"
    )
    inventories: list[InventoryView] | None = None


class SensorView(Answer):
    """`value` null: no reading at that time. `unit`: as in Redfish (UCUM). `thresholds`: `upper-critical` and the like."""

    name: str
    kind: str
    value: float | None
    unit: str | None
    health: str | None
    thresholds: dict[str, float]
    unread: bool = Field(False, description="named only: its BMC has so many that not each was asked for its reading")


class SensorsAnswer(Answer):
    node: NodeView
    taken_at: str | None
    sensors: list[SensorView] | None
    power_draw_w: float | None = Field(description="what the machine drew then, in watts")


class LogEntryView(Answer):
    """`at` as the BMC's clock had it."""

    ref: str
    at: str | None
    severity: str | None
    message: str
    sensor: str | None


class EventLogAnswer(Answer):
    node: NodeView
    taken_at: str | None
    entries: list[LogEntryView] | None


class ConsoleWay(Answer):
    kind: str = Field(description="ssh, ipmi-sol, telnet or web")
    host: str
    port: int
    how: str = Field(description="what a person types there; empty where nothing is known")


class ConsoleWaysAnswer(Answer):
    node: NodeView
    taken_at: str | None
    ways: list[ConsoleWay] | None


class ConsoleLine(Answer):
    """One line of an open console: of these, what there is to say. An empty one says that it is open still."""

    console_id: str | None = Field(None, description="the first line")
    data: str | None = Field(None, description="what the machine wrote, in base64")
    lost: int | None = Field(None, description="bytes before `data` that nobody read in time")
    untaken: int | None = Field(None, description="typed bytes that the BMC did not take: the machine may be off")
    ended: str | None = Field(None, description="the last line: why it ended")


class ConsoleTyped(Answer):
    console_id: str
    typed: int = Field(description="bytes")


class StepRun(Answer):
    step: str
    attempt: int
    outcome: str | None
    why: str | None
    started_at: str
    ended_at: str | None


class PastOperation(Answer):
    operation_id: str
    id: str = Field(description="the same as `operationId`")
    kind: str
    verb: str
    status: str
    origin_state: str | None
    by: str
    input: dict[str, Any]
    touched: bool
    step: str | None
    waiting_for: str | None
    error: LastErrorView | None
    aborted_by: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    steps: list[StepRun]


class TimelineAnswer(Answer):
    node: NodeView
    operations: list[PastOperation]


class AgentTaskView(Answer):
    """What the agent was asked to do. `progress` from 0 to 1."""

    name: str
    kind: str
    state: str
    progress: float
    message: str | None
    result: dict[str, Any] | None
    error_code: str | None
    error_message: str | None
    handed_at: str | None
    ended_at: str | None
    log_characters: int


class LogsAnswer(Answer):
    operation_id: str | None = Field(description="null: the agent was never asked for anything")
    tasks: list[AgentTaskView]
    text: str | None = Field(description="of the named task's log, from `offset` on")
    next_offset: int | None = Field(description="where the next call goes on; null: that was all there is")


class PlanRefusal(Answer):
    code: str
    message: str
    details: dict[str, Any]


class PlanView(Answer):
    verb: str
    allowed: bool
    refusal: PlanRefusal | None
    actions: list[str]
    actions_missing: list[str]
    erases_disks: bool
    steps: list[str]
    leads_to: str | None = None
    on_failure: str | None = None
    budget_s: int | None = None


class PlanAnswer(Answer):
    node: NodeView
    plan: PlanView


class AuditEntry(Answer):
    audit_id: str
    at: str
    identity: str
    tenant_id: str
    address: str
    action: str
    resource: str
    node_id: str | None
    outcome: str
    trace_id: str
    details: dict[str, Any]


class AuditEntries(Answer):
    entries: list[AuditEntry]
    cursor: str | None


class FreezeView(Answer):
    scope_kind: str
    scope_id: str
    reason: str
    by: str
    at: str | None


class FreezeLifted(Answer):
    scope_kind: str
    scope_id: str
    lifted: bool = Field(description="false: nothing was frozen there")


class Freezes(Answer):
    freezes: list[FreezeView]


class ImageFile(Answer):
    """What machines fetch from the daemon."""

    bytes: int
    sha256: str
    compression: str
    raw_bytes: int | None = Field(description="what it unpacks to; null: it is compressed, and nobody knows yet")


class ImageError(Answer):
    code: str
    message: str
    retryable: bool


class ImageView(Answer):
    name: str | None = Field(description="in the configuration; null: it was named by its address")
    format: str
    sha256: str | None
    sha512: str | None
    public: bool = Field(description="false: it serves this tenant alone")
    state: str = Field(
        description="absent, fetching, kept (from before, read again when it is needed), ready, or failed"
    )
    on_disk_bytes: int
    done_bytes: int | None
    total_bytes: int | None
    file: ImageFile | None
    error: ImageError | None = None


class Images(Answer):
    images: list[ImageView]


class PrunedFile(Answer):
    file: str
    bytes: int


class PrunedImages(Answer):
    pruned: list[PrunedFile]
    bytes: int


class ErrorBody(Answer):
    code: str
    message: str
    details: dict[str, Any]
    trace_id: str


class ErrorAnswer(Answer):
    error: ErrorBody
