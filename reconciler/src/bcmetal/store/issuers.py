"""The site's issuers and the roots that nodes trust. Keys are not here: a sealed one is in `sealed`, under its issuer's id.

An issuer is `next` (it signs nothing yet; its root is in the trust bundle already), `current` (it signs), `previous` (it signs nothing; what
it signed is good until its end) or `retired` (what it signed is no longer taken).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, func, select, update

from bcmetal.decisions import Micros
from bcmetal.store import sealed
from bcmetal.store.join_tables import certificates, trust_roots
from bcmetal.store.join_tables import issuers as issuers_table
from bcmetal.store.upsert import insert
from bcmetal.store.values import Sealed

OWNER: Final = "issuer"  # of a sealed key
SEALED: Final = "sealed"

NEXT: Final = "next"
CURRENT: Final = "current"
PREVIOUS: Final = "previous"
RETIRED: Final = "retired"


@dataclass(frozen=True, slots=True)
class IssuerRow:
    """`chain`: PEMs above it, up to and with its root. `key_ref`: sealed, credential:NAME, file:PATH; None once it signs no more."""

    issuer_id: str
    kind: str
    state: str
    certificate: str
    chain: str
    root_sha256: str
    not_before_at: Micros
    not_after_at: Micros
    key_ref: str | None
    created_at: Micros
    created_by: str


@dataclass(frozen=True, slots=True)
class RootRow:
    sha256: str
    certificate: str
    added_at: Micros
    removed_at: Micros | None = None


@dataclass(frozen=True, slots=True)
class CaRows:
    """All that the store holds of the authority, read in one transaction. `roots`: those in the trust bundle, newest first."""

    issuers: tuple[IssuerRow, ...]
    roots: tuple[RootRow, ...]
    keys: tuple[Sealed, ...]


_ADD: Final = insert(issuers_table).on_conflict_do_nothing()
_LIST: Final = select(issuers_table).order_by(
    issuers_table.c.created_at, issuers_table.c.kind, issuers_table.c.issuer_id
)
_GET: Final = select(issuers_table).where(issuers_table.c.issuer_id == bindparam("issuer_id"))
_CURRENT: Final = select(issuers_table).where(
    issuers_table.c.kind == bindparam("kind"), issuers_table.c.state == CURRENT
)
_MOVE: Final = (
    update(issuers_table)
    .where(issuers_table.c.kind == bindparam("a_kind"), issuers_table.c.state == bindparam("a_from"))
    .values(state=bindparam("a_to"), key_ref=None)
)
_PROMOTE: Final = (
    update(issuers_table)
    .where(issuers_table.c.issuer_id == bindparam("a_issuer_id"), issuers_table.c.state == NEXT)
    .values(state=CURRENT)
)
_RETIRE: Final = (
    update(issuers_table)
    .where(issuers_table.c.issuer_id == bindparam("a_issuer_id"), issuers_table.c.state.in_((NEXT, PREVIOUS)))
    .values(state=RETIRED, key_ref=None)
)
_LIVE_LEAVES: Final = (
    select(func.count())
    .select_from(certificates)
    .where(
        certificates.c.issuer_id == bindparam("issuer_id"),
        certificates.c.revoked_at.is_(None),
        certificates.c.not_after_at > bindparam("now"),
    )
)
_LEFT_BEHIND: Final = (
    select(certificates.c.node_id)
    .where(certificates.c.revoked_at.is_(None))
    .group_by(certificates.c.node_id)
    .having(
        func.max(certificates.c.issued_at) < bindparam("since"),
        func.max(certificates.c.not_after_at) > bindparam("ended_after"),
    )
    .order_by(certificates.c.node_id)
)
_ADD_ROOT: Final = insert(trust_roots).on_conflict_do_nothing()
_BACK_ROOT: Final = update(trust_roots).where(trust_roots.c.sha256 == bindparam("a_sha256")).values(removed_at=None)
_ROOTS: Final = select(trust_roots).order_by(trust_roots.c.added_at.desc(), trust_roots.c.sha256)
_REMOVE_ROOT: Final = (
    update(trust_roots)
    .where(trust_roots.c.sha256 == bindparam("a_sha256"), trust_roots.c.removed_at.is_(None))
    .values(removed_at=bindparam("a_now"))
)


def add(c: Connection, row: IssuerRow) -> bool:
    """False: there is a current issuer of that kind, or this very one, already; nothing was written."""
    values = {name: getattr(row, name) for name in IssuerRow.__dataclass_fields__}
    return bool(c.execute(_ADD, values).rowcount)


def list(c: Connection) -> tuple[IssuerRow, ...]:
    """Every one, the retired too, oldest first."""
    return tuple(_row(row) for row in c.execute(_LIST))


def get(c: Connection, issuer_id: str) -> IssuerRow | None:
    row = c.execute(_GET, {"issuer_id": issuer_id}).one_or_none()
    return None if row is None else _row(row)


def current(c: Connection, kind: str) -> IssuerRow | None:
    row = c.execute(_CURRENT, {"kind": kind}).one_or_none()
    return None if row is None else _row(row)


def supersede(c: Connection, kind: str) -> None:
    """The current issuer of this kind signs no more, and its sealed key is forgotten."""
    row = current(c, kind)
    if row is not None:
        c.execute(_MOVE, {"a_kind": kind, "a_from": CURRENT, "a_to": PREVIOUS})
        sealed.drop(c, row.issuer_id)


def promote(c: Connection, issuer_id: str) -> bool:
    """next → current; the current one must have been superseded before. False: it is not `next`."""
    return bool(c.execute(_PROMOTE, {"a_issuer_id": issuer_id}).rowcount)


def retire(c: Connection, issuer_id: str) -> bool:
    """previous or next → retired: what it signed is no longer taken. False: it is neither."""
    if not c.execute(_RETIRE, {"a_issuer_id": issuer_id}).rowcount:
        return False
    sealed.drop(c, issuer_id)
    return True


def live_leaves(c: Connection, issuer_id: str, now: Micros) -> int:
    """Nodes' certificates of this issuer that are still good."""
    return int(c.execute(_LIVE_LEAVES, {"issuer_id": issuer_id, "now": now}).scalar_one())


def left_behind(c: Connection, since: Micros, ended_after: Micros) -> tuple[str, ...]:
    """Nodes that were given no certificate, and so no trust bundle, since then, though theirs could still be renewed."""
    return tuple(c.execute(_LEFT_BEHIND, {"since": since, "ended_after": ended_after}).scalars())


def add_root(c: Connection, sha256: str, certificate: str, now: Micros) -> None:
    """Into the trust bundle; one that was removed comes back."""
    added = c.execute(_ADD_ROOT, {"sha256": sha256, "certificate": certificate, "added_at": now, "removed_at": None})
    if not added.rowcount:
        c.execute(_BACK_ROOT, {"a_sha256": sha256})


def roots(c: Connection) -> tuple[RootRow, ...]:
    """Those in the trust bundle, newest first."""
    return tuple(row for row in every_root(c) if row.removed_at is None)


def every_root(c: Connection) -> tuple[RootRow, ...]:
    return tuple(RootRow(row.sha256, row.certificate, row.added_at, row.removed_at) for row in c.execute(_ROOTS))


def remove_root(c: Connection, sha256: str, now: Micros) -> bool:
    """Out of the trust bundle. False: it is not in it."""
    return bool(c.execute(_REMOVE_ROOT, {"a_sha256": sha256, "a_now": now}).rowcount)


def rows(c: Connection) -> CaRows:
    """What the daemon opens its authority from."""
    found = list(c)
    owners = [row.issuer_id for row in found if row.key_ref == SEALED]
    keys = tuple(row for row in sealed.of_owners(c, owners) if row.owner_kind == OWNER)
    return CaRows(found, roots(c), keys)


def _row(row: Row[Any]) -> IssuerRow:
    return IssuerRow(**{name: getattr(row, name) for name in IssuerRow.__dataclass_fields__})
