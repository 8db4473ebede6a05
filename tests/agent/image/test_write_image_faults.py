"""What can go wrong with an image: each ends with its reason, and on a disk that boots nothing."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from bcmetal_agent.tasks.doing import Stopped, TaskFailed
from bcmetal_agent.tasks.write_image import write_image
from bcmetal_agent.wire_tasks import DiskRef
from bcmetal_drivers.emulated.disks import FakeDisk
from image_bench import BEFORE, MIB, QUICK, Door, ImageBench, boots_nothing, content

RAW: Final = random.Random(5).randbytes(6 * MIB) + bytes(3 * MIB)


def zstd(data: bytes, *options: str) -> bytes:
    return subprocess.run(
        ["zstd", "-q", "-c", *options], input=data, capture_output=True, check=True, timeout=60
    ).stdout


def failed(bench: ImageBench, disk: FakeDisk, packed: bytes, door: Door | None = None, **other: Any) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        bench.write(disk, packed, door, **other)
    return caught.value


# ---------------------------------------------------------------- the download


def test_a_wrong_checksum_leaves_a_disk_that_boots_nothing(bench: ImageBench) -> None:
    disk = bench.disk()
    damaged = bytearray(RAW)
    damaged[5 * MIB] ^= 1
    assert failed(bench, disk, RAW, Door(bytes(damaged))).code == "image-checksum"
    assert boots_nothing(disk)


@pytest.mark.parametrize("size", [16 * MIB, 16 * MIB - 4096])
def test_the_backup_table_of_an_image_that_nobody_vouches_for_is_not_written_either(
    bench: ImageBench, size: int
) -> None:
    disk = bench.disk()
    image = os.urandom(size)
    assert failed(bench, disk, image, sha256=hashlib.sha256(b"").hexdigest()).code == "image-checksum"
    assert boots_nothing(disk)


@pytest.mark.parametrize("slice_bytes", [None, 70_001])
def test_an_answer_that_is_cut_goes_on_where_it_was(bench: ImageBench, slice_bytes: int | None) -> None:
    disk = bench.disk()
    faults = (2 * MIB + 17, OSError("refused"), ("ends", 3 * MIB), ConnectionResetError("reset"), 0)
    door = Door(RAW, *faults, slice_bytes=slice_bytes)
    wrote = bench.write(disk, RAW, door)
    assert content(disk)[: len(RAW)] == RAW
    assert wrote.resumed == 5
    assert door.offsets == sorted(door.offsets)
    assert door.offsets[0] == 0
    assert door.offsets[-1] > 5 * MIB


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_packed_image_goes_on_in_the_middle_of_its_packing(bench: ImageBench, compression: str) -> None:
    disk = bench.disk()
    packed = gzip.compress(RAW, 1) if compression == "gzip" else zstd(RAW)
    wrote = bench.write(disk, packed, Door(packed, MIB + 1, ("ends", MIB + 1)), compression=compression)
    assert content(disk)[: len(RAW)] == RAW
    assert wrote.resumed == 2


def test_a_server_that_stalls_for_good_ends_the_task(bench: ImageBench) -> None:
    disk = bench.disk()
    door = Door(RAW, *[("hangs", 2 * MIB), ("hangs", 0), ("hangs", 0), ("hangs", 0)])
    try:
        said = failed(bench, disk, RAW, door)
    finally:
        door.release()
    assert said.code == "image-stalled"
    assert f"byte {2 * MIB} of {len(RAW)}" in str(said)
    assert boots_nothing(disk)


def test_a_server_that_stalls_once_is_left_for_another_connection(bench: ImageBench) -> None:
    disk = bench.disk()
    door = Door(RAW, ("hangs", 2 * MIB))
    try:
        assert bench.write(disk, RAW, door).resumed == 1
    finally:
        door.release()
    assert content(disk)[: len(RAW)] == RAW


def test_an_image_that_always_ends_at_the_same_byte_is_truncated(bench: ImageBench) -> None:
    disk = bench.disk()
    said = failed(bench, disk, RAW, Door(RAW[: 4 * MIB + 3]))
    assert said.code == "image-truncated"
    assert boots_nothing(disk)


def test_what_comes_behind_the_image_is_not_read(bench: ImageBench) -> None:
    disk = bench.disk()
    bench.write(disk, RAW, Door(RAW + b"more" * MIB))
    found = content(disk)
    assert found[: len(RAW)] == RAW
    assert BEFORE in found[len(RAW) : len(RAW) + MIB]


# ---------------------------------------------------------------- sizes and packing


def test_an_image_larger_than_the_disk_is_refused_before_anything_is_written(bench: ImageBench) -> None:
    disk = bench.disk(8 * MIB)
    before = content(disk)
    packed = gzip.compress(RAW, 1)
    door = Door(RAW)
    assert failed(bench, disk, RAW, door).code == "image-too-large"
    assert failed(bench, disk, packed, door, compression="gzip", raw_bytes=len(RAW)).code == "image-too-large"
    assert door.offsets == []
    assert content(disk) == before


BOMB: Final[dict[str, Callable[[], bytes]]] = {
    "gzip": lambda: gzip.compress(bytes(64 * MIB), 9),
    "xz": lambda: lzma.compress(bytes(64 * MIB), preset=0),
    "zstd": lambda: zstd(bytes(64 * MIB)),
}


@pytest.mark.parametrize("compression", BOMB)
def test_a_bomb_is_stopped_by_the_disk_or_by_the_size_that_was_named(bench: ImageBench, compression: str) -> None:
    disk = bench.disk()
    packed = BOMB[compression]()
    assert len(packed) < MIB
    assert failed(bench, disk, packed, compression=compression).code == "image-too-large"
    assert boots_nothing(disk)
    assert failed(bench, disk, packed, compression=compression, raw_bytes=MIB).code == "image-unpack"
    assert boots_nothing(disk)


def test_an_image_that_unpacks_to_less_than_was_named_is_truncated(bench: ImageBench) -> None:
    disk = bench.disk()
    packed = gzip.compress(RAW, 1)
    assert failed(bench, disk, packed, compression="gzip", raw_bytes=len(RAW) + 512).code == "image-truncated"
    assert boots_nothing(disk)


@pytest.mark.parametrize(
    ("compression", "pack"),
    [("gzip", gzip.compress), ("xz", lambda data: lzma.compress(data, preset=0)), ("zstd", zstd)],
)
def test_packing_that_is_cut_or_damaged_is_told_from_a_damaged_download(
    bench: ImageBench, compression: str, pack: Callable[[bytes], bytes]
) -> None:
    disk = bench.disk()
    packed = pack(RAW[: 2 * MIB] + RAW[-2 * MIB :])
    assert failed(bench, disk, packed[:-5], compression=compression).code == "image-truncated"
    damaged = bytearray(packed)
    damaged[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    assert failed(bench, disk, bytes(damaged), compression=compression).code == "image-unpack"
    assert failed(bench, disk, packed, Door(bytes(damaged)), compression=compression).code == "image-checksum"
    assert failed(bench, disk, b"no such file" * 100, compression=compression).code == "image-unpack"
    assert failed(bench, disk, packed + b"junk behind it", compression=compression).code == "image-unpack"
    assert boots_nothing(disk)


@pytest.mark.parametrize("compression", ["gzip", "xz", "zstd"])
def test_files_joined_together_unpack_to_all_of_them(bench: ImageBench, compression: str) -> None:
    disk = bench.disk()
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "xz": lzma.compress, "zstd": zstd}
    pack = packers[compression]
    packed = pack(b"one" * 1000) + pack(b"two" * 1000) + (b"" if compression == "zstd" else bytes(8))
    bench.write(disk, packed, Door(packed, slice_bytes=7 if compression != "zstd" else None), compression=compression)
    assert content(disk).startswith(b"one" * 1000 + b"two" * 1000)


def test_a_window_larger_than_the_ramdisk_s_memory_is_refused(bench: ImageBench) -> None:
    packed = zstd(bytes(300 * MIB), "--ultra", "-1", "--long=28", "--zstd=wlog=28")
    assert failed(bench, bench.disk(), packed, compression="zstd").code == "image-unpack"


@pytest.mark.parametrize("other", [{"sha256": "no"}, {"size_bytes": 0}, {"raw_bytes": 5}, {"raw_bytes": -1}])
def test_params_that_say_nothing_write_nothing(bench: ImageBench, other: dict[str, Any]) -> None:
    disk = bench.disk()
    before = content(disk)
    assert failed(bench, disk, RAW, **other).code == "bad-params"
    assert content(disk) == before


# ---------------------------------------------------------------- the disk


def test_only_the_disk_of_the_plan_is_written(bench: ImageBench) -> None:
    one, other = bench.disk(serial="S1"), bench.disk(serial="S2")
    before = content(other)
    bench.write(one, RAW)
    assert content(other) == before
    wrong = bench.params(other, RAW)
    for field, value in {"serial": "S3", "size_bytes": 1, "model": "another", "wwn": "0x5000c50099999999"}.items():
        disk = DiskRef(
            **{**{n: getattr(wrong.disk, n) for n in ("serial", "size_bytes", "model", "wwn")}, field: value}
        )
        with pytest.raises(TaskFailed) as caught:
            write_image(
                bench.params(other, RAW).__class__(disk, wrong.sha256, len(RAW)),
                bench.doing,
                Door(RAW),
                bench.where,
                QUICK,
            )
        assert caught.value.code == "disk-missing"
    bench.cabinet.mount(other, "/mnt")
    assert failed(bench, other, RAW).code == "disk-in-use"
    assert content(other) == before


@pytest.fixture
def small_folder(tmp_path: Path) -> Iterator[Path]:
    """A filesystem that takes 6 MiB and no more: a disk on it fails half-way."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, timeout=10
    )
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield folder
    deadline = time.monotonic() + 10
    while (
        subprocess.run(["umount", folder], capture_output=True, timeout=10).returncode and time.monotonic() < deadline
    ):
        time.sleep(0.1)


def test_a_disk_that_fails_half_way_is_told_with_its_byte(small_folder: Path, bench: ImageBench) -> None:
    disk = bench.attach(bench.file(16 * MIB, small_folder))
    said = failed(bench, disk, os.urandom(12 * MIB))
    assert said.code == "disk-write-failed"
    assert "S1" in str(said)
    assert "byte" in str(said)
    assert not any(content(disk)[:MIB])


def test_a_disk_that_gives_back_something_else_is_found_before_it_could_boot(bench: ImageBench) -> None:
    disk = bench.disk()

    at = 5 * MIB

    class Spoiling:
        """Behind the agent's back, when all was written and nothing read back."""

        def progress(self, thousandths: int, message: str | None = None) -> None:
            if message is not None and message.startswith("reading back"):
                with disk.node.open("r+b") as f:
                    f.seek(at)
                    f.write(b"\xff" * 512)
                    os.fsync(f.fileno())

        def log(self, text: str) -> None:
            return None

        def check(self) -> None:
            return None

    with pytest.raises(TaskFailed) as caught:
        write_image(bench.params(disk, RAW), Spoiling(), Door(RAW), bench.where, QUICK)
    assert caught.value.code == "disk-read-back-differs"
    assert boots_nothing(disk)


# ---------------------------------------------------------------- stopped, killed


def test_a_task_that_nobody_waits_for_stops_within_a_second_of_a_hanging_server(bench: ImageBench) -> None:
    disk = bench.disk()
    door = Door(RAW, ("hangs", 4 * MIB))
    bench.doing.stop_at = 1
    began = time.monotonic()
    try:
        with pytest.raises(Stopped):
            bench.write(disk, RAW, door)
    finally:
        door.release()
    assert time.monotonic() - began < 5
    assert boots_nothing(disk)


def test_no_thread_and_no_program_outlives_its_task(bench: ImageBench) -> None:
    before = set(threading.enumerate())
    disk = bench.disk()
    bench.write(disk, RAW)
    failed(bench, disk, zstd(bytes(64 * MIB)), compression="zstd")
    deadline = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


KILLED: Final = """
import sys
from pathlib import Path
from image_bench import Door, QUICK
from erase_bench import Recorder
from bcmetal_agent.tasks.disks import Where
from bcmetal_agent.tasks.write_image import write_image
from bcmetal_agent.wire_tasks import DiskRef, WriteImageParams

folder, raw, serial, size, sha256 = sys.argv[1:]
packed = Path(raw).read_bytes()
door = Door(packed, ("hangs", 7 << 20))
door.on_read = lambda offset: print(offset, flush=True)
where = Where(Path(folder, "sys"), Path(folder, "dev"), Path(folder, "proc"))
params = WriteImageParams(DiskRef(serial, int(size)), sha256, len(packed))
write_image(params, Recorder(), door, where)
"""


def test_killed_half_way_and_done_again_the_disk_holds_the_image(bench: ImageBench, tmp_path: Path) -> None:
    disk = bench.disk()
    raw = tmp_path / "raw"
    raw.write_bytes(RAW)
    argv = [str(tmp_path / "cabinet"), str(raw), "S1", str(disk.size_bytes), hashlib.sha256(RAW).hexdigest()]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", KILLED, *argv], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 7 * MIB:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    assert boots_nothing(disk)
    assert bench.write(disk, RAW).resumed == 0
    assert content(disk)[: len(RAW)] == RAW
