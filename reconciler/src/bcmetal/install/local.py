"""Local administration: API keys and sealed credentials, in short audited transactions beside a running daemon."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal.clock import SystemClock, system_entropy
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Fault, InvalidInput
from bcmetal.settings import Settings, load
from bcmetal.store import audit, keys, sealed
from bcmetal.store.engine import open_store
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import NewAudit, Sealed, Store
from bcmetal.vault import Vault, load_key

T = TypeVar("T")

KEY_BYTES: Final = 32
KEY_PREFIX: Final = "bcmk_"  # so that a scanner, or a person, sees what it is
CREDENTIAL: Final = "credential"


@dataclass(frozen=True, slots=True)
class NewKey:
    key_id: str
    identity: str
    secret: SecretStr  # shown once: the store holds its SHA-256 alone


@contextlib.contextmanager
def credentials_beside(config: Path) -> Iterator[None]:
    """`credential:NAME` means systemd's credentials; outside of systemd it means the folder beside the configuration."""
    if "CREDENTIALS_DIRECTORY" in os.environ:
        yield
        return
    os.environ["CREDENTIALS_DIRECTORY"] = str(config.parent / "credentials")
    try:
        yield
    finally:
        del os.environ["CREDENTIALS_DIRECTORY"]


def first_key(config: Path, name: str, tenant: str) -> SecretStr:
    """The admin's key of a new installation; makes the database too."""
    return create_key(config, name, tenant, None).secret


def create_key(config: Path, name: str, tenant: str, lifetime_s: float | None) -> NewKey:
    """Raises InvalidInput when there is a live key of that name."""

    async def work(admin: Admin) -> NewKey:
        secret = SecretStr(KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES))
        new = NewKey(admin.new_id("ky"), f"key:{name}", secret)
        expires = None if lifetime_s is None else Micros(admin.now + int(lifetime_s * SECOND))
        await admin.store.write(
            _insert_key, new, tenant, admin.now, expires, admin.audit("key.create", new.identity, tenant)
        )
        return new

    return administer(config, work)


def _insert_key(c: Connection, new: NewKey, tenant: str, now: Micros, expires: Micros | None, entry: NewAudit) -> None:
    if any(row.identity == new.identity and row.is_live(now) for row in keys.list(c)):
        raise InvalidInput(
            [Fault("name", f"{new.identity} has a key already: revoke it first, or choose another name")]
        )
    digest = hashlib.sha256(new.secret.get_secret_value().encode()).digest()
    keys.insert(c, new.key_id, digest, new.identity, tenant, now, expires)
    audit.add(c, entry, now)


def list_keys(config: Path) -> tuple[keys.KeyRow, ...]:
    async def work(admin: Admin) -> tuple[keys.KeyRow, ...]:
        return await admin.store.read(keys.list)

    return administer(config, work)


def revoke_key(config: Path, name: str) -> int:
    """By its id, or all of an identity's name; how many were live."""

    async def work(admin: Admin) -> int:
        known = await admin.store.read(keys.list)
        wanted = next(
            (row for row in known if name in (row.key_id, row.identity, row.identity.removeprefix("key:"))), None
        )
        if wanted is None:
            return 0
        key = wanted.key_id if name == wanted.key_id else wanted.identity
        return await admin.store.write(_revoke, key, admin.now, admin.audit("key.revoke", key, wanted.tenant_id))

    return administer(config, work)


def _revoke(c: Connection, key: str, now: Micros, entry: NewAudit) -> int:
    ended = keys.revoke(c, key, now)
    audit.add(c, entry, now)
    return ended


def set_credential(config: Path, name: str, secret: SecretStr) -> bool:
    """Seal what the configuration names `sealed:NAME`. False: the configuration does not name it (yet)."""

    async def work(admin: Admin) -> bool:
        row = admin.vault.seal(CREDENTIAL, CREDENTIAL, name, "password", secret)
        await admin.store.write(_put, row, admin.now, admin.audit("credential.set", name, admin.owner))
        return name in sealed_names(admin.settings)

    return administer(config, work)


def _put(c: Connection, row: Sealed, now: Micros, entry: NewAudit) -> None:
    sealed.put(c, [row])
    audit.add(c, entry, now)


def sealed_names(settings: Settings) -> frozenset[str]:
    """What the configuration names `sealed:NAME`."""
    return frozenset(one.sealed_name for one in settings.credentials.values() if one.sealed_name is not None)


def list_credentials(config: Path) -> dict[str, bool]:
    """Each name that is sealed or named by the configuration, and whether it is sealed."""

    async def work(admin: Admin) -> dict[str, bool]:
        held = {row.owner_id for row in await admin.store.read(sealed.every) if row.owner_kind == CREDENTIAL}
        return {name: name in held for name in sorted(held | sealed_names(admin.settings))}

    return administer(config, work)


def remove_credential(config: Path, name: str) -> bool:
    """Whether there was one."""

    async def work(admin: Admin) -> bool:
        return await admin.store.write(_drop, name, admin.now, admin.audit("credential.remove", name, admin.owner))

    return administer(config, work)


def _drop(c: Connection, name: str, now: Micros, entry: NewAudit) -> bool:
    if not sealed.get(c, CREDENTIAL, name):
        return False
    sealed.drop(c, name)
    audit.add(c, entry, now)
    return True


@dataclass(frozen=True, slots=True)
class Admin:
    """What a command of local administration works with: `now` is when it began."""

    store: Store
    vault: Vault
    settings: Settings
    now: Micros

    @property
    def owner(self) -> str:
        """Whose the site is."""
        return next(iter(self.settings.sites.values())).owner

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now, system_entropy(ENTROPY_BYTES))

    @property
    def identity(self) -> str:
        return f"local:{getpass.getuser()}"

    def audit(self, action: str, resource: str, tenant: str) -> NewAudit:
        return NewAudit(
            audit_id=self.new_id("au"),
            identity=self.identity,
            tenant_id=tenant,
            address="local",
            action=action,
            resource=resource,
            outcome="allowed",
            trace_id="",
        )


def administer(config: Path, work: Callable[[Admin], Awaitable[T]]) -> T:
    """The store is opened without the daemon's lock: these are transactions like any other."""

    async def inside() -> T:
        settings = load(config)
        vault = Vault([load_key(settings.daemon.vault_key)])
        store = open_store(settings.daemon.database, exclusive=False)
        try:
            return await work(Admin(store, vault, settings, SystemClock().now()))
        finally:
            await store.close()

    with credentials_beside(config):
        return asyncio.run(inside())
