"""Our GUID partition tables, judged by sgdisk, which is not ours; and what hostile images say in their place."""

from __future__ import annotations

import shutil
import struct
import subprocess
import uuid
import zlib
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcmetal_agent.tasks import gpt
from image_bench import MIB, ImageBench

SGDISK: Final = shutil.which("sgdisk", path="/usr/sbin:/usr/bin:/sbin")
needs_sgdisk = pytest.mark.skipif(SGDISK is None, reason="needs sgdisk (package gdisk)")


class Memory:
    """A disk in memory; a get or put that is no whole block, or beyond its end, is an error."""

    def __init__(self, data: bytes, block: int = 512) -> None:
        self.data, self.block, self.size_bytes = bytearray(data), block, len(data)

    def get(self, start: int, length: int, /) -> bytes:
        self._check(start, length)
        return bytes(self.data[start : start + length])

    def put(self, start: int, data: bytes, /) -> None:
        self._check(start, len(data))
        self.data[start : start + len(data)] = data

    def flush(self) -> None:
        return None

    def _check(self, start: int, length: int) -> None:
        if start % self.block or length % self.block or not 0 <= start <= start + length <= self.size_bytes:
            raise ValueError(f"{length} bytes at {start}")


def sgdisk(path: Path, *options: str) -> str:
    assert SGDISK is not None
    argv = [SGDISK, *options, str(path)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout


def verified(path: Path) -> bool:
    return "No problems found" in sgdisk(path, "-v")


def empty_table(size: int, block: int) -> gpt.Table:
    blocks = size // block
    array = 128 * 128 // block
    return gpt.Table(uuid.uuid4().bytes_le, blocks, block, 2 + array, blocks - 2 - array, 2, 128, 128)


def protective(block: int) -> bytes:
    mbr = bytearray(block)
    struct.pack_into("<B3sB3sII", mbr, 446, 0, b"\0\x02\0", 0xEE, b"\xff\xff\xff", 1, 1)
    mbr[510:512] = b"\x55\xaa"
    return bytes(mbr)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """As cloud images are: the root last by place and first by number, on a disk of 8 MiB."""
    path = tmp_path / "image"
    path.write_bytes(bytes(8 * MIB))
    sgdisk(
        path,
        "-n",
        "14:2048:+1M",
        "-t",
        "14:ef02",
        "-n",
        "15:4096:+2M",
        "-t",
        "15:ef00",
        "-c",
        "15:esp",
        "-n",
        "1:8192:0",
        "-A",
        "1:set:2",
    )
    return path


@needs_sgdisk
def test_a_table_of_a_smaller_image_is_moved_to_the_disk_s_end(image: Path) -> None:
    data = image.read_bytes() + bytes(24 * MIB)
    disk = Memory(data)
    table = gpt.read(disk)
    assert sorted(table.entries) == [1, 14, 15]
    moved = gpt.moved_to_end(table, disk.size_bytes)
    room = gpt.Entry(gpt.LINUX, uuid.uuid4(), 57344, 61439, name="häuser")
    added, number = gpt.added(moved, room)
    assert number == 2
    grown = gpt.grown(added, 1, 57343)
    gpt.write(disk, grown)
    image.write_bytes(disk.data)
    assert verified(image)
    said = sgdisk(image, "-i", "2")
    assert "57344" in said
    assert "häuser" in said
    assert "(at 28.0 MiB)" in sgdisk(image, "-i", "1")
    assert sgdisk(image, "-A", "1:show").strip() == "1:2:1 (legacy BIOS bootable)"
    assert gpt.read(disk) == grown


@needs_sgdisk
@pytest.mark.parametrize("damage", [1, 2], ids=["header", "entries"])
def test_the_copy_at_the_end_serves_when_the_first_is_damaged(image: Path, damage: int) -> None:
    disk = Memory(image.read_bytes())
    before = gpt.read(disk)
    disk.data[damage * 512 + 60] ^= 1
    assert gpt.read(disk) == before
    gpt.write(disk, gpt.read(disk))
    image.write_bytes(disk.data)
    assert verified(image)


@needs_sgdisk
def test_sgdisk_finds_no_fault_on_a_disk_with_sectors_of_4096_bytes(bench: ImageBench) -> None:
    node = bench.disk(32 * MIB, sector=4096, fill=False).node
    disk = Memory(protective(4096) + bytes(32 * MIB - 4096), 4096)
    table, _ = gpt.added(empty_table(32 * MIB, 4096), gpt.Entry(gpt.LINUX, uuid.uuid4(), 256, 511, name="one"))
    gpt.write(disk, table)
    node.write_bytes(disk.data)
    assert verified(node)
    assert "sectors, 32.0 MiB" in sgdisk(node, "-p")


def test_an_image_for_another_sector_size_is_told_so() -> None:
    small = Memory(protective(512) + bytes(32 * MIB - 512))
    gpt.write(small, empty_table(32 * MIB, 512))
    with pytest.raises(gpt.BadTable, match="made for sectors of 512 bytes, the disk has 4096"):
        gpt.read(Memory(bytes(small.data), 4096))


def test_what_does_not_fit_is_refused() -> None:
    table = empty_table(32 * MIB, 512)
    one = gpt.Entry(gpt.LINUX, uuid.uuid4(), 2048, 4095)
    table, number = gpt.added(table, one)
    for first, last in ((4095, 5000), (0, 100), (5000, 4999), (5000, 65536), (2000, 9000)):
        with pytest.raises(gpt.NoRoom):
            gpt.added(table, gpt.Entry(gpt.LINUX, uuid.uuid4(), first, last))
    table, _ = gpt.added(table, gpt.Entry(gpt.LINUX, uuid.uuid4(), 5000, 5999))
    for last in (5000, 6000, 4094, 65536):
        with pytest.raises(gpt.NoRoom):
            gpt.grown(table, number, last)
    with pytest.raises(gpt.NoRoom):
        gpt.moved_to_end(table, 6000 * 512)


def test_a_hybrid_mbr_is_left_as_it_is() -> None:
    mbr = bytearray(protective(512))
    struct.pack_into("<B3sB3sII", mbr, 462, 0x80, b"\0\0\0", 0x0C, b"\0\0\0", 2048, 2048)
    disk = Memory(bytes(mbr) + bytes(32 * MIB - 512))
    gpt.write(disk, empty_table(32 * MIB, 512))
    assert disk.get(0, 512) == mbr


def _partitions(blocks: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    cuts = st.lists(st.integers(64, blocks - 64), min_size=2, max_size=24, unique=True).map(sorted)
    return cuts.map(lambda at: [(a, b - 1) for a, b in zip(at[::2], at[1::2], strict=False)])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    block=st.sampled_from([512, 4096]),
    parts=_partitions(4096),
    names=st.lists(
        st.text(st.characters(codec="utf-16-le", exclude_characters="\0"), max_size=18), min_size=12, max_size=12
    ),
    attributes=st.integers(0, 2**64 - 1),
    entry_bytes=st.sampled_from([128, 256]),
)
def test_what_was_written_is_read(
    block: int, parts: list[tuple[int, int]], names: list[str], attributes: int, entry_bytes: int
) -> None:
    disk = Memory(protective(block) + bytes(4096 * block - block), block)
    array = -(-12 * entry_bytes // block)
    table = gpt.Table(uuid.uuid4().bytes_le, 4096, block, 2 + array, 4094 - array, 2, 12, entry_bytes)
    for (first, last), name in zip(parts, names, strict=False):
        table, _ = gpt.added(table, gpt.Entry(gpt.LINUX, uuid.uuid4(), first, last, attributes, name))
    gpt.write(disk, table)
    assert gpt.read(disk) == table
    disk.data[block : 2 * block] = bytes(block)
    assert gpt.read(disk) == table


@settings(max_examples=300)
@given(data=st.data())
def test_hostile_headers_are_refused_or_read_within_bounds(data: st.DataObject) -> None:
    """With right checksums, so that all behind them is reached."""
    disk = Memory(protective(512) + bytes(MIB - 512))
    number = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 4096))
    small = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 92, 128, 256, 512, 4096]))
    first, last, at = (data.draw(number) for _ in range(3))
    size, count, entry = (data.draw(small) for _ in range(3))
    entries = data.draw(st.binary(min_size=128, max_size=512))
    disk.data[1024 : 1024 + len(entries)] = entries
    array = bytes(disk.data[at * 512 : at * 512 + count * entry]) if at < 2048 and count * entry <= MIB else b""
    raw = struct.pack(
        "<8sIIIIQQQQ16sQIII",
        b"EFI PART",
        0x10000,
        size,
        0,
        0,
        1,
        2047,
        first,
        last,
        bytes(16),
        at,
        count,
        entry,
        zlib.crc32(array),
    ).ljust(512, b"\0")
    crc = zlib.crc32(raw[:size] if size <= 512 else raw)
    disk.data[512:1024] = raw[:16] + struct.pack("<I", crc) + raw[20:]
    try:
        table = gpt.read(disk)
    except gpt.BadTable:
        return
    assert all(2 <= e.first <= e.last < 2048 for e in table.entries.values())
    try:
        table = gpt.moved_to_end(table, MIB)
    except gpt.NoRoom:
        return
    gpt.write(disk, table)
    assert gpt.read(disk).entries == table.entries
