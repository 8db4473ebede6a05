"""The part of a ramdisk that every site shares: kernel, drivers, tools, agent. Kept by what it is made of."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import bcmetal_agent
from bcmetal.boot.cpio import archive, file, folder, link, padded
from bcmetal.ramdisk import bytecode, elf, tree
from bcmetal.ramdisk.apt import Apt, Say, write_atomically
from bcmetal.ramdisk.closure import Package
from bcmetal.ramdisk.contents import (
    FIRMWARE_SETS,
    KERNELS,
    LEFT_OUT,
    PROGRAMS_LEFT_OUT,
    STUB,
    STUB_PATH,
    TOOLS,
    Kernel,
    Tools,
)
from bcmetal.ramdisk.faults import BuildFailed, tool
from bcmetal.ramdisk.modules import candidate, pick
from bcmetal.ramdisk.tree import Tree

_KEPT: Final = 6  # bases in the cache; the least recently used go
_SCRIPTS: Final = "usr/lib/bcmetal"
_PROGRAMS: Final = ("usr/bin/", "usr/sbin/", "usr/libexec/")
_PACKED: Final = "initrd"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a base is made of."""

    kernel: Kernel = Kernel.FULL
    tools: Tools = Tools.FULL
    firmware: tuple[str, ...] = ()  # names of FIRMWARE_SETS or of packages
    modules: tuple[str, ...] = ()  # more of the kernel's modules, as patterns (see `drivers`)
    scripts: Path | None = None  # in place of the agent's own folder of scripts, which has /init
    level: int = 12  # zstd's

    def packages(self) -> list[str]:
        wanted = {KERNELS[self.kernel], STUB, *TOOLS[self.tools]}
        for name in self.firmware:
            wanted.update(FIRMWARE_SETS.get(name, (name,)))
        return sorted(wanted)


@dataclass(frozen=True, slots=True)
class Base:
    """Files in the cache, never to be changed. `packages` is the SBOM; `initrd` is padded, so that archives may follow."""

    folder: Path
    kernel_version: str
    agent_version: str
    packages: tuple[dict[str, str], ...]
    born: int

    @property
    def vmlinuz(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / _PACKED

    @property
    def stub(self) -> Path:
        return self.folder / "stub.efi"


def make_base(contents: Contents, apt: Apt, cache: Path, say: Say) -> Base:
    """From the cache, or built into it. Raises BuildFailed."""
    packages = apt.resolve(contents.packages(), LEFT_OUT)
    scripts = contents.scripts or Path(next(iter(bcmetal_agent.__path__))) / "ramdisk_init"
    key = _key(contents, packages, scripts)
    place = cache / "base" / key
    if (place / "base.json").exists():
        os.utime(place)
        return _opened(place)
    debs = apt.download(packages)
    place.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=place.parent))
    try:
        _fill(work, contents, packages, debs, scripts, say)
        try:
            work.replace(place)
        except OSError:
            if not (place / "base.json").exists():  # another build was not first, something is wrong here
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _prune(place.parent)
    return _opened(place)


def _fill(
    work: Path, contents: Contents, packages: Sequence[Package], debs: Mapping[str, Path], scripts: Path, say: Say
) -> None:
    say("reading the packages")
    kernel_packages = [p.name for p in packages if re.fullmatch(r"linux-image-[0-9].*", p.name)]
    if len(kernel_packages) != 1:
        raise BuildFailed(f"one kernel package was expected, not {len(kernel_packages)}")
    kernel = tree.read_deb(debs[kernel_packages[0]], candidate)
    chosen = pick(kernel, by_name_only=contents.kernel is Kernel.FULL, more=contents.modules)
    stub = tree.read_deb(debs[STUB], lambda path: path == STUB_PATH)
    wanted = frozenset(contents.packages())
    files: Tree = {}
    for package in packages:
        if package.name not in (kernel_packages[0], STUB):
            files |= tree.read_deb(debs[package.name], partial(_kept, package.name, package.name in wanted))
    files = elf.without_unused_libraries(files)
    if lacking := elf.lacking(files):
        raise BuildFailed("; ".join(f"{path} needs {name}" for name, path in sorted(lacking.items())))
    files = _firmware_asked_for(files, chosen.firmware)
    files |= _agent()
    say("compiling Python")
    files = bytecode.compiled(files)
    files |= chosen.tree
    files |= _busybox_links(files)
    for name, entry in tree.skeleton().items():
        files.setdefault(name, entry)
    agent_version = version("bcmetal-agent")
    born = int(time.time())
    sbom = [
        {"name": p.name, "version": p.version, "architecture": p.architecture, "sha256": p.sha256} for p in packages
    ]
    facts = {"kernelVersion": chosen.version, "agentVersion": agent_version, "born": born}
    files |= _settings(scripts, sbom, facts)
    say("packing the initrd")
    entries = sorted(files.items())
    (work / _PACKED).write_bytes(padded(_packed(b"".join(archive(entries)), contents.level)))
    (work / "vmlinuz").write_bytes(kernel[f"boot/vmlinuz-{chosen.version}"].data)
    (work / "stub.efi").write_bytes(stub[STUB_PATH].data)
    write_atomically(work / "base.json", json.dumps({**facts, "packages": sbom}).encode())


def _kept(package: str, asked_for: bool, path: str) -> bool:
    """Programs only of packages that were asked for, and Python; of the rest libraries and data."""
    if path == "etc/dhcp" or not tree.needed(path) or not bytecode.needed(path):
        return False
    if path.startswith(_PROGRAMS):
        name = path.rsplit("/", 1)[-1]
        if package.startswith("python3") and "minimal" in package:
            return name.startswith("python3")
        return asked_for and not any(fnmatch.fnmatchcase(name, pattern) for pattern in PROGRAMS_LEFT_OUT)
    return not path.endswith((".a", ".la", ".pc"))


def _firmware_asked_for(files: Tree, names: frozenset[str]) -> Tree:
    """Firmware only for drivers that are there; links among firmware files stay."""
    prefix = "usr/lib/firmware/"
    patterns = tuple(names)

    def asked(path: str) -> bool:
        below = path.removeprefix(prefix).removesuffix(".xz").removesuffix(".zst")
        return below in names or any("*" in p and fnmatch.fnmatchcase(below, p) for p in patterns)

    kept = {
        path: entry
        for path, entry in files.items()
        if not path.startswith(prefix) or stat.S_ISDIR(entry.mode) or asked(path)
    }
    for path, entry in list(kept.items()):
        if path.startswith(prefix) and stat.S_ISLNK(entry.mode):
            target = os.path.normpath(os.path.join(os.path.dirname(path), entry.data.decode()))
            if target in files:
                kept[target] = files[target]
    return kept


def _agent() -> Tree:
    found: Tree = {}
    source = Path(next(iter(bcmetal_agent.__path__)))
    tree.add_folder(
        found,
        source,
        f"{bytecode.PACKAGES}/bcmetal_agent",
        lambda path: "ramdisk_init" not in path.parts and "__pycache__" not in path.parts,
    )
    return found


def _busybox_links(files: Tree) -> Tree:
    """A link for each of busybox's programs that no package brings itself; asked from the very busybox."""
    with tempfile.TemporaryDirectory(prefix="bcmetal-busybox-") as name:
        program = Path(name) / "busybox"
        program.write_bytes(files["usr/bin/busybox"].data)
        program.chmod(0o700)
        done = subprocess.run([str(program), "--list"], capture_output=True, text=True, timeout=30)  # noqa: S603 - of a signed package
    if done.returncode != 0:
        raise BuildFailed("busybox cannot run here", "the ramdisk is built on an x86-64 host")
    there = {path.rsplit("/", 1)[-1] for path in files if path.startswith(_PROGRAMS)}
    return {f"usr/bin/{name}": link("busybox") for name in done.stdout.split() if name not in there}


def _settings(scripts: Path, sbom: Sequence[Mapping[str, str]], facts: Mapping[str, Any]) -> Tree:
    made: Tree = {
        "etc/passwd": file(b"root:x:0:0:root:/root:/bin/sh\n"),
        "etc/shadow": file(b"root:!:19000:0:99999:7:::\n", 0o600),
        "etc/group": file(b"root:x:0:\ntty:x:5:\ndisk:x:6:\n"),
        "etc/shells": file(b"/bin/sh\n"),
        "etc/hosts": file(b"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 bcmetal\n"),
        "etc/nsswitch.conf": file(b"passwd: files\nshadow: files\ngroup: files\nhosts: files dns\n"),
        "etc/resolv.conf": file(b""),
        "etc/mtab": link("/proc/self/mounts"),
        "etc/bcmetal": folder(0o755),
        "etc/bcmetal/born": file(f"{facts['born']}\n".encode()),
        "etc/bcmetal/release.json": file(json.dumps(facts).encode()),
        "etc/bcmetal/sbom.json": file(json.dumps(list(sbom)).encode()),
        "etc/modprobe.d/bcmetal.conf": file(b"options scsi_mod scan=sync\nblacklist pcspkr\nblacklist iTCO_wdt\n"),
    }
    at = {"init": "init", "inittab": "etc/inittab", "mdev.conf": "etc/mdev.conf"}
    for path in sorted(scripts.iterdir()):
        if path.is_file() and path.suffix != ".py":
            mode = 0o644 if path.suffix or path.name == "inittab" else 0o755
            made[at.get(path.name, f"{_SCRIPTS}/{path.name}")] = file(path.read_bytes(), mode)
    return made


def _packed(data: bytes, level: int) -> bytes:
    done = subprocess.run([tool("zstd"), f"-{level}", "-T0", "-q", "-c"], input=data, capture_output=True, timeout=900)  # noqa: S603
    if done.returncode != 0:
        raise BuildFailed(f"zstd failed: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout


def _key(contents: Contents, packages: Sequence[Package], scripts: Path) -> str:
    """By all that the base is made of: packages, the agent, the scripts, and the code that puts them together."""
    digest = hashlib.sha256(
        repr((contents.kernel, contents.tools, contents.level, contents.modules, contents.packages())).encode()
    )
    for package in packages:
        digest.update(f"{package.name} {package.version} {package.sha256}\n".encode())
    own = Path(__file__).parent
    agent = Path(next(iter(bcmetal_agent.__path__)))
    for where in (own, own.parent / "boot" / "cpio.py", agent, scripts):
        for path in sorted(where.rglob("*")) if where.is_dir() else [where]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _opened(place: Path) -> Base:
    facts = json.loads((place / "base.json").read_text())
    return Base(place, facts["kernelVersion"], facts["agentVersion"], tuple(facts["packages"]), facts["born"])


def _prune(bases: Path) -> None:
    day_old = time.time() - 24 * 3600
    there = [path for path in bases.iterdir() if path.is_dir()]
    for path in there:
        if path.name.startswith(".") and path.stat().st_mtime < day_old:
            shutil.rmtree(path, ignore_errors=True)
    whole = sorted((p for p in there if not p.name.startswith(".")), key=lambda p: p.stat().st_mtime)
    for path in whole[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
