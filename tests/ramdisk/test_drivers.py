"""The choice of kernel modules and of shared libraries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.boot.cpio import file, link
from bcmetal.ramdisk.drivers import BY_NAME_ONLY, UNWANTED, WANTED
from bcmetal.ramdisk.elf import lacking, needed_libraries, without_unused_libraries
from bcmetal.ramdisk.faults import BuildFailed
from bcmetal.ramdisk.modules import Info, candidate, choose, parse_modinfo, pick
from ramdisk.elf_files import a_module, a_program

LIB = "usr/lib/x86_64-linux-gnu"


def test_a_module_says_what_it_depends_on_and_which_firmware_it_asks_for() -> None:
    raw = a_module(
        "depends=libata,scsi-mod", "softdep=pre: crc32c aes:x post: late", "firmware=a/b.bin", "firmware=c.bin"
    )
    assert parse_modinfo(raw) == Info(("libata", "scsi_mod"), ("crc32c",), ("a/b.bin", "c.bin"))


@given(st.binary(max_size=200), st.integers(0, 300))
def test_a_broken_module_is_refused_and_nothing_worse(noise: bytes, cut: int) -> None:
    for raw in (noise, a_module("depends=x")[:cut] + noise):
        try:
            parse_modinfo(raw)
        except ValueError:
            continue


def test_what_a_wanted_module_depends_on_comes_with_it() -> None:
    infos = {
        "drivers/ata/ahci": Info(("libahci",), ("crc",)),
        "drivers/ata/libahci": Info(("scsi_mod",)),
        "drivers/scsi/scsi_mod": Info(),
        "lib/crc": Info(),
        "sound/beep": Info(),
    }
    chosen = choose(infos, ["drivers/ata/ahci"])
    assert chosen == ["drivers/ata/ahci", "drivers/ata/libahci", "drivers/scsi/scsi_mod", "lib/crc"]


def test_a_module_whose_dependency_is_not_there_fails_the_build() -> None:
    with pytest.raises(BuildFailed, match="ahci needs libahci"):
        choose({"drivers/ata/ahci": Info(("libahci",))}, WANTED)


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("drivers/scsi/mpt3sas/mpt3sas", True),
        ("drivers/scsi/megaraid/megaraid_sas", True),
        ("drivers/scsi/smartpqi/smartpqi", True),
        ("drivers/net/ethernet/intel/ice/ice", True),
        ("drivers/ata/ahci", True),
        ("fs/isofs/isofs", True),
        ("drivers/scsi/qla2xxx/qla2xxx", False),
        ("drivers/scsi/lpfc/lpfc", False),
        ("drivers/scsi/iscsi_tcp", False),
        ("drivers/scsi/fcoe/fcoe", False),
        ("drivers/nvme/host/nvme-tcp", False),
        ("drivers/nvme/host/nvme-rdma", False),
        ("drivers/md/dm-mod", False),
        ("drivers/md/raid1", False),
        ("fs/ext4/ext4", False),
        ("drivers/net/usb/cdc_ether", False),
    ],
)
def test_local_disks_and_nics_are_driven_but_no_shared_storage_and_no_volumes(path: str, there: bool) -> None:
    assert (choose({path: Info()}, WANTED, UNWANTED) == [path]) is there


def a_kernel(
    modules: dict[str, bytes], *, config: bytes = b"CONFIG_RD_ZSTD=y\n", builtin: str = ""
) -> dict[str, bytes]:
    return {
        "boot/vmlinuz-6.1": b"MZ",
        "boot/config-6.1": config,
        "usr/lib/modules/6.1/modules.builtin": builtin.encode(),
        **{f"usr/lib/modules/6.1/kernel/{path}.ko": data for path, data in modules.items()},
    }


def test_a_kernel_that_cannot_unpack_the_initrd_is_refused() -> None:
    kernel = {path: file(data) for path, data in a_kernel({}, config=b"# CONFIG_RD_ZSTD is not set\n").items()}
    with pytest.raises(BuildFailed, match="zstd"):
        pick(kernel, by_name_only=False)


def test_a_kernel_without_a_driver_that_every_machine_needs_is_refused() -> None:
    builtin = "kernel/fs/isofs/isofs.ko\nkernel/drivers/scsi/sr_mod.ko\nkernel/drivers/scsi/sd_mod.ko\n"
    kernel = {path: file(data) for path, data in a_kernel({}, builtin=builtin).items()}
    with pytest.raises(BuildFailed, match="has no nvme, virtio_net, loop, efivarfs, vfat"):
        pick(kernel, by_name_only=False)


def test_modules_that_nothing_here_can_use_are_not_read() -> None:
    assert candidate("usr/lib/modules/6.1/kernel/drivers/ata/ahci.ko")
    assert candidate("usr/lib/modules/6.1/modules.builtin")
    assert candidate("boot/config-6.1")
    assert not candidate("usr/lib/modules/6.1/kernel/sound/core/snd.ko")
    assert not candidate("usr/share/doc/linux/changelog.gz")


def test_volumes_and_file_systems_are_for_a_person_who_names_them() -> None:
    names = {path.rsplit("/", 1)[-1] for path in BY_NAME_ONLY}
    assert {"ext4", "xfs", "btrfs", "dm-mod", "md-mod", "raid1", "raid456"} <= names


def test_a_program_says_which_libraries_it_needs() -> None:
    assert needed_libraries(a_program(["libc.so.6", "libm.so.6"])) == ["libc.so.6", "libm.so.6"]
    assert needed_libraries(b"#!/bin/sh\n") == []


@given(st.integers(0, 400), st.binary(max_size=64))
def test_a_broken_program_is_refused_and_nothing_worse(cut: int, noise: bytes) -> None:
    try:
        needed_libraries(a_program(["libc.so.6"])[:cut] + noise)
    except ValueError:
        return


def test_libraries_that_no_program_reaches_are_left_out() -> None:
    tree = {
        "usr/bin/tool": file(a_program(["liba.so.1"])),
        f"{LIB}/liba.so.1": link("liba.so.1.2"),
        f"{LIB}/liba.so.1.2": file(a_program(["libb.so.1"])),
        f"{LIB}/libb.so.1": file(a_program([])),
        f"{LIB}/libunused.so.9": file(a_program([])),
        f"{LIB}/libgcc_s.so.1": file(a_program([])),
    }
    kept = without_unused_libraries(tree)
    assert set(tree) - set(kept) == {f"{LIB}/libunused.so.9"}
    assert lacking(kept) == {}


def test_a_program_whose_library_is_missing_is_named() -> None:
    assert lacking({"usr/bin/tool": file(a_program(["libgone.so.3"]))}) == {"libgone.so.3": "usr/bin/tool"}
