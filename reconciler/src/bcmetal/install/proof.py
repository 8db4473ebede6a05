"""The key of erasure records, administered on the daemon's host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from bcmetal.install.local import Admin, administer
from bcmetal.proof import keys
from bcmetal.store import audit, proof_keys
from bcmetal.store.values import NewAudit
from bcmetal.store.views import stamp


@dataclass(frozen=True, slots=True)
class ShownKey:
    """`until` None: it signs now."""

    key_id: str
    since: str
    until: str | None


def list_keys(config: Path) -> tuple[ShownKey, ...]:
    """Oldest first; a site's first key is made here, too. Raises VaultError: it does not open."""

    async def work(admin: Admin) -> tuple[ShownKey, ...]:
        await keys.current(admin.store, admin.vault, admin.now)
        rows = await admin.store.read(proof_keys.every)
        return tuple(ShownKey(row.key_id, stamp(row.created_at) or "", stamp(row.retired_at)) for row in rows)

    return administer(config, work)


def rotate_key(config: Path) -> str:
    """The id of the key that signs from now on."""

    async def work(admin: Admin) -> str:
        new = keys.fresh(admin.vault, admin.now)
        entry = admin.audit("erasure-key.rotate", new.row.key_id, admin.owner)
        await admin.store.write(_rotate, new, entry)
        return new.row.key_id

    return administer(config, work)


def _rotate(c: Connection, new: keys.New, entry: NewAudit) -> None:
    proof_keys.rotate(c, new.row, new.sealed)
    audit.add(c, entry, new.row.created_at)
