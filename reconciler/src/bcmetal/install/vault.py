"""The vault's recovery, exercised, and a BMC's password revealed: on the daemon's host, by whoever may read the vault's key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal.decisions import Micros
from bcmetal.errors import NotFound, PermissionDenied, VaultError
from bcmetal.install.files import write_new
from bcmetal.install.local import Admin, administer, credentials_beside
from bcmetal.opened import Secrets
from bcmetal.recovery import new_code, recovered, recovery_file
from bcmetal.settings import load
from bcmetal.store import audit, bmcs, claims, meta, nodes, sealed
from bcmetal.store.values import NewAudit, Sealed, Work
from bcmetal.vault import Vault, bmc_binding, load_key, write_key


@dataclass(frozen=True, slots=True)
class Exercised:
    key_id: str
    opened: int  # sealed rows that the recovered key opened


def export_recovery(config: Path, out: Path) -> SecretStr:
    """Write the file, and give the code, which is kept nowhere. Raises FileExistsError."""
    with credentials_beside(config):
        key = load_key(load(config).daemon.vault_key)
    code = new_code()
    write_new(out, recovery_file(key, code), private=True)

    async def work(admin: Admin) -> None:
        await admin.store.write(_note, admin.audit("vault.recovery.export", key.key_id, admin.owner), admin.now)

    administer(config, work)
    return code


def _note(c: Connection, entry: NewAudit, now: Micros) -> None:
    audit.add(c, entry, now)


def exercise_recovery(config: Path, file: Path, code: SecretStr) -> Exercised:
    """Recover the key, and open with it alone all that is sealed by it. Raises VaultError when it is not the one that seals now."""
    key = recovered(file.read_text(encoding="utf-8"), code)

    async def work(admin: Admin) -> Exercised:
        if key.key_id != admin.vault.key_id:
            raise VaultError(f"the file holds key {key.key_id}, and {admin.vault.key_id} seals now: export it anew")
        rows = [row for row in await admin.store.read(sealed.every) if row.key_id == key.key_id]
        bindings = await admin.store.read(_bindings, rows)
        alone = Vault([key])
        for row in rows:
            alone.open(row, row.owner_kind, bindings.get(row.owner_id, ""))
        entry = admin.audit("vault.recovery.verify", key.key_id, admin.owner)
        await admin.store.write(_exercised, key.key_id, entry, admin.now)
        return Exercised(key.key_id, len(rows))

    return administer(config, work)


def _bindings(c: Connection, rows: list[Sealed]) -> Mapping[str, str]:
    found = {row.owner_id: bmcs.get(c, row.owner_id) for row in rows if row.owner_kind == "bmc"}
    return {
        bmc_id: bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value)
        for bmc_id, bmc in found.items()
        if bmc is not None
    }


def _exercised(c: Connection, key_id: str, entry: NewAudit, now: Micros) -> None:
    meta.put(c, meta.RECOVERY, key_id)
    _note(c, entry, now)


def restore_key(file: Path, code: SecretStr, out: Path) -> str:
    """Write the recovered key where a daemon reads it; its id. Raises VaultError, FileExistsError."""
    key = recovered(file.read_text(encoding="utf-8"), code)
    write_key(out, key)
    return key.key_id


def reveal(config: Path, node: str, reason: str) -> dict[str, tuple[str, SecretStr]]:
    """User name and password of a node's BMC, by the slot in which they are. Audited before they are given. Raises NotFound, PermissionDenied."""
    if os.geteuid() != 0:
        raise PermissionDenied("only root may see a BMC's password")

    async def work(admin: Admin) -> dict[str, tuple[str, SecretStr]]:
        found = await admin.store.read(_work_of, node)
        if found is None or found.node.bmc is None:
            raise NotFound(f"there is no node {node}, or it has no BMC")
        bmc = found.node.bmc
        entry = admin.audit("vault.reveal", bmc.bmc_id, found.node.tenant_id)
        entry = replace(entry, node_id=found.node.node_id, doc={"reason": reason})
        await admin.store.write(_note, entry, admin.now)
        opened = Secrets(admin.vault, found.sealed, "", bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value))
        slots = dict.fromkeys(name.partition(".")[0] for name in opened if name.endswith(".password"))
        shown = {slot: (opened[f"{slot}.username"].get_secret_value(), opened[f"{slot}.password"]) for slot in slots}
        named = admin.settings.credentials.get(bmc.cred_ref or "")
        if "current" not in shown and named is not None and named.username is not None:
            shown["current"] = (named.username, named.password_from(admin.vault))
        return shown

    return administer(config, work)


def _work_of(c: Connection, node: str) -> Work | None:
    ids = nodes.named(c, node)
    return claims.peek(c, ids[0]) if len(ids) == 1 else None
