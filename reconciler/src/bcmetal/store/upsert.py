"""INSERT … ON CONFLICT, which both databases spell alike: PostgreSQL's construct, which SQLAlchemy compiles for SQLite too."""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert


def insert(table: Table) -> Insert:
    """Its `rowcount` tells whether a row was written: SQLAlchemy would else fetch the new key, and lose that number."""
    return postgresql_insert(table).inline().execution_options(preserve_rowcount=True)
