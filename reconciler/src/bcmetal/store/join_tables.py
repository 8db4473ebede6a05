"""The tables of joining: tokens, requests, members, certificates and what signs them. None of them holds a secret in the clear."""

from __future__ import annotations

from sqlalchemy import Index, LargeBinary, Table, text
from sqlalchemy.schema import Column

from bcmetal.store.columns import (
    count,
    flag,
    ident,
    key,
    maybe_ident,
    maybe_moment,
    maybe_words,
    moment,
    words,
)
from bcmetal.store.columns import (
    metadata as metadata,
)

join_tokens = Table(
    "join_tokens",
    metadata,
    key("token_id"),
    ident("tenant_id"),
    ident("pool_id"),
    words("role"),
    Column("secret_sha256", LargeBinary, nullable=False),
    count("max_uses", 1),
    count("uses"),
    count("reserved"),  # by approved requests whose machine has not come back yet
    moment("expires_at"),
    maybe_words("expect"),  # JSON, as it was asked
    flag("allow_reclaim"),
    maybe_words("hosted"),
    maybe_ident("node_id"),  # minted by that node's deploy, and for it alone
    words("created_by"),
    moment("created_at"),
    maybe_moment("revoked_at"),
)
Index("join_tokens_pool", join_tokens.c.pool_id, join_tokens.c.token_id)
_for_node = join_tokens.c.node_id.is_not(None)
Index("join_tokens_node", join_tokens.c.node_id, sqlite_where=_for_node, postgresql_where=_for_node)

join_requests = Table(
    "join_requests",
    metadata,
    key("request_id"),
    ident("tenant_id"),
    ident("pool_id"),
    maybe_ident("token_id"),  # none: a pool that takes joins without one
    words("state"),  # pending, approved, denied, consumed, expired
    words("attestor"),
    words("reason"),
    ident("csr_sha256"),
    words("key_sha256"),
    words("claim_sha256"),  # of identifiers and EK: a retry says the same
    words("claim"),  # JSON: identifiers as the machine gave them, cleaned
    words("evidence"),  # JSON: what the BMC reported, what the TPM proved, conflicts
    maybe_ident("node_id"),  # whose join it is, where that is known
    maybe_ident("ek_sha256"),
    words("address"),
    count("attempts", 1),
    moment("created_at"),
    moment("last_seen_at"),
    moment("expires_at"),
    maybe_words("decided_by"),
    maybe_moment("decided_at"),
    maybe_words("decision_reason"),
    maybe_moment("ended_at"),
)
Index("join_requests_pool", join_requests.c.pool_id, join_requests.c.request_id)
Index("join_requests_token", join_requests.c.token_id)
_live = join_requests.c.ended_at.is_(None)
Index(
    "join_requests_live",
    join_requests.c.pool_id,
    join_requests.c.csr_sha256,
    unique=True,
    sqlite_where=_live,
    postgresql_where=_live,
)
Index("join_requests_expiry", join_requests.c.expires_at, sqlite_where=_live, postgresql_where=_live)

# A node that joined, with or without a BMC; a member with one has the id of its row in `nodes`.
members = Table(
    "members",
    metadata,
    key("node_id"),
    ident("tenant_id"),
    ident("pool_id"),
    ident("site_id"),
    words("state"),  # live, locked, evicted, released, retired
    words("trust"),  # platform, tenant-controlled, tenant-owned
    maybe_words("hosted"),
    maybe_ident("token_id"),
    maybe_ident("request_id"),
    words("attestor"),
    words("admitted_by"),  # identity that minted the token, or approved the request
    maybe_ident("ek_sha256"),
    flag("tpm_proven"),
    maybe_ident("metal_node_id"),
    words("address"),
    moment("joined_at"),
    moment("last_join_at"),
    maybe_moment("last_seen_at"),
    maybe_moment("ended_at"),
    maybe_words("end_reason"),
)
Index("members_pool", members.c.pool_id, members.c.node_id)
_of_metal = members.c.metal_node_id.is_not(None)
Index("members_metal", members.c.metal_node_id, sqlite_where=_of_metal, postgresql_where=_of_metal)

member_identifiers = Table(
    "member_identifiers",
    metadata,
    key("node_id"),
    key("kind"),  # uuid, serial, mac, gpu
    key("value_norm"),
    words("raw"),
    flag("usable"),
    moment("seen_at"),
)
Index("member_identifiers_value", member_identifiers.c.kind, member_identifiers.c.value_norm)

certificates = Table(
    "certificates",
    metadata,
    key("serial"),  # lower-case hexadecimal
    ident("node_id"),
    ident("pool_id"),
    ident("issuer_id"),
    words("kind"),  # node, node-tenant
    ident("csr_sha256"),
    words("key_sha256"),
    words("claim_sha256"),  # of the join that it answered; "" of a renewal
    maybe_ident("token_id"),
    words("chain"),  # PEM, the leaf first
    moment("not_before_at"),
    moment("not_after_at"),
    moment("renew_after_at"),
    moment("issued_at"),
    maybe_ident("renewed_from"),
    maybe_moment("first_seen_at"),
    maybe_moment("revoked_at"),
    maybe_words("revoke_reason"),
)
Index("certificates_node", certificates.c.node_id, certificates.c.issued_at)
Index("certificates_csr", certificates.c.csr_sha256, certificates.c.issued_at)
_renewal = certificates.c.renewed_from.is_not(None)
Index("certificates_renewal", certificates.c.renewed_from, sqlite_where=_renewal, postgresql_where=_renewal)
Index("certificates_expiry", certificates.c.not_after_at)

challenges = Table(
    "challenges",
    metadata,
    key("challenge_id"),
    ident("pool_id"),
    maybe_ident("token_id"),
    ident("csr_sha256"),
    words("claim_sha256"),
    words("ek_sha256"),
    Column("proof_sha256", LargeBinary, nullable=False),  # of the proof that is awaited; the secret itself is not kept
    moment("expires_at"),
    maybe_moment("used_at"),
)
Index("challenges_expiry", challenges.c.expires_at)

secrets_released = Table(
    "secrets_released", metadata, key("node_id"), key("name"), ident("serial"), moment("first_at"), moment("last_at")
)

issuers = Table(
    "issuers",
    metadata,
    key("issuer_id"),
    words("kind"),  # node, node-tenant, server
    words("state"),  # next, current, previous, retired
    words("certificate"),  # PEM
    words("chain"),  # PEMs above it, up to its root
    words("root_sha256"),
    moment("not_before_at"),
    moment("not_after_at"),
    maybe_words("key_ref"),  # sealed, credential:NAME, file:PATH
    moment("created_at"),
    words("created_by"),
)
_current = issuers.c.state == text("'current'")
Index("issuers_current", issuers.c.kind, unique=True, sqlite_where=_current, postgresql_where=_current)

trust_roots = Table(
    "trust_roots",
    metadata,
    key("sha256"),
    words("certificate"),
    moment("added_at"),
    maybe_moment("removed_at"),
)
