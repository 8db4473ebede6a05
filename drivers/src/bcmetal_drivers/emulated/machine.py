"""A machine of the rack: power, boot override, media, drives, and the oracle of what it booted.

The Redfish layer and the IPMI front call the same plain methods. Nothing runs in the background: whatever is due by the clock (a
lagging power transition, a Task's effect) takes place when somebody next looks or writes, with the time at which it was due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from bcmetal_drivers.emulated.board import NO_KEYS, Board
from bcmetal_drivers.resources import BootDevice, BootMode, BootOverride, PowerAction, PowerState

CD: Final = "Cd"
FLOPPY: Final = "Floppy"
SLOTS: Final = (CD, FLOPPY)
HALTED: Final = "halted"  # it stopped in its firmware
OPTICAL: Final = ("media_mapped", "same_url_boots_nothing", "hangs_without_medium")
NOTHING_ARMED: Final = BootOverride(BootDevice.NONE, once=False)


class Body(Protocol):
    """A machine that really runs and does what its record says. All but `is_on` and `folder` are called with the record's lock held."""

    @property
    def folder(self) -> Path:
        """Where media are put for it."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Those of SLOTS that it has."""

    def is_on(self) -> bool:
        """It may have switched itself off."""

    def start(self, device: BootDevice, mode: BootMode) -> None:
        """From off, or as its reset button does. When it resets itself, it asks `Machine.reset_itself` what to boot."""

    def stop(self) -> None: ...
    def press_power_button(self) -> None: ...
    def nmi(self) -> None: ...
    def load(self, slot: str, file: Path | None) -> None:
        """What is in the slot from now on; the file is the body's to delete."""


class WrongState(Exception):
    """The machine cannot do that in its power state. Redfish answers 409, IPMI 0xD5."""


@dataclass(slots=True)
class EmulatedDrive:
    """`holds_data` is the truth that the oracle knows; `says_erased` is what the BMC shows, which may be a lie."""

    serial: str
    model: str
    capacity_bytes: int
    media: str  # "SSD" or "HDD", as Redfish says
    wwn: str  # "" where it has none
    holds_data: bool = False
    says_erased: bool = True
    system: bool = False  # an operating system was installed
    erases: int = 0
    protocol: str = "SATA"
    manufacturer: str = "Samsung"


@dataclass(frozen=True, slots=True)
class Medium:
    url: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Boot:
    """One power-on or reset: what the machine booted."""

    n: int
    device: str  # a value of BootDevice, or HALTED
    url: str | None
    medium_sha256: str | None
    at: float  # on the rack's clock
    mode: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """What never changes: serials, addresses, sizes."""

    name: str
    system_id: str
    uuid: UUID
    serial: str
    board_serial: str
    sku: str
    part_number: str
    manufacturer: str
    model: str
    macs: tuple[str, ...]
    cpus: int = 2
    cores: int = 16
    memory_gib: int = 64
    dimm_mib: int = 32 * 1024
    cpu_maker: str = "Intel(R) Corporation"
    cpu_model: str = "Intel(R) Xeon(R) Gold 6326 CPU @ 2.90GHz"
    threads_per_core: int = 2


@dataclass(slots=True)
class _Pending:
    shown: PowerState
    then: PowerState
    due: float
    boots: bool


class Machine:
    """One machine. `settle_first` is called before each look and each write: the BMC's Tasks come due there."""

    def __init__(
        self,
        hardware: Hardware,
        drives: Mapping[str, EmulatedDrive],
        clock: Callable[[], float],
        power_lag_s: float = 0.0,
        body: Body | None = None,
    ) -> None:
        self.hardware = hardware
        self.body = body
        self.power_lag_s = power_lag_s
        self.ignores_soft_off = False
        self.starts_twice = 0  # so many of the next power-ons are followed by a second start, by itself
        self.media_mapped = True  # False: media are inserted and shown, and the host has none of them
        self.same_url_boots_nothing = False
        self.hangs_without_medium = False  # when what it booted from is taken out
        self.health = "OK"
        self.asset_tag = ""
        self.identify = False
        self.lock = threading.RLock()
        self.settle_first: Callable[[], None] = lambda: None
        self.board = Board()
        self.at_boot: list[
            Callable[[float], None]
        ] = []  # what a boot brings about before anything is booted; the lock is held
        self._clock = clock
        self._drives = dict(drives)
        self._power = PowerState.OFF
        self._pending: _Pending | None = None
        self._override = NOTHING_ARMED
        self._boot_mode = BootMode.UEFI
        self._media: dict[str, Medium] = {}
        self._boots: list[Boot] = []
        self._nmis = 0
        self._secure_boot = False
        self._secure_boot_now = False
        self._jammed = False
        self._hung = False
        self._urls: set[str] = set()  # that were ever inserted
        self._stale = False  # the medium's URL was there before

    # ------------------------------------------------------------ what never changes

    @property
    def name(self) -> str:
        return self.hardware.name

    @property
    def uuid(self) -> UUID:
        return self.hardware.uuid

    @property
    def serial(self) -> str:
        return self.hardware.serial

    @property
    def macs(self) -> tuple[str, ...]:
        return self.hardware.macs

    def now(self) -> float:
        """On the rack's clock."""
        return self._clock()

    # ------------------------------------------------------------ power

    @property
    def power(self) -> PowerState:
        with self._settled():
            return self._pending.shown if self._pending else self._power

    def set_power(self, action: PowerAction) -> None:
        """Obey at once, or after `power_lag_s`. Being there already changes nothing. Raises WrongState."""
        if action is PowerAction.PUSH_BUTTON:
            action = PowerAction.SOFT_OFF if self.power is PowerState.ON else PowerAction.ON
        with self._settled():
            goal = self._pending.then if self._pending else self._power
            if action is PowerAction.ON:
                if goal is not PowerState.ON:
                    self._move(PowerState.POWERING_ON, PowerState.ON, boots=True)
            elif action is PowerAction.SOFT_OFF and self.body is not None:
                if goal is not PowerState.OFF and not self.ignores_soft_off:
                    self.body.press_power_button()
            elif action in (PowerAction.OFF, PowerAction.SOFT_OFF):
                if goal is not PowerState.OFF and not (action is PowerAction.SOFT_OFF and self.ignores_soft_off):
                    self._move(PowerState.POWERING_OFF, PowerState.OFF, boots=False)
            elif goal is not PowerState.ON:
                raise WrongState(f"{action.value} of a machine that is off")
            elif action is PowerAction.SOFT_RESTART and self.ignores_soft_off:
                return
            elif action is not PowerAction.NMI:
                self._move(PowerState.POWERING_ON, PowerState.ON, boots=True)
            else:
                self._nmis += 1
                if self.body is not None:
                    self.body.nmi()

    def reset_itself(self) -> BootDevice:
        """A reset that nobody asked the BMC for: what the body boots now. It uses up an override as any other."""
        with self._settled():
            return self._boot(self._clock())

    @property
    def nmis(self) -> int:
        with self._settled():
            return self._nmis

    # ------------------------------------------------------------ boot

    @property
    def override(self) -> BootOverride:
        with self._settled():
            return self._override

    @property
    def boot_mode(self) -> BootMode:
        with self._settled():
            return self._boot_mode

    @boot_mode.setter
    def boot_mode(self, mode: BootMode) -> None:
        with self._settled():
            self._boot_mode = mode

    def switch_mode(self, mode: BootMode) -> None:
        """As a boot does by the BIOS settings; the lock is held."""
        self._boot_mode = mode

    def arm(self, device: BootDevice, once: bool, mode: BootMode | None = None) -> None:
        """Set the override for the next boot (`once`) or for all; device NONE clears it. A mode stays for later boots too."""
        with self._settled():
            self._override = NOTHING_ARMED if device is BootDevice.NONE else BootOverride(device, once, mode)
            if mode is not None:
                self._boot_mode = mode

    def jam(self) -> None:
        """It halts at every start from now on."""
        with self._settled():
            self._jammed = True

    @property
    def hung(self) -> bool:
        """Since its last start: what it ran from was taken out under it."""
        with self._settled():
            return self._hung

    @property
    def boots(self) -> list[Boot]:
        with self._settled():
            return list(self._boots)

    def would_boot(self) -> tuple[str, str | None]:
        """The device and, for a CD, the URL, if the machine were started now. A CD that is not there falls through to the disk."""
        with self._settled():
            device, medium = self._choice()
            if self._jammed:
                return HALTED, None
            return device.value, medium.url if medium else None

    @property
    def secure_boot(self) -> bool:
        """As set; in force from the next boot on (`secure_boot_in_force`)."""
        with self._settled():
            return self._secure_boot

    @secure_boot.setter
    def secure_boot(self, on: bool) -> None:
        with self._settled():
            self._secure_boot = on

    @property
    def secure_boot_in_force(self) -> bool:
        with self._settled():
            return self._secure_boot_now

    # ------------------------------------------------------------ media

    @property
    def media(self) -> str | None:
        """The URL in the virtual CD."""
        medium = self.medium()
        return medium.url if medium else None

    def medium(self, slot: str = CD) -> Medium | None:
        with self._settled():
            return self._media.get(slot)

    def insert(self, url: str, sha256: str, size: int = 0, slot: str = CD, file: Path | None = None) -> None:
        """`file`: what was downloaded, for a machine with a body."""
        with self._settled():
            self._stale = url in self._urls
            self._urls.add(url)
            self._media[slot] = Medium(url, sha256, size)
            if self.body is not None:
                self.body.load(slot, file)

    def eject(self, slot: str = CD) -> None:
        with self._settled():
            taken = self._media.pop(slot, None)
            if taken is not None and self.body is not None:
                self.body.load(slot, None)
            ran = self._boots[-1].url if self._boots and self._power is PowerState.ON else None
            self._hung = self._hung or (self.hangs_without_medium and taken is not None and ran == taken.url)

    @property
    def slots(self) -> tuple[str, ...]:
        return SLOTS if self.body is None else self.body.slots

    # ------------------------------------------------------------ drives

    @property
    def drives(self) -> dict[str, EmulatedDrive]:
        """The drives by serial number, live."""
        with self._settled():
            return self._drives

    def plant(self, serial: str) -> None:
        """Write data on a drive."""
        with self._settled():
            drive = self._drives[serial]
            drive.holds_data, drive.says_erased = True, False

    def forget(self, serials: Iterable[str]) -> None:
        """The BMC shows nothing on these drives any more, whatever they hold; the lock is held."""
        for serial in serials:
            self._drives[serial].says_erased = True

    def install(self, serial: str) -> None:
        """Write an operating system on a drive."""
        with self._settled():
            drive = self._drives[serial]
            drive.holds_data, drive.says_erased, drive.system = True, False, True

    @property
    def system_present(self) -> bool:
        return any(drive.system for drive in self.drives.values())

    def erase(self, serial: str, *, really: bool = True, visibly: bool = True) -> None:
        """The end of the BMC's own erase. `really`: the data is gone; `visibly`: the BMC shows it as gone."""
        with self._settled():
            drive = self._drives[serial]
            drive.erases += 1
            if really:
                drive.holds_data = drive.system = False
            if visibly:
                drive.says_erased = True

    # ------------------------------------------------------------ time

    def settle(self) -> None:
        """Let what is due take place. `settle_first` is never called with the lock held: what it does takes the lock itself."""
        self.settle_first()
        with self.lock:
            self._finish_transition()

    def _finish_transition(self) -> None:
        pending = self._pending
        if pending is not None and self._clock() >= pending.due:
            self._pending = None
            self._power = pending.then
            device = self._boot(pending.due) if pending.boots else None
            if device is not None and self.starts_twice > 0:
                self.starts_twice -= 1
                device = self._boot(pending.due)
            if self.body is not None and device is not None:
                self.body.start(device, self._boot_mode)
            elif self.body is not None:
                self.body.stop()
        elif pending is None and self.body is not None and self._power is PowerState.ON and not self.body.is_on():
            self._power = PowerState.OFF  # its guest switched it off

    def _settled(self) -> threading.RLock:
        self.settle()
        return self.lock

    def _move(self, shown: PowerState, then: PowerState, boots: bool) -> None:
        self._pending = _Pending(shown, then, self._clock() + self.power_lag_s, boots)
        if self.power_lag_s <= 0:
            self._finish_transition()

    def _choice(self) -> tuple[BootDevice, Medium | None]:
        device = self.board.first if self._override.device is BootDevice.NONE else self._override.device
        if device is BootDevice.CD:
            medium = self._media.get(CD)
            boots = self.media_mapped and not (self._stale and self.same_url_boots_nothing)
            return (BootDevice.CD, medium) if medium and boots else (BootDevice.DISK, None)
        return device, None

    def _boot(self, at: float) -> BootDevice:
        for begin in self.at_boot:
            begin(at)
        self.board.boot()
        self._hung = False
        device, medium = self._choice()
        self._secure_boot_now = self._secure_boot and self.board.keys["PK"] != NO_KEYS
        self._boots.append(
            Boot(
                len(self._boots) + 1,
                HALTED if self._jammed else device.value,
                medium.url if medium else None,
                medium.sha256 if medium else None,
                at,
                self._boot_mode.value,
            )
        )
        if self._override.once:
            self._override = NOTHING_ARMED
        return device

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> dict[str, Any]:
        """All that changes, as JSON. A transition under way is kept with the time that was left."""
        with self._settled():
            pending = self._pending
            return {
                "power": self._power,
                "pending": None
                if pending is None
                else {**asdict(pending), "due": max(0.0, pending.due - self._clock())},
                "override": asdict(self._override),
                "boot_mode": self._boot_mode,
                "media": {slot: asdict(medium) for slot, medium in self._media.items()},
                "boots": [asdict(boot) for boot in self._boots],
                "drives": [asdict(drive) for drive in self._drives.values()],
                "secure_boot": [self._secure_boot, self._secure_boot_now],
                "nmis": self._nmis,
                "board": self.board.snapshot(),
                "power_lag_s": self.power_lag_s,
                "ignores_soft_off": self.ignores_soft_off,
                "starts_twice": self.starts_twice,
                "optical": {name: getattr(self, name) for name in OPTICAL},
                "urls": sorted(self._urls),
                "stale": self._stale,
                "hung": self._hung,
                "jammed": self._jammed,
                "health": self.health,
                "asset_tag": self.asset_tag,
                "identify": self.identify,
            }

    def restore(self, doc: Mapping[str, Any]) -> None:
        with self.lock:
            self._power = PowerState(doc["power"])
            pending = doc["pending"]
            self._pending = pending and _Pending(
                PowerState(pending["shown"]),
                PowerState(pending["then"]),
                self._clock() + pending["due"],
                pending["boots"],
            )
            override = doc["override"]
            mode = override["mode"]
            self._override = BootOverride(BootDevice(override["device"]), override["once"], mode and BootMode(mode))
            self._boot_mode = BootMode(doc["boot_mode"])
            self._media = {slot: Medium(**medium) for slot, medium in doc["media"].items()}
            self._boots = [Boot(**boot) for boot in doc["boots"]]
            self._drives = {drive["serial"]: EmulatedDrive(**drive) for drive in doc["drives"]}
            self._secure_boot, self._secure_boot_now = doc["secure_boot"]
            self._nmis = doc["nmis"]
            self.board.restore(doc["board"])
            self.power_lag_s, self.ignores_soft_off = doc["power_lag_s"], doc["ignores_soft_off"]
            self.starts_twice, self._jammed = doc.get("starts_twice", 0), doc.get("jammed", False)
            for name, value in doc.get("optical", {}).items():
                setattr(self, name, value)
            self._urls, self._stale, self._hung = (
                set(doc.get("urls", ())),
                doc.get("stale", False),
                doc.get("hung", False),
            )
            self.health, self.asset_tag, self.identify = doc["health"], doc["asset_tag"], doc["identify"]
