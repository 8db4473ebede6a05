"""What an image file is, by its first bytes; and whether that is what it was said to be.

Looked at only after the checksum was right: what is refused here was published like that, or was described wrongly.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final, Literal

from bcmetal.boot.unpack import Broken, Compression, unpacked

Format = Literal["iso", "raw", "qcow2", "firmware"]  # firmware: handed to a BMC as it is, whatever it is

HEAD: Final = 0x8800  # up to the end of an ISO's first volume descriptor
_PACKED: Final[tuple[tuple[bytes, Compression], ...]] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    *((bytes([n]) + b"\x2a\x4d\x18", "zstd") for n in range(0x50, 0x60)),  # a skippable frame, RFC 8878, 3.1.2
)
_STARTS: Final = (
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "VMDK"),
    (b"COWD", "VMDK"),
    (b"# Disk DescriptorFile", "VMDK"),
    (b"vhdxfile", "VHDX"),
    (b"conectix", "VHD"),
    (b"QED\0", "QED"),
    (b"WithoutFreeSpace", "Parallels"),
    (b"WithouFreSpacExt", "Parallels"),
    (b"LUKS\xba\xbe", "LUKS"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
)


class WrongFormat(Exception):
    """The image is not what it was said to be, or of a kind that is not taken. The text names kinds only."""


def compression_of(head: bytes) -> Compression:
    return next((name for magic, name in _PACKED if head.startswith(magic)), "none")


def kind_of(head: bytes) -> str | None:
    """The kind that the first `HEAD` bytes show. None: none that has a mark, as it is with most raw images."""
    for magic, name in _STARTS:
        if head.startswith(magic):
            return name
    if head[64:68] == b"\x7f\x10\xda\xbe":
        return "VDI"
    if head[257:262] == b"ustar":
        return "tar"
    if head[0x8001:0x8006] == b"CD001":
        return "iso"
    return None


def check_format(path: Path, said: Format) -> Compression:
    """How the file is compressed. Raises WrongFormat when it is not what it was `said` to be, packed or not."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    compression = compression_of(head)
    if said == "firmware":
        return "none"
    if said == "iso":
        found = compression if compression != "none" else kind_of(head)
        if found not in (None, "iso"):
            raise WrongFormat(f"the image is said to be an ISO, and is {found}")
        return "none"
    if compression != "none":
        head = _inner_head(path, compression)
        if compression_of(head) != "none":
            raise WrongFormat(f"the image is compressed twice: {compression_of(head)} within {compression}")
    found = kind_of(head)
    if said == "qcow2" and found != "qcow2":
        raise WrongFormat(f"the image is said to be qcow2, and is {found or 'none'}")
    if said == "raw" and found is not None and not (found == "iso" and head[510:512] == b"\x55\xaa"):
        raise WrongFormat(f"the image is said to be raw, and is {found}")  # an ISO with a boot record is a disk, too
    return compression


def _inner_head(path: Path, compression: Compression) -> bytes:
    with path.open("rb") as file:
        try:
            return b"".join(islice(unpacked(file, compression, HEAD), 1))
        except Broken as error:
            raise WrongFormat(str(error)) from error
