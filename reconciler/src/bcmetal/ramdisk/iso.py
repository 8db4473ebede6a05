"""A medium that UEFI boots: ISO 9660 with an El Torito image (FAT) that holds the kernel image, and the boot token's file.

UEFI specification 2.10, 13.3.2 (El Torito), ECMA-119 (ISO 9660).
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from bcmetal.ramdisk.faults import BuildFailed, tool

LABEL: Final = "BCMETAL"
SECTOR: Final = 2048
_EFI_IMAGE: Final = "EFI.IMG"


def make_iso(out: Path, efi: Path, files: Sequence[tuple[str, bytes]], label: str = LABEL) -> None:
    """`efi` becomes what UEFI starts; `files` lie in the root."""
    with tempfile.TemporaryDirectory(prefix=".iso-", dir=out.parent) as name:
        work = Path(name)
        root = work / "root"
        root.mkdir()
        efi_image(root / _EFI_IMAGE, efi)
        for file_name, data in files:
            (root / file_name).write_bytes(data)
        part = work / "out.iso"
        command = ["-as", "mkisofs", "-quiet", "-V", label, "-o", str(part), "-eltorito-platform", "efi"]
        command += ["-e", _EFI_IMAGE, "-no-emul-boot", str(root)]
        _run("xorriso", command, {"SOURCE_DATE_EPOCH": "0"})
        with part.open("r+b") as medium:
            _to_the_end(medium)
        part.replace(out)


def find_file(iso: BinaryIO, name: str) -> tuple[int, int]:
    """Where a file of the root folder lies: offset and length in bytes. KeyError when it is not there, ValueError for no ISO 9660."""
    iso.seek(16 * SECTOR)
    volume = iso.read(SECTOR)
    if volume[:7] != b"\x01CD001\x01":
        raise ValueError("no ISO 9660 file system")
    at, size = struct.unpack_from("<I4xI", volume, 156 + 2)
    iso.seek(at * SECTOR)
    for record in _records(iso.read(min(size, 1 << 20))):
        found = record[33 : 33 + record[32]].decode("ascii", "replace").split(";")[0].rstrip(".")
        if found == name and not record[25] & 2:
            start, length = struct.unpack_from("<I4xI", record, 2)
            return start * SECTOR, length
    raise KeyError(name)


def _records(folder: bytes) -> Iterator[bytes]:
    at = 0
    while at + 34 <= len(folder):
        length = folder[at]
        if length == 0:  # no record crosses a sector
            at += SECTOR - at % SECTOR
            continue
        yield folder[at : at + length]
        at += length


def _to_the_end(iso: BinaryIO) -> None:
    """The catalog's sector count has 16 bits, too few for an image of this size: 0 means up to the medium's end."""
    iso.seek(17 * SECTOR)
    record = iso.read(SECTOR)
    if record[:7] != b"\x00CD001\x01" or not record[7:].startswith(b"EL TORITO SPECIFICATION"):
        raise BuildFailed("xorriso made no bootable medium")
    (catalog,) = struct.unpack_from("<I", record, 0x47)
    iso.seek(catalog * SECTOR)
    if iso.read(2) != b"\x01\xef":
        raise BuildFailed("xorriso made no medium for UEFI")
    iso.seek(catalog * SECTOR + 32 + 6)
    iso.write(struct.pack("<H", 0))


def efi_image(image: Path, efi: Path) -> None:
    """A FAT file system with room for `efi` as EFI/BOOT/BOOTX64.EFI and little else. Raises BuildFailed."""
    size_kib = (efi.stat().st_size + 1023) // 1024
    total_kib = max(size_kib + size_kib // 200 + 1024, 20 * 1024)
    calm = {"MTOOLS_SKIP_CHECK": "1"}
    where = ["-i", str(image)]
    _run(
        "mformat",
        [*where, "-C", "-v", LABEL, "-N", "42434d54", "-T", str(total_kib * 2), "-h", "64", "-s", "32", "::"],
        calm,
    )
    _run("mmd", [*where, "::/EFI", "::/EFI/BOOT"], calm)
    _run("mcopy", [*where, str(efi), "::/EFI/BOOT/BOOTX64.EFI"], calm)


def _run(name: str, words: Sequence[str], settings: dict[str, str]) -> None:
    done = subprocess.run(  # noqa: S603 - a list of arguments
        [tool(name), *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        env={**os.environ, "LC_ALL": "C", **settings},
    )
    if done.returncode != 0:
        raise BuildFailed(f"{name} failed: {(done.stderr or done.stdout).strip()[-300:]}")
