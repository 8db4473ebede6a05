"""The media listener: one file, at one path, for one BMC, while its row in the store is live.

The path is hard to guess, but it crosses the BMC's network in the clear: what guards a medium is the address that asks for it. A medium
with a place for the operation's boot token has it there while it is sent (`token_file`).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.responses import FileResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bcmetal.boot import token_file
from bcmetal.boot.outbound import Resolver, resolve
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import VaultError
from bcmetal.patience import PatientHttpTools
from bcmetal.store import media
from bcmetal.store.media import MediumRow
from bcmetal.store.values import Store
from bcmetal.vault import Vault
from bcmetal_agent import boot_token

log = logging.getLogger(__name__)

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")
_PATH: Final = re.compile(rf"/m/[{_CROCKFORD}]{{16}}\.[A-Za-z0-9]{{1,8}}\Z")
_RESOLVED_FOR: Final = 60 * SECOND
_COUNTED_FOR: Final = SECOND


def new_path(entropy: bytes, ending: str = ".iso") -> str:
    """A fresh path from at least ten random bytes. Short, plain and ending in `.iso`: some BMCs refuse `?` and `=`, and other endings.

    Firmware keeps its own ending, by which some makers know it; one that is not plain becomes `.bin`.
    """
    if len(entropy) < 10:
        raise ValueError("a medium's path needs ten random bytes")
    number = int.from_bytes(entropy[:10], "big")
    name = "".join(_CROCKFORD[number >> shift & 31] for shift in range(75, -1, -5))
    return f"/m/{name}{ending if _ENDING.match(ending) else '.bin'}"


@dataclass(frozen=True, slots=True)
class Ramdisks:
    """Where media with a place for a boot token lie, and what opens the tokens."""

    folder: Callable[[], Path]
    vault: Vault


def media_app(
    store: Store,
    now: Callable[[], Micros],
    folder: Path,
    *,
    ramdisks: Ramdisks | None = None,
    resolver: Resolver = resolve,
) -> ASGIApp:
    """Serves files of `folder`, the shelf's, and of `ramdisks`. To be run by a server as `media_config` sets it up.

    Each GET is counted in the row before its first byte; of ranges, which a BMC reads by the thousand, one a second.
    """
    return _Media(store, now, folder, ramdisks, resolver)


def media_config(app: ASGIApp) -> uvicorn.Config:
    """For the media listener; the daemon hands its socket to `uvicorn.Server.serve`."""
    return uvicorn.Config(
        app,
        http=PatientHttpTools,
        proxy_headers=False,  # the address that asks is the connection's own; no header is believed
        server_header=False,
        access_log=False,  # a path is half of what a reader needs
        log_config=None,
        lifespan="off",
        ws="none",
    )


class _Media:
    def __init__(
        self,
        store: Store,
        now: Callable[[], Micros],
        folder: Path,
        ramdisks: Ramdisks | None,
        resolver: Resolver,
    ) -> None:
        self._store = store
        self._now = now
        self._folder = folder
        self._ramdisks = ramdisks
        self._resolver = resolver
        self._resolved: dict[str, tuple[Micros, frozenset[str]]] = {}
        self._counted: dict[str, Micros] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._answer(scope) or PlainTextResponse("not found\n", 404)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> ASGIApp | None:
        """None: whatever the reason, it is not there."""
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD") or not _PATH.match(path) or scope["query_string"]:
            return None
        now = self._now()
        row = await self._store.read(media.by_path, path, now)
        if row is None:
            return None
        asker = _plain(scope["client"][0] if scope.get("client") else "")
        if asker is None or asker not in await self._addresses(row.bmc_host, now):
            log.warning(
                "the medium of node %s was asked for by %s, not by its BMC %s", row.node_id, asker, row.bmc_host
            )
            return None
        answer = await (self._file(row) if row.token_offset is None else self._ramdisk(row, row.token_offset, now))
        if answer is not None and method == "GET" and self._counts(path, _is_range(scope), now):
            await self._store.write(media.served, path, now)
        return answer

    async def _file(self, row: MediumRow) -> ASGIApp | None:
        file = self._folder / Path(row.file).name
        seen = await asyncio.to_thread(_regular, file)
        if seen is None:
            log.error("the medium of node %s is not on the shelf", row.node_id)
            return None
        return FileResponse(file, media_type="application/octet-stream", stat_result=seen)

    async def _ramdisk(self, row: MediumRow, offset: int, now: Micros) -> ASGIApp | None:
        """The ramdisk with the operation's boot token in its place; without one where that has ended."""
        if self._ramdisks is None:
            log.error("the medium of node %s has a place for a boot token, and nothing here opens one", row.node_id)
            return None
        file = self._ramdisks.folder() / Path(row.file).name
        seen = await asyncio.to_thread(_with_place, file, offset)
        if seen is None:
            log.error("the ramdisk of node %s is not there, or another than it was offered", row.node_id)
            return None
        try:
            token = await token_file.token_of(self._store, self._ramdisks.vault, row.operation_id, now)
        except VaultError as error:
            log.error("the medium of node %s cannot be served: %s", row.node_id, error)
            return None
        piece = boot_token.placeholder() if token is None else boot_token.render(token.get_secret_value())
        mark = hashlib.sha256(f"{seen.st_mtime_ns}-{seen.st_size}-".encode() + piece).hexdigest()
        headers = {"cache-control": "no-store", "etag": f'"{mark}"'}
        answer = FileResponse(file, media_type="application/octet-stream", stat_result=seen, headers=headers)
        return token_file.laid_over(answer, piece, offset)

    async def _addresses(self, host: str, now: Micros) -> frozenset[str]:
        """A BMC's address; where it is a name, what the name led to within the last minute."""
        own = _plain(host)
        if own is not None:
            return frozenset((own,))
        at, found = self._resolved.get(host, (0, frozenset()))
        if not found or now - at >= _RESOLVED_FOR:
            try:
                answers: Sequence[str] = await asyncio.to_thread(self._resolver, host, 0)
            except (OSError, UnicodeError):
                log.warning("the name of the BMC %s does not resolve", host)
                return frozenset()
            found = frozenset(text for text in map(_plain, answers) if text is not None)
            self._resolved[host] = (now, found)
        return found

    def _counts(self, path: str, is_range: bool, now: Micros) -> bool:
        if is_range and now - self._counted.get(path, -_COUNTED_FOR) < _COUNTED_FOR:
            return False
        self._counted = {p: at for p, at in self._counted.items() if now - at < _COUNTED_FOR}
        self._counted[path] = now
        return True


def _plain(text: str) -> str | None:
    """An address in the one form that is compared: IPv4 inside IPv6 is IPv4, as a dual-stack listener shows it; no zone."""
    try:
        address: Any = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_range(scope: Scope) -> bool:
    return any(name == b"range" for name, _ in scope["headers"])


def _with_place(file: Path, offset: int) -> os.stat_result | None:
    seen = _regular(file)
    try:
        return seen if seen is not None and token_file.has_place(file, offset) else None
    except OSError:
        return None


def _regular(file: Path) -> os.stat_result | None:
    try:
        seen = file.lstat()
    except OSError:
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None
