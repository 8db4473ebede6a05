"""Logins at BMCs, for the budget: a rejected password is tried at most twice in ten minutes, by anybody."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from bcmetal.decisions import Micros
from bcmetal.store.tables import bmc_logins

_ADD: Final = insert(bmc_logins)
_REJECTED: Final = select(func.count()).where(
    bmc_logins.c.bmc_id == bindparam("bmc_id"),
    bmc_logins.c.account_digest == bindparam("account_digest"),
    bmc_logins.c.at >= bindparam("since"),
    bmc_logins.c.outcome == "rejected",
)
_PRUNE: Final = delete(bmc_logins).where(bmc_logins.c.at < bindparam("before"))


def note(c: Connection, bmc_id: str, account_digest: str, outcome: str, now: Micros, by: str) -> None:
    """`account_digest` is a digest of user name and password under the vault: a new password has a budget of its own."""
    c.execute(_ADD, {"bmc_id": bmc_id, "account_digest": account_digest, "at": now, "outcome": outcome, "by": by})


def rejected_since(c: Connection, bmc_id: str, account_digest: str, since: Micros) -> int:
    asked = {"bmc_id": bmc_id, "account_digest": account_digest, "since": since}
    return int(c.execute(_REJECTED, asked).scalar_one())


def prune(c: Connection, before: Micros) -> int:
    return int(c.execute(_PRUNE, {"before": before}).rowcount)
