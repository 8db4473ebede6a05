"""What whole-machine tests boot and deploy: a small ramdisk, and a disk image of a small system that joins by itself.

Both come from Debian's packages through the product's own builder and its cache, so a second call takes a second.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bcmetal_agent
from bcmetal.cli.ramdisk import default_cache
from bcmetal.ramdisk.apt import Apt
from bcmetal.ramdisk.base import Base, Contents, make_base
from bcmetal.ramdisk.build import Built, Site, build, command_line
from bcmetal.ramdisk.contents import Kernel, Tools
from bcmetal.ramdisk.faults import BuildFailed, tool
from bcmetal.ramdisk.iso import efi_image
from bcmetal.ramdisk.uki import unified

OVMF_CODE: Final = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
OVMF_VARS: Final = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
SECTOR: Final = 512
DATA_LABEL: Final = "bcmdata"  # where the small system keeps its identity
ROOT_LABEL: Final = "bcmroot"  # the last partition: the one that may grow
_ESP: Final = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
_LINUX: Final = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
_ROOT_X86_64: Final = uuid.UUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709")
_SCRIPTS: Final = Path(__file__).parent / "machine_os"


def why_no_machine() -> str | None:
    """Why no machine can be had here, for pytest.skip; None when it can."""
    missing = [
        p
        for p in ("qemu-system-x86_64", "qemu-img", "apt-get", "dpkg-deb", "xorriso", "mformat", "zstd")
        if not _there(p)
    ]
    if missing:
        return f"not installed: {', '.join(missing)} (sh scripts/machine-packages.sh)"
    return None if OVMF_CODE.exists() and OVMF_VARS.exists() else "no UEFI firmware: package ovmf"


def small_ramdisk(
    folder: Path, agent_url: str, ca_pem: str, site: str = "e2e", packages: tuple[str, ...] = ()
) -> Built:
    """The product's ramdisk with the kernel for virtual machines and few tools: `.iso`, `.uki`, `.vmlinuz`, `.initrd`, `.token_offset`.

    `packages`: Debian's, beside those. Its kernel obeys SysRq on the serial line (`VirtualMachine.kill_all`). Raises BuildFailed, for instance where there is neither a mirror nor a cache.
    """
    apt = _apt()
    contents = Contents(Kernel.CLOUD, Tools.MINIMAL, firmware=packages)
    whom = Site(agent_url, ca_pem, site)
    line = f"{command_line()} sysrq_always_enabled"
    return build(whom, contents, folder, cache=default_cache(), apt=apt, say=_say, command_line=line)


def os_image(folder: Path) -> Path:
    """A raw image, less than 64 MB: GPT with an ESP, a partition for the system's state, and a Linux root that may grow.

    On its serial line the system says `DEPLOYED <hostname>`, and `JOINED` once it has.
    """
    apt = _apt()
    scripts = folder / "os-scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    agents = Path(next(iter(bcmetal_agent.__path__))) / "ramdisk_init"
    for source in (agents / "say.sh", agents / "network", agents / "lease", *sorted(_SCRIPTS.iterdir())):
        shutil.copy(source, scripts / source.name)
    contents = Contents(Kernel.CLOUD, Tools.MINIMAL, modules=("fs/ext4/ext4",), scripts=scripts)
    base = make_base(contents, apt, default_cache(), _say)
    esp, data, root = folder / "esp.img", folder / "data.img", folder / "root.img"
    uki = folder / "os.efi"
    uki.write_bytes(_uki(base))
    for path in (esp, data, root):
        path.unlink(missing_ok=True)
    efi_image(esp, uki)
    _ext4(data, DATA_LABEL, 6 << 20)
    _ext4(root, ROOT_LABEL, 6 << 20)
    image = folder / "os.raw"
    parts = [Part(_ESP, "ESP", esp), Part(_LINUX, DATA_LABEL, data), Part(_ROOT_X86_64, ROOT_LABEL, root)]
    write_disk(image, parts)
    for path in (esp, data, root, uki):
        path.unlink()
    return image


@dataclass(frozen=True, slots=True)
class Part:
    kind: uuid.UUID
    name: str
    content: Path


def write_disk(image: Path, parts: Sequence[Part]) -> None:
    """A GPT disk (UEFI specification 2.10, chapter 5) of whole megabytes that ends a megabyte behind its last partition."""
    at = 2048
    entries = b""
    with image.open("wb") as disk:
        for part in parts:
            sectors = -(-part.content.stat().st_size // SECTOR)
            unique = uuid.uuid5(part.kind, part.name)
            name = part.name.encode("utf-16-le").ljust(72, b"\0")
            entries += struct.pack("<16s16sQQQ72s", part.kind.bytes_le, unique.bytes_le, at, at + sectors - 1, 0, name)
            disk.seek(at * SECTOR)
            with part.content.open("rb") as content:
                shutil.copyfileobj(content, disk, 1 << 20)
            at += sectors + -sectors % 2048
        entries = entries.ljust(128 * 128, b"\0")
        last = at + 2048 - 1
        disk.truncate((last + 1) * SECTOR)
        disk.seek(0)
        disk.write(_protective_mbr(last) + _header(1, last, 2, last, entries) + entries)
        disk.seek((last - 32) * SECTOR)
        disk.write(entries + _header(last, 1, last - 32, last, entries))


def _header(own: int, other: int, table: int, last: int, entries: bytes) -> bytes:
    identity = uuid.uuid5(_ESP, str(last)).bytes_le

    def packed(crc: int) -> bytes:
        head = struct.pack("<8sIIIIQQQQ", b"EFI PART", 0x10000, 92, crc, 0, own, other, 34, last - 33)
        return head + identity + struct.pack("<QIII", table, 128, 128, zlib.crc32(entries))

    return packed(zlib.crc32(packed(0))).ljust(SECTOR, b"\0")


def _protective_mbr(last: int) -> bytes:
    entry = struct.pack("<B3sB3sII", 0, b"\x00\x02\x00", 0xEE, b"\xff\xff\xff", 1, min(last, 0xFFFFFFFF))
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def _uki(base: Base) -> bytes:
    return unified(
        base.stub.read_bytes(),
        kernel=base.vmlinuz.read_bytes(),
        initrd=base.initrd.read_bytes(),
        command_line="console=ttyS0,115200 quiet loglevel=4 panic=10",
        os_release='ID=bcmetal-test\nNAME="small system"\nPRETTY_NAME="small system"\n',
        version=base.kernel_version,
    )


def _ext4(path: Path, label: str, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)
    command = [tool("mkfs.ext4"), "-q", "-F", "-L", label, "-O", "^has_journal", "-E", "lazy_itable_init=0", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise BuildFailed(f"mkfs.ext4 failed: {done.stderr.strip()[:200]}")


def _apt() -> Apt:
    apt = Apt(default_cache() / "apt", _say)
    apt.refresh()
    return apt


def _there(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
