"""The schema's version: migrations up, and the refusal of a database that is newer than this code.

A migration only expands; what it makes superfluous is dropped by a later release. `meta.min_code` says which code may still use the
database; a release whose migration old code cannot live with raises it.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, bindparam, inspect, select, text

from bcmetal.errors import StartRefused
from bcmetal.store.tables import meta
from bcmetal.store.upsert import insert

CODE: Final = 1  # compared with meta.min_code
HEAD: Final = "0007"
_LOCK: Final = 0x62636D65  # "bcme": migrations run one at a time

_META: Final = select(meta.c.value).where(meta.c.name == bindparam("name"))
_ADD_META: Final = insert(meta).on_conflict_do_nothing()


def check(c: Connection) -> None:
    """Raises StartRefused when this code may not use the database."""
    tables = set(inspect(c).get_table_names())
    if meta.name not in tables:
        raise StartRefused("the database is empty: run `bcmetal init`")
    _refuse_newer(c)
    if _version(c) is None:
        raise StartRefused("the database has tables, and none of them is a version of bcmetal's")


def upgrade(c: Connection) -> None:
    """Bring the schema up to this code's; an advisory lock keeps others out meanwhile."""
    if c.dialect.name == "postgresql":
        c.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    known = set(inspect(c).get_table_names())
    if meta.name in known:
        _refuse_newer(c)
    if "alembic_version" not in known or _version(c) != HEAD:
        _migrate(c)
    c.execute(
        _ADD_META, [{"name": "min_code", "value": "1"}, {"name": "deployment_key", "value": secrets.token_hex(32)}]
    )


def deployment_key(c: Connection) -> bytes:
    """32 random bytes that belong to this database."""
    return bytes.fromhex(c.execute(_META, {"name": "deployment_key"}).scalar_one())


def _refuse_newer(c: Connection) -> None:
    found = c.execute(_META, {"name": "min_code"}).scalar_one_or_none()
    if found is not None and int(found) > CODE:
        raise StartRefused(
            f"the database is for bcmetal code {found} and above, and this is code {CODE}: install a newer bcmetal"
        )


def _version(c: Connection) -> str | None:
    version: str | None = c.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return version


def _migrate(c: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent.parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = c
    command.upgrade(config, "head")
