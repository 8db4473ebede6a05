"""cpio archives in the kernel's `newc` form (Documentation/driver-api/early-userspace/buffer-format.rst), and nothing but bytes.

An initrd is archives one after the other; a later one adds files to an earlier one. Each starts at a multiple of four.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

BLOCK: Final = 512
_TRAILER: Final = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or symbolic link of root's. `mode` has the type's bits; a link's `data` is where it points."""

    mode: int
    data: bytes = b""


def file(data: bytes, mode: int = 0o644) -> Entry:
    return Entry(stat.S_IFREG | mode, data)


def folder(mode: int = 0o755) -> Entry:
    return Entry(stat.S_IFDIR | mode)


def link(to: str) -> Entry:
    return Entry(stat.S_IFLNK | 0o777, to.encode())


def newc(files: Mapping[str, bytes], mode: int = 0o600) -> bytes:
    """An archive of files at absolute or relative paths, and of the folders above them (0755), padded to whole blocks."""
    return b"".join(archive((name, file(data, mode)) for name, data in files.items()))


def archive(entries: Iterable[tuple[str, Entry]]) -> Iterator[bytes]:
    """The same entries always give the same bytes: no times, no owners, numbered in turn. Missing folders come before what they hold."""
    seen: set[str] = set()
    written = 0
    for name, entry in _with_folders(entries, seen):
        piece = _record(len(seen), name, entry)
        written += len(piece)
        yield piece
    end = _record(0, _TRAILER, Entry(0))
    yield end + bytes(-(written + len(end)) % BLOCK)


def padded(data: bytes) -> bytes:
    """So that another archive may follow: zeros between archives are skipped."""
    return data + bytes(-len(data) % BLOCK)


def _with_folders(entries: Iterable[tuple[str, Entry]], seen: set[str]) -> Iterator[tuple[str, Entry]]:
    for path, entry in entries:
        parts = path.strip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ValueError(f"no path for an archive: {path!r}")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if above not in seen:
                seen.add(above)
                yield above, folder()
        name = "/".join(parts)
        if name in seen:
            if not stat.S_ISDIR(entry.mode):
                raise ValueError(f"twice in one archive: {path!r}")
            continue
        seen.add(name)
        yield name, entry


def _record(number: int, name: str, entry: Entry) -> bytes:
    raw = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, 0, 0, len(raw), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + raw
    return head + bytes(-len(head) % 4) + entry.data + bytes(-len(entry.data) % 4)
