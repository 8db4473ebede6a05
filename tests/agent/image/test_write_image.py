"""An image on a disk, whole and proven, on real loop devices; and what becomes of the disk when it cannot be."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import random
import subprocess
from collections.abc import Callable
from typing import Final

import pytest

from image_bench import BEFORE, MIB, ImageBench, content

RAW: Final = random.Random(4).randbytes(MIB) * 9 + random.Random(5).randbytes(1536)


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True, timeout=60).stdout


PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": zstd,
}


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("compression", PACKERS)
def test_the_disk_holds_the_image_and_gives_it_back(bench: ImageBench, compression: str, sector: int) -> None:
    disk = bench.disk(sector=sector)
    packed = PACKERS[compression](RAW)
    wrote = bench.write(disk, packed, compression=compression, raw_bytes=len(RAW))
    found = content(disk)
    assert found[: len(RAW)] == RAW
    assert wrote.written_sha256 == wrote.read_back_sha256 == hashlib.sha256(RAW).hexdigest()
    assert (wrote.downloaded_bytes, wrote.written_bytes, wrote.resumed) == (len(packed), len(RAW), 0)
    assert not any(found[-MIB:]), "an earlier system's backup table is still there"
    assert BEFORE in found[len(RAW) : -MIB]
    assert bench.doing.thousandths == sorted(bench.doing.thousandths)
    assert bench.doing.thousandths[-1] == 1000


@pytest.mark.parametrize(
    "size", [1, 511, 512, 4096, MIB - 1, MIB, MIB + 1, 4 * MIB, 8 * MIB, 15 * MIB, 16 * MIB - 7, 16 * MIB]
)
def test_an_image_of_any_size_up_to_the_disk_s_own_is_written(bench: ImageBench, size: int) -> None:
    disk = bench.disk()
    raw = os.urandom(size)
    wrote = bench.write(disk, raw)
    assert content(disk)[:size] == raw
    assert wrote.read_back_sha256 == hashlib.sha256(raw).hexdigest()
