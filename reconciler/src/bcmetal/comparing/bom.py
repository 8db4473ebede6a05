"""A bill of materials: what a machine of some kind is made of, as a TOML file that people read, mend and keep.

What a file does not name is not judged. `learn` writes one from a machine that is as it should be.
"""

from __future__ import annotations

import tomllib
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from bcmetal.errors import Fault, InvalidInput
from bcmetal.settings_faults import faults_of

FILE_LIMIT: Final = 256 * 1024
PARTS_LIMIT: Final = 512

Text = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Count = Annotated[int, Field(ge=0, le=PARTS_LIMIT)]
Threads = Annotated[int, Field(ge=0, le=8192)]
Some = Annotated[int, Field(ge=1, le=PARTS_LIMIT)]
Size = Annotated[float, Field(ge=0, le=1e9)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BoardTable(_Table):
    maker: Text | None = None
    product: Text | None = None


class FirmwareTable(_Table):
    """`versions`: any of these."""

    boot_mode: Literal["uefi", "legacy"] | None = None
    secure_boot: bool | None = None
    versions: Annotated[list[Text], Field(max_length=32)] | None = None


class CpuTable(_Table):
    """`cores` and `threads` of each CPU."""

    count: Count | None = None
    model: Text | None = None
    cores: Threads | None = None
    threads: Threads | None = None


class MemoryTable(_Table):
    """`min_gib`: what the kernel has. `modules` of `module_gib` each; `min_mts`: the slowest that is allowed."""

    min_gib: Size | None = None
    modules: Count | None = None
    module_gib: Size | None = None
    type: Text | None = None
    min_mts: Annotated[int, Field(ge=0, le=100_000)] | None = None


class DiskGroup(_Table):
    """So many disks of one kind. Gigabytes are those of the label, 10⁹ bytes."""

    count: Some
    model: Text | None = None
    transport: Text | None = None
    rotational: bool | None = None
    min_gb: Size | None = None
    max_gb: Size | None = None
    firmware: Annotated[list[Text], Field(max_length=32)] | None = None


class NicGroup(_Table):
    """So many ports of one kind, of which `links` have a carrier, at `min_mbps` or faster."""

    count: Some
    model: Text | None = None
    driver: Text | None = None
    links: Count = 0
    min_mbps: Annotated[int, Field(ge=0, le=10_000_000)] | None = None


class GpuGroup(_Table):
    count: Some
    model: Text | None = None
    min_memory_gib: Size | None = None


class TpmTable(_Table):
    version: Literal["1.2", "2.0"] | None = None
    maker: Text | None = None


class Bom(_Table):
    """`more`: disks, network cards and GPUs beyond those of the file are no mismatch."""

    more: bool = False
    board: BoardTable = BoardTable()
    firmware: FirmwareTable = FirmwareTable()
    cpus: CpuTable = CpuTable()
    memory: MemoryTable = MemoryTable()
    disks: Annotated[list[DiskGroup], Field(max_length=64)] | None = None
    nics: Annotated[list[NicGroup], Field(max_length=64)] | None = None
    gpus: Annotated[list[GpuGroup], Field(max_length=64)] | None = None
    tpm: TpmTable | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Bom:
        for groups in (self.disks, self.nics, self.gpus):
            if sum(one.count for one in groups or ()) > PARTS_LIMIT:
                raise ValueError(f"counts more than {PARTS_LIMIT} parts of one kind")
        return self


def parse(text: str) -> Bom:
    """Raises InvalidInput with every fault under its path in the file, such as `disks[1].min_gb`."""
    if len(text) > FILE_LIMIT:
        raise InvalidInput([Fault("", f"is longer than {FILE_LIMIT} characters")])
    try:
        doc = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput([Fault("", f"is no TOML: {error}")]) from None
    try:
        return Bom.model_validate(doc)
    except ValidationError as error:
        raise InvalidInput(faults_of(error, Bom)) from None
