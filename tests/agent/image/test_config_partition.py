"""The config drive's partition on disks as images leave them, judged by sgdisk, sfdisk and blkid."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pycdlib
import pytest

from bcmetal_agent.tasks.config_partition import write_config_drive
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.wire_tasks import WriteConfigDriveParams, WroteConfigDrive
from bcmetal_drivers.emulated.disks import FakeDisk
from image_bench import MIB, ImageBench, content, ref

pytestmark = pytest.mark.skipif(
    any(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None for name in ("sgdisk", "sfdisk", "blkid")),
    reason="needs sgdisk, sfdisk and blkid (packages gdisk, fdisk, util-linux)",
)
CLOUD: Final = ("-n", "14:2048:+1M", "-t", "14:ef02", "-n", "15:4096:+2M", "-t", "15:ef00", "-n", "1:8192:0")


def iso(said: str, label: str = "cidata", size: int = 0) -> bytes:
    made = pycdlib.PyCdlib()
    made.new(interchange_level=4, vol_ident=label, rock_ridge="1.09")
    text = said.encode() + b"\n" + bytes(size)
    made.add_fp(io.BytesIO(text), len(text), "/user-data", rr_name="user-data")
    out = io.BytesIO()
    made.write_fp(out)
    made.close()
    return out.getvalue()


def tool(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout


def params(disk: FakeDisk, image: bytes, **other: Any) -> WriteConfigDriveParams:
    packed = base64.b64encode(gzip.compress(image)).decode()
    return WriteConfigDriveParams(
        **{"disk": ref(disk), "iso": packed, "sha256": hashlib.sha256(image).hexdigest(), **other}
    )


def write(bench: ImageBench, disk: FakeDisk, image: bytes, **other: Any) -> WroteConfigDrive:
    return write_config_drive(params(disk, image, **other), bench.doing, bench.where)


def refused(bench: ImageBench, disk: FakeDisk, image: bytes, **other: Any) -> str:
    before = content(disk)
    with pytest.raises(TaskFailed) as failed:
        write(bench, disk, image, **other)
    assert content(disk) == before, "a disk without room was changed"
    return f"{failed.value.code}: {failed.value}"


def imaged(bench: ImageBench, *table: str, image_bytes: int = 12 * MIB, disk_bytes: int = 48 * MIB) -> FakeDisk:
    """A disk that an image of that size was written to, with a table made by sgdisk."""
    path = bench.file(image_bytes)
    if table:
        tool("sgdisk", *table, str(path))
    with path.open("r+b") as f:
        f.truncate(disk_bytes)
    return bench.attach(path)


def sfdisked(bench: ImageBench, script: str, disk_bytes: int = 48 * MIB) -> FakeDisk:
    path = bench.file(disk_bytes)
    subprocess.run(["sfdisk", "-q", path], input=script, check=True, capture_output=True, text=True, timeout=20)
    return bench.attach(path)


def partitions(disk: FakeDisk) -> dict[int, dict[str, Any]]:
    found = json.loads(tool("sfdisk", "--json", str(disk.node)))["partitiontable"]["partitions"]
    return {int(part["node"].removeprefix(f"{disk.node}p")): part for part in found}


def label_at(disk: FakeDisk, offset: int) -> str:
    return tool("blkid", "-p", "-O", str(offset), "-s", "LABEL", "-o", "value", str(disk.node)).strip()


def test_a_cloud_image_gets_its_config_drive_and_its_root_all_the_room_before_it(bench: ImageBench) -> None:
    disk = imaged(bench, *CLOUD)
    wrote = write(bench, disk, iso("first"))
    assert "No problems found" in tool("sgdisk", "-v", str(disk.node))
    parts = partitions(disk)
    assert sorted(parts) == [1, 2, 14, 15]
    assert wrote == WroteConfigDrive(2, parts[2]["start"] * 512, grown=True)
    assert parts[1]["start"] + parts[1]["size"] == parts[2]["start"]
    assert parts[2]["name"] == "bcmetal-config"
    assert parts[2]["start"] % 2048 == 0
    assert wrote.offset_bytes > disk.size_bytes - 10 * MIB
    assert label_at(disk, wrote.offset_bytes) == "cidata"
    assert (parts[14]["start"], parts[15]["start"], parts[1]["start"]) == (2048, 4096, 8192)


def test_done_again_it_replaces_the_content_and_leaves_nothing_of_the_first(bench: ImageBench) -> None:
    disk = imaged(bench, *CLOUD)
    first = write(bench, disk, iso("the first token", size=300_000))
    table = partitions(disk)
    assert b"the first token" in content(disk)
    second = write(bench, disk, iso("the second token", "config-2"))
    assert second == first
    assert partitions(disk) == table
    assert b"the first token" not in content(disk)
    assert b"the second token" in content(disk)
    assert label_at(disk, second.offset_bytes) == "config-2"
    third = write(bench, disk, iso("longer", size=3 * MIB))
    assert third == first


def test_without_grow_the_last_partition_stays(bench: ImageBench) -> None:
    disk = imaged(bench, *CLOUD)
    size = partitions(disk)[1]["size"]
    assert not write(bench, disk, iso("x"), grow=False).grown
    assert partitions(disk)[1]["size"] == size


def test_a_swap_partition_that_comes_last_does_not_grow(bench: ImageBench) -> None:
    disk = imaged(bench, "-n", "1:2048:+2M", "-n", "2:0:+2M", "-t", "2:8200")
    size = partitions(disk)[2]["size"]
    assert not write(bench, disk, iso("x")).grown
    assert partitions(disk)[2]["size"] == size


def test_an_image_as_large_as_the_disk_keeps_room_only_if_its_table_does(bench: ImageBench) -> None:
    full = imaged(bench, "-n", "1:2048:0", image_bytes=16 * MIB, disk_bytes=16 * MIB)
    assert "no-room-for-config-drive" in refused(bench, full, iso("x"))
    tight = imaged(bench, "-n", "1:2048:+12M", image_bytes=16 * MIB, disk_bytes=16 * MIB)
    assert write(bench, tight, iso("x")).offset_bytes == 14 * MIB
    assert "No problems found" in tool("sgdisk", "-v", str(tight.node))


def test_an_image_with_an_mbr_gets_a_primary_partition(bench: ImageBench) -> None:
    disk = sfdisked(bench, "label: dos\nstart=2048, size=4096, type=c, bootable\nstart=8192, size=8192, type=83\n")
    first = write(bench, disk, iso("the first token"))
    parts = partitions(disk)
    assert first == WroteConfigDrive(3, parts[3]["start"] * 512, grown=True)
    assert parts[2]["start"] + parts[2]["size"] == parts[3]["start"]
    assert parts[1]["bootable"]
    assert label_at(disk, first.offset_bytes) == "cidata"
    assert write(bench, disk, iso("the second token")) == first
    assert partitions(disk) == parts
    assert b"the first token" not in content(disk)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("label: dos\n,1M\n,1M\n,1M\n,1M\n", "all four partitions"),
        ("label: dos\n,1M\n,\n", "are free"),
        (None, "no partition table"),
    ],
)
def test_where_there_is_no_room_nothing_is_written(bench: ImageBench, script: str | None, why: str) -> None:
    disk = sfdisked(bench, script) if script else bench.disk(fill=False)
    said = refused(bench, disk, iso("x"))
    assert "no-room-for-config-drive" in said
    assert why in said


def test_a_logical_partition_is_left_where_it_is(bench: ImageBench) -> None:
    disk = sfdisked(
        bench, "label: dos\nstart=2048, size=4096\nstart=8192, size=16384, type=5\nstart=10240, size=4096\n"
    )
    before = partitions(disk)
    wrote = write(bench, disk, iso("x"))
    after = partitions(disk)
    assert not wrote.grown
    assert {n: after[n] for n in before} == before


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"sha256": "0" * 64}, "checksum"),
        ({"iso": "!"}, "no gzip"),
        ({"iso": base64.b64encode(b"plain").decode()}, "no gzip"),
        ({"iso": base64.b64encode(gzip.compress(iso("x"))[:-9]).decode()}, "checksum"),
        ({"iso": base64.b64encode(gzip.compress(bytes(70 * MIB), 1)).decode()}, "checksum"),
    ],
)
def test_a_config_drive_that_is_not_the_named_one_is_not_written(
    bench: ImageBench, other: dict[str, Any], why: str
) -> None:
    said = refused(bench, imaged(bench, *CLOUD), iso("x"), **other)
    assert "bad-params" in said
    assert why in said


def test_what_no_system_would_find_is_not_written(bench: ImageBench) -> None:
    assert "label cidata" in refused(bench, imaged(bench, *CLOUD), iso("x", "OTHER"))
    large = bench.disk(sector=4096)
    assert "sectors of 4096 bytes" in refused(bench, large, iso("x"))


def test_a_damaged_table_is_not_guessed_at(bench: ImageBench) -> None:
    path: Path = bench.file(12 * MIB)
    tool("sgdisk", *CLOUD, str(path))
    with path.open("r+b") as f:
        f.seek(512 + 40)
        f.write(b"\xff")
        f.truncate(48 * MIB)
    assert "damaged" in refused(bench, bench.attach(path), iso("x"))
