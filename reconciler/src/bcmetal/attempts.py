"""Logins at one node's BMC, counted before and after they are tried: what the budget is decided upon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bcmetal import login_budget
from bcmetal.decisions import SECOND, Micros
from bcmetal.login_budget import BeingChanged, RefusedOnce
from bcmetal.store import logins
from bcmetal.store.logins import Tries
from bcmetal.store.values import BmcRow, Sealed, Store
from bcmetal.vault import Vault
from bcmetal.workflows.machine import Clock
from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import LockedOut, RejectedCredentials

REFUSED_ONCE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Login:
    """One password of one account at one BMC, as digests."""

    bmc_id: str
    account: str
    password: str


@dataclass(frozen=True, slots=True)
class Attempts:
    """`rows`: the sealed rows that this step began with."""

    store: Store
    clock: Clock
    vault: Vault
    bmc: BmcRow | None
    rows: Mapping[str, Sealed]

    def login(self, bmc_id: str, credential: Credential) -> Login:
        secret, name = credential.password.get_secret_value(), credential.username
        return Login(bmc_id, self.vault.digest("account", name), self.vault.digest("login", f"{name}\0{secret}"))

    async def tries(self, login: Login) -> Tries:
        since = Micros(self.clock.now() - login_budget.WINDOW_S * SECOND)
        return await self.store.read(logins.tries, login.bmc_id, login.account, login.password, since)

    async def allowed(self, login: Login, *, person: bool = False, rotates: bool = False) -> Tries:
        """Raises LoginBudget, LockedOut, and BeingChanged for whoever is not the one that changes the password."""
        tries = await self.tries(login)
        if (tries.rotating and not rotates and not person) or self._changed_meanwhile(tries):
            raise BeingChanged
        refusal = login_budget.refusal(tries, self.clock.now(), person=person)
        if refusal is not None:
            raise refusal
        return tries

    async def count(self, login: Login, times: int = 1) -> None:
        """The BMC refused it."""
        now = self.clock.now()
        for _ in range(times):
            await self.store.write(logins.note_rejected, login.bmc_id, login.account, login.password, now, "engine")

    async def accepted(self, login: Login) -> None:
        await self._note(login.bmc_id, login.password, logins.ACCEPTED, self.clock.now())

    async def locked(self, login: Login, error: LockedOut) -> None:
        until = login_budget.locked_until(await self.tries(login), self.clock.now(), error.retry_after_s)
        await self._note(login.bmc_id, login.account, logins.LOCKED, until)

    async def refused(self, login: Login, error: RejectedCredentials, *, rotates: bool = False) -> None:
        """Count it. What was changed meanwhile, or worked before, is not taken for a wrong password: raises a Transient then."""
        await self.count(login, error.logins)
        tries = await self.tries(login)
        if (tries.rotating and not rotates) or self._changed_meanwhile(tries):
            raise BeingChanged from error
        worked = self.bmc is not None and self.bmc.cred_verified_at is not None
        if worked and tries.password_rejected < login_budget.AT_MOST:
            raise RefusedOnce(str(error), retry_after_s=REFUSED_ONCE_S) from error

    def _changed_meanwhile(self, tries: Tries) -> bool:
        """Whether the stored password is another one than this step began with."""
        ours = self.rows.get("current.password")
        return (ours and ours.blob) != tries.current

    async def _note(self, bmc_id: str, digest: str, outcome: str, at: Micros) -> None:
        await self.store.write(logins.note, bmc_id, digest, outcome, at, "engine")
