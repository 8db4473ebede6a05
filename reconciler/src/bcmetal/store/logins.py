"""Logins at BMCs, for the budget: how often an account was refused, by whatever password and whoever tried.

Digests are the vault's: one of the account's name, one of name and password together. A refusal is noted under both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, insert, select, update

from bcmetal.decisions import Micros
from bcmetal.store.tables import bmc_logins, sealed

REJECTED: Final = "rejected"
ACCEPTED: Final = "accepted"
LOCKED: Final = "locked"  # its `at` is when the lock-out is thought to be over
ROTATED: Final = "rotated"
ROTATING: Final = "rotating"  # the sealed slot of a password that may be in force already
LABEL: Final = "label"  # the slot of what a BMC's label says, until its account is switched off
LEFT: Final = "left"  # the slot of one that was not found in force: perhaps it is, one day

_ADD: Final = insert(bmc_logins)
_SINCE: Final = (
    select(bmc_logins.c.account_digest, bmc_logins.c.outcome, bmc_logins.c.at)
    .where(
        bmc_logins.c.bmc_id == bindparam("bmc_id"),
        bmc_logins.c.account_digest.in_(bindparam("digests", expanding=True)),
        bmc_logins.c.at >= bindparam("since"),
    )
    .order_by(bmc_logins.c.at)
)
_STORED: Final = select(sealed.c.slot, sealed.c.blob).where(
    sealed.c.owner_kind == "bmc",
    sealed.c.owner_id == bindparam("bmc_id"),
    sealed.c.field == "password",
    sealed.c.slot.in_(("current", ROTATING)),
)
_ROTATED: Final = select(
    exists().where(
        bmc_logins.c.bmc_id == bindparam("bmc_id"),
        bmc_logins.c.outcome == ROTATED,
        bmc_logins.c.at >= bindparam("since"),
    )
)
_MOVE: Final = update(bmc_logins).where(bmc_logins.c.bmc_id == bindparam("stranger")).values(bmc_id=bindparam("known"))
_STRANGERS: Final = select(exists().where(bmc_logins.c.bmc_id.startswith("at:")))
_PRUNE: Final = delete(bmc_logins).where(bmc_logins.c.at < bindparam("before"))


@dataclass(frozen=True, slots=True)
class Tries:
    """What happened to an account, and to one password of it, since some time."""

    rejected_at: tuple[Micros, ...] = ()  # the account's, whatever the password, oldest first
    password_rejected: int = 0
    good: bool = False  # this password was accepted after it was last rejected
    locked_until: Micros | None = None
    locks: int = 0
    rotating: bool = False  # the BMC's password is being changed
    current: bytes | None = None  # its sealed password, as it is stored now


def note(c: Connection, bmc_id: str, account_digest: str, outcome: str, now: Micros, by: str) -> None:
    c.execute(_ADD, {"bmc_id": bmc_id, "account_digest": account_digest, "at": now, "outcome": outcome, "by": by})


def note_rejected(c: Connection, bmc_id: str, account: str, password: str, now: Micros, by: str) -> None:
    for digest in (account, password):
        note(c, bmc_id, digest, REJECTED, now, by)


def tries(c: Connection, bmc_id: str, account: str, password: str, since: Micros) -> Tries:
    """`account` and `password` are digests. A lock-out counts while it lasts, and when it ended after `since`."""
    found = list(c.execute(_SINCE, {"bmc_id": bmc_id, "digests": [account, password], "since": since}))
    rejected = tuple(Micros(one.at) for one in found if (one.account_digest, one.outcome) == (account, REJECTED))
    of_password = [one.outcome for one in found if one.account_digest == password]
    locks = [Micros(one.at) for one in found if (one.account_digest, one.outcome) == (account, LOCKED)]
    stored = {row.slot: bytes(row.blob) for row in c.execute(_STORED, {"bmc_id": bmc_id})}
    return Tries(
        rejected,
        of_password.count(REJECTED),
        of_password[-1:] == [ACCEPTED],
        max(locks, default=None),
        len(locks),
        ROTATING in stored,
        stored.get("current"),
    )


def stranger(host: str) -> str:
    """In place of its id, for a BMC that is not enrolled."""
    return f"at:{host}"


def of_strangers(c: Connection) -> bool:
    """Whether anything was tried at BMCs that are not enrolled."""
    return bool(c.execute(_STRANGERS).scalar_one())


def move(c: Connection, hosts: Sequence[str], bmc_id: str) -> None:
    """It is enrolled now: what was tried there before counts, under whichever of these."""
    for host in hosts:
        c.execute(_MOVE, {"stranger": stranger(host), "known": bmc_id})


def rotated_since(c: Connection, bmc_id: str, since: Micros) -> bool:
    """Whether the BMC got a new password of ours."""
    return bool(c.execute(_ROTATED, {"bmc_id": bmc_id, "since": since}).scalar_one())


def prune(c: Connection, before: Micros) -> int:
    return int(c.execute(_PRUNE, {"before": before}).rowcount)
