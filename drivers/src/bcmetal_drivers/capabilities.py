"""What a BMC can do, as small Protocols, and the plain values that go in and out.

A driver's methods are synchronous and block; the daemon calls them in threads, one call at a time for each BMC. Each raises only
`bcmetal_drivers.errors.DriverError`. An acknowledgement is never the proof: a method that writes returns once the BMC took the
request (and, where that is cheap, once the new state was read back); the caller reads the state again before it believes it.

Being in the class is not support by the model: a method may still raise `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import SecretStr

from bcmetal_drivers.errors import Unsupported

# ---------------------------------------------------------------- how to reach a BMC


@dataclass(frozen=True, slots=True)
class BmcAddress:
    """Where a BMC is. `scheme` is one of `redfish` (HTTPS), `redfish+http`, `ipmi`; makers' forms are normalised to these.

    A scheme of "" (and then a port of 0, where none was given) is an address that was not probed yet.
    `host` is a name or a literal, IPv6 without brackets. `system_path` is a path such as `/redfish/v1/Systems/1`, None where the
    BMC's only system is meant (or for IPMI). `maker` is the hint that a maker's own form gave (`idrac`, `ilo5`, …), else None.
    """

    scheme: str
    host: str
    port: int
    system_path: str | None = None
    maker: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if not self.scheme:
            return f"{host}:{self.port}" if self.port else host
        return f"{self.scheme}://{host}:{self.port}{self.system_path or ''}"


@dataclass(frozen=True, slots=True)
class Credential:
    username: str
    password: SecretStr


class TrustKind(StrEnum):
    SYSTEM = "system"  # the platform's CA bundle, and the host's name must match
    CA = "ca"  # `value` is PEM; the name must match
    FINGERPRINT = "fingerprint"  # `value` is the SHA-256 of the leaf certificate's DER, 64 lower-case hex digits
    NONE = "none"  # explicitly not verified; needs the network's permission


@dataclass(frozen=True, slots=True)
class Trust:
    kind: TrustKind = TrustKind.SYSTEM
    value: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds. `total_s` bounds one call of a capability's method, however many requests it makes."""

    connect_s: float = 5.0
    read_s: float = 15.0
    total_s: float = 45.0
    ipmi_suites: tuple[int, ...] = (17, 3)
    privilege: str = "ADMINISTRATOR"  # IPMI: ADMINISTRATOR, OPERATOR or USER
    write_allowed: bool = True  # False: the door passes no write (observe mode), session login and logout excepted
    ipmi_legacy: bool = False  # IPMI: suites without encryption and IPMI 1.5 too, where the BMC knows nothing better
    ipmi_kg: SecretStr | None = None  # IPMI: the BMC's K_g, for two-key logins; None: it has none


# ---------------------------------------------------------------- values


class PowerState(StrEnum):
    ON = "on"
    OFF = "off"
    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    UNKNOWN = "unknown"


class PowerAction(StrEnum):
    ON = "on"
    OFF = "off"  # hard
    SOFT_OFF = "softOff"  # ACPI; may be ignored by the system
    CYCLE = "cycle"  # hard restart of a machine that is on
    NMI = "nmi"
    SOFT_RESTART = "softRestart"  # ACPI, then on again; may be ignored by the system, and some BMCs do a hard one
    POWER_CYCLE = "powerCycle"  # the power taken away and given back
    PUSH_BUTTON = "pushButton"  # a short press: what it does is the system's affair


class BootDevice(StrEnum):
    NONE = "none"
    PXE = "pxe"
    DISK = "disk"
    CD = "cd"  # the virtual CD, whatever this maker calls it
    BIOS_SETUP = "bios-setup"


class BootMode(StrEnum):
    UEFI = "uefi"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class BootOverride:
    """The one-time (or lasting) boot override as read back. `device` is NONE when no override is armed."""

    device: BootDevice
    once: bool
    mode: BootMode | None = None  # None: the BMC does not say


@dataclass(frozen=True, slots=True)
class Slot:
    """One virtual-media slot. `url` is None when nothing is inserted."""

    path: str
    url: str | None
    inserted: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One cheap look: everything that the sweep keeps."""

    power: PowerState
    boot_mode: BootMode | None = None
    health: str | None = None  # "ok", "warning", "critical"; None: the BMC does not say
    boot_progress: str | None = None  # Redfish ComputerSystem.BootProgress.LastState, such as OSRunning; None: not told


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the machine is, as its BMC says. Raw values: nothing is normalised, placeholders are left in. None: not given."""

    system_path: str | None = None  # the resolved one; None for IPMI
    product_uuid: str | None = None
    serial: str | None = None
    sku: str | None = None
    manufacturer: str | None = None
    model: str | None = None
    hostname: str | None = None
    asset_tag: str | None = None
    macs: tuple[str, ...] = ()  # host NICs only, lower-case, colons


@dataclass(frozen=True, slots=True)
class BmcInfo:
    maker: str | None = None
    model: str | None = None
    firmware: str | None = None
    certificate_fp: str | None = None  # SHA-256 of the leaf's DER as hex; None without TLS
    clock: str | None = None  # the BMC's own time, RFC 3339, as it gave it


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive as its BMC lists it. `serial` is "" in an inventory where the BMC tells none. `erasable`: the BMC offers an erase of it."""

    serial: str
    model: str | None = None
    capacity_bytes: int | None = None
    media: str | None = None  # "ssd", "hdd", "nvme"; None: not said
    wwn: str | None = None
    path: str | None = None
    erasable: bool = False
    has_data: bool | None = None  # None: the BMC does not tell whether blocks are written
    health: str | None = None
    manufacturer: str | None = None
    part_number: str | None = None
    firmware: str | None = None
    protocol: str | None = None  # Redfish's word: NVMe, SATA, SAS, PCIe
    life_left_percent: int | None = None
    slot: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the BMC sees. Parts are mappings with `id`, `name`, `manufacturer`, `model`, `partNumber`, `serial`, `firmware`, `health` and
    `path`, as far as they are told, and what is their kind's own: `cores`, `capacityBytes`, `mac`, `linkStatus`, `capacityWatts` …

    `sections` names each section read with `ok`, `absent`, `partial: …` (what came is kept), `unknown: …` (the BMC tells nothing of what
    must be there), or what was wrong with it. `sources`: the collections and documents that it came from. `read_at`: RFC 3339.
    """

    identity: Identity
    bmc: BmcInfo
    cpus: tuple[Mapping[str, object], ...] = ()
    memory_bytes: int | None = None
    dimms: tuple[Mapping[str, object], ...] = ()
    nics: tuple[Mapping[str, object], ...] = ()  # one for each MAC
    drives: tuple[Drive, ...] = ()
    gpus: tuple[Mapping[str, object], ...] = ()
    tpm: Mapping[str, object] | None = None
    firmware: Mapping[str, str] = field(default_factory=dict)  # component -> version
    boot_mode: BootMode | None = None
    secure_boot: bool | None = None
    capabilities: tuple[str, ...] = ()  # names of the Protocols that this model really offers
    sections: Mapping[str, str] = field(default_factory=dict)
    adapters: tuple[Mapping[str, object], ...] = ()  # network cards, also those without a MAC that is told
    volumes: tuple[Volume, ...] = ()
    psus: tuple[Mapping[str, object], ...] = ()
    fans: tuple[Mapping[str, object], ...] = ()
    pcie: tuple[Mapping[str, object], ...] = ()
    bios_version: str | None = None
    power: PowerState | None = None  # of the moment of the look; None: it was not looked at
    sources: Mapping[str, str] = field(default_factory=dict)
    read_at: Mapping[str, str] = field(default_factory=dict)


class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"  # purged, or gone: never success


@dataclass(frozen=True, slots=True)
class Job:
    """A long-running act at the BMC. `ref` finds it again after a restart of the daemon; "" where the BMC names none."""

    ref: str
    state: JobState
    progress: float | None = None  # 0 to 1
    message: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """`slot` is the account's id at the BMC, which stays when its name changes."""

    slot: str
    username: str
    role: str | None = None
    enabled: bool = True
    locked: bool | None = None  # None: the BMC does not say
    password_expired: bool | None = None  # the password must be changed before anything else is allowed
    expires: str | None = None  # when the account (or its password) ends, RFC 3339; None: never, or not said


@dataclass(frozen=True, slots=True)
class AccountPolicy:
    """The BMC's rules for accounts. None: the BMC does not say. A threshold of 0: accounts never lock."""

    password_shortest: int | None = None
    password_longest: int | None = None
    username_longest: int | None = None
    lockout_threshold: int | None = None  # failed logins in a row
    lockout_s: int | None = None
    lockout_reset_s: int | None = None  # after which failures are forgotten
    password_expires_days: int | None = None  # a new password's age at which it must be changed; 0: never


BiosValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class BiosState:
    """`pending` waits for the next boot. `rejected`: attribute → why, of what the last boot did not take; "" names no attribute."""

    attributes: Mapping[str, BiosValue]
    pending: Mapping[str, BiosValue] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)


class KeyReset(StrEnum):
    FACTORY = "factory"  # the maker's keys
    DELETE_ALL = "delete-all"
    DELETE_PK = "delete-pk"  # setup mode


class SecureBootMode(StrEnum):
    """UEFI 2.10, section 32.3. Without a platform key the firmware is in setup mode, and boots anything."""

    SETUP = "setup"
    USER = "user"
    AUDIT = "audit"
    DEPLOYED = "deployed"


@dataclass(frozen=True, slots=True)
class FirmwareComponent:
    """`ref` names it in an update's targets. `updateable` None: the BMC does not say."""

    ref: str
    name: str
    version: str
    updateable: bool | None = None
    software_id: str | None = None
    state: str | None = None  # Redfish Status.State, lower-case; None: not said


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a RAID controller. `raid` is Redfish's RAIDType (RAID0, RAID1, …), None where not said."""

    ref: str
    name: str
    raid: str | None
    capacity_bytes: int | None
    drives: tuple[str, ...]  # serials
    health: str | None = None


@dataclass(frozen=True, slots=True)
class VolumeWanted:
    raid: str  # RAID0, RAID1, RAID5, RAID6, RAID10
    drives: tuple[str, ...]  # serials, all of one controller
    name: str | None = None
    capacity_bytes: int | None = None  # None: all that there is


class SensorKind(StrEnum):
    TEMPERATURE = "temperature"
    FAN = "fan"
    VOLTAGE = "voltage"
    CURRENT = "current"
    POWER = "power"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Sensor:
    """`value` None: no reading now. `unit` is UCUM as in Redfish (Cel, V, A, W, {rev}/min, %). `thresholds`: lower-critical, upper-caution, …"""

    name: str
    kind: SensorKind
    value: float | None
    unit: str | None = None
    health: str | None = None  # "ok", "warning", "critical"; None: not said
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the BMC's event log. `at` is RFC 3339 as the BMC's clock had it, None where it had none."""

    ref: str
    at: str | None
    severity: str | None  # "ok", "warning", "critical"; None: not said
    message: str
    sensor: str | None = None


@dataclass(frozen=True, slots=True)
class BmcInterface:
    name: str
    mac: str | None = None
    ipv4: tuple[str, ...] = ()  # with prefix length where it is known
    ipv6: tuple[str, ...] = ()
    gateway: str | None = None
    dhcp: bool | None = None
    vlan: int | None = None
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """A way to the serial console. `kind`: ssh, ipmi-sol, telnet, web. `how`: what a person types there, "" where nothing is known."""

    kind: str
    host: str
    port: int
    how: str = ""


@dataclass(frozen=True, slots=True)
class BmcEvent:
    """What a BMC told by itself. `ref` orders and identifies it where the BMC gives one, else ""."""

    ref: str
    at: str | None
    severity: str | None
    message: str
    message_id: str | None = None
    about: str | None = None  # path of the resource


@dataclass(frozen=True, slots=True)
class HostWay:
    """One way from the host into its BMC without a password: `redfish-host-interface`, `kcs`, `usb-lan`. `open` None: not said."""

    name: str
    open: bool | None
    closable: bool


# ---------------------------------------------------------------- capabilities


class Bmc(Protocol):
    """An open conversation with one BMC (and one of its systems). Not for use by two threads at once."""

    @property
    def address(self) -> BmcAddress: ...
    def close(self) -> None:
        """End the session at the BMC, best effort, within a few seconds; never raises."""


@runtime_checkable
class Power(Protocol):
    def power_state(self) -> PowerState:
        """What the BMC says now. A word that no standard knows, or null, is UNKNOWN: never OFF."""
        ...

    def set_power(self, action: PowerAction) -> None:
        """Ask for a power action once; being there already is success. Does not wait for the machine to get there."""
        ...


@runtime_checkable
class Readings(Protocol):
    def reading(self) -> Reading: ...


@runtime_checkable
class BootOnce(Protocol):
    def boot_once(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """Arm a one-time override, and read it back: raises NotAsAsked when the BMC shows another."""
        ...

    def boot_override(self) -> BootOverride: ...
    def clear_boot_override(self) -> None: ...


@runtime_checkable
class BootModes(Protocol):
    def boot_mode(self) -> BootMode | None: ...
    def set_boot_mode(self, mode: BootMode) -> None: ...


@runtime_checkable
class SecureBoot(Protocol):
    def secure_boot(self) -> bool | None: ...
    def set_secure_boot(self, on: bool) -> None: ...


@runtime_checkable
class VirtualMedia(Protocol):
    def insert(self, url: str) -> Slot:
        """Eject what a CD slot holds, insert `url`, read it back: raises NotAsAsked when the slot shows another."""
        ...

    def eject(self) -> None:
        """Empty every CD slot that holds something, and read back: still inserted is NotAsAsked. Empty slots are success."""
        ...

    def inserted(self) -> tuple[Slot, ...]:
        """The slots that can hold a CD, filled or empty."""
        ...


@runtime_checkable
class Inventories(Protocol):
    def inventory(self) -> Inventory: ...


@runtime_checkable
class Identifies(Protocol):
    def identity(self) -> Identity: ...
    def bmc_info(self) -> BmcInfo: ...


@runtime_checkable
class Accounts(Protocol):
    def accounts(self) -> tuple[Account, ...]: ...
    def set_password(self, username: str, password: SecretStr, slot: str | None = None) -> None:
        """Change one account's password at the BMC. The open session may end by it.

        `slot` chooses the account by its id; Refused when that one has another name by now. The own account's new password is proven by
        a login: NotAsAsked when the BMC acknowledged it and refuses that login, MaybeSent when the answer was lost and the login fails.
        """
        ...


@runtime_checkable
class DriveErase(Protocol):
    def drives(self) -> tuple[Drive, ...]: ...
    def erase(self, serial: str) -> Job:
        """Start the BMC's own erase of one drive (Redfish Drive.SecureErase)."""
        ...

    def erase_job(self, ref: str) -> Job:
        """How that erase stands. A Task that the BMC no longer knows is UNKNOWN."""
        ...


@runtime_checkable
class Baseline(Protocol):
    def baseline(self) -> Mapping[str, object]:
        """What must be the same when a tenant hands the machine back: accounts, network, firmware, boot settings. Plain JSON."""
        ...


@runtime_checkable
class BaselineMends(Protocol):
    """Put back single settings of what `baseline` shows. Each is read back; raises Unsupported where the BMC has no such setting."""

    def set_directory(self, name: str, enabled: bool, addresses: tuple[str, ...]) -> None:
        """A directory of users (LDAP, ActiveDirectory, …). Of one that is off, the addresses do not matter."""
        ...

    def remove_subscription(self, destination: str) -> None:
        """All event subscriptions to this destination."""
        ...

    def set_service(self, name: str, on: bool) -> None:
        """A network protocol of the BMC (HTTPS, SSH, IPMI, …)."""
        ...

    def set_boot_order(self, order: tuple[str, ...]) -> None: ...


@runtime_checkable
class BootAlways(Protocol):
    def boot_always(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """A lasting override, read back: raises NotAsAsked when the BMC shows another, Unsupported where it knows none."""
        ...


@runtime_checkable
class SecureBootKeys(Protocol):
    def secure_boot_mode(self) -> SecureBootMode | None:
        """None: the BMC does not say."""
        ...

    def reset_secure_boot_keys(self, to: KeyReset) -> None:
        """Ask for it once; in force from the next boot on, when `secure_boot_mode` shows it."""
        ...


@runtime_checkable
class Jobs(Protocol):
    def job(self, ref: str) -> Job:
        """How a job stands that one of the methods here began. One that the BMC no longer knows is UNKNOWN."""
        ...


@runtime_checkable
class Bios(Protocol):
    def bios(self) -> BiosState: ...
    def set_bios(self, attributes: Mapping[str, BiosValue]) -> None:
        """Write to the Settings resource; pending until the next boot. Raises Refused naming attributes that do not exist or are read-only."""
        ...

    def reset_bios(self) -> None:
        """To the maker's defaults, from the next boot on."""
        ...


@runtime_checkable
class TpmClear(Protocol):
    def clear_tpm(self) -> None:
        """Ask for it; carried out by the next boot. Raises Unsupported where the firmware offers no way."""
        ...

    def tpm_clear_waits(self) -> bool:
        """Whether it still waits for a boot."""
        ...


@runtime_checkable
class Firmware(Protocol):
    def firmware(self) -> tuple[FirmwareComponent, ...]: ...
    def update_firmware(self, url: str, targets: tuple[str, ...] = ()) -> Job:
        """The BMC fetches the image itself (UpdateService.SimpleUpdate). `targets`: refs; empty: the BMC finds out."""
        ...

    def push_firmware(self, image: Path, targets: tuple[str, ...] = ()) -> Job:
        """Send the image (MultipartHttpPushUri, else HttpPushUri)."""
        ...


@runtime_checkable
class Volumes(Protocol):
    def volumes(self) -> tuple[Volume, ...]: ...
    def create_volume(self, wanted: VolumeWanted) -> Job: ...
    def delete_volume(self, ref: str) -> Job:
        """Destroys what is on it."""
        ...


@runtime_checkable
class Sensors(Protocol):
    def sensors(self) -> tuple[Sensor, ...]: ...
    def power_draw_w(self) -> float | None:
        """What the machine draws now; None: the BMC does not say."""
        ...


@runtime_checkable
class EventLog(Protocol):
    def event_log(self, limit: int = 100) -> tuple[LogEntry, ...]:
        """The newest `limit` entries, oldest first."""
        ...

    def clear_event_log(self) -> None: ...


@runtime_checkable
class Indicator(Protocol):
    def identified(self) -> bool | None: ...
    def identify(self, on: bool) -> None: ...


@runtime_checkable
class AccountControl(Protocol):
    """Accounts by `slot` (their id), for names may be changed. What is written is read back: NotAsAsked.

    The account that the conversation itself logs in with is neither switched off nor deleted: Refused.
    """

    def account_policy(self) -> AccountPolicy: ...
    def set_account_policy(self, policy: AccountPolicy) -> None:
        """Only what is not None."""
        ...

    def create_account(self, username: str, password: SecretStr, role: str) -> Account: ...
    def enable_account(self, slot: str, on: bool) -> None: ...
    def delete_account(self, slot: str) -> None:
        """Where accounts are fixed slots: emptied, else disabled."""
        ...


@runtime_checkable
class BmcReset(Protocol):
    def reset_bmc(self, hard: bool = False) -> None:
        """Restart the BMC, not the machine. It answers nothing for minutes afterwards."""
        ...


@runtime_checkable
class BmcClock(Protocol):
    def bmc_clock(self) -> str | None:
        """RFC 3339; None: the BMC does not say."""
        ...

    def set_bmc_clock(self, at: datetime) -> None: ...


@runtime_checkable
class BmcNetwork(Protocol):
    def bmc_network(self) -> tuple[BmcInterface, ...]: ...


@runtime_checkable
class Console(Protocol):
    def consoles(self) -> tuple[ConsoleAccess, ...]:
        """The ways that are switched on, best first."""
        ...


class ConsoleStream(Protocol):
    """An open serial console, for one thread. Each method raises a DriverError when it was taken away or the BMC is gone."""

    def read(self, timeout_s: float) -> bytes:
        """What the machine wrote; empty when it wrote nothing for so long."""
        ...

    def write(self, data: bytes) -> None:
        """Type this; returns when the BMC has it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ConsoleStreams(Protocol):
    def open_console(self) -> ConsoleStream:
        """The console itself, in a session of its own; whoever had it loses it. Raises Unsupported where it is switched off."""
        ...


@runtime_checkable
class Events(Protocol):
    def events(self, wait_s: float, after: str | None = None) -> tuple[BmcEvent, ...]:
        """What came within `wait_s`: by server-sent events where the BMC offers them, else by reading its log. `after`: a ref."""
        ...


@runtime_checkable
class HostWays(Protocol):
    def host_ways(self) -> tuple[HostWay, ...]: ...
    def close_host_way(self, name: str) -> None:
        """Close one, and read it back. Raises Unsupported where the maker offers no way to."""
        ...


@runtime_checkable
class NetworkWays(Protocol):
    """What is open to whoever reaches the BMC's network, accounts apart: `cipher-0`, `unencrypted-suites`, `ipmi-1.5`, `null-user`, `ipmi-over-lan`."""

    def network_ways(self) -> tuple[HostWay, ...]: ...
    def close_network_way(self, name: str) -> None:
        """Close one, and read it back: raises NotAsAsked when it shows open still, Unsupported where there is no way to."""
        ...


@runtime_checkable
class Remembers(Protocol):
    def learned(self) -> Mapping[str, object]:
        """What was found out about this BMC, as plain JSON to be given to `open_bmc` the next time. Holds no secret.

        None stands for what was known before and turned out wrong. Asks the BMC nothing.
        """
        ...


C = TypeVar("C")


def need(bmc: object, capability: type[C]) -> C:
    """The BMC, seen as one that has this capability; raises Unsupported when its driver does not."""
    if not isinstance(bmc, capability):
        raise Unsupported(f"{getattr(bmc, 'address', bmc)}: this driver does not offer {capability.__name__}")
    return bmc


def shows(slot: Slot, url: str) -> bool:
    """Whether the slot shows this medium. Some makers show the name of the image only: paths are made so that names are never the same."""
    return slot.inserted and slot.url in (url, url.rpartition("/")[2])


def offers(bmc: object, capability: type) -> bool:
    """Whether the driver has the capability (its model may still not)."""
    return isinstance(bmc, capability)
