"""The lines to the BMCs: one call at a time for each, in threads, with logins counted and drivers kept open between steps.

Logins that fail are few (`login_budget`). While a BMC's password is being changed, nobody logs in with the old one. A driver that was
not used for a while is closed, so that its session at the BMC ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, ParamSpec, TypeVar

from pydantic import SecretStr

from bcmetal.attempts import Attempts, Login
from bcmetal.decisions import PoolMode
from bcmetal.lanes import Lanes
from bcmetal.login_budget import BeingChanged
from bcmetal.opened import Secrets
from bcmetal.settings import NamedCredential, Pool, Settings, read_secret
from bcmetal.store.logins import Tries
from bcmetal.store.values import BmcRow, PutSealed, Store, Work
from bcmetal.vault import Vault, bmc_binding
from bcmetal.workflows.machine import Clock, Start, TooLate
from bcmetal_drivers import registry
from bcmetal_drivers.capabilities import Accounts, Bmc, Remembers, need
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.errors import (
    BadAddress,
    DriverError,
    LockedOut,
    MaybeSent,
    NotAsAsked,
    Permanent,
    RejectedCredentials,
    TimedOut,
    Unreachable,
)
from bcmetal_drivers.introductions import introduces_itself
from bcmetal_drivers.learned import merged
from bcmetal_drivers.tls import fetch_fingerprint

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

IDLE_S: Final = 60.0
CALL_MARGIN_S: Final = 5.0
# A certificate that is pinned or verified; IPMI's trust is `system`.
PROVEN: Final = tuple(kind.value for kind in (TrustKind.SYSTEM, TrustKind.CA, TrustKind.FINGERPRINT))


class NotForThisBmc(Permanent):
    """The configuration has no such credential for this BMC's network."""

    code = "credential-not-for-here"


def for_network(settings: Settings, credential: str, network: str, trust_kind: str) -> NamedCredential:
    """A credential of the configuration, for a BMC in this network. Raises NotForThisBmc."""
    found = settings.credentials.get(credential)
    if found is None:
        raise NotForThisBmc(f"the configuration has no credential {credential}")
    if network not in found.networks:
        raise NotForThisBmc(f"credential {credential} is not for the network of this BMC")
    if not found.of_one_machine and trust_kind not in PROVEN:
        raise NotForThisBmc(f"credential {credential} is sent only over TLS, to a pinned or verified certificate")
    return found


@dataclass(slots=True)
class _Open:
    key: tuple[object, ...]
    driver: Bmc
    login: Login
    used_at_s: float
    proven: bool = False
    closed: bool = False
    callers: int = 0  # calls under way or waiting for the BMC's lock, and what goes on in its session: it is not idle


@dataclass
class Lines:
    """All lines of one daemon. `open_bmc` is the registry's, or another with the same contract."""

    store: Store
    clock: Clock
    vault: Vault
    settings: Callable[[], Settings]
    limits: Limits = field(default_factory=Limits)
    threads: int = 64
    slow_threads: int = 8  # of the slow lane
    open_bmc: Callable[[BmcAddress, Credential, Trust, Limits, Mapping[str, object]], Bmc] = registry.open_bmc

    def __post_init__(self) -> None:
        self._lanes = Lanes(self.threads, self.slow_threads)
        self._open: dict[tuple[str, str | None], _Open] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._beside: dict[str, list[Callable[[], None]]] = {}

    def to(self, work: Work, pool: Pool, operation_id: str) -> BoundLine:
        """The line to the BMC of this node."""
        return BoundLine(self, work, pool, operation_id)

    def lock(self, bmc_id: str) -> asyncio.Lock:
        return self._locks.setdefault(bmc_id, asyncio.Lock())

    async def in_thread(self, bmc: BmcRow, fn: Callable[[], T]) -> T:
        return await self._lanes.call(bmc.bmc_id, fn, silent=bmc.breaker_failures > 0)

    async def spend(
        self,
        attempts: Attempts,
        login: Login,
        once: Callable[[], Awaitable[T]],
        *,
        person: bool = False,
        rotates: bool = False,
    ) -> T:
        """One login on a driver of its own, in its turn at the BMC and within the budget. Raises as `Attempts.allowed`, and as `once` does."""
        async with self.lock(login.bmc_id):
            tries = await attempts.allowed(login, person=person, rotates=rotates)
            try:
                result = await once()
            except RejectedCredentials as error:
                await attempts.count(login, error.logins)
                raise
            except LockedOut as error:
                await attempts.locked(login, error)
                raise
            if tries.rejected_at:
                await attempts.accepted(login)
            return result

    def opened(self, bmc_id: str, system_path: str | None, key: tuple[object, ...]) -> _Open | None:
        found = self._open.get((bmc_id, system_path))
        return found if found is not None and found.key == key else None

    def keep(self, bmc_id: str, system_path: str | None, entry: _Open) -> None:
        replaced = self._open.get((bmc_id, system_path))
        self._open[bmc_id, system_path] = entry
        if replaced is not None:
            self._lanes.end_soon(bmc_id, replaced.driver.close)

    async def forget(self, bmc_id: str, system_path: str | None) -> None:
        """Close and drop a driver; the next call opens a new one."""
        entry = self._open.pop((bmc_id, system_path), None)
        if entry is not None:
            entry.closed = True
            await self._lanes.end(bmc_id, entry.driver.close)

    async def forget_all(self, bmc_id: str) -> None:
        """Every driver of this BMC, whichever of its systems it is for."""
        for key in [key for key in self._open if key[0] == bmc_id]:
            await self.forget(*key)

    def beside(self, bmc_id: str, end: Callable[[], None]) -> None:
        """Something goes on at this BMC in a session of its own: `end` is called before the BMC's password is changed."""
        self._beside.setdefault(bmc_id, []).append(end)

    def no_more_beside(self, bmc_id: str, end: Callable[[], None]) -> None:
        left = [one for one in self._beside.pop(bmc_id, []) if one != end]
        if left:
            self._beside[bmc_id] = left

    def end_beside(self, bmc_id: str) -> None:
        for end in self._beside.get(bmc_id, ()):
            end()

    def others(self, bmc_id: str, but: _Open) -> list[tuple[tuple[str, str | None], _Open]]:
        """The open drivers of this BMC, one left out."""
        return [(key, entry) for key, entry in self._open.items() if key[0] == bmc_id and entry is not but]

    async def close_idle(self, older_s: float = IDLE_S) -> int:
        """End the sessions of BMCs that were not called for a while; how many were closed."""
        now = self.clock.monotonic_s()
        idle = [key for key, one in self._open.items() if now - one.used_at_s > older_s and not one.callers]
        closed = 0
        for bmc_id, system_path in idle:
            # by a call, which may go on for long: nobody else's session waits for its end
            if self.lock(bmc_id).locked():
                continue
            async with self.lock(bmc_id):
                entry = self._open.get((bmc_id, system_path))
                if entry is not None and not entry.callers:
                    await self.forget(bmc_id, system_path)
                    closed += 1
        return closed

    async def close(self) -> None:
        """End every session, then the threads."""
        entries, self._open = list(self._open.items()), {}
        ending = [self._lanes.end(bmc_id, entry.driver.close) for (bmc_id, _), entry in entries]
        ended = await asyncio.gather(*ending, return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                log.error("a BMC's session did not end", exc_info=one)
        self._lanes.shutdown()


class BoundLine:
    """The line to one node's BMC, during one step. `reached`: whether the last call got an answer; None before any call. `accepted`: it got in."""

    def __init__(self, lines: Lines, work: Work, pool: Pool, operation_id: str) -> None:
        self._lines = lines
        self._node = work.node
        self._pool = pool
        self.reached: bool | None = None
        self.accepted = False
        self.rotates = False
        self.learned: Mapping[str, object] | None = None  # of the BMC, where it is other than what is stored
        bmc = work.node.bmc
        binding = bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value) if bmc is not None else ""
        self.secrets = Secrets(lines.vault, work.sealed, operation_id, binding)
        self._attempts = Attempts(lines.store, lines.clock, lines.vault, bmc, self.secrets.rows())

    @property
    def deadline_s(self) -> float:
        return self._lines.limits.total_s + CALL_MARGIN_S

    @property
    def credential(self) -> Credential:
        ref = self._node.bmc.cred_ref if self._node.bmc is not None else None
        if ref is not None and not self._found(ref).of_one_machine:
            return self.named(ref)
        return Credential(self.secrets["current.username"].get_secret_value(), self.secrets["current.password"])

    @property
    def of_one_machine(self) -> bool:
        bmc = self._node.bmc
        found = self._lines.settings().credentials.get(bmc.cred_ref) if bmc is not None and bmc.cred_ref else None
        return found is not None and found.of_one_machine

    def named(self, credential: str) -> Credential:
        found = self._found(credential)
        return Credential(found.username or "", found.password_from(self._lines.vault))

    def _found(self, credential: str) -> NamedCredential:
        """Raises NotForThisBmc, also where the configuration was changed since it was used last."""
        bmc = self._node.bmc
        network, trust_kind = ("", "") if bmc is None else (bmc.network, bmc.trust_kind)
        return for_network(self._lines.settings(), credential, network, trust_kind)

    def sealed_for(self, host: str, trust_kind: str, trust_value: str) -> Sequence[PutSealed]:
        binding = bmc_binding(host, trust_kind, trust_value)
        vault = self._lines.vault
        return [
            PutSealed(
                vault.seal("bmc", "bmc", row.owner_id, row.field, self.secrets[name], bind=binding, slot=row.slot)
            )
            for name, row in self.secrets.rows().items()
            if row.owner_kind == "bmc"
        ]

    def sealed_as(self, slot: str, credential: Credential) -> Sequence[PutSealed]:
        bmc = self._row
        binding = bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value)
        vault = self._lines.vault
        pair = (("username", SecretStr(credential.username)), ("password", credential.password))
        return [
            PutSealed(vault.seal("bmc", "bmc", bmc.bmc_id, name, secret, bind=binding, slot=slot))
            for name, secret in pair
        ]

    @property
    def _row(self) -> BmcRow:
        if self._node.bmc is None:
            raise BadAddress("the node has no BMC")
        return self._node.bmc

    @property
    def bmc(self) -> Bmc:
        return self._entry().driver

    def _entry(self) -> _Open:
        bmc, path = self._node.bmc, self._node.system_path
        if bmc is None or not bmc.scheme:
            raise BadAddress("the BMC was never reached: inspect the node first")
        credential = self.credential
        login = self._attempts.login(bmc.bmc_id, credential)
        limits = self._limits(self._pool.mode is not PoolMode.OBSERVE)
        key = (bmc.scheme, bmc.host, bmc.port, path, bmc.trust_kind, bmc.trust_value, login, limits)
        entry = self._lines.opened(bmc.bmc_id, path, key)
        if entry is None:
            address = BmcAddress(bmc.scheme, bmc.host, bmc.port, path)
            trust = Trust(TrustKind(bmc.trust_kind), bmc.trust_value)
            driver = self._lines.open_bmc(address, credential, trust, limits, bmc.learned)
            entry = _Open(key, driver, login, self._lines.clock.monotonic_s())
            self._lines.keep(bmc.bmc_id, path, entry)
        return entry

    def keep_open(self) -> Callable[[], None]:
        """The driver is not idle until what this returns is called: something goes on in its session."""
        entry = self._entry()
        entry.callers += 1

        def release() -> None:
            entry.callers -= 1

        return release

    def _limits(self, write_allowed: bool) -> Limits:
        return limits_for(self._lines.limits, self._pool, write_allowed=write_allowed)

    async def call(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_turn(partial(fn, *args, **kwargs), None)

    async def write(self, start: Start, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._in_turn(partial(fn, *args, **kwargs), start)

    async def change_password(self, start: Start, new: Credential, slot: str | None) -> None:
        entry, bmc = self._entry(), self._row
        accounts = need(entry.driver, Accounts)
        self._lines.end_beside(bmc.bmc_id)
        entry.callers += 1
        try:
            async with self._lines.lock(bmc.bmc_id):
                for key, other in self._lines.others(bmc.bmc_id, entry):
                    if not other.closed:
                        await self._lines.forget(*key)
                call = partial(accounts.set_password, new.username, new.password, slot)
                try:
                    await self._alone(entry, call, start)
                except (NotAsAsked, MaybeSent) as error:
                    if isinstance(error, NotAsAsked) or isinstance(error.__cause__, RejectedCredentials):
                        await self._attempts.count(self._attempts.login(bmc.bmc_id, new))
                    raise
                finally:
                    await self._lines.forget_all(bmc.bmc_id)
        finally:
            entry.callers -= 1

    async def _in_turn(self, call: Callable[[], T], start: Start | None) -> T:
        entry, bmc = self._entry(), self._row
        entry.callers += 1
        try:
            async with self._lines.lock(bmc.bmc_id):
                return await self._alone(entry, call, start)
        finally:
            entry.callers -= 1

    async def _alone(self, entry: _Open, call: Callable[[], T], start: Start | None) -> T:
        """Under the BMC's lock."""
        bmc, path = self._row, self._node.system_path
        if entry.closed:
            raise BeingChanged("the session at the BMC was ended while this call waited; it is tried again")
        tries = Tries() if entry.proven else await self._attempts.allowed(entry.login, rotates=self.rotates)
        if start is not None:
            await start.ready()
        try:
            result = await self._lines.in_thread(bmc, call if start is None else partial(_in_time, start, call))
        except DriverError as error:
            self._learn(entry.driver)
            self.reached = not isinstance(error, Unreachable | TimedOut)
            if isinstance(error, RejectedCredentials):
                await self._lines.forget(bmc.bmc_id, path)
                await self._attempts.refused(entry.login, error, rotates=self.rotates)
            elif isinstance(error, LockedOut):
                await self._lines.forget(bmc.bmc_id, path)
                await self._attempts.locked(entry.login, error)
            raise
        self._learn(entry.driver)
        entry.used_at_s = self._lines.clock.monotonic_s()
        if tries.password_rejected and not entry.proven:
            await self._attempts.accepted(entry.login)
        entry.proven = True
        self.reached = self.accepted = True
        return result

    def _learn(self, driver: Bmc) -> None:
        bmc = self._node.bmc
        if bmc is not None and isinstance(driver, Remembers):
            found = merged(bmc.learned, driver.learned())
            self.learned = found if found != bmc.learned else None

    async def trial(
        self,
        address: BmcAddress,
        credential: Credential,
        trust: Trust,
        fn: Callable[[Bmc], T],
        *,
        person: bool = False,
    ) -> T:
        bmc = self._row
        login = self._attempts.login(bmc.bmc_id, credential)
        here = (bmc.scheme, bmc.host, bmc.port) == (address.scheme, address.host, address.port)
        known = bmc.learned if here else {}  # who answers at another address is another BMC until it is proven

        def once() -> T:
            driver = self._lines.open_bmc(address, credential, trust, self._limits(False), known)
            try:
                return fn(driver)
            finally:
                driver.close()

        in_thread = partial(self._lines.in_thread, bmc, once)
        return await self._lines.spend(self._attempts, login, in_thread, person=person, rotates=self.rotates)

    async def probe(self, host: str, port: int | None, trust: Trust) -> BmcAddress:
        try:
            found = await self._lines.in_thread(
                self._row, lambda: registry.probe(host, port, trust, self._lines.limits)
            )
        except (Unreachable, TimedOut):
            self.reached = False
            raise
        self.reached = True
        return found

    async def introduction(self, address: BmcAddress, trust: Trust) -> tuple[str, ...]:
        return await self._lines.in_thread(self._row, lambda: introduces_itself(address, trust, self._lines.limits))

    async def fingerprint(self, host: str, port: int) -> str:
        return await self._lines.in_thread(self._row, lambda: fetch_fingerprint(host, port, self._lines.limits))


def limits_for(limits: Limits, pool: Pool, *, write_allowed: bool) -> Limits:
    """With how the pool speaks IPMI. Raises VaultError when its K_g cannot be read."""
    ipmi = pool.ipmi
    return replace(
        limits,
        write_allowed=write_allowed,
        privilege=ipmi.privilege,
        ipmi_suites=ipmi.suites,
        ipmi_legacy=ipmi.legacy,
        ipmi_kg=read_secret(ipmi.kg) if ipmi.kg is not None else None,
    )


def _in_time(start: Start, call: Callable[[], T]) -> T:
    """In the thread: it may have waited for one that was free."""
    if not start.in_time():
        raise TooLate
    return call()
