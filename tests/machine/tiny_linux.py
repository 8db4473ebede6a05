"""A Linux small enough to look at a machine from inside: Debian's cloud kernel, busybox, one script. For the bench's own tests.

What it prints goes to the serial port: `TINY-UP`, then a line `KEY=VALUE` for each thing that it saw, then `TINY-READY`. What it does then is
named on the kernel's command line: `tiny.then=poweroff`, `reboot` or `wait`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = "linux-image-cloud-amd64"
BUSYBOX: Final = Path("/bin/busybox")
STUB: Final = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
MODULES: Final = ("virtio_pci", "virtio_net", "virtio_scsi", "virtio_blk", "sd_mod", "sr_mod", "isofs", "efivarfs")
UP: Final = "TINY-UP"
READY: Final = "TINY-READY"

INIT: Final = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1 </dev/null
echo TINY-UP
for m in $(cat /modules); do insmod "$m"; done
say() { echo "$1=$(cat "$2" 2>/dev/null)"; }
say uuid /sys/class/dmi/id/product_uuid
say serial /sys/class/dmi/id/product_serial
say chassis /sys/class/dmi/id/chassis_serial
echo "memory=$(awk '/MemTotal/{print $2}' /proc/meminfo)"
[ -e /dev/tpm0 ] && echo "tpm=$(cat /sys/class/tpm/tpm0/tpm_version_major)"
mount -t efivarfs efivarfs /sys/firmware/efi/efivars 2>/dev/null
echo "firmware=$([ -d /sys/firmware/efi ] && echo uefi || echo bios)"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -e /sys/class/net/eth0 ] && break; usleep 100000; done
say mac /sys/class/net/eth0/address
for d in /sys/block/*; do
  case "$d" in */ram*|*/loop*|*/sr*) continue;; esac
  n=${d##*/}; s=$(cat $d/serial 2>/dev/null || cat $d/device/serial 2>/dev/null)
  [ -n "$s" ] || s=$(dd if=$d/device/vpd_pg80 bs=1 skip=4 2>/dev/null)
  echo "disk=$n $(cat $d/size) $(cat $d/wwid 2>/dev/null || cat $d/device/wwid 2>/dev/null) serial=$s"
done
[ -e /token ] && echo "token=$(cat /token)"
ip link set eth0 up
udhcpc -i eth0 -n -q -t 8 -T 1 -s /bin/true >/dev/null && echo dhcp=yes
/extra 2>&1
echo TINY-READY
case "$(cat /proc/cmdline)" in
  *tiny.then=poweroff*) poweroff -f;;
  *tiny.then=reboot*) reboot -f;;
esac
[ -e /dev/sr0 ] && was=$(cat /sys/block/sr0/size)
while :; do
  sleep 1
  now=$(cat /sys/block/sr0/size 2>/dev/null); dd if=/dev/sr0 of=/dev/null count=1 2>/dev/null
  [ "$now" = "$was" ] || echo "cdrom=$now"
  was=$now
done
"""


class CannotBuild(Exception):
    """A tool or a package is missing; the message is a reason to skip."""


@dataclass(frozen=True, slots=True)
class TinyLinux:
    kernel: Path
    initrd: Path

    @classmethod
    def build(
        cls, folder: Path, cache: Path, extra: str = "", package: str = PACKAGE, modules: Sequence[str] = ()
    ) -> TinyLinux:
        """In `folder`; the kernel's package is kept unpacked in `cache`. `extra`: shell lines that /init runs before it is ready."""
        for tool in (BUSYBOX, STUB):
            if not tool.exists():
                raise CannotBuild(f"{tool} is not installed")
        tree = kernel_tree(cache, package)
        kernel = next((tree / "boot").glob("vmlinuz-*"))
        root = folder / "root"
        (root / "bin").mkdir(parents=True)
        for name in ("proc", "sys", "dev", "tmp", "lib"):
            (root / name).mkdir()
        shutil.copy(BUSYBOX, root / "bin/busybox")
        needed = _needed(tree, kernel.name.removeprefix("vmlinuz-"), (*MODULES, *modules))
        for module in needed:
            shutil.copy(module, root / "lib" / module.name)
        (root / "modules").write_text("".join(f"/lib/{module.name}\n" for module in needed))
        for name, text in (("init", INIT), ("extra", "#!/bin/sh\n" + extra + "\n")):
            (root / name).write_text(text)
            (root / name).chmod(0o755)
        initrd = folder / "initrd"
        initrd.write_bytes(cpio(root))
        shutil.rmtree(root)
        return cls(kernel, initrd)

    def iso(self, folder: Path, name: str, command_line: str) -> Path:
        """A medium that UEFI boots: a UKI in a FAT image in an ISO 9660 file system."""
        uki, fat, iso = folder / f"{name}.efi", folder / f"{name}.img", folder / f"{name}.iso"
        self.uki(uki, command_line)
        size_kib = uki.stat().st_size // 1024 + 1024
        run("mkfs.fat", "-F", "16", "-C", fat, str(size_kib))
        run("mmd", "-i", fat, "::/EFI", "::/EFI/BOOT")
        run("mcopy", "-i", fat, uki, "::/EFI/BOOT/BOOTX64.EFI")
        tree = folder / f"{name}.tree"
        tree.mkdir()
        fat.rename(tree / "efi.img")
        run("xorriso", "-as", "mkisofs", "-quiet", "-V", "TINY", "-e", "efi.img", "-no-emul-boot", "-o", iso, tree)
        shutil.rmtree(tree)
        return iso

    def uki(self, path: Path, command_line: str) -> None:
        line = path.with_suffix(".cmdline")
        line.write_text(command_line)
        sections: list[str | Path] = []
        for section, file, at in (
            (".cmdline", line, 0x30000),
            (".linux", self.kernel, 0x2000000),
            (".initrd", self.initrd, 0x4000000),
        ):
            sections += ["--add-section", f"{section}={file}", "--change-section-vma", f"{section}={at:#x}"]
        run("objcopy", *sections, STUB, path)


def kernel_tree(cache: Path, package: str = PACKAGE) -> Path:
    """The newest kernel package of Debian's metapackage, unpacked once for each version."""
    shown = run("apt-cache", "depends", package)
    image = next((line.split()[-1] for line in shown.splitlines() if "Depends: linux-image-" in line), None)
    if image is None:
        raise CannotBuild(f"apt knows no {package}")
    tree = cache / image
    if not tree.exists():
        scratch = cache / f"{image}.{os.getpid()}"
        scratch.mkdir(parents=True)
        run("apt-get", "download", "-q", image, cwd=scratch)
        run("dpkg-deb", "-x", next(scratch.glob("*.deb")), scratch / "tree")
        (scratch / "tree").rename(tree)
        shutil.rmtree(scratch)
    return tree


def cpio(root: Path) -> bytes:
    """An archive of the folder as the kernel's initramfs wants it."""
    names = [str(path.relative_to(root)) for path in sorted(root.rglob("*"))]
    made = subprocess.run(
        ["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"],
        input="\n".join(names).encode(), cwd=root, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return made.stdout


def run(*argv: str | Path, cwd: Path | None = None) -> str:
    """Standard output. Raises CannotBuild."""
    try:
        done = subprocess.run(
            [str(arg) for arg in argv], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )
    except OSError as e:
        raise CannotBuild(f"{argv[0]}: {e}") from e
    if done.returncode:
        raise CannotBuild(f"{argv[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _needed(tree: Path, version: str, modules: Sequence[str]) -> list[Path]:
    """Files of the modules and of what they need, in the order to load them; what is built in has none."""
    if not (tree / "lib/modules" / version / "modules.dep.bin").exists():
        run("depmod", "-b", tree, version)
    found: dict[Path, None] = {}
    for module in modules:
        for line in run("modprobe", "-d", tree, "-S", version, "--show-depends", module).splitlines():
            word, _, path = line.partition(" ")
            if word == "insmod":
                found[Path(path.split()[0])] = None
    return list(found)
