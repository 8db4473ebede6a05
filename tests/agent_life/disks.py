"""Disks that keep what is written to them, and nothing else: so an erase, an image and a planted pattern are judged by what is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bcmetal_agent.wire_inventory import Disk as Shown
from bcmetal_agent.wire_tasks import DiskRef

BLOCK: Final = 4096
ZEROS: Final = bytes(BLOCK)


@dataclass(slots=True)
class Disk:
    """`blocks`: number → 4096 bytes, where they are not all zeros. `obeys` False: it takes an erase, says done, and does nothing."""

    name: str
    serial: str
    size_bytes: int
    wwn: str = ""
    model: str = "MZ7LH960HAJR"
    transport: str = "ata"
    shared: bool = False
    virtual_medium: bool = False
    offers: tuple[str, ...] = ("ata-crypto", "overwrite")
    obeys: bool = True
    blocks: dict[int, bytes] = field(default_factory=dict)
    config_drive: bytes | None = field(default=None, repr=False)

    def write(self, offset: int, data: bytes) -> None:
        """Whole blocks; the last one is filled up with zeros."""
        if offset % BLOCK or offset + len(data) > self.size_bytes:
            raise ValueError(f"{len(data)} bytes at {offset} do not fit {self.name}")
        for at in range(0, len(data), BLOCK):
            piece = data[at : at + BLOCK].ljust(BLOCK, b"\0")
            if piece == ZEROS:
                self.blocks.pop((offset + at) // BLOCK, None)
            else:
                self.blocks[(offset + at) // BLOCK] = piece

    def read(self, offset: int, size: int) -> bytes:
        first, last = offset // BLOCK, -(-(offset + size) // BLOCK)
        whole = b"".join(self.blocks.get(n, ZEROS) for n in range(first, last))
        return whole[offset - first * BLOCK :][:size]

    def erase(self) -> None:
        if self.obeys:
            self.blocks.clear()
            self.config_drive = None

    def holds(self, needle: bytes) -> bool:
        """`needle` lies within one block."""
        return any(needle in block for block in self.blocks.values())

    def agrees(self, ref: DiskRef) -> bool:
        return (
            self.serial == ref.serial
            and self.size_bytes == ref.size_bytes
            and (ref.model is None or self.model == ref.model)
            and (ref.wwn is None or self.wwn == ref.wwn)
        )

    def shown(self) -> Shown:
        """As the agent's inventory tells it."""
        return Shown(
            name=self.name,
            size_bytes=self.size_bytes,
            serial=self.serial or None,
            wwn=self.wwn or None,
            model=self.model,
            transport=self.transport,
            rotational=False,
            shared=self.shared,
            virtual_medium=self.virtual_medium,
            by_path=f"pci-0000:00:17.0-{self.name}",
        )
