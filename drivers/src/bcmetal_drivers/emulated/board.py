"""What a machine's firmware keeps: BIOS settings, and what waits for the next boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from bcmetal_drivers.resources import BiosValue, BootDevice

DEFAULTS: Final[Mapping[str, BiosValue]] = {
    "BootMode": "Uefi",
    "ProcVirtualization": "Enabled",
    "SriovGlobalEnable": "Disabled",
    "WorkloadProfile": "GeneralPowerEfficient",
    "AcPowerRecovery": "Last",
    "BootRetryCount": 3,
    "QuietBoot": True,
    "AssetTag": "",
    "SystemBiosVersion": "2.14.1",
}
READ_ONLY: Final = ("SystemBiosVersion",)
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "BootMode": ("Uefi", "Bios"),
    "ProcVirtualization": ("Enabled", "Disabled"),
    "SriovGlobalEnable": ("Enabled", "Disabled"),
    "WorkloadProfile": ("GeneralPowerEfficient", "Virtualization", "LowLatency"),
    "AcPowerRecovery": ("On", "Off", "Last"),
}
OPTIONS: Final[Mapping[str, BootDevice]] = {
    "Boot0001": BootDevice.DISK,
    "Boot0002": BootDevice.PXE,
    "Boot0003": BootDevice.CD,
}
DATABASES: Final = ("PK", "KEK", "db", "dbx")
FACTORY, NO_KEYS = "factory", "none"


@dataclass(slots=True)
class RaidVolume:
    id: str
    name: str
    raid: str
    capacity_bytes: int
    drives: list[str]  # serials; none: it is to go


@dataclass(slots=True)
class Board:
    bios: dict[str, BiosValue] = field(default_factory=lambda: dict(DEFAULTS))
    bios_pending: dict[str, BiosValue] = field(default_factory=dict)
    tpm_clears: int = 0  # how often a boot cleared the TPM
    bios_reset: bool = False  # to the defaults at the next boot
    bios_messages: list[dict[str, Any]] = field(default_factory=list)  # of the last boot that changed something
    firmware_pending: dict[str, str] = field(default_factory=dict)
    boot_order: list[str] = field(default_factory=lambda: list(OPTIONS))
    order_pending: list[str] = field(default_factory=list)
    volumes: dict[str, RaidVolume] = field(default_factory=dict)
    volumes_waiting: list[RaidVolume] = field(default_factory=list)  # for the next boot
    keys: dict[str, str] = field(default_factory=lambda: dict.fromkeys(DATABASES, FACTORY))  # factory, custom or none
    keys_pending: dict[str, str] = field(default_factory=dict)
    post_began: float | None = None  # on the rack's clock

    def boot(self) -> None:
        """What waited for the boot is so, the BIOS settings aside: those may be rejected."""
        self.boot_order, self.order_pending = self.order_pending or self.boot_order, []
        self.keys, self.keys_pending = {**self.keys, **self.keys_pending}, {}

    @property
    def first(self) -> BootDevice:
        """The device of the first boot option."""
        return OPTIONS[self.boot_order[0]]

    def snapshot(self) -> dict[str, Any]:
        return asdict(self) | {"post_began": None}

    def restore(self, doc: Mapping[str, Any]) -> None:
        for known in fields(self):
            setattr(self, known.name, doc[known.name])
        self.volumes = {name: RaidVolume(**volume) for name, volume in doc["volumes"].items()}
        self.volumes_waiting = [RaidVolume(**volume) for volume in doc["volumes_waiting"]]
