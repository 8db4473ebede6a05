from __future__ import annotations

import gzip
import lzma
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from bcmetal.boot.formats import Format, WrongFormat, check_format
from bcmetal.boot.unpack import Broken, unpacked

DISK = bytes(510) + b"\x55\xaa" + os.urandom(400_000)
QCOW2 = b"QFI\xfb\0\0\0\3" + bytes(1000)
ISO = bytes(0x8001) + b"CD001" + bytes(100_000)


def zstd(body: bytes) -> bytes:
    done = subprocess.run(["zstd", "-q", "-c"], input=body, capture_output=True, check=True, timeout=20)
    return done.stdout


needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd: sh scripts/machine-packages.sh")
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd}

every_packer = pytest.mark.parametrize("name", ["gzip", "xz", pytest.param("zstd", marks=needs_zstd)])


def a_file(folder: Path, body: bytes) -> Path:
    (folder / "image").write_bytes(body)
    return folder / "image"


@every_packer
def test_compression_is_told_by_magic_and_looked_into(tmp_path: Path, name: str) -> None:
    pack = PACKERS[name]
    assert check_format(a_file(tmp_path, pack(DISK)), "raw") == name
    assert check_format(a_file(tmp_path, pack(QCOW2)), "qcow2") == name
    for body, said in ((QCOW2, "raw"), (DISK, "qcow2"), (pack(DISK), "raw")):
        with pytest.raises(WrongFormat):
            check_format(a_file(tmp_path, pack(body)), "raw" if said == "raw" else "qcow2")


@pytest.mark.parametrize(
    ("body", "said", "why"),
    [
        (QCOW2, "raw", "said to be raw, and is qcow2"),
        (ISO, "raw", "said to be raw, and is iso"),
        (b"KDMV" + bytes(600), "raw", "VMDK"),
        (b"vhdxfile" + bytes(600), "raw", "VHDX"),
        (bytes(64) + b"\x7f\x10\xda\xbe" + bytes(600), "raw", "VDI"),
        (bytes(257) + b"ustar" + bytes(600), "raw", "tar"),
        (DISK, "qcow2", "said to be qcow2"),
        (b"", "qcow2", "said to be qcow2"),
        (QCOW2, "iso", "said to be an ISO, and is qcow2"),
        (gzip.compress(ISO), "iso", "said to be an ISO, and is gzip"),
        (b"\x1f\x8b\x08" + os.urandom(600), "raw", "damaged"),
    ],
)
def test_what_disagrees_with_what_was_said_is_refused(tmp_path: Path, body: bytes, said: Format, why: str) -> None:
    with pytest.raises(WrongFormat, match=why):
        check_format(a_file(tmp_path, body), said)


def test_what_agrees_is_taken(tmp_path: Path) -> None:
    bootable = ISO[:510] + b"\x55\xaa" + ISO[512:]
    given: list[tuple[bytes, Format]] = [
        (DISK, "raw"), (QCOW2, "qcow2"), (ISO, "iso"), (bootable, "iso"), (bootable, "raw")
    ]  # fmt: skip
    assert [check_format(a_file(tmp_path, body), said) for body, said in given] == ["none"] * 5


@every_packer
def test_streams_are_unpacked_to_their_end_and_one_after_the_other(tmp_path: Path, name: str) -> None:
    pack = PACKERS[name]
    bodies = (bytes(3_000_000) + os.urandom(777_777), b"", b"x", bytes(2**18))
    path = a_file(tmp_path, b"".join(pack(body) for body in bodies))
    compression = check_format(path, "raw")
    with path.open("rb") as file:
        pieces = list(unpacked(file, compression))
    assert b"".join(pieces) == b"".join(bodies)
    assert {len(piece) for piece in pieces[:-1]} == {2**18}
    with path.open("rb") as file:
        assert len(b"".join(islice(unpacked(file, compression, 100), 1))) == 100


@every_packer
def test_a_stream_that_was_cut_or_hurt_is_broken(tmp_path: Path, name: str) -> None:
    compression = check_format(a_file(tmp_path, PACKERS[name](DISK)), "raw")
    whole = PACKERS[name](os.urandom(500_000))
    hurt = whole[:12] + bytes([whole[12] ^ 0xFF]) + whole[13:]
    for body in (whole[:-1], whole[: len(whole) // 2], hurt):
        path = a_file(tmp_path, body)
        with path.open("rb") as file, pytest.raises(Broken):
            list(unpacked(file, compression))


def test_a_stream_that_asks_for_gigabytes_of_memory_is_broken(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 4096}]
    small = bytearray(lzma.compress(b"x" * 100, filters=filters))
    at = small.index(b"\x21\x01", 12) + 2  # the filter's properties: the dictionary's size
    small[at] = 40  # 4 GiB
    block = bytes(small[12 : 12 + (small[12] + 1) * 4 - 4])
    small[12 + len(block) : 16 + len(block)] = zlib.crc32(block).to_bytes(4, "little")
    path = a_file(tmp_path, bytes(small))
    with path.open("rb") as file, pytest.raises(Broken, match="memory"):
        list(unpacked(file, "xz"))
