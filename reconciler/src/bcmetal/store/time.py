"""The database's own clock, for leases. Facts are dated by the caller's `now` instead.

On SQLite the database's clock is a function that the store registers on each connection, so that a simulation can turn it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Connection, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from bcmetal.decisions import Micros

SQLITE_FUNCTION: Final = "bcmetal_now"


class db_now(FunctionElement[int]):
    """Microseconds since the epoch by the database's clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite(element: db_now, compiler: Any, **kw: Any) -> str:
    return f"{SQLITE_FUNCTION}()"


@compiles(db_now, "postgresql")
def _postgresql(element: db_now, compiler: Any, **kw: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


_NOW: Final = select(db_now())


def now(c: Connection) -> Micros:
    return Micros(c.execute(_NOW).scalar_one())
