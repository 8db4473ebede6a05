"""Members: nodes that joined, with or without a BMC. A member with one has the id of its row in `nodes`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, exists, func, or_, select, update

from bcmetal.decisions import Micros
from bcmetal.store.join_tables import certificates, join_tokens, member_identifiers, members, secrets_released
from bcmetal.store.tables import node_identifiers, nodes, operations
from bcmetal.store.upsert import insert

m = members.c
LIVE: Final = "live"
JOIN_STEP: Final = "wait_for_the_join"  # of deploy


@dataclass(frozen=True, slots=True)
class MemberRow:
    """`state`: live, locked (its key was cloned), evicted, released or retired. `metal_node_id`: of the enrolled node that it is."""

    node_id: str
    tenant_id: str
    pool_id: str
    site_id: str
    state: str
    trust: str
    hosted: str | None
    token_id: str | None
    request_id: str | None
    attestor: str
    admitted_by: str
    ek_sha256: str | None
    tpm_proven: bool
    metal_node_id: str | None
    address: str
    joined_at: Micros
    last_join_at: Micros
    last_seen_at: Micros | None
    ended_at: Micros | None
    end_reason: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """One identifier that a member says of itself; `kind`: uuid, serial, mac, gpu."""

    kind: str
    value_norm: str
    raw: str
    usable: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has an identifier now: an enrolled node (`metal`), a member, or both under one id.

    `known`: its usable identifiers, from its BMC and from itself. `awaits_join`: its deploy stands at the step that waits for it.
    `minted`: its deploy handed out a token that can still be used. `certified`: it holds a certificate that is neither revoked nor past the grace. `state` is the enrolled node's, None without one.
    """

    node_id: str
    tenant_id: str
    pool_id: str
    metal: bool
    state: str | None
    member_state: str | None
    trust: str | None
    ek_sha256: str | None
    certified: bool
    last_seen_at: Micros | None
    ended_at: Micros | None
    awaits_join: bool
    known: frozenset[tuple[str, str]] = frozenset()
    minted: bool = False


_join = insert(members)
_JOIN: Final = _join.on_conflict_do_update(
    index_elements=[m.node_id],
    set_={
        name: _join.excluded[name]
        for name in (
            *("tenant_id", "pool_id", "site_id", "state", "trust", "hosted", "token_id", "request_id", "attestor"),
            *("admitted_by", "ek_sha256", "tpm_proven", "metal_node_id", "address", "last_join_at", "last_seen_at"),
            *("ended_at", "end_reason"),
        )
    },
)
_GET: Final = select(members).where(m.node_id == bindparam("node_id"))
_PAGE: Final = (
    select(members)
    .where(m.tenant_id == bindparam("tenant_id"), m.node_id > bindparam("after"))
    .where(m.pool_id.in_(bindparam("pools", expanding=True)))
    .order_by(m.node_id)
    .limit(bindparam("limit"))
)
_POOLS: Final = select(m.pool_id).where(m.state.in_((LIVE, "locked"))).distinct()
_END: Final = (
    update(members)
    .where(m.node_id == bindparam("a_node_id"), m.state.in_(bindparam("a_from", expanding=True)))
    .values(state=bindparam("a_state"), ended_at=bindparam("a_now"), end_reason=bindparam("a_reason"))
)
_SEEN: Final = (
    update(members)
    .where(m.node_id == bindparam("a_node_id"))
    .values(last_seen_at=bindparam("a_now"), address=bindparam("a_address"))
)
_LINK: Final = update(members).where(m.node_id == bindparam("a_node_id")).values(metal_node_id=bindparam("a_metal"))
_FORGET_TPM: Final = (
    update(members)
    .where(or_(m.node_id == bindparam("a_node_id"), m.metal_node_id == bindparam("a_node_id")))
    .values(ek_sha256=None, tpm_proven=False)
)
_FORGET_SAID: Final = delete(member_identifiers).where(member_identifiers.c.node_id == bindparam("a_node_id"))
_SAY: Final = insert(member_identifiers).on_conflict_do_nothing()
_SAID: Final = (
    select(member_identifiers)
    .where(member_identifiers.c.node_id == bindparam("node_id"))
    .order_by(member_identifiers.c.kind, member_identifiers.c.value_norm)
)
_JOINED: Final = (
    select(member_identifiers.c.kind, member_identifiers.c.value_norm, member_identifiers.c.node_id)
    .join(members, m.node_id == member_identifiers.c.node_id)
    .where(
        m.state.in_((LIVE, "locked", "evicted")),
        member_identifiers.c.usable,
        member_identifiers.c.value_norm.in_(bindparam("values", expanding=True)),
    )
)
_ENROLLED: Final = (
    select(node_identifiers.c.kind, node_identifiers.c.value_norm, node_identifiers.c.node_id)
    .join(nodes, nodes.c.node_id == node_identifiers.c.node_id)
    .where(
        nodes.c.state != "retired",
        node_identifiers.c.usable,
        node_identifiers.c.value_norm.in_(bindparam("values", expanding=True)),
    )
)
_BY_EK: Final = select(m.node_id).where(m.ek_sha256 == bindparam("ek_sha256"), m.state.in_((LIVE, "locked", "evicted")))
_EKS: Final = select(m.ek_sha256).where(
    or_(m.node_id == bindparam("node_id"), m.metal_node_id == bindparam("node_id")), m.ek_sha256.is_not(None)
)
_certified = (
    exists()
    .where(
        certificates.c.node_id == m.node_id,
        certificates.c.revoked_at.is_(None),
        certificates.c.not_after_at > bindparam("past"),
    )
    .correlate(members)
)
_MEMBERS: Final = select(members, _certified.label("certified")).where(
    m.node_id.in_(bindparam("node_ids", expanding=True))
)
_awaits = (
    exists()
    .where(
        operations.c.operation_id == nodes.c.operation_id,
        operations.c.verb == "deploy",
        operations.c.step == JOIN_STEP,
    )
    .correlate(nodes)
)
_minted = (
    exists()
    .where(
        join_tokens.c.node_id == nodes.c.node_id,
        join_tokens.c.revoked_at.is_(None),
        join_tokens.c.uses < join_tokens.c.max_uses,
        join_tokens.c.expires_at > bindparam("now"),
    )
    .correlate(nodes)
)
_NODES: Final = select(
    nodes.c.node_id,
    nodes.c.tenant_id,
    nodes.c.pool_id,
    nodes.c.state,
    _awaits.label("awaits_join"),
    _minted.label("minted"),
).where(nodes.c.node_id.in_(bindparam("node_ids", expanding=True)), nodes.c.state != "retired")
_KNOWN_TO_BMC: Final = select(node_identifiers.c.node_id, node_identifiers.c.kind, node_identifiers.c.value_norm).where(
    node_identifiers.c.node_id.in_(bindparam("node_ids", expanding=True)), node_identifiers.c.usable
)
_KNOWN_TO_ITSELF: Final = (
    select(member_identifiers.c.node_id, member_identifiers.c.kind, member_identifiers.c.value_norm)
    .join(members, m.node_id == member_identifiers.c.node_id)
    .where(
        member_identifiers.c.node_id.in_(bindparam("node_ids", expanding=True)),
        member_identifiers.c.usable,
        m.state.in_((LIVE, "locked", "evicted")),
    )
)
_release = insert(secrets_released)
_RELEASED: Final = _release.on_conflict_do_update(
    index_elements=[secrets_released.c.node_id, secrets_released.c.name],
    set_={"serial": _release.excluded.serial, "last_at": _release.excluded.last_at},
)
_LOCK: Final = select(func.pg_advisory_xact_lock(bindparam("space"), func.hashtext(bindparam("pool_id"))))
_LOCK_SPACE: Final = 0x6A6F696E  # "join"
_SECRETS: Final = (
    select(secrets_released).where(secrets_released.c.node_id == bindparam("node_id")).order_by(secrets_released.c.name)
)


def lock_pool(c: Connection, pool_id: str) -> None:
    """Let nobody else admit or defer in this pool before the transaction ends. SQLite has one writer as it is."""
    if c.dialect.name == "postgresql":
        c.execute(_LOCK, {"space": _LOCK_SPACE, "pool_id": pool_id})


def join(c: Connection, row: MemberRow, said: Iterable[Said], now: Micros) -> None:
    """A first join, or a later one under the same id; `joined_at` stays that of the first."""
    values = {name: getattr(row, name) for name in MemberRow.__dataclass_fields__}
    c.execute(_JOIN, values | {"ended_at": None, "end_reason": None})
    c.execute(_FORGET_SAID, {"a_node_id": row.node_id})
    rows = [
        {
            "node_id": row.node_id,
            "kind": one.kind,
            "value_norm": one.value_norm,
            "raw": one.raw,
            "usable": one.usable,
            "seen_at": now,
        }
        for one in said
    ]
    if rows:
        c.execute(_SAY, rows)


def get(c: Connection, node_id: str) -> MemberRow | None:
    """Also one that is evicted, released or retired."""
    row = c.execute(_GET, {"node_id": node_id}).one_or_none()
    return None if row is None else _member(row)


def eks_of_machine(c: Connection, node_id: str) -> frozenset[str]:
    """The EKs that this enrolled node's machine proved when it joined, whatever has become of the membership: an eviction, or a
    release, changes no TPM."""
    return frozenset(c.execute(_EKS, {"node_id": node_id}).scalars())


def said_by(c: Connection, node_id: str) -> tuple[Said, ...]:
    return tuple(Said(row.kind, row.value_norm, row.raw, row.usable) for row in c.execute(_SAID, {"node_id": node_id}))


def list_page(
    c: Connection, tenant_id: str, pools: Sequence[str], limit: int, cursor: str | None
) -> tuple[list[MemberRow], str | None]:
    """In the order of their ids, those that ended among them. The cursor: the last id of the page; None: that was the last page."""
    asked = {"tenant_id": tenant_id, "pools": list(pools), "after": cursor or "", "limit": limit + 1}
    rows = [_member(row) for row in c.execute(_PAGE, asked)]
    return rows[:limit], (rows[limit - 1].node_id if len(rows) > limit else None)


def pools_in_use(c: Connection) -> set[str]:
    """Pools that have members."""
    return {*c.execute(_POOLS).scalars()}


def holders(
    c: Connection, values: Collection[tuple[str, str]], ek_sha256: str | None, past: Micros, now: Micros
) -> dict[tuple[str, str], list[Holder]]:
    """Who has each of these usable identifiers (kind, normal value) now, in any pool; an EK under `("ek", …)`.

    `past`: a certificate that ended before that time counts no more.
    """
    pairs: dict[tuple[str, str], set[str]] = {}
    asked = {"values": sorted({value for _, value in values})}
    if values:
        for statement in (_JOINED, _ENROLLED):
            for row in c.execute(statement, asked):
                if (row.kind, row.value_norm) in values:
                    pairs.setdefault((row.kind, row.value_norm), set()).add(row.node_id)
    if ek_sha256 is not None:
        found = c.execute(_BY_EK, {"ek_sha256": ek_sha256}).scalars().all()
        if found:
            pairs["ek", ek_sha256] = {*found}
    known = by_ids(c, {node_id for ids in pairs.values() for node_id in ids}, past, now)
    return {pair: [known[node_id] for node_id in sorted(ids) if node_id in known] for pair, ids in pairs.items()}


def by_ids(c: Connection, node_ids: Collection[str], past: Micros, now: Micros) -> dict[str, Holder]:
    """What is known of these nodes; of one that is neither enrolled nor ever joined, nothing."""
    if not node_ids:
        return {}
    ids = sorted(node_ids)
    enrolled = {row.node_id: row for row in c.execute(_NODES, {"node_ids": ids, "now": now})}
    joined = {row.node_id: row for row in c.execute(_MEMBERS, {"node_ids": ids, "past": past})}
    known: dict[str, set[tuple[str, str]]] = {}
    for statement in (_KNOWN_TO_BMC, _KNOWN_TO_ITSELF):
        for row in c.execute(statement, {"node_ids": ids}):
            known.setdefault(row.node_id, set()).add((row.kind, row.value_norm))
    found: dict[str, Holder] = {}
    for node_id in ids:
        metal, member = enrolled.get(node_id), joined.get(node_id)
        place = metal if metal is not None else member
        if place is None:
            continue
        found[node_id] = Holder(
            node_id=node_id,
            tenant_id=place.tenant_id,
            pool_id=place.pool_id,
            metal=metal is not None,
            state=metal.state if metal is not None else None,
            member_state=member.state if member is not None else None,
            trust=member.trust if member is not None else None,
            ek_sha256=member.ek_sha256 if member is not None else None,
            certified=bool(member.certified) if member is not None else False,
            last_seen_at=member.last_seen_at if member is not None else None,
            ended_at=member.ended_at if member is not None else None,
            awaits_join=bool(metal.awaits_join) if metal is not None else False,
            minted=bool(metal.minted) if metal is not None else False,
            known=frozenset(known.get(node_id, ())),
        )
    return found


def end(c: Connection, node_id: str, state: str, reason: str, now: Micros) -> bool:
    """Evicted, locked, released or retired. False: it is not live, so that there is nothing to end."""
    from_states = [LIVE] if state == "locked" else [LIVE, "locked"]
    asked = {"a_node_id": node_id, "a_state": state, "a_reason": reason, "a_now": now, "a_from": from_states}
    return bool(c.execute(_END, asked).rowcount)


def seen(c: Connection, node_id: str, address: str, now: Micros) -> None:
    c.execute(_SEEN, {"a_node_id": node_id, "a_address": address, "a_now": now})


def forget_tpm(c: Connection, node_id: str) -> None:
    """The machine has another board: the TPM of the old one proves nothing about it any more."""
    c.execute(_FORGET_TPM, {"a_node_id": node_id})


def link(c: Connection, node_id: str, metal_node_id: str) -> None:
    """The member is this enrolled node, as an inspection found later; neither id changes."""
    c.execute(_LINK, {"a_node_id": node_id, "a_metal": metal_node_id})


def released(c: Connection, node_id: str, names: Iterable[str], serial: str, now: Micros) -> None:
    """Note which secrets a node was given, under which of its certificates."""
    for name in names:
        c.execute(_RELEASED, {"node_id": node_id, "name": name, "serial": serial, "first_at": now, "last_at": now})


def secrets_of(c: Connection, node_id: str) -> list[tuple[str, Micros, Micros]]:
    """Names of the secrets that a node was given, each with the first and the last time."""
    return [(row.name, Micros(row.first_at), Micros(row.last_at)) for row in c.execute(_SECRETS, {"node_id": node_id})]


def _member(row: Row[Any]) -> MemberRow:
    return MemberRow(**{name: getattr(row, name) for name in MemberRow.__dataclass_fields__})
