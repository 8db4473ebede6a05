"""What a BMC has and says, as plain values: the arguments and answers of the capabilities.

None stands for what the BMC does not tell, unless a field says otherwise. Words are the BMC's own only where it is said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    OTHER = "other"  # shown only: something that has no name here (Usb, UefiHttp, Diags, …); it can be cleared


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
    """One virtual-media slot. `url` is None when nothing is inserted; `in_doubt`: it says that it is filled, and neither with what nor how."""

    path: str
    url: str | None
    inserted: bool
    in_doubt: bool = False

    def shows(self, url: str) -> bool:
        """Whether this medium is in it. Some makers show the name of the image only: paths are made so that names are never the same."""
        return self.inserted and self.url in (url, url.rpartition("/")[2])


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
    unread: bool = False  # named only: it was not asked for its reading


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
