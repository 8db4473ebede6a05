"""What the methods of erasure records, the audit trail, freezes and images take. As in `models`: strict, and the OpenAPI document is made from it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from bcmetal.models import Image
from bcmetal.models_words import Change, Input, Moment, Mutation, NodeId, PoolId, Reason, Short, TenantId, Word

# ---------------------------------------------------------------- erasure records, audit, freeze


class ErasureRecordList(Input):
    """Newest first. `nodeId`: also a name, and also of a node that was removed."""

    tenant_id: TenantId
    pool_id: PoolId | None = None
    node_id: NodeId | None = None
    serial: Short | None = None
    limit: int = Field(100, ge=1, le=200)
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,19}\.er_[0-9a-z]{26}$")] | None = None


RecordId = Annotated[str, StringConstraints(pattern=r"^er_[0-9a-hjkmnp-tv-z]{26}$")]


class ErasureRecordGet(Input):
    tenant_id: TenantId
    record_id: RecordId


class ErasureRecordExport(ErasureRecordList):
    """As `list`; `recordIds`: these alone."""

    record_ids: Annotated[tuple[RecordId, ...], Field(max_length=200)] | None = None


class AuditList(Input):
    """Newest first."""

    tenant_id: TenantId
    pool_id: PoolId | None = None
    node_id: NodeId | None = None
    identity: Short | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: int = Field(100, ge=1, le=200)
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,19}\.au_[0-9a-z]{26}$")] | None = None


class AuditExport(Input):
    """All that matches, one JSON object a line."""

    tenant_id: TenantId
    since: Moment | None = None
    until: Moment | None = None


class FreezeScope(Mutation):
    """`siteId` is for a rack, and may be left out where there is one site."""

    tenant_id: TenantId
    scope_kind: Literal["site", "pool", "rack"]
    scope_id: PoolId
    site_id: Word | None = None


class FreezeSet(FreezeScope):
    reason: Reason


class FreezeList(Input):
    tenant_id: TenantId


# ---------------------------------------------------------------- images


class ImageList(Input):
    """What is on the daemon's shelf: the tenant's own, and what the configuration names."""

    tenant_id: TenantId


class ImagePull(Change):
    """Asked again, it tells how far it is."""

    tenant_id: TenantId
    image: Image


class ImagePrune(Change):
    tenant_id: TenantId
