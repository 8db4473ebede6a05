"""A packed image as a stream of pieces: whatever it unpacks to, only one piece of it is in memory at a time.

gzip and xz by the standard library, zstd by its own program in a pipe. All that several of them joined together would be accepted by the
programs `gunzip`, `unxz` and `unzstd` is accepted here.
"""

from __future__ import annotations

import contextlib
import fcntl
import lzma
import os
import selectors
import signal
import subprocess
import tempfile
import time
import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import IO, Final

from bcmetal_agent.tasks.tools import find

PIECE: Final = 2**20
# A file names the window that unpacking it needs: xz -9 64 MiB, zstd without --ultra 8 MiB, `--long` 128 MiB.
_XZ_MEMORY: Final = 160 * 2**20
_ZSTD_MEMORY: Final = "--memory=128MB"
_PIPE_BYTES: Final = 2**20
_STANDS_STILL_S: Final = 120.0
_SAID: Final = 4096


class Unpackable(Exception):
    """It is not packed as it should be. `truncated`: only its end is missing."""

    def __init__(self, text: str, *, truncated: bool = False) -> None:
        super().__init__(text)
        self.truncated = truncated


def unpacked(compression: str, chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    """Pieces of at most PIECE bytes. What `chunks` raises is passed on. Raises Unpackable; ToolMissing."""
    if compression == "gzip":
        return _members(_Gzip, chunks)
    if compression == "xz":
        return _members(_Xz, chunks)
    if compression == "zstd":
        return _piped(["zstd", "-d", "-c", "-q", _ZSTD_MEMORY], chunks)
    raise Unpackable(f"nothing here unpacks {compression}")


class _Gzip:
    """One member of a gzip file."""

    name = "gzip"
    starts = b"\x1f\x8b"

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._unpacker.eof:
            piece = self._unpacker.decompress(data, PIECE)
            data = self._unpacker.unconsumed_tail
            if piece:
                yield piece
        # What the unpacker still holds when all was taken in is at most a window.
        while not self._unpacker.eof and (piece := self._unpacker.decompress(b"", PIECE)):
            yield piece

    @property
    def ended(self) -> bool:
        return self._unpacker.eof

    @property
    def rest(self) -> bytes:
        return self._unpacker.unused_data


class _Xz:
    """One stream of an xz file."""

    name = "xz"
    starts = b"\xfd7zXZ\x00"

    def __init__(self) -> None:
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self._unpacker.eof:
            piece = self._unpacker.decompress(data, PIECE)
            data = b""
            if piece:
                yield piece
            if self._unpacker.needs_input:
                return

    @property
    def ended(self) -> bool:
        return self._unpacker.eof

    @property
    def rest(self) -> bytes:
        return self._unpacker.unused_data


def _members(kind: type[_Gzip] | type[_Xz], chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    member: _Gzip | _Xz | None = None
    several = False
    waiting = b""  # the start of a next member that has not wholly come
    for chunk in chunks:
        data = waiting + chunk
        waiting = b""
        while data:
            if member is None:
                if several:
                    data = data.lstrip(b"\0")  # padding between members, and behind the last one
                if not data:
                    break
                if len(data) < len(kind.starts) and kind.starts.startswith(data):
                    waiting = data
                    break
                if not data.startswith(kind.starts):
                    raise Unpackable(
                        f"the image is no {kind.name} file" + (" behind its first part" if several else "")
                    )
                member = kind()
            try:
                yield from member.feed(data)
            except (zlib.error, lzma.LZMAError, EOFError) as e:
                raise Unpackable(f"the image could not be unpacked: {e}") from e
            if not member.ended:
                break
            data, member, several = member.rest, None, True
    if member is not None or waiting or not several:
        raise Unpackable(f"the image is a {kind.name} file without its end", truncated=True)


def _piped(argv: list[str], chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    with tempfile.TemporaryFile() as said, _program(argv, said) as process, selectors.DefaultSelector() as selector:
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        coming = iter(chunks)
        waiting = memoryview(b"")
        moved = time.monotonic()
        while selector.get_map():
            for key, _ in selector.select(1.0):
                if key.fileobj is stdout:
                    piece = os.read(stdout.fileno(), PIECE)
                    if piece:
                        yield piece
                    else:
                        selector.unregister(stdout)
                else:
                    waiting = waiting or memoryview(next(coming, b""))
                    taken = _fed(stdin, waiting)
                    waiting = waiting[taken:]
                    if not taken:
                        selector.unregister(stdin)
                        stdin.close()
                moved = time.monotonic()
            if time.monotonic() - moved > _STANDS_STILL_S:
                raise Unpackable(f"{argv[0]} stands still")
        code = process.wait(_STANDS_STILL_S)
        if code:
            said.seek(0)
            text = said.read(_SAID).decode("utf-8", "replace").strip().splitlines()
            why = text[-1].rpartition("/*stdin*\\ : ")[2][:200] if text else f"it ended with {code}"
            raise Unpackable(f"{argv[0]} could not unpack the image: {why}", truncated="premature end" in why)


@contextlib.contextmanager
def _program(argv: list[str], said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Not `tools.run`, which gathers what a program prints: this one prints a whole disk. It ends with the block."""
    process = subprocess.Popen(  # noqa: S603 - a list, and no shell
        [find(argv[0]), *argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        bufsize=0,
        cwd="/",
        start_new_session=True,
    )
    try:
        for pipe in (_pipe(process.stdin), _pipe(process.stdout)):
            with contextlib.suppress(OSError):  # smaller pipes are only slower
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(_pipe(process.stdin).fileno(), False)
        yield process
    finally:
        for stream in (process.stdin, process.stdout):
            _pipe(stream).close()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _fed(pipe: IO[bytes], waiting: memoryview) -> int:
    """How much of it the program took; 0 when there is no more, or it takes no more."""
    try:
        return os.write(pipe.fileno(), waiting) if waiting else 0
    except BrokenPipeError:
        return 0


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
