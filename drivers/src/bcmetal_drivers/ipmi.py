"""The IPMI driver: power, boot device, identity, sensors, event log, accounts and what is open to the network, over IPMI 2.0 LAN.

IPMI has no virtual media and no drive erase: those Protocols are absent here, and `need` says so. Errors are typed in
`ipmi_door`; the session is `ipmi_session`; each capability has its module, and a thin method here.

A `Trust` is taken like by every driver and not looked at: IPMI has no certificates, RAKP message 2 proves that the BMC knows the password.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Final, TypeVar

from pydantic import SecretStr

from bcmetal_drivers import (
    ipmi_boot,
    ipmi_chassis,
    ipmi_identity,
    ipmi_lan,
    ipmi_sel,
    ipmi_sensors,
    ipmi_sol,
    ipmi_users,
)
from bcmetal_drivers.capabilities import (
    AccountControl,
    Accounts,
    Baseline,
    Bmc,
    BmcClock,
    BmcNetwork,
    BmcReset,
    BootAlways,
    BootOnce,
    Console,
    ConsoleStream,
    ConsoleStreams,
    EventLog,
    HostWays,
    Identifies,
    Indicator,
    Inventories,
    NetworkWays,
    Power,
    Readings,
    Remembers,
    Sensors,
)
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.errors import Permanent, Refused, Unsupported
from bcmetal_drivers.ipmi_accounts import read_accounts, set_password
from bcmetal_drivers.ipmi_door import IpmiDoor
from bcmetal_drivers.learned import lasting, read
from bcmetal_drivers.quirks import Quirks
from bcmetal_drivers.resources import (
    Account,
    AccountPolicy,
    BmcInfo,
    BmcInterface,
    BootDevice,
    BootMode,
    BootOverride,
    ConsoleAccess,
    HostWay,
    Identity,
    Inventory,
    LogEntry,
    PowerAction,
    PowerState,
    Reading,
    Sensor,
)

T = TypeVar("T")
OFFERED: Final = (
    *(
        "Power",
        "Readings",
        "BootOnce",
        "BootAlways",
        "Identifies",
        "Inventories",
        "Accounts",
        "AccountControl",
        "Baseline",
    ),
    *(
        "Sensors",
        "EventLog",
        "Indicator",
        "BmcReset",
        "BmcClock",
        "BmcNetwork",
        "Console",
        "ConsoleStreams",
        "HostWays",
        "NetworkWays",
    ),
)


class IpmiBmc:
    """An open conversation with one BMC over IPMI. Logs in at the first call; calls from several threads take turns."""

    def __init__(
        self,
        address: BmcAddress,
        credential: Credential,
        trust: Trust,
        limits: Limits,
        learned: Mapping[str, object] | None = None,
    ) -> None:
        """`learned` is what `learned()` gave before. Raises Refused when the user name (16 bytes) or the password (20 bytes) is longer
        than IPMI carries."""
        self._address = address
        self._door = IpmiDoor(address, credential, limits, read(learned))
        self._lock = threading.Lock()
        self._records = ipmi_sensors.Records()
        self._quirks: Quirks | None = None

    @property
    def address(self) -> BmcAddress:
        return self._address

    def close(self) -> None:
        if self._lock.acquire(timeout=3):
            try:
                self._door.close()
            finally:
                self._lock.release()

    def learned(self) -> Mapping[str, object]:
        return lasting(self._door.memory)

    @contextmanager
    def _call(self) -> Iterator[IpmiDoor]:
        with self._lock:
            self._door.start_call()
            yield self._door

    # ------------------------------------------------------------ power

    def power_state(self) -> PowerState:
        with self._call() as door:
            return ipmi_chassis.power(ipmi_chassis.chassis_status(door))

    def reading(self) -> Reading:
        """Health is "critical" or "warning" when the chassis status flags a fault; else None, for the sensors say the rest."""
        with self._call() as door:
            status = ipmi_chassis.chassis_status(door)
            return Reading(ipmi_chassis.power(status), health=ipmi_chassis.health(status))

    def set_power(self, action: PowerAction) -> None:
        with self._call() as door:
            ipmi_chassis.set_power(door, action)

    def identified(self) -> bool | None:
        with self._call() as door:
            return ipmi_chassis.identified(door)

    def identify(self, on: bool) -> None:
        with self._call() as door:
            ipmi_chassis.identify(door, on)

    # ------------------------------------------------------------ boot

    def boot_once(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """Boot flags lapse after 60 s on BMCs that do not honour parameter 3: reset at once."""
        self._boot(device, mode, once=True)

    def boot_always(self, device: BootDevice, mode: BootMode | None = None) -> None:
        self._boot(device, mode, once=False)

    def boot_override(self) -> BootOverride:
        with self._call() as door:
            return ipmi_boot.read_override(door)

    def clear_boot_override(self) -> None:
        with self._call() as door:
            ipmi_boot.clear(door)

    def _boot(self, device: BootDevice, mode: BootMode | None, *, once: bool) -> None:
        with self._call() as door:
            if device is BootDevice.NONE:
                ipmi_boot.clear(door)
            else:
                ipmi_boot.arm(door, device, mode, once, self._quirks_of(door))

    def _quirks_of(self, door: IpmiDoor) -> Quirks:
        if self._quirks is None:
            self._quirks = ipmi_identity.quirks(door)
            door.space(self._quirks.spacing_s)
        return self._quirks

    # ------------------------------------------------------------ who it is

    def identity(self) -> Identity:
        """From FRU 0 and the system GUID. `product_uuid` is in SMBIOS order (see `ipmi_fru.read_guid`); no host MACs in IPMI."""
        with self._call() as door:
            return ipmi_identity.identity(door)

    def bmc_info(self) -> BmcInfo:
        with self._call() as door:
            return ipmi_identity.bmc_info(door)

    def inventory(self) -> Inventory:
        """IPMI tells who the machine is and little more; what the host holds is `absent`, for the agent to say."""
        with self._call() as door:
            return ipmi_identity.inventory(door, self._records, OFFERED)

    # ------------------------------------------------------------ accounts

    def accounts(self) -> tuple[Account, ...]:
        with self._call() as door:
            return read_accounts(door)

    def account_policy(self) -> AccountPolicy:
        """The protocol's own limits; IPMI cannot ask how a BMC locks accounts."""
        return ipmi_users.policy()

    def set_account_policy(self, policy: AccountPolicy) -> None:
        raise Unsupported(f"{self._address}: IPMI cannot set rules for accounts")

    def create_account(self, username: str, password: SecretStr, role: str) -> Account:
        with self._call() as door:
            return ipmi_users.create(door, username, password, role)

    def enable_account(self, slot: str, on: bool) -> None:
        with self._call() as door:
            ipmi_users.enable(door, self._slot(slot), on)

    def delete_account(self, slot: str) -> None:
        """Slots are fixed: emptied, and disabled where its name stays."""
        with self._call() as door:
            ipmi_users.delete(door, self._slot(slot))

    def _slot(self, slot: str) -> int:
        if not slot.isascii() or not slot.isdigit() or not 1 <= int(slot[:3]) <= 63:
            raise Refused(f"{self._address}: user slots are numbers from 1 to 63")
        return int(slot)

    def set_password(self, username: str, password: SecretStr, slot: str | None = None) -> None:
        """The BMC is asked to test the new password. From then on this conversation logs in with it, where the account is its own."""
        with self._call() as door:
            set_password(door, username, password, slot)
            if username == door.credential.username:
                door.use(Credential(username, password))

    def baseline(self) -> Mapping[str, object]:
        with self._call() as door:
            return {
                "accounts": [_kept(account) for account in read_accounts(door)],
                "network": dict(_or_none(ipmi_lan.read_lan, door) or {}),
                "channels": _or_none(ipmi_lan.read_all_lan, door),
                "channelAccess": ipmi_lan.read_channel_access(door),
                "firmware": ipmi_identity.device(door).firmware,
                "boot": _or_none(lambda d: asdict(ipmi_boot.read_override(d)), door),
            }

    # ------------------------------------------------------------ sensors, log

    def sensors(self) -> tuple[Sensor, ...]:
        with self._call() as door:
            return ipmi_sensors.sensors(door, self._records)

    def power_draw_w(self) -> float | None:
        with self._call() as door:
            return ipmi_sensors.power_draw_w(door)

    def event_log(self, limit: int = 100) -> tuple[LogEntry, ...]:
        with self._call() as door:
            return ipmi_sel.newest(door, self._records, limit)

    def clear_event_log(self) -> None:
        with self._call() as door:
            ipmi_sel.clear(door)

    # ------------------------------------------------------------ the BMC itself

    def reset_bmc(self, hard: bool = False) -> None:
        with self._call() as door:
            ipmi_chassis.reset_bmc(door, hard)

    def bmc_clock(self) -> str | None:
        with self._call() as door:
            return ipmi_chassis.clock(door)

    def set_bmc_clock(self, at: datetime) -> None:
        """The clock of its event log, which is the only one that IPMI knows."""
        with self._call() as door:
            ipmi_chassis.set_clock(door, at)

    def bmc_network(self) -> tuple[BmcInterface, ...]:
        with self._call() as door:
            return ipmi_lan.interfaces(door)

    def consoles(self) -> tuple[ConsoleAccess, ...]:
        with self._call() as door:
            return ipmi_sol.ways(door)

    def open_console(self) -> ConsoleStream:
        session = self._door.another_session()
        try:
            return ipmi_sol.SolConsole(session, self._door.limits)
        except BaseException:
            session.close()
            raise

    # ------------------------------------------------------------ ways in

    def host_ways(self) -> tuple[HostWay, ...]:
        with self._call() as door:
            return ipmi_lan.host_ways(door)

    def close_host_way(self, name: str) -> None:
        raise Unsupported(f"{self._address}: IPMI has no lock for the host's way in")

    def network_ways(self) -> tuple[HostWay, ...]:
        with self._call() as door:
            null = HostWay(ipmi_lan.NULL_USER, bool(ipmi_users.null_users(door)), closable=True)
            return (*ipmi_lan.ways(door), null)

    def close_network_way(self, name: str) -> None:
        with self._call() as door:
            if name == ipmi_lan.NULL_USER:
                ipmi_users.close_null_users(door)
            else:
                ipmi_lan.close_way(door, name)


def _kept(account: Account) -> Mapping[str, object]:
    """What must be the same when a tenant hands the machine back."""
    return {name: getattr(account, name) for name in ("slot", "username", "role", "enabled")}


def _or_none(read: Callable[[IpmiDoor], T], door: IpmiDoor) -> T | None:
    try:
        return read(door)
    except Permanent:
        return None


_bmc: type[Bmc] = IpmiBmc
_conforms_remembers: type[Remembers] = IpmiBmc
_conforms_power: type[Power] = IpmiBmc
_conforms_readings: type[Readings] = IpmiBmc
_conforms_boot: type[BootOnce] = IpmiBmc
_conforms_identity: type[Identifies] = IpmiBmc
_conforms_inventory: type[Inventories] = IpmiBmc
_conforms_accounts: type[Accounts] = IpmiBmc
_conforms_baseline: type[Baseline] = IpmiBmc
_conforms_boot_always: type[BootAlways] = IpmiBmc
_conforms_account_control: type[AccountControl] = IpmiBmc
_conforms_sensors: type[Sensors] = IpmiBmc
_conforms_log: type[EventLog] = IpmiBmc
_conforms_indicator: type[Indicator] = IpmiBmc
_conforms_reset: type[BmcReset] = IpmiBmc
_conforms_clock: type[BmcClock] = IpmiBmc
_conforms_network: type[BmcNetwork] = IpmiBmc
_conforms_console: type[Console] = IpmiBmc
_conforms_console_streams: type[ConsoleStreams] = IpmiBmc
_conforms_host_ways: type[HostWays] = IpmiBmc
_conforms_network_ways: type[NetworkWays] = IpmiBmc
