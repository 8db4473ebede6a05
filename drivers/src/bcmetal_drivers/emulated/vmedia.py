"""sushy-tools' virtual media over machines of the rack: a medium is really downloaded when it is inserted, by that BMC."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

from sushy_tools import error
from sushy_tools.emulator.resources import vmedia

from bcmetal_drivers.emulated.machine import CD, FLOPPY, Machine

DOWNLOAD_S: Final = 30.0
NAMES: Final = {CD: "Virtual CD", FLOPPY: "Virtual Removable Media"}
Reach = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
LOOPBACK: Final[Reach] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))
TYPES: Final = {CD: ["CD", "DVD"], FLOPPY: ["Floppy", "USBStick"]}


class RackMedia(vmedia.StaticDriver):  # type: ignore[misc]  # sushy-tools has no types
    """The slots of the systems behind one BMC, kept with the machines. Downloads go to addresses in `reach` only."""

    def __init__(self, machines: Mapping[str, Machine], host: str, reach: Reach = LOOPBACK) -> None:
        # not StaticDriver.__init__: it shares a database in the temporary folder with every other emulator
        self._machines = machines
        self._host = host
        self._reach = reach

    @property
    def devices(self) -> list[str]:
        return [slot for slot in NAMES if all(slot in machine.slots for machine in self._machines.values())]

    def get_device_name(self, identity: str, device: str) -> str:
        self._machine(identity, device)
        return NAMES[device]

    def get_device_media_types(self, identity: str, device: str) -> list[str]:
        self._machine(identity, device)
        return TYPES[device]

    def get_device_image_info(self, identity: str, device: str) -> vmedia.DeviceInfo:
        medium = self._machine(identity, device).medium(device)
        if medium is None:
            return vmedia.DeviceInfo("", "", False, False, "", "", False)
        return vmedia.DeviceInfo(medium.url.rpartition("/")[2], medium.url, True, True, "", "", False)

    def insert_image(
        self,
        identity: str,
        device: str,
        image_url: str,
        inserted: bool = True,
        write_protected: bool = True,
        username: str | None = None,
        password: str | None = None,
    ) -> str:
        machine = self._machine(identity, device)
        if machine.body is None:
            machine.insert(image_url, *download(image_url, self._host, self._reach), device)
        else:
            with tempfile.NamedTemporaryFile(dir=machine.body.folder, prefix="medium-", delete=False) as file:
                try:
                    sha256, size = download(image_url, self._host, self._reach, file)
                except error.FishyError:
                    Path(file.name).unlink()
                    raise
            machine.insert(image_url, sha256, size, device, Path(file.name))
        return image_url

    def fetch(self, url: str, into: IO[bytes]) -> None:
        """As a medium is, for other purposes. Raises FishyError."""
        download(url, self._host, self._reach, into)

    def eject_image(self, identity: str, device: str) -> None:
        self._machine(identity, device).eject(device)

    def _machine(self, identity: str, device: str) -> Machine:
        if identity not in self._machines or device not in self._machines[identity].slots:
            raise error.NotFound(f"no virtual media device {device} of system {identity}")
        return self._machines[identity]


def download(url: object, source: str, reach: Reach = LOOPBACK, into: IO[bytes] | None = None) -> tuple[str, int]:
    """SHA-256 and size of what the URL gives, asked from the address `source`; as BMCs do, a server's certificate is not verified.

    Raises FishyError, which sushy-tools makes an error answer.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise error.BadRequest(f"not a URL: {e}") from e
    if parts.scheme not in ("http", "https"):
        raise error.BadRequest("Image is no http or https URL")
    address = _reachable(host, reach)
    bind = (source, 0) if ipaddress.ip_address(source).version == address.version else None
    if parts.scheme == "https":
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        line: http.client.HTTPConnection = http.client.HTTPSConnection(
            str(address), port, timeout=DOWNLOAD_S, source_address=bind, context=anyone
        )
    else:
        line = http.client.HTTPConnection(str(address), port, timeout=DOWNLOAD_S, source_address=bind)
    target = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
    try:
        line.request("GET", target, headers={"Host": parts.netloc})
        return _digest(line.getresponse(), into)
    except (OSError, http.client.HTTPException) as e:
        raise error.FishyError(f"Cannot download virtual media: {type(e).__name__}", code=502) from e
    finally:
        line.close()


def _digest(response: http.client.HTTPResponse, into: IO[bytes] | None) -> tuple[str, int]:
    with response:
        if response.status != 200:
            raise error.FishyError(f"Cannot download virtual media: the server answered {response.status}", code=400)
        expected = response.length
        digest, size = hashlib.sha256(), 0
        while chunk := response.read(1 << 16):
            digest.update(chunk)
            if into is not None:
                into.write(chunk)
            size += len(chunk)
        if expected is not None and size != expected:
            raise error.FishyError("Cannot download virtual media: it was cut short", code=502)
        return digest.hexdigest(), size


def _reachable(host: str, reach: Reach) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Emulated BMCs send nothing to where they were not told to be: a name is not looked up, and other addresses are refused."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not any(address in network for network in reach):
        where = "loopback" if reach == LOOPBACK else ", ".join(map(str, reach))
        raise error.BadRequest(f"an emulated BMC downloads from {where} only, not from {host!r}")
    return address
