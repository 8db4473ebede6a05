"""The firmware's boot entry, on a folder as efivarfs shows it; efibootmgr, where it is installed, reads the same from it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.task_doing import Kept
from bcmetal_agent.tasks.disks import BlockDevice
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.efi_variables import Partition, Variables, label_of, load_option
from bcmetal_agent.tasks.set_boot import LOADER, Firmware, put_first, set_boot, system_partition
from bcmetal_agent.tasks.write_image_disk import Sectors
from bcmetal_agent.wire_tasks import DiskRef, SetBoot, SetBootParams
from machine_images import Part, write_disk

GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
HERE = Partition(2, 2048, 409600, uuid.UUID(int=7))
OURS = load_option("bcmetal", HERE, LOADER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "efivars"
    found.mkdir()
    return found


def a_variable(folder: Path, name: str, value: bytes) -> None:
    (folder / f"{name}-{GLOBAL}").write_bytes(struct.pack("<I", 7) + value)


def entries(folder: Path) -> dict[str, bytes]:
    return {path.name.partition("-")[0]: path.read_bytes()[4:] for path in folder.iterdir()}


def an_entry(label: str) -> bytes:
    return load_option(label, Partition(1, 34, 100, uuid.UUID(int=1)), "\\EFI\\other.efi")


def test_the_first_entry_of_all_goes_to_number_0_and_to_the_front(folder: Path) -> None:
    assert put_first(Variables(folder), "bcmetal", OURS, Kept()) == "0000"
    assert entries(folder) == {"Boot0000": OURS, "BootOrder": b"\0\0"}
    assert all(path.read_bytes()[:4] == b"\7\0\0\0" for path in folder.iterdir())


def test_the_entries_of_others_stay_behind_ours_in_their_order(folder: Path) -> None:
    others = {
        "Boot0000": an_entry("PXE"),
        "Boot0001": an_entry("UiApp"),
        "Boot00AB": b"\xff\xfe broken",
        "Key0000": b"x",
    }
    for name, value in others.items():
        a_variable(folder, name, value)
    a_variable(folder, "BootOrder", struct.pack("<3H", 1, 0xAB, 0))
    a_variable(folder, "BootNext", b"\1\0")
    assert put_first(Variables(folder), "bcmetal", OURS, Kept()) == "0002"
    found = entries(folder)
    assert found.pop("BootOrder") == struct.pack("<4H", 2, 1, 0xAB, 0)
    assert found.pop("Boot0002") == OURS
    assert found.pop("BootNext") == b"\1\0"
    assert found == others


def test_former_entries_of_ours_go(folder: Path) -> None:
    a_variable(folder, "Boot0003", an_entry("bcmetal"))
    a_variable(folder, "Boot0004", an_entry("not bcmetal"))
    a_variable(folder, "Boot0005", an_entry("bcmetal") + b"more, so that it is longer than the new one" * 4)
    a_variable(folder, "BootOrder", struct.pack("<3H", 4, 5, 3))
    doing = Kept()
    assert put_first(Variables(folder), "bcmetal", OURS, doing) == "0003"
    found = entries(folder)
    assert found["BootOrder"] == struct.pack("<2H", 3, 4)
    assert set(found) == {"Boot0003", "Boot0004", "BootOrder"}
    assert found["Boot0003"] == OURS
    assert "Boot0005 was ours" in doing.text


def test_done_again_it_writes_nothing(folder: Path) -> None:
    put_first(Variables(folder), "bcmetal", OURS, Kept())
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    assert put_first(Variables(folder), "bcmetal", OURS, Kept()) == "0000"
    assert {path.stat().st_mtime for path in folder.iterdir()} == {1}


def test_an_entry_in_lower_case_is_the_same_entry(folder: Path) -> None:
    a_variable(folder, "Boot000a", an_entry("bcmetal"))
    assert put_first(Variables(folder), "bcmetal", OURS, Kept()) == "000A"
    assert set(entries(folder)) == {"Boot000a", "BootOrder"}


@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from([OURS, an_entry("bcmetal"), an_entry("x"), b"", b"\0" * 9])),
    st.lists(st.integers(0, 24), max_size=8),
)
def test_whatever_was_there_ours_is_first_and_once_and_nobody_elses_is_touched(
    tmp_path_factory: pytest.TempPathFactory, there: dict[int, bytes], order: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("efivars")
    for number, value in there.items():
        a_variable(folder, f"Boot{number:04X}", value)
    a_variable(folder, "BootOrder", struct.pack(f"<{len(order)}H", *order))
    number = int(put_first(Variables(folder), "bcmetal", OURS, Kept()), 16)
    variables = Variables(folder)
    options = variables.options()
    assert options[number] == OURS
    assert [n for n, value in options.items() if label_of(value) == "bcmetal"] == [number]
    others = {n: value for n, value in there.items() if label_of(value) != "bcmetal"}
    assert {n: value for n, value in options.items() if n != number} == {n: v for n, v in others.items() if n != number}
    assert variables.order()[0] == number
    kept = [n for n in order if n in others and n != number]
    assert [n for n in variables.order() if n in kept] == kept


def test_firmware_without_room_says_so(folder: Path) -> None:
    (folder / f"BootOrder-{GLOBAL}").symlink_to("/dev/full")
    with pytest.raises(TaskFailed) as failed:
        put_first(Variables(folder), "bcmetal", OURS, Kept())
    assert failed.value.code == "efi-variables-full"


def test_firmware_that_forgets_what_was_written_is_told_of(folder: Path) -> None:
    (folder / f"BootOrder-{GLOBAL}").symlink_to("/dev/null")
    with pytest.raises(TaskFailed, match="did not keep BootOrder"):
        put_first(Variables(folder), "bcmetal", OURS, Kept())


def test_a_machine_that_was_not_booted_by_uefi_has_nothing_to_set(tmp_path: Path) -> None:
    legacy = Firmware(tmp_path / "efi", tmp_path / "efi/efivars")
    assert set_boot(SetBootParams(DiskRef("S", 1)), Kept(), legacy) == SetBoot(None)


@pytest.mark.parametrize("loader", ["EFI\\x.efi", "\\..\\x", "\\a\0b", "\\" + "a" * 65, "", "\\a:b"])
def test_a_loader_that_is_no_path_is_refused(loader: str, tmp_path: Path) -> None:
    with pytest.raises(TaskFailed) as refused:
        set_boot(SetBootParams(DiskRef("S", 1), loader=loader or "\\"), Kept(), Firmware(tmp_path))
    assert refused.value.code == "bad-params"


# ---------------------------------------------------------------- the partition


@contextmanager
def a_disk(image: Path, block_bytes: int = 512) -> Iterator[Sectors]:
    descriptor = os.open(image, os.O_RDONLY)
    try:
        device = BlockDevice(image, "sda", "8:0", image.stat().st_size, "S1", block_bytes=block_bytes)
        yield Sectors(descriptor, device)
    finally:
        os.close(descriptor)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """With two EFI system partitions behind another one."""
    content = tmp_path / "content"
    content.write_bytes(bytes(1 << 20))
    found = tmp_path / "disk"
    write_disk(found, [Part(LINUX, "data", content), Part(ESP, "ESP", content), Part(ESP, "second", content)])
    return found


def test_the_first_system_partition_of_a_gpt_is_found_by_its_type(image: Path) -> None:
    with a_disk(image) as disk:
        assert system_partition(disk) == Partition(2, 4096, 2048, uuid.uuid5(ESP, "ESP"))


def test_a_disk_whose_first_table_is_damaged_is_read_by_its_second(image: Path) -> None:
    with image.open("r+b") as file:
        file.seek(512)
        file.write(bytes(512))
    with a_disk(image) as disk:
        assert system_partition(disk).signature == uuid.uuid5(ESP, "ESP")


def test_a_table_for_other_sectors_is_none_that_this_firmware_finds(image: Path) -> None:
    with a_disk(image, block_bytes=4096) as disk, pytest.raises(TaskFailed, match="sectors of 512 bytes") as failed:
        system_partition(disk)
    assert failed.value.code == "no-system-partition"


@given(st.data())
def test_a_table_that_is_broken_is_none_and_nothing_worse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    image = tmp_path_factory.mktemp("disk") / "disk"
    header = bytearray(b"EFI PART" + bytes(64) + struct.pack("<QII", 2, 128, 128))
    for at in data.draw(st.lists(st.integers(0, len(header) - 1), max_size=4)):
        header[at] = data.draw(st.integers(0, 255))
    protective = bytes(446) + struct.pack("<B3xB3xII", 0, 0xEE, 1, 15) + bytes(48) + b"\x55\xaa"
    image.write_bytes((protective + header + data.draw(st.binary(max_size=2048))).ljust(8192, b"\0"))
    with a_disk(image) as disk, pytest.raises(TaskFailed, match=r"sda \(S1\) has no EFI system partition: ") as failed:
        system_partition(disk)
    assert failed.value.code == "no-system-partition"


def test_a_disk_with_an_mbr_is_named_by_its_signature(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    entry = struct.pack("<B3xB3xII", 0x80, 0xEF, 2048, 4096)
    image.write_bytes(bytes(440) + struct.pack("<I", 0xC0FFEE) + bytes(2) + bytes(16) + entry + bytes(32) + b"\x55\xaa")
    with a_disk(image) as disk:
        found = system_partition(disk)
    assert found == Partition(2, 2048, 4096, 0xC0FFEE)
    assert found.node()[-18:] == struct.pack("<I12xBB", 0xC0FFEE, 1, 1)


def test_a_disk_without_a_table_has_no_system_partition(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    image.write_bytes(bytes(4096))
    with a_disk(image) as disk, pytest.raises(TaskFailed, match="which this machine's firmware boots from"):
        system_partition(disk)


@pytest.mark.skipif(shutil.which("efibootmgr") is None, reason="efibootmgr is not installed")
def test_efibootmgr_reads_what_was_written(folder: Path) -> None:
    a_variable(folder, "Boot0000", an_entry("other"))
    a_variable(folder, "BootOrder", b"\0\0")
    put_first(Variables(folder), "bcmetal", OURS, Kept())
    env = {**os.environ, "EFIVARFS_PATH": f"{folder}/", "LIBEFIVAR_OPS": "efivarfs"}
    done = subprocess.run(["efibootmgr", "-v"], env=env, capture_output=True, text=True, timeout=20)
    assert "BootOrder: 0001,0000" in done.stdout, done.stderr
    guid = "00000000-0000-0000-0000-000000000007"
    assert f"Boot0001* bcmetal\tHD(2,GPT,{guid},0x800,0x64000)/File(\\EFI\\BOOT\\BOOTX64.EFI)" in done.stdout
