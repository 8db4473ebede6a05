"""Looks at a BMC before it is enrolled: what it shows to everybody, and after a login within the same budget of failed logins.

It has a few threads of its own, so that looks at dead addresses hold up no step. Nothing is kept but the logins that were counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from bcmetal.attempts import Attempts
from bcmetal.boot.outbound import (
    AddressRefused,
    NoConnection,
    Resolver,
    Target,
    literal,
    permitted,
    permitted_addresses,
    resolve,
)
from bcmetal.diagnosis import Seen, behaviour, trouble_of
from bcmetal.errors import Fault, InvalidInput, RateLimited, VaultError
from bcmetal.line import Lines, NotForThisBmc, for_network, limits_for
from bcmetal.opened import Secrets
from bcmetal.settings import Network, Pool
from bcmetal.store import bmcs, logins, sealed
from bcmetal.store.values import Json, Sealed
from bcmetal.text import clean
from bcmetal_drivers.capabilities import AccountControl, Accounts, Bmc, Inventories, Remembers, need
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.errors import DriverError, LockedOut, RejectedCredentials, Unreachable
from bcmetal_drivers.first_look import known_behaviours, redfish_seen
from bcmetal_drivers.ipmi_offered import ipmi_seen
from bcmetal_drivers.lacking import lacks
from bcmetal_drivers.resources import Inventory
from bcmetal_drivers.schemes import IPMI, REDFISH, REDFISH_HTTP, SCHEMES, family_of

T = TypeVar("T")
AT_ONCE: Final = 4
RESOLVE_S: Final = 3.0
LOOK: Final = Limits(connect_s=4.0, read_s=6.0, total_s=8.0)


@dataclass(frozen=True, slots=True)
class Visit:
    """`address` as it was typed and checked; `trust` None: nothing says how the certificate is trusted."""

    address: BmcAddress
    network: Network
    trust: Trust | None

    @property
    def redfish_port(self) -> int:
        return self.address.port if family_of(self.address.scheme) != IPMI else SCHEMES[REDFISH].port

    @property
    def ipmi_port(self) -> int:
        asked = self.address.port if family_of(self.address.scheme) != REDFISH else 0
        return asked or SCHEMES[IPMI].port


class Doctor:
    """Of one daemon."""

    def __init__(self, lines: Lines, resolver: Resolver = resolve) -> None:
        self._lines = lines
        self._resolver = resolver
        self._threads = ThreadPoolExecutor(3 * AT_ONCE, thread_name_prefix="doctor")
        self._visits = 0

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def begin(self) -> None:
        """Raises RateLimited; `end` follows."""
        if self._visits >= AT_ONCE:
            raise RateLimited(f"{AT_ONCE} BMCs are being looked at already", retryAfterS=5)
        self._visits += 1

    def end(self) -> None:
        self._visits -= 1

    # ------------------------------------------------------------ without a credential

    async def look(self, visit: Visit) -> Seen:
        """Raises InvalidInput for a name that leads out of the BMCs' networks. What is not there is told by the answer."""
        loop = asyncio.get_running_loop()
        where = await loop.run_in_executor(self._threads, self._resolved, visit)
        plain = visit.address.scheme == REDFISH_HTTP
        asked = (visit.address.host, where, visit.redfish_port, visit.trust, LOOK)
        redfish, ipmi = await asyncio.gather(
            loop.run_in_executor(self._threads, lambda: redfish_seen(*asked, plain=plain)),
            loop.run_in_executor(self._threads, ipmi_seen, where, visit.ipmi_port),
        )
        at = str(BmcAddress(IPMI, where, visit.ipmi_port))
        return Seen(where, redfish, ipmi, at, self._lines.clock.now(), visit.trust is not None)

    def _resolved(self, visit: Visit) -> str:
        """One address, which is the one that is connected to from here on."""
        host = visit.address.host
        own = literal(host)
        if own is not None:
            if not permitted(own, True, visit.network.cidrs):
                text = "lies in a range for special uses (loopback, metadata of a cloud, …): give the BMC's own address, or add cidrs within that range to its network"
                raise InvalidInput([Fault("bmc.address", text)])
            return host
        try:
            return self._first(host, visit.network)
        except NoConnection:
            raise InvalidInput(
                [Fault("bmc.address", "the host's name is not found: give the BMC's IP address")]
            ) from None
        except AddressRefused:
            text = "the host's name leads to an address that its network does not allow: add that to the network's cidrs, or give the right address"
            raise InvalidInput([Fault("bmc.address", text)]) from None

    def _first(self, name: str, network: Network) -> str:
        target = Target("https", name, SCHEMES[REDFISH].port, "/")
        return str(permitted_addresses(target, (*network.names, *network.cidrs), self._resolver)[0])

    async def hosts(self, host: str, network: Network) -> tuple[str, ...]:
        """The host as it is written, and the address that it leads to now, where that is found soon."""
        if literal(host) is not None:
            return (host,)
        finding = asyncio.get_running_loop().run_in_executor(self._threads, self._first, host, network)
        try:
            return host, await asyncio.wait_for(finding, RESOLVE_S)
        except (NoConnection, AddressRefused, TimeoutError):
            return (host,)

    # ------------------------------------------------------------ with one

    async def log_in(self, visit: Visit, seen: Seen, name: str, pool: Pool) -> Json:
        """In observe mode, once. A login that does not come about is told by `trouble`."""
        try:
            facts = await self._logged_in(visit, seen, name, pool)
        except DriverError as error:
            return {"credential": name, "ok": False, "trouble": trouble_of(error)}
        except VaultError as error:
            return {"credential": name, "ok": False, "trouble": {"code": "vault", "message": clean(str(error))}}
        return {"credential": name, "ok": True, "trouble": None, **facts}

    async def _logged_in(self, visit: Visit, seen: Seen, name: str, pool: Pool) -> Json:
        lines = self._lines
        if seen.redfish.mistrust is not None:
            raise seen.redfish.mistrust
        address, trust = _speaks(seen, family_of(visit.address.scheme))
        credential = self._named(name, visit, trust if address.scheme == IPMI else visit.trust)
        bmc_id, rows = await lines.store.read(_known, visit.address.host, address)
        attempts = Attempts(lines.store, lines.clock, lines.vault, None, Secrets(lines.vault, rows, "", "").rows())
        limits = limits_for(lines.limits, pool, write_allowed=False)

        def once() -> dict[str, Any]:
            driver = lines.open_bmc(address, credential, trust, limits, {})
            try:
                return _facts(driver, credential.username)
            finally:
                driver.close()

        loop = asyncio.get_running_loop()
        login = attempts.login(bmc_id, credential)
        return await lines.spend(attempts, login, lambda: loop.run_in_executor(self._threads, once))

    def _named(self, name: str, visit: Visit, trust: Trust | None) -> Credential:
        """By the configuration as it is now. Raises NotForThisBmc."""
        found = for_network(self._lines.settings(), name, visit.network.name, trust.kind.value if trust else "")
        if found.of_one_machine:
            raise NotForThisBmc(f"credential {name} is a list of labels, which are for an enrolment")
        return Credential(found.username or "", found.password_from(self._lines.vault))


def _speaks(seen: Seen, family: str) -> tuple[BmcAddress, Trust]:
    """The protocol that the address named; of a bare one Redfish where it is, by the very certificate that was seen and found good."""
    if family != IPMI and seen.redfish.there:
        return seen.redfish.address, seen.redfish.pinned
    if family != REDFISH and seen.ipmi.there:
        scheme, _, rest = seen.ipmi_at.partition("://")
        return BmcAddress(scheme, seen.address, int(rest.rpartition(":")[2])), Trust()
    trouble = {REDFISH: seen.redfish.trouble, IPMI: seen.ipmi.trouble}.get(family)
    raise trouble or Unreachable(f"{seen.address}: neither Redfish nor IPMI answers there")


def _known(c: Connection, typed: str, address: BmcAddress) -> tuple[str, Sequence[Sealed]]:
    """Under which id its logins are counted, and what is sealed for it: it may be enrolled, under either. A stranger's are counted by address."""
    bmc_id = bmcs.at(c, (typed, address.host), address.port)
    if bmc_id is None:
        return logins.stranger(address.host), ()
    return bmc_id, sealed.get(c, "bmc", bmc_id)


def _facts(bmc: Bmc, username: str) -> dict[str, Any]:
    inventory = need(bmc, Inventories).inventory()
    return {
        "maker": inventory.bmc.maker,
        "model": inventory.bmc.model,
        "firmware": inventory.bmc.firmware,
        "system": {"model": inventory.identity.model, "serial": inventory.identity.serial},
        "capabilities": list(inventory.capabilities),
        "lacks": lacks(bmc.address.scheme, inventory.capabilities),
        "unread": {name: clean(how) for name, how in inventory.sections.items() if how not in ("ok", "absent")},
        "behaviours": _behaviours(inventory),
        "session": _session(bmc),
        "account": _account(bmc, username),
        "accountPolicy": _policy(bmc),
    }


def _behaviours(inventory: Inventory) -> list[Json]:
    bmc = inventory.bmc
    return [behaviour(row) for row in known_behaviours(bmc.maker or "", bmc.model or "", bmc.firmware or "")]


def _session(bmc: Bmc) -> str | None:
    """`session`, `basic`, or None where there is no choice."""
    how = bmc.learned().get("login") if isinstance(bmc, Remembers) else None
    return how if isinstance(how, str) else None


def _shown(read: Callable[[], T]) -> T | None:
    """None where the BMC does not show it. A login that is refused meanwhile is raised: it counts."""
    try:
        return read()
    except (RejectedCredentials, LockedOut):
        raise
    except DriverError:
        return None


def _account(bmc: Bmc, username: str) -> Json | None:
    """Of the credential's own; None where the BMC does not show it."""
    accounts = _shown(lambda: need(bmc, Accounts).accounts()) or ()
    found = next((one for one in accounts if one.username == username), None)
    if found is None:
        return None
    return {
        "role": found.role,
        "enabled": found.enabled,
        "locked": found.locked,
        "passwordExpired": found.password_expired,
        "expires": found.expires,
    }


def _policy(bmc: Bmc) -> Json | None:
    rules = _shown(lambda: need(bmc, AccountControl).account_policy())
    if rules is None:
        return None
    return {
        "passwordShortest": rules.password_shortest,
        "passwordLongest": rules.password_longest,
        "lockoutThreshold": rules.lockout_threshold,
        "lockoutS": rules.lockout_s,
        "passwordExpiresDays": rules.password_expires_days,
    }
