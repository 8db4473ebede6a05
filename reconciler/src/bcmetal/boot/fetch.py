"""Fetch an image by its address and checksum, in the calling thread.

1. Every hop, the first and each redirect, goes through the door in `outbound`.
2. A part that an earlier fetch left is resumed by Range with If-Range, or dropped.
3. What arrived is hashed; only a file with the right checksum gets its final name, atomically and on stable storage.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bcmetal.boot.formats import Format
from bcmetal.boot.hops import CHUNK, Answer, FetchCancelled, FetchPolicy, follow
from bcmetal.boot.outbound import AddressRefused, NoConnection
from bcmetal.errors import LAST_ERRORS

__all__ = ["FetchCancelled", "FetchPolicy", "Fetched", "ImageFault", "ImageSource", "fetch", "hash_file"]

_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)\Z")
_HEX: Final = re.compile(r"[0-9a-f]+\Z")


class ImageFault(Exception):
    """An image cannot be had. `code` is one of `lastError.code`; the text names classes only, no address and no credential."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def retryable(self) -> bool:
        return LAST_ERRORS[self.code].retryable


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where an image is and what it must be. Without a well-formed checksum nothing is fetched.

    `tenant`: who named the address; what is fetched for him serves nobody else. None: the configuration names it, it serves everybody.
    """

    url: str
    sha256: str | None = None
    sha512: str | None = None
    format: Format = "iso"
    tenant: str | None = None

    @property
    def checksums(self) -> dict[str, str]:
        """Algorithm → lower-case hexadecimal, sha256 first. Raises ImageFault."""
        named = {"sha256": self.sha256, "sha512": self.sha512}
        found = {name: text.strip().lower() for name, text in named.items() if text}
        if not found:
            raise ImageFault("image-checksum", "the image names no SHA-256 or SHA-512 checksum")
        for name, text in found.items():
            if len(text) != hashlib.new(name).digest_size * 2 or not _HEX.match(text):
                raise ImageFault("image-checksum", f"the image's {name} is no such checksum")
        return found


@dataclass(frozen=True, slots=True)
class Fetched:
    size: int
    sha256: str


def fetch(
    source: ImageSource,
    dest: Path,
    policy: FetchPolicy,
    progress: Callable[[int, int | None], None],
    cancelled: Callable[[], bool],
) -> Fetched:
    """Fetch to `dest`. Raises ImageFault or FetchCancelled.

    `progress(done_bytes, total_bytes)` is called often; a total of None is not known. Beside `dest` lie `.part` and `.part.json` until
    the file is whole.
    """
    checksums = source.checksums
    part = _Part(dest)
    job = _Job(source.url, checksums, part, policy, progress, cancelled)
    try:
        hashes = part.hashes(job)
        if part.size and _right(hashes, checksums):  # it was whole, and a crash kept its name from it
            return part.finish(hashes)
        offer = part.offer(source.url)
        if offer:
            try:
                return _fetch_once(job, offer, hashes)
            except ImageFault as fault:
                if fault.code != "image-checksum":
                    raise
                # A crash may have hurt the old part: an image is judged only by a download that is ours from its first byte.
        return _fetch_once(job, {}, hashes)
    except AddressRefused as error:
        raise ImageFault("image-refused", str(error)) from error
    except NoConnection as error:
        raise ImageFault("image-unreachable", str(error)) from error
    except OSError as error:
        raise not_kept(error) from error


def not_kept(error: OSError) -> ImageFault:
    """Tried again: room may be made."""
    why = os.strerror(error.errno) if error.errno else "input or output failed"
    return ImageFault("image-unreachable", f"the image cannot be kept here: {why}")


@dataclass(frozen=True, slots=True)
class _Job:
    url: str
    checksums: dict[str, str]
    part: _Part
    policy: FetchPolicy
    progress: Callable[[int, int | None], None]
    cancelled: Callable[[], bool]

    def fresh_hashes(self) -> dict[str, Any]:
        return _fresh_hashes(self.checksums)

    def too_large(self) -> ImageFault:
        self.part.drop()
        return ImageFault("image-too-large", f"the image is larger than {self.policy.limit_bytes} bytes")


def _fetch_once(job: _Job, offer: dict[str, str], so_far: dict[str, Any]) -> Fetched:
    """`so_far` are the hashes over the part that `offer` asks to go on from."""
    with follow(job.url, offer, job.policy, job.cancelled) as answer:
        hashes = _download(job, answer, so_far)
    if not _right(hashes, job.checksums):
        job.part.drop()
        raise ImageFault("image-checksum", "what the server sent is not what the checksum names")
    return job.part.finish(hashes)


def hash_file(
    path: Path,
    checksums: dict[str, str],
    progress: Callable[[int, int | None], None],
    cancelled: Callable[[], bool],
) -> Fetched | None:
    """Read a file through; None when it is not there or not what the checksums name. Raises FetchCancelled."""
    hashes = _fresh_hashes(checksums)
    try:
        size = path.stat().st_size
        _hash(path, hashes, lambda done: progress(done, size), cancelled)
    except OSError:
        return None
    return Fetched(size, hashes["sha256"].hexdigest()) if _right(hashes, checksums) else None


def _fresh_hashes(checksums: dict[str, str]) -> dict[str, Any]:
    return {name: hashlib.new(name) for name in {"sha256", *checksums}}


def _hash(path: Path, hashes: dict[str, Any], progress: Callable[[int], None], cancelled: Callable[[], bool]) -> None:
    done = 0
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            if cancelled():
                raise FetchCancelled
            _update(hashes, chunk)
            done += len(chunk)
            progress(done)


def _right(hashes: dict[str, Any], checksums: dict[str, str]) -> bool:
    return all(hashes[name].hexdigest() == text for name, text in checksums.items())


def _judge(status: int) -> None:
    if status in (200, 206, 416):
        return
    if status in (404, 410):
        raise ImageFault("image-not-found", f"the server answers {status}: there is no such image")
    if status in (408, 425, 429) or status >= 500:
        raise ImageFault("image-unreachable", f"the server answers {status}")
    raise ImageFault("image-refused", f"the server answers {status}")


# ---------------------------------------------------------------- the body


def _download(job: _Job, answer: Answer, so_far: dict[str, Any]) -> dict[str, Any]:
    """Append the body to the part, or write it anew; the hashes of the whole."""
    _judge(answer.status)
    start, hashes = 0, job.fresh_hashes()
    if answer.status != 200:
        start, hashes = _resumes_at(answer, job.part.size), so_far
        if start == 0:
            job.part.drop()
            raise ImageFault("image-unreachable", "the server could not go on where the last fetch ended")
    total = None if answer.length is None else start + answer.length
    if total is not None and total > job.policy.limit_bytes:
        raise job.too_large()
    done = start
    with job.part.open(start, job.url, answer) as file:
        job.progress(done, total)
        for chunk in iter(lambda: _read(answer), b""):
            done += len(chunk)
            if done > job.policy.limit_bytes:
                raise job.too_large()
            file.write(chunk)
            _update(hashes, chunk)
            job.progress(done, total)
    if total is not None and done != total:
        raise ImageFault("image-unreachable", "the connection ended before the image did")
    return hashes


def _update(hashes: dict[str, Any], chunk: bytes) -> None:
    for found in hashes.values():
        found.update(chunk)


def _read(answer: Answer) -> bytes:
    try:
        return answer.read1(CHUNK)
    except (http.client.HTTPException, ValueError) as error:
        raise NoConnection("the connection ended before the image did") from error


def _resumes_at(answer: Answer, have: int) -> int:
    """Where a 206 goes on: `have`, or 0 when it is no answer to what was asked."""
    found = _RANGE.match(answer.getheader("Content-Range", ""))
    if answer.status != 206 or found is None or int(found[1]) != have:
        return 0
    whole = found[3] == "*" or int(found[3]) == int(found[2]) + 1
    fits = answer.length is None or answer.length == int(found[2]) + 1 - have
    return have if whole and fits else 0


# ---------------------------------------------------------------- the part


class _Part:
    """What has arrived of a file, with the validator that it may be resumed by."""

    def __init__(self, dest: Path) -> None:
        self._dest = dest
        self._file = dest.with_name(dest.name + ".part")
        self._note = dest.with_name(dest.name + ".part.json")

    @property
    def size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def offer(self, url: str) -> dict[str, str]:
        """The header fields that ask for the rest; none, and nothing kept, where it cannot be resumed safely."""
        try:
            note = json.loads(self._note.read_text("ascii"))
            kept, validator = note["url_sha256"], note["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            kept, validator = None, None
        if self.size == 0 or kept != _digest(url) or not isinstance(validator, str):
            self.drop()
            return {}
        return {"Range": f"bytes={self.size}-", "If-Range": validator}

    def hashes(self, job: _Job) -> dict[str, Any]:
        """Over what has arrived so far."""
        hashes = job.fresh_hashes()
        if self.size > 0:
            _hash(self._file, hashes, lambda done: job.progress(done, None), job.cancelled)
        return hashes

    def open(self, start: int, url: str, answer: Answer) -> io.BufferedWriter:
        """Cut down to `start` bytes, to be appended to. A URL may hold a signature: only its digest is kept."""
        fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        file = os.fdopen(fd, "wb")
        file.truncate(start)
        file.seek(start)
        if start == 0:
            note = {"url_sha256": _digest(url), "validator": _validator(answer)}
            self._note.write_text(json.dumps(note), "ascii")
        return file

    def drop(self) -> None:
        self._file.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def finish(self, hashes: dict[str, Any]) -> Fetched:
        """Give it its final name, for good."""
        fetched = Fetched(self.size, hashes["sha256"].hexdigest())
        _sync(self._file)
        os.replace(self._file, self._dest)
        _sync(self._dest.parent)
        self._note.unlink(missing_ok=True)
        return fetched


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()


def _validator(answer: Answer) -> str | None:
    """A strong ETag, else the date (RFC 9110, 13.1.5: a weak one must not be used with Range)."""
    etag = answer.getheader("ETag", "")
    if re.fullmatch(r'"[!#-~]{1,200}"', etag):
        return etag
    date = answer.getheader("Last-Modified", "")
    return date if re.fullmatch(r"[A-Za-z0-9,: +-]{1,40}", date) else None
