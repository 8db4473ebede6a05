"""BMCs, apart from the nodes behind them: one BMC may carry several systems, and all nodes behind it belong to one tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, exists, select, update
from sqlalchemy.exc import IntegrityError

from bcmetal.errors import Conflict
from bcmetal.store import jsontext
from bcmetal.store.tables import bmcs, nodes, sealed
from bcmetal.store.upsert import insert
from bcmetal.store.values import BmcRow, NewBmc, SetBmc

COLUMNS: Final = frozenset(
    {
        *(
            "network",
            "scheme",
            "host",
            "port",
            "trust_kind",
            "trust_value",
            "cred_ref",
            "cred_verified_at",
            "proven_at",
        ),
        *("maker", "model", "firmware", "learned", "breaker_failures", "breaker_since_at", "breaker_until_at"),
    }
)


class BmcInUse(Conflict):
    """This BMC and system already belong to a node."""


def family_of(scheme: str) -> str:
    """Which service an address means: redfish, ipmi, or "" while it was not probed. Two families may share a host."""
    return scheme.partition("+")[0]


_LIVE: Final = exists().where(nodes.c.bmc_id == bmcs.c.bmc_id, nodes.c.state != "retired")
_SAME: Final = (
    select(bmcs.c.bmc_id, bmcs.c.exclusive)
    .where(
        bmcs.c.network == bindparam("network"),
        bmcs.c.host == bindparam("host"),
        bmcs.c.port == bindparam("port"),
        bmcs.c.family == bindparam("family"),
        bmcs.c.tenant_id == bindparam("tenant_id"),
        _LIVE,
    )
    .order_by(bmcs.c.exclusive.desc(), bmcs.c.bmc_id)
)
_TAKEN: Final = select(
    exists().where(
        nodes.c.bmc_id == bindparam("bmc_id"), nodes.c.system_path.is_not_distinct_from(bindparam("system_path"))
    )
)
_INSERT: Final = insert(bmcs)
_AT: Final = (
    select(bmcs.c.bmc_id)
    .where(bmcs.c.host.in_(bindparam("hosts", expanding=True)), _LIVE)
    .order_by((bmcs.c.port == bindparam("port")).desc(), bmcs.c.exclusive.desc(), bmcs.c.bmc_id)
    .limit(1)
)
_BY_ID: Final = select(bmcs).where(bmcs.c.bmc_id == bindparam("bmc_id"))
_NODES: Final = select(nodes.c.node_id).where(nodes.c.bmc_id == bindparam("bmc_id")).order_by(nodes.c.node_id)
_OTHERS: Final = select(
    exists().where(
        nodes.c.bmc_id == bindparam("bmc_id"), nodes.c.node_id != bindparam("node_id"), nodes.c.state != "retired"
    )
)
_BMC_OF: Final = select(nodes.c.bmc_id).where(nodes.c.node_id == bindparam("node_id"))
_FREE: Final = (
    update(bmcs).where(bmcs.c.bmc_id == bindparam("a_bmc_id"), ~_LIVE).values(exclusive=False, proven_at=None)
)
_DROP: Final = delete(bmcs).where(
    bmcs.c.bmc_id == bindparam("a_bmc_id"), ~exists().where(nodes.c.bmc_id == bmcs.c.bmc_id)
)


def insert_or_share(c: Connection, bmc_id: str, tenant_id: str, new: NewBmc, system_path: str | None) -> str:
    """The id of the BMC's row: a row of the same tenant's with this address, else a new one.

    Raises BmcInUse when a proven row of this tenant has a node with this very system. Another tenant's row is never looked at: the
    rival finds out when it proves itself.
    """
    address = {"network": new.network, "host": new.host, "port": new.port, "family": family_of(new.scheme)}
    for row in c.execute(_SAME, {**address, "tenant_id": tenant_id}):
        if not c.execute(_TAKEN, {"bmc_id": row.bmc_id, "system_path": system_path}).scalar_one():
            return str(row.bmc_id)
        if row.exclusive:
            raise BmcInUse(
                "this BMC and system already belong to a node of yours: `bcmetal node list --all-pools --query ADDRESS` finds it",
                reason="bmc-in-use",
                field="bmc.address",
            )
    c.execute(
        _INSERT,
        {
            **address,
            "bmc_id": bmc_id,
            "tenant_id": tenant_id,
            "scheme": new.scheme,
            "trust_kind": new.trust_kind,
            "trust_value": new.trust_value,
            "cred_ref": new.cred_ref,
        },
    )
    return bmc_id


def get(c: Connection, bmc_id: str) -> BmcRow | None:
    row = c.execute(_BY_ID, {"bmc_id": bmc_id}).one_or_none()
    return None if row is None else from_row(row)


def at(c: Connection, hosts: Sequence[str], port: int) -> str | None:
    """The BMC that is enrolled at one of these, whosever it is; of several the one at this port."""
    bmc_id: str | None = c.execute(_AT, {"hosts": list(hosts), "port": port}).scalar_one_or_none()
    return bmc_id


def from_row(row: Row[Any], prefix: str = "") -> BmcRow:
    m = row._mapping
    return BmcRow(
        bmc_id=m[f"{prefix}bmc_id"],
        network=m[f"{prefix}network"],
        scheme=m[f"{prefix}scheme"],
        host=m[f"{prefix}host"],
        port=m[f"{prefix}port"],
        trust_kind=m[f"{prefix}trust_kind"],
        trust_value=m[f"{prefix}trust_value"],
        generation=m[f"{prefix}generation"],
        cred_ref=m[f"{prefix}cred_ref"],
        cred_verified_at=m[f"{prefix}cred_verified_at"],
        proven_at=m[f"{prefix}proven_at"],
        maker=m[f"{prefix}maker"],
        model=m[f"{prefix}model"],
        firmware=m[f"{prefix}firmware"],
        learned=jsontext.load(m[f"{prefix}learned"]),
        breaker_failures=m[f"{prefix}breaker_failures"],
        breaker_since_at=m[f"{prefix}breaker_since_at"],
        breaker_until_at=m[f"{prefix}breaker_until_at"],
    )


def of_node(c: Connection, node_id: str) -> str | None:
    bmc_id: str | None = c.execute(_BMC_OF, {"node_id": node_id}).scalar_one_or_none()
    return bmc_id


def nodes_behind(c: Connection, bmc_id: str) -> list[str]:
    return list(c.execute(_NODES, {"bmc_id": bmc_id}).scalars())


def has_other_live_node(c: Connection, bmc_id: str, node_id: str) -> bool:
    return bool(c.execute(_OTHERS, {"bmc_id": bmc_id, "node_id": node_id}).scalar_one())


def change(c: Connection, bmc_id: str, fact: SetBmc) -> None:
    """Write columns of the row. Raises BmcInUse when it proves itself where another BMC is proven."""
    unknown = fact.columns.keys() - COLUMNS
    if unknown:
        raise KeyError(f"no column of a BMC: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = dict(fact.columns)
    if "learned" in values:
        values["learned"] = jsontext.dump(dict(values["learned"] or {}))
    if "scheme" in values:
        values["family"] = family_of(str(values["scheme"]))
    if values.get("proven_at") is not None:
        values["exclusive"] = True
    elif "proven_at" in values:
        values["exclusive"] = False
    if values.keys() & {"network", "scheme", "host", "port", "trust_kind", "trust_value", "cred_ref"}:
        values["generation"] = bmcs.c.generation + 1
    if not values:
        return
    try:
        c.execute(update(bmcs).where(bmcs.c.bmc_id == bindparam("a_bmc_id")).values(values), {"a_bmc_id": bmc_id})
    except IntegrityError as error:
        raise BmcInUse("another node has this BMC", reason="bmc-in-use") from error


def free(c: Connection, bmc_id: str) -> None:
    """Its last live node retired: the address may be proven by somebody else."""
    c.execute(_FREE, {"a_bmc_id": bmc_id})


def drop_unused(c: Connection, bmc_id: str) -> None:
    """Forget a BMC that no node has any more, with its secrets."""
    if c.execute(_DROP, {"a_bmc_id": bmc_id}).rowcount:
        c.execute(
            delete(sealed).where(sealed.c.owner_kind == "bmc", sealed.c.owner_id == bindparam("o")), {"o": bmc_id}
        )


def prefixed(prefix: str = "b_") -> list[Any]:
    """The BMC's columns for a join, each named with a prefix."""
    return [column.label(f"{prefix}{column.name}") for column in bmcs.c]
