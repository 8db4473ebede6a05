"""What goes into a ramdisk, by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kernel(StrEnum):
    """`cloud` is small and knows virtual machines only: no AHCI, no USB, no IPMI."""

    FULL = "full"
    CLOUD = "cloud"


class Tools(StrEnum):
    FULL = "full"
    MINIMAL = "minimal"


KERNELS: Final = {Kernel.FULL: "linux-image-amd64", Kernel.CLOUD: "linux-image-cloud-amd64"}
STUB: Final = "systemd-boot-efi"
STUB_PATH: Final = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"

_MINIMAL: Final = (
    "busybox-static",
    "dropbear-bin",
    "efibootmgr",
    "hdparm",
    "kmod",
    "nvme-cli",
    "python3-cryptography",
    "python3-minimal",
    "sg3-utils",
    "zstd",
)
TOOLS: Final = {
    Tools.MINIMAL: _MINIMAL,
    Tools.FULL: (
        *_MINIMAL,
        "dmidecode",
        "ethtool",
        "fdisk",
        "fio",
        "gdisk",
        "ipmitool",
        "libtss2-tcti-device0",
        "lldpd",
        "memtester",
        "parted",
        "pciutils",
        "python3-tpm2-pytss",
        "smartmontools",
        "stress-ng",
        "util-linux",
        "xz-utils",
    ),
}

# Programs that come with a package but are not called; the shell's own are busybox's.
PROGRAMS_LEFT_OUT: Final = (
    "dbclient",
    "pzstd",
    "pygettext3*",
    "pdb3*",
    "pydoc3*",
    "py3*",
    "rescan-scsi-bus*",
    "pcimodules",
    "fio-*",
    "fio2gnuplot",
)

# Packages whose only use is to configure a system, or whose place busybox takes.
LEFT_OUT: Final = frozenset(
    {
        "adduser",
        "debconf",
        "debianutils",
        "dpkg",
        "gcc-12-base",
        "init-system-helpers",
        "initramfs-tools",
        "linux-base",
        "lsb-base",
        "mailcap",
        "media-types",
        "mime-support",
        "perl",
        "perl-base",
        "perl-modules-5.36",
        "readline-common",
        "sensible-utils",
        "systemd",
        "sysvinit-utils",
        "tpm-udev",
        "ucf",
        "udev",
        "uuid-runtime",
    }
)

# `--firmware free`: always to be had. `--firmware server`: what NICs and HBAs of servers ask for; from non-free-firmware.
FIRMWARE_SETS: Final = {
    "free": ("firmware-linux-free",),
    "server": (
        "firmware-linux-free",
        "firmware-bnx2",
        "firmware-bnx2x",
        "firmware-misc-nonfree",
        "firmware-netronome",
        "firmware-qlogic",
    ),
}
