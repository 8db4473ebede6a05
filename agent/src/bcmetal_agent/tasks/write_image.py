"""`writeImage`: the image comes over the network, is unpacked and written to one disk, and the disk has to give it back.

1. Find the disk; nothing is written to another one.
2. Empty the disk's edges, so that no earlier system starts from it any more.
3. Download, unpack and write in one stream, all but the edges; both checksums are made on the way.
4. Compare the download's checksum, then read all that was written back past the cache, and compare it.
5. Write the edges, the boot sectors and the partition table last.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from bcmetal_agent.tasks.disks import BlockDevice, Where, opened, resolve
from bcmetal_agent.tasks.doing import Doing, ImageDoor, TaskFailed
from bcmetal_agent.tasks.unpack import Unpackable, unpacked
from bcmetal_agent.tasks.write_image_disk import Sectors
from bcmetal_agent.tasks.write_image_source import Patience, Source
from bcmetal_agent.tasks.write_image_target import Target
from bcmetal_agent.wire_tasks import WriteImageParams, WroteImage

_BLKRRPART: Final = 0x125F  # linux/fs.h
_WRITTEN: Final = 700  # thousandths of the work; the rest is reading back
_PROVEN: Final = 990
_HASHES_AHEAD: Final = 8


def write_image(
    params: WriteImageParams,
    doing: Doing,
    image: ImageDoor,
    where: Where | None = None,
    patience: Patience | None = None,
) -> WroteImage:
    """Done again it starts anew. Raises TaskFailed: those of `disks.resolve`, image-checksum, image-truncated, image-too-large, image-stalled,
    image-unpack, disk-write-failed, disk-read-back-differs."""
    began = time.monotonic()
    if not re.fullmatch(r"[0-9a-f]{64}", params.sha256) or params.size_bytes <= 0 or (params.raw_bytes or 1) <= 0:
        raise TaskFailed("bad-params", "the image has no size, or no SHA-256")
    device = resolve(params.disk, where)
    _must_fit(params, device)
    source = Source(image, params.size_bytes, doing, patience or Patience())
    with opened(device, os.O_RDWR | os.O_DIRECT) as fd, Target(Sectors(fd, device), doing) as target:
        doing.progress(0, f"writing the image to {device.name} ({device.serial})")
        target.clear()
        written_sha256 = _stream(params, doing, source, target, device)
        doing.progress(_WRITTEN, f"reading back {target.written} bytes")
        for done in target.prove():
            doing.check()
            doing.progress(_WRITTEN + (_PROVEN - _WRITTEN) * done // target.written)
        doing.progress(_PROVEN, "writing the boot sectors")
        read_back_sha256 = target.land()
        with contextlib.suppress(OSError):  # disks without partitions for the kernel, such as some loop devices
            fcntl.ioctl(fd, _BLKRRPART)
    took_ms = round(1000 * (time.monotonic() - began))
    doing.log(
        f"{device.name} ({device.serial}): {source.received} bytes downloaded, {target.written} written and read back "
        f"in {took_ms} ms, resumed {source.resumed} times\n"
    )
    doing.progress(1000, "the image is written")
    return WroteImage(
        device=device.name,
        downloaded_bytes=source.received,
        written_bytes=target.written,
        written_sha256=written_sha256,
        read_back_sha256=read_back_sha256,
        took_ms=took_ms,
        resumed=source.resumed,
    )


def _must_fit(params: WriteImageParams, device: BlockDevice) -> None:
    raw = params.size_bytes if params.compression == "none" else params.raw_bytes
    if params.compression == "none" and params.raw_bytes not in (None, params.size_bytes):
        raise TaskFailed("bad-params", "an image that is not packed has two sizes")
    if raw is not None and raw > device.size_bytes:
        raise _too_large(raw, device)


def _too_large(raw: int, device: BlockDevice) -> TaskFailed:
    return TaskFailed(
        "image-too-large",
        f"the image has {raw} bytes or more, the disk {device.name} ({device.serial}) only {device.size_bytes}",
    )


def _stream(params: WriteImageParams, doing: Doing, source: Source, target: Target, device: BlockDevice) -> str:
    """The image on the disk, all but its edges, when its download's checksum is right. The SHA-256 of what was written."""
    with contextlib.closing(source.chunks()) as chunks:
        if params.compression == "none":  # what arrives is what is written, and its checksum is made there
            for chunk in chunks:
                target.add(chunk)
                doing.progress(_WRITTEN * source.received // params.size_bytes)
            written = target.end()
            _compare(params, written)
            return written
        with _Hashed(chunks) as arriving:
            try:
                _unpack(params, doing, source, arriving, target, device)
            except Unpackable as e:
                _drain(arriving)
                _compare(params, arriving.hexdigest())
                raise TaskFailed("image-truncated" if e.truncated else "image-unpack", str(e)) from e
            _drain(arriving)
            _compare(params, arriving.hexdigest())
            return target.end()


def _unpack(
    params: WriteImageParams, doing: Doing, source: Source, arriving: _Hashed, target: Target, device: BlockDevice
) -> None:
    with contextlib.closing(unpacked(params.compression, arriving)) as pieces:
        for piece in pieces:
            size = target.added + len(piece)
            if size > device.size_bytes:
                raise _too_large(size, device)
            if params.raw_bytes is not None and size > params.raw_bytes:
                raise Unpackable(f"the image unpacks to more than the {params.raw_bytes} bytes that it should")
            target.add(piece)
            doing.progress(_WRITTEN * source.received // params.size_bytes)
    if params.raw_bytes is not None and target.added != params.raw_bytes:
        raise Unpackable(f"the image unpacks to {target.added} bytes instead of {params.raw_bytes}", truncated=True)


def _compare(params: WriteImageParams, downloaded: str) -> None:
    if downloaded != params.sha256:
        raise TaskFailed(
            "image-checksum", f"the image's SHA-256 is {downloaded}, not {params.sha256}; the disk starts nothing"
        )


def _drain(chunks: Iterable[bytes]) -> None:
    """To the download's end, so that a damaged download is told from an image that never was right."""
    for _ in chunks:
        pass


class _Hashed:
    """Chunks, hashed by a thread while they are used. For a `with`; may be iterated again to go on."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._digest = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, "hash-download")
        self._ahead: deque[Future[None]] = deque()

    def __enter__(self) -> _Hashed:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._ahead.append(self._pool.submit(self._digest.update, chunk))
            if len(self._ahead) > _HASHES_AHEAD:
                self._ahead.popleft().result()
            yield chunk

    def hexdigest(self) -> str:
        while self._ahead:
            self._ahead.popleft().result()
        return self._digest.hexdigest()
