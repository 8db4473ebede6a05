"""The ramdisk's files in memory, read from packages: no chroot, no package script runs, everything is root's."""

from __future__ import annotations

import fnmatch
import posixpath
import stat
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bcmetal.boot.cpio import Entry, file, folder, link
from bcmetal.ramdisk.faults import BuildFailed, tool

# Debian 12's packages still name the split folders; the ramdisk has the merged ones.
MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
NOT_NEEDED: Final = (
    "usr/share/doc*",
    "usr/share/man/*",
    "usr/share/locale/*",
    "usr/share/info/*",
    "usr/share/lintian/*",
    "usr/share/bash-completion/*",
    "usr/share/zsh/*",
    "usr/share/bug/*",
    "usr/share/initramfs-tools/*",
    "usr/share/apport/*",
    "usr/share/applications/*",
    "usr/share/icons/*",
    "usr/share/pixmaps/*",
    "usr/share/X11/*",
    "usr/share/fonts/*",
    "usr/share/perl*",
    "usr/lib/*/perl*",
    "usr/lib/*/gconv/*",
    "usr/lib/systemd/*",
    "usr/lib/udev/*",
    "usr/include/*",
    "etc/*",
    "var/*",
)

Tree = dict[str, Entry]


def read_deb(path: Path, wanted: Callable[[str], bool]) -> Tree:
    """The package's files whose path (merged, relative) is wanted. Raises BuildFailed."""
    tree: Tree = {}
    with subprocess.Popen(  # noqa: S603 - a list of arguments
        [tool("dpkg-deb"), "--fsys-tarfile", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as unpacker:
        if unpacker.stdout is None:
            raise BuildFailed(f"{path.name} cannot be read")
        try:
            with tarfile.open(fileobj=unpacker.stdout, mode="r|") as members:
                for member in members:
                    name = merged(member.name)
                    if name and wanted(name):
                        _add(tree, name, member, members)
        except (tarfile.TarError, ValueError) as error:
            unpacker.kill()
            raise BuildFailed(f"{path.name} cannot be read: {error}") from error
    if unpacker.returncode != 0:
        raise BuildFailed(f"{path.name} cannot be read: dpkg-deb ended with {unpacker.returncode}")
    return tree


def merged(path: str) -> str:
    """A member's path as it is in a tree: relative, `lib/x` as `usr/lib/x`; empty for the root itself."""
    clean = posixpath.normpath(path).lstrip("/")
    if clean in (".", "") or clean.split("/", 1)[0] == "..":
        return ""
    return f"usr/{clean}" if clean.split("/", 1)[0] in MERGED else clean


def needed(path: str) -> bool:
    """Not a manual, a translation, a script of a package, a unit of systemd."""
    return not any(fnmatch.fnmatchcase(path, pattern) for pattern in NOT_NEEDED)


def skeleton() -> Tree:
    tree: Tree = {name: link(f"usr/{name}") for name in MERGED if name in ("bin", "sbin", "lib", "lib64")}
    for name in ("dev", "proc", "sys", "run", "root", "mnt", "etc", "var", "usr", "usr/bin", "usr/sbin", "usr/lib"):
        tree[name] = folder()
    tree["root"] = folder(0o700)
    tree["tmp"] = folder(0o1777)
    tree["var/run"] = link("/run")
    tree["var/tmp"] = folder(0o1777)
    return tree


def add_folder(tree: Tree, source: Path, at: str, wanted: Callable[[Path], bool]) -> None:
    """The host's files under `source`, in a fixed order, with plain modes."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and wanted(relative):
            tree[f"{at}/{relative.as_posix()}"] = file(path.read_bytes())


def write_out(tree: Mapping[str, Entry], into: Path) -> None:
    """The tree as files on the host, for a tool that wants them there; modes without set-id."""
    for name, entry in sorted(tree.items()):
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISDIR(entry.mode):
            path.mkdir(exist_ok=True)
        elif stat.S_ISLNK(entry.mode):
            path.symlink_to(entry.data.decode())
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode & 0o755)


def _add(tree: Tree, name: str, member: tarfile.TarInfo, members: tarfile.TarFile) -> None:
    if member.isdir():
        tree.setdefault(name, folder(member.mode & 0o1777))
    elif member.issym():
        tree[name] = link(member.linkname)
    elif member.islnk():
        at = merged(member.linkname)
        if at not in tree:
            raise ValueError(f"{name} is a hard link to what is not there")
        tree[name] = tree[at]
    elif member.isreg():
        opened = members.extractfile(member)
        if opened is None:
            raise ValueError(f"{name} has no content")
        tree[name] = file(opened.read(), member.mode & 0o755)
