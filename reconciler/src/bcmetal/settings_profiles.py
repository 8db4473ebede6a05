"""`[profiles]` and `[firmware]`: what a machine is to be, how it is tested, and how it is erased."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from bcmetal.comparing.raid import LEAST
from bcmetal.settings_tables import Named, Table
from bcmetal.settings_words import (
    BMC_ERASE,
    BiosName,
    BiosSetting,
    Erase,
    Sha256,
    Sha512,
    Word,
    image_url,
    regular_expression,
    ssh_key,
)


class FirmwareImage(Table):
    """What a component's firmware is to be. `models`: a regular expression for the whole model name of the machines that it is for.
    Without an address the version is only compared."""

    version: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    url: Annotated[str, AfterValidator(image_url)] | None = None
    sha256: Sha256 | None = None
    sha512: Sha512 | None = None
    models: Annotated[str, AfterValidator(regular_expression)] | None = None


class RaidVolume(Table):
    """`drives`: of which kind, `count` of them, alike in size."""

    raid: Literal["RAID0", "RAID1", "RAID5", "RAID6", "RAID10"]
    drives: Literal["any", "ssd", "hdd", "nvme"] = "any"
    count: int = Field(ge=1, le=64)
    name: Word | None = None

    @model_validator(mode="after")
    def _enough(self) -> RaidVolume:
        if self.count < LEAST[self.raid]:
            raise ValueError(f"{self.raid} needs at least {LEAST[self.raid]} drives")
        return self


class Tests(Table):
    """The hardware tests of a commission. `disks`: smart asks the disks themselves, read also reads them from end to end for at most
    `disk_read_s`. `disk_floor_mbps`: megabytes a second that every disk must give. `network`: how many links must be up.
    `watch_s`: for so long links and the clock are watched; the clock's drift is judged from 60 on."""

    cpu_s: int = Field(0, ge=0, le=7 * 86_400)
    memory_s: int = Field(0, ge=0, le=7 * 86_400)
    disks: Literal["none", "smart", "read"] = "none"
    disk_read_s: int = Field(3600, ge=1, le=7 * 86_400)
    disk_speed_s: int = Field(0, ge=0, le=3600)
    disk_floor_mbps: int | None = Field(None, ge=1)
    network: int | None = Field(None, ge=0, le=64)
    gpu_s: int = Field(0, ge=0, le=7 * 86_400)
    clock: bool = False
    watch_s: int = Field(60, ge=5, le=3600)
    limits: dict[Word, dict[Word, float]] = Field({})


class Expect(Table):
    """The least that the machine must have. `model` is a regular expression for the whole model name."""

    cpus: int | None = Field(None, ge=1)
    memory_gib: int | None = Field(None, ge=1)
    drives: int | None = Field(None, ge=0)
    model: Annotated[str, AfterValidator(regular_expression)] | None = None


class _Erasing(Named):
    erase: Erase

    @property
    def erases(self) -> bool:
        return self.erase != "none"

    @property
    def agent_methods(self) -> tuple[str, ...]:
        """Those of its methods that are the agent's, in the order of preference."""
        return () if isinstance(self.erase, str) else tuple(one for one in self.erase if one != BMC_ERASE)

    @property
    def bmc_erases(self) -> bool:
        return BMC_ERASE in self.erase and not isinstance(self.erase, str)


class CommissionProfile(_Erasing):
    """`bom`: a bill of materials that the machine must be (`bcmetal bom learn`). `hold_on_failure_s`: for so long a machine that failed a
    hardware test is left running, with SSH open to `hold_keys`. `unsupported`: what it means that the BMC has no way to what the profile
    wants. `rotate_bmc`: the BMC gets a password of its own."""

    boot_mode: Literal["uefi", "legacy"] | None = None
    secure_boot: bool | None = None
    secure_boot_keys: Literal["factory"] | None = None
    firmware: Word | None = None
    bios: dict[BiosName, BiosSetting] = Field({})
    raid: tuple[RaidVolume, ...] = ()
    unsupported: Literal["fail", "skip"] = "fail"
    close_host_ways: bool = True
    close_network_ways: bool = True
    rotate_bmc: bool = False
    expect: Expect = Expect()
    bom: Path | None = None
    tests: Tests = Tests()
    hold_on_failure_s: int = Field(0, ge=0, le=7 * 86_400)
    hold_keys: tuple[Annotated[str, StringConstraints(max_length=4096), AfterValidator(ssh_key)], ...] = ()


class ReleaseProfile(_Erasing):
    """`unerased`: what a drive that cannot be erased means: the release fails, or a waiver may pass over it."""

    unerased: Literal["fail", "waiver"] = "fail"
    rotate_bmc: bool = False
    clear_tpm: bool = True


class Profiles(Table):
    commission: dict[Word, CommissionProfile] = Field({})
    release: dict[Word, ReleaseProfile] = Field({})
