"""The kinds of columns that the tables are made of."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import TEXT, BigInteger, Boolean, Column, Integer, MetaData, Text
from sqlalchemy import text as sql

metadata: Final = MetaData()

Id: Final = Text().with_variant(TEXT(collation="C"), "postgresql")
Seq: Final = BigInteger().with_variant(Integer(), "sqlite")


def ident(name: str, **kw: Any) -> Column[str]:
    return Column(name, Id, nullable=False, **kw)


def key(name: str) -> Column[str]:
    return Column(name, Id, primary_key=True, nullable=False)


def maybe_ident(name: str) -> Column[str]:
    return Column(name, Id, nullable=True)


def words(name: str, **kw: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **kw)


def maybe_words(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def moment(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def maybe_moment(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=True)


def count(name: str, default: int = 0) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=sql("false"))
