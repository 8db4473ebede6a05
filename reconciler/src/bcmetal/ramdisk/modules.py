"""The kernel's modules: chosen by path, with what they depend on, from their own `.modinfo` (nothing of the host's kernel counts)."""

from __future__ import annotations

import fnmatch
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal.boot.cpio import file, link
from bcmetal.ramdisk.drivers import BY_NAME_ONLY, REQUIRED, UNWANTED, WANTED
from bcmetal.ramdisk.faults import BuildFailed, tool
from bcmetal.ramdisk.tree import Tree, write_out

ROOT: Final = "usr/lib/modules/"
SUFFIX: Final = ".ko"


@dataclass(frozen=True, slots=True)
class Info:
    """What a module says of itself. Names have `_` for `-`, as the kernel has them."""

    depends: tuple[str, ...] = ()
    before: tuple[str, ...] = ()  # soft dependencies: as well, where there are any
    firmware: tuple[str, ...] = ()


def parse_modinfo(elf: bytes) -> Info:
    """From a 64-bit little-endian ELF file. ValueError for anything else."""
    fields: dict[str, list[str]] = {}
    for item in _section(elf, b".modinfo").split(b"\0"):
        name, found, value = item.decode("utf-8", "replace").partition("=")
        if found:
            fields.setdefault(name, []).append(value)
    soft: list[str] = []
    for value in fields.get("softdep", ()):
        before = value.partition("pre:")[2].partition("post:")[0]
        soft += [plain(name) for name in before.split() if ":" not in name]
    return Info(
        depends=tuple(plain(n) for value in fields.get("depends", ()) for n in value.split(",") if n),
        before=tuple(soft),
        firmware=tuple(fields.get("firmware", ())),
    )


def plain(name: str) -> str:
    return name.rsplit("/", 1)[-1].removesuffix(SUFFIX).replace("-", "_")


def candidate(path: str) -> bool:
    """Of the kernel's package: worth reading. Leaves out what nothing here can depend on."""
    if not path.startswith(ROOT):
        return path.startswith("boot/")
    if not path.endswith(SUFFIX):
        return "/modules." in path
    below = path.split("/kernel/", 1)[-1]
    return not below.startswith(
        ("sound/", "drivers/media/", "drivers/staging/", "drivers/gpu/", "drivers/net/wireless/")
    )


def choose(infos: Mapping[str, Info], wanted: Iterable[str], unwanted: Iterable[str] = ()) -> list[str]:
    """Paths (relative to `kernel/`, without suffix) that match, and what they depend on. Raises BuildFailed."""
    by_name = {plain(path): path for path in infos}
    patterns, refused = tuple(wanted), tuple(unwanted)
    chosen: set[str] = set()
    waiting = [p for p in infos if _matches(p, patterns) and not _matches(p, refused)]
    while waiting:
        path = waiting.pop()
        if path in chosen:
            continue
        chosen.add(path)
        info = infos[path]
        lacking = [name for name in info.depends if name not in by_name]
        if lacking:
            raise BuildFailed(f"the kernel's module {plain(path)} needs {', '.join(lacking)}, which is not there")
        waiting += [by_name[name] for name in (*info.depends, *info.before) if name in by_name]
    return sorted(chosen)


@dataclass(frozen=True, slots=True)
class Chosen:
    """`tree`: the modules with the tables for modprobe. `firmware`: the files that they may ask for."""

    version: str
    tree: Tree
    firmware: frozenset[str]


def pick(kernel: Tree, *, by_name_only: bool, more: Sequence[str] = ()) -> Chosen:
    """From the kernel package's tree; also checks that the kernel can unpack the initrd and has what every machine needs."""
    version = _version(kernel)
    prefix = f"{ROOT}{version}/kernel/"
    paths = {
        p.removeprefix(prefix).removesuffix(SUFFIX): p for p in kernel if p.startswith(prefix) and p.endswith(SUFFIX)
    }
    infos = {short: parse_modinfo(kernel[path].data) for short, path in paths.items()}
    rescue = BY_NAME_ONLY if by_name_only else ()
    usual = choose(infos, (*WANTED, *more), UNWANTED)
    everything = sorted({*usual, *choose(infos, rescue)})
    builtin_path = f"{ROOT}{version}/modules.builtin"
    builtin = kernel[builtin_path].data.decode() if builtin_path in kernel else ""
    there = {plain(path) for path in (*everything, *builtin.split())}
    lacking = [name for name in REQUIRED if name not in there]
    if lacking:
        raise BuildFailed(f"kernel {version} has no {', '.join(lacking)}")
    tree: Tree = {paths[short]: kernel[paths[short]] for short in everything}
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (path := f"{ROOT}{version}/{name}") in kernel:
            tree[path] = kernel[path]
    tree |= _tables(tree, version)
    barred = sorted({plain(p) for p in everything} - {plain(p) for p in usual})
    tree["etc/modprobe.d/by-name-only.conf"] = file("".join(f"blacklist {name}\n" for name in barred).encode())
    return Chosen(version, tree, frozenset(name for short in everything for name in infos[short].firmware))


def _version(kernel: Tree) -> str:
    found = sorted(name.removeprefix("boot/vmlinuz-") for name in kernel if name.startswith("boot/vmlinuz-"))
    if len(found) != 1:
        raise BuildFailed(f"one kernel was expected in its package, not {len(found)}")
    config = kernel.get(f"boot/config-{found[0]}")
    if config is None or b"CONFIG_RD_ZSTD=y" not in config.data.splitlines():
        raise BuildFailed(f"kernel {found[0]} cannot unpack an initrd packed by zstd")
    return found[0]


def _tables(tree: Tree, version: str) -> Tree:
    """modules.dep and its like, by the host's depmod."""
    with tempfile.TemporaryDirectory(prefix="bcmetal-depmod-") as name:
        root = Path(name)
        write_out({**tree, "lib": link("usr/lib")}, root)
        done = subprocess.run(  # noqa: S603 - a list of arguments
            [tool("depmod"), "-b", str(root), version], capture_output=True, text=True, errors="replace", timeout=120
        )
        if done.returncode != 0:
            raise BuildFailed(f"depmod failed: {done.stderr.strip()[:300]}")
        folder = root / ROOT / version
        found = sorted(folder.glob("modules.*"))
        # The text forms are for people and busybox; kmod reads the .bin ones.
        return {
            f"{ROOT}{version}/{path.name}": file(path.read_bytes())
            for path in found
            if path.name.endswith(".bin") or path.name in ("modules.softdep", "modules.dep", "modules.devname")
        }


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _section(elf: bytes, wanted: bytes) -> bytes:
    if len(elf) < 64 or elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    if size != 64 or names_at >= count or table + size * count > len(elf):
        raise ValueError("an ELF file with broken sections")
    heads = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    names = elf[heads[names_at][4] : heads[names_at][4] + heads[names_at][5]]
    for name_at, _, _, _, offset, length in heads:
        if names[name_at:].split(b"\0", 1)[0] == wanted:
            return elf[offset : offset + length]
    raise ValueError(f"an ELF file without {wanted.decode()}")
