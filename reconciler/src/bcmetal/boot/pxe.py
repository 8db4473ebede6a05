"""Booting from the network, for machines whose BMC has no virtual media: what iPXE asks for, on the media listener.

`/boot/ipxe/<mac>` answers a script: it boots the site's ramdisk while an operation of that machine offers it (`store.netboot`), and else
goes on to the machine's own disk; never an error, at which iPXE would stop. `/boot/kernel/<key>` and `/boot/initrd/<key>` are what the
script names, and last as long as the operation's boot token. The initrd is one file, the site's with a cpio of the operation's boot token behind it (iPXE before 2021 cannot put one
together under EFI); the token is opened from the vault while it is sent, and lies nowhere in the clear.

All of it goes to askers in a network of `[networks]` that has an `agent_url`, the narrowest one that holds their address, and to no
others; the address is the connection's own. It cannot tell one machine in that network from another: a MAC is only said, and the wire is
plain. So the provisioning network must be the site's alone; and a token that was overheard is worth one hello, of which the second
voids both (`api.agents`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import SecretStr
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bcmetal.boot import token_file
from bcmetal.boot.cpio import BLOCK, newc
from bcmetal.decisions import Micros
from bcmetal.errors import VaultError
from bcmetal.settings import Settings
from bcmetal.store import netboot
from bcmetal.store.values import Store
from bcmetal.vault import Vault
from bcmetal_agent import boot_token

log = logging.getLogger(__name__)

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_KEY: Final = re.compile(rf"/boot/(kernel|initrd)/([{_CROCKFORD}]{{16}})\Z")
_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}\Z")
_COMMAND_LINE: Final = re.compile(r"[A-Za-z0-9=,._ /-]{0,512}")
_CHUNK: Final = 256 * 1024

# A status, at which UEFI goes on to its next boot entry (tried with iPXE of 2019 under OVMF, as an option ROM and as ipxe.efi: both go on);
# a legacy BIOS goes on either way.
LOCAL_BOOT: Final = "#!ipxe\nexit 1\n"


class _NotBuilt(Exception):
    """There is no ramdisk in the folder, or not one that can be offered."""


@dataclass(frozen=True, slots=True)
class _Ramdisk:
    kernel: Path
    initrd: Path
    command_line: str


def new_key(entropy: bytes) -> str:
    """A fresh key of an offer from at least ten random bytes."""
    if len(entropy) < 10:
        raise ValueError("the key of an offer needs ten random bytes")
    number = int.from_bytes(entropy[:10], "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(75, -1, -5))


def mac_of(text: str) -> str | None:
    """aa:bb:cc:dd:ee:ff from that or from aa-bb-cc-dd-ee-ff, in any case. None for anything else."""
    return text.replace("-", ":").lower() if _MAC.match(text) else None


def script(key: str, command_line: str) -> str:
    """The iPXE script that boots the ramdisk. Addresses are relative to its own: whatever led to it leads on.

    `initrd=` is how the kernel's EFI stub finds the file that iPXE holds; under a legacy BIOS it means nothing. Each file is tried twice.
    """
    kernel = f"kernel /boot/kernel/{key} initrd=initrd {command_line}".rstrip()
    initrd = f"initrd --name initrd /boot/initrd/{key}"
    lines = ("#!ipxe", f"{kernel} || {kernel} || exit 1", f"{initrd} || {initrd} || exit 1", "boot || exit 1")
    return "\n".join(lines) + "\n"


def pxe_app(store: Store, now: Callable[[], Micros], settings: Callable[[], Settings], vault: Vault) -> ASGIApp:
    """What is under `/boot/`. The ramdisk is that of `[daemon] ramdisk_folder`, looked at anew for each request."""
    return _Pxe(store, now, settings, vault)


def beside(media: ASGIApp, pxe: ASGIApp) -> ASGIApp:
    """Both on one listener: network boot under `/boot/`, and media everywhere else."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        boots = scope["type"] == "http" and scope["path"].startswith("/boot/")
        await (pxe if boots else media)(scope, receive, send)

    return app


class _Pxe:
    def __init__(self, store: Store, now: Callable[[], Micros], settings: Callable[[], Settings], vault: Vault) -> None:
        self._store = store
        self._now = now
        self._settings = settings
        self._vault = vault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._answer(scope)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        path, get = scope["path"], scope["method"] == "GET"
        if not get and scope["method"] != "HEAD":
            return _not_found()
        asker = _asker(scope)
        ours = asker is not None and self._provisions(asker)
        if path.startswith("/boot/ipxe/"):
            told = await self._script(path.removeprefix("/boot/ipxe/"), asker) if ours else LOCAL_BOOT
            return PlainTextResponse(told, headers={"cache-control": "no-store"})
        asked = _KEY.match(path)
        if not ours or asked is None or scope["query_string"]:
            return _not_found()
        return await self._file(asked[1], asked[2], asker, get) or _not_found()

    def _provisions(self, asker: str) -> bool:
        network = self._settings().network_for(asker)
        return network is not None and network.agent_url is not None

    async def _script(self, said: str, asker: str | None) -> str:
        mac = mac_of(said)
        if mac is None:
            return LOCAL_BOOT
        offer = await self._store.read(netboot.of_mac, mac, self._now())
        if offer is None:
            return LOCAL_BOOT
        try:
            ramdisk = await asyncio.to_thread(self._ramdisk)
        except _NotBuilt as error:
            log.error("node %s cannot boot from the network: %s", offer.node_id, error)
            return LOCAL_BOOT
        log.info("node %s boots from the network, as %s at %s asks", offer.node_id, mac, asker)
        return script(offer.key, ramdisk.command_line)

    async def _file(self, kind: str, key: str, asker: str | None, get: bool) -> Response | None:
        now = self._now()
        offer = await self._store.read(netboot.by_key, key, now)
        if offer is None:
            return None
        try:
            ramdisk = await asyncio.to_thread(self._ramdisk)
            if kind == "kernel":
                return _Whole(ramdisk.kernel)
            token = await token_file.token_of(self._store, self._vault, offer.operation_id, now)
            if token is None:
                return None
            if get:
                await self._store.write(netboot.served, key, now)
            return _Whole(ramdisk.initrd, token)
        except (_NotBuilt, VaultError) as error:
            log.error("node %s cannot boot from the network: %s", offer.node_id, error)
            return None

    def _ramdisk(self) -> _Ramdisk:
        folder = self._settings().daemon.ramdisk_folder
        try:
            manifest: Any = json.loads((folder / "ramdisk.json").read_text(encoding="utf-8"))
            line = str(manifest["commandLine"])
            sizes = {name: int(manifest["files"][name]["size"]) for name in ("vmlinuz", "initrd")}
        except (OSError, ValueError, KeyError, TypeError):
            raise _NotBuilt(f"no ramdisk in {folder}: bcmetal ramdisk build makes one") from None
        if not _COMMAND_LINE.fullmatch(line):
            raise _NotBuilt(
                f"the command line of the ramdisk in {folder} has more than letters, digits and = , . _ / -"
            )
        for name, size in sizes.items():
            seen = _regular(folder / name)
            if seen is None or seen.st_size != size:
                raise _NotBuilt(f"{folder / name} is not what its manifest says")
        return _Ramdisk(folder / "vmlinuz", folder / "initrd", line)


class _Whole(Response):
    """A file as one body of a known length; with a token, zeros up to a whole block and a cpio of the token behind it."""

    def __init__(self, path: Path, token: SecretStr | None = None) -> None:
        """Raises _NotBuilt."""
        tail = b"" if token is None else _archived(token)
        try:
            self._file: BinaryIO = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        except OSError as error:
            raise _NotBuilt(f"{path} cannot be read: {error.strerror}") from None
        self._size = os.fstat(self._file.fileno()).st_size
        self._tail = bytes(-self._size % BLOCK) + tail if tail else b""
        super().__init__(
            media_type="application/octet-stream",
            headers={"content-length": str(self._size + len(self._tail)), "cache-control": "no-store"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            left = 0 if scope["method"] == "HEAD" else self._size
            while left:
                piece = await asyncio.to_thread(self._file.read, min(left, _CHUNK))
                if not piece:  # the server cuts the line, so that this is no whole answer
                    raise OSError("the file became shorter while it was sent")
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self._tail})


def _archived(token: SecretStr) -> bytes:
    return newc({boot_token.IN_INITRD: boot_token.render(token.get_secret_value())}, mode=0o400)


def _regular(path: Path) -> os.stat_result | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def _not_found() -> Response:
    return PlainTextResponse("not found\n", 404)


def _asker(scope: Scope) -> str | None:
    """The connection's own address; IPv4 inside IPv6 is IPv4, as a dual-stack listener shows it; no zone."""
    client = scope.get("client")
    try:
        address: Any = ipaddress.ip_address(str(client[0]).partition("%")[0]) if client else None
    except ValueError:
        return None
    return None if address is None else str(getattr(address, "ipv4_mapped", None) or address)
