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


class OperationView(Answer):
    id: str
    verb: str
    step: str | None
    step_number: int | None
    steps: int | None
    progress: float | None = Field(description="0 to 1")
    waiting_for: str | None
    since: str | None
    budget_left_s: int | None = None
    attempts: int
    next_try_at: str | None
    touched: bool


class LastErrorView(Answer):
    code: str
    message: str
    step: str | None
    at: str | None
    hint: str


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
    bmc: dict[str, Any] | None
    power: dict[str, Any]
    identity: dict[str, Any]
    hardware: dict[str, Any] | None
    disks: Disks
    system: System
    location: dict[str, Any]
    asset_tag: str | None
    labels: dict[str, str]
    conditions: list[dict[str, Any]]
    needs_attention: bool
    maintenance: dict[str, Any]
    protected: dict[str, Any]
    operation: OperationView | None
    side_operations: list[SideOperationView]
    last_error: LastErrorView | None
    agent: dict[str, Any]
    created_at: str
    updated_at: str


class NodeList(Answer):
    nodes: list[NodeView]
    cursor: str | None


class InventoryAnswer(Answer):
    node: NodeView
    inventory: dict[str, Any] | None
    inventories: list[dict[str, Any]] | None = None


class TimelineAnswer(Answer):
    node: NodeView
    operations: list[dict[str, Any]]


class PlanAnswer(Answer):
    node: NodeView
    plan: dict[str, Any]


class ErasureRecord(Answer):
    """What became of one drive (`serial` null: of the whole machine). It stays when the node is removed."""

    record_id: str
    at: str
    node_id: str
    tenant_id: str
    pool_id: str
    serial: str | None
    result: str = Field(description="`erased`, or `not erased`: signed for by a waiver")
    verifier: str = Field(description="who looked afterwards: `bmc`, or `none`")
    method: str | None = None
    model: str | None = None
    capacity_bytes: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    reason: str | None = Field(None, description="the waiver's")
    custody: str | None = Field(None, description="the waiver's: who keeps what was not erased")
    by: str | None = Field(None, description="who signed the waiver")
    operation: str | None = None


class ErasureRecords(Answer):
    records: list[ErasureRecord]
    cursor: str | None


class AuditEntries(Answer):
    entries: list[dict[str, Any]]
    cursor: str | None


class FreezeView(Answer):
    scope_kind: str
    scope_id: str
    reason: str
    by: str
    at: str | None


class Freezes(Answer):
    freezes: list[FreezeView]


class ErrorBody(Answer):
    code: str
    message: str
    details: dict[str, Any]
    trace_id: str


class ErrorAnswer(Answer):
    error: ErrorBody
