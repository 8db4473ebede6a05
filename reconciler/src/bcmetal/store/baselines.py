"""A BMC as it was when its machine was commissioned, to compare with at release."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select

from bcmetal.decisions import Micros
from bcmetal.store import jsontext
from bcmetal.store.tables import baselines
from bcmetal.store.upsert import insert
from bcmetal.store.values import StoreBaseline

_put = insert(baselines)
_PUT: Final = _put.on_conflict_do_update(
    index_elements=[baselines.c.node_id],
    set_={name: _put.excluded[name] for name in ("taken_at", "digest", "doc")},
)
_GET: Final = select(baselines.c.doc).where(baselines.c.node_id == bindparam("node_id"))

_DROP: Final = delete(baselines).where(baselines.c.node_id == bindparam("a_node_id"))


def put(c: Connection, node_id: str, fact: StoreBaseline, now: Micros) -> None:
    c.execute(_PUT, {"node_id": node_id, "taken_at": now, "digest": fact.digest, "doc": jsontext.dump(dict(fact.doc))})


def drop(c: Connection, node_id: str) -> None:
    c.execute(_DROP, {"a_node_id": node_id})


def latest(c: Connection, node_id: str) -> dict[str, Any] | None:
    """The recorded document; None: the machine was never commissioned here."""
    return jsontext.load_or_none(c.execute(_GET, {"node_id": node_id}).scalar_one_or_none())
