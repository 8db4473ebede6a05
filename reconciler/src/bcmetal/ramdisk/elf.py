"""Which shared libraries are needed, from the ELF files themselves: packages depend on far more than what is used here."""

from __future__ import annotations

import fnmatch
import posixpath
import stat
import struct
from collections.abc import Iterator
from typing import Final

from bcmetal.ramdisk.tree import Tree

# Opened by name at run time, so nothing says that it is needed.
OPENED_BY_NAME: Final = ("libgcc_s.so*", "legacy.so", "libtss2-tcti-device.so*", "libnss_dns*", "libnss_files*")
_NEEDED, _STRTAB, _STRSZ = 1, 5, 10
_LOAD, _DYNAMIC = 1, 2


def needed_libraries(elf: bytes) -> list[str]:
    """DT_NEEDED; empty for what is no 64-bit ELF file or is linked statically. The interpreter's name is not among them. Raises ValueError."""
    if len(elf) < 64 or elf[:6] != b"\x7fELF\x02\x01":
        return []
    (heads_at,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    if size < 56 or heads_at + size * count > len(elf):
        raise ValueError("an ELF file with broken program headers")
    heads = [struct.unpack_from("<IIQQQQ", elf, heads_at + size * i) for i in range(count)]
    loads = [(address, offset, length) for kind, _, offset, address, _, length in heads if kind == _LOAD]
    found: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length in heads:
        if kind == _DYNAMIC:
            if offset + length > len(elf):
                raise ValueError("an ELF file with a broken dynamic section")
            found = [struct.unpack_from("<qQ", elf, at) for at in range(offset, offset + length - 15, 16)]
    values = dict(found)
    if _STRTAB not in values:
        return []
    at = next((off + values[_STRTAB] - addr for addr, off, n in loads if addr <= values[_STRTAB] < addr + n), None)
    if at is None:
        raise ValueError("an ELF file with broken dynamic strings")
    names = elf[at : at + values.get(_STRSZ, 0)]
    return [names[value:].split(b"\0", 1)[0].decode("ascii", "replace") for tag, value in found if tag == _NEEDED]


def without_unused_libraries(tree: Tree) -> Tree:
    """The tree less the shared libraries that no program and no Python extension in it reaches."""
    libraries: dict[str, list[str]] = {}
    for path in tree:
        if _is_library(path):
            libraries.setdefault(posixpath.basename(path), []).append(path)
    used: set[str] = set()
    waiting = [path for path in tree if not _is_library(path)]
    waiting += [path for name, paths in libraries.items() if _opened_by_name(name) for path in paths]
    while waiting:
        path = waiting.pop()
        if path in used:
            continue
        used.add(path)
        waiting += [there for name in _reached(tree, path) for there in libraries.get(name, ())]
    return {path: entry for path, entry in tree.items() if path in used}


def lacking(tree: Tree) -> dict[str, str]:
    """Libraries that something in the tree needs and that are not there, each with who needs it: such a program cannot start."""
    there = {posixpath.basename(path) for path in tree}
    return {name: path for path in tree for name in _reached(tree, path) if ".so" in name and name not in there}


def _reached(tree: Tree, path: str) -> Iterator[str]:
    entry = tree[path]
    if stat.S_ISLNK(entry.mode):
        yield posixpath.basename(entry.data.decode())
    elif stat.S_ISREG(entry.mode) and not path.endswith(".ko"):
        yield from needed_libraries(entry.data)


def _is_library(path: str) -> bool:
    """In the libraries' own folders; Python's extensions are not among them."""
    name = posixpath.basename(path)
    return path.startswith("usr/lib/") and ".so" in name and "/python3" not in path and not name.startswith("ld-linux")


def _opened_by_name(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OPENED_BY_NAME)
