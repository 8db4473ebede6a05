"""sushy-tools' virtual media over machines of the rack: a medium is really downloaded when it is inserted, by that BMC."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from sushy_tools import error
from sushy_tools.emulator.resources import vmedia

from bcmetal_drivers.emulated.machine import CD, FLOPPY, Machine

DOWNLOAD_S: Final = 30.0
NAMES: Final = {CD: "Virtual CD", FLOPPY: "Virtual Removable Media"}
TYPES: Final = {CD: ["CD", "DVD"], FLOPPY: ["Floppy", "USBStick"]}


class RackMedia(vmedia.StaticDriver):  # type: ignore[misc]  # sushy-tools has no types
    """The slots of the systems behind one BMC, kept with the machines. Downloads go to loopback only."""

    def __init__(self, machines: Mapping[str, Machine], host: str) -> None:
        # not StaticDriver.__init__: it shares a database in the temporary folder with every other emulator
        self._machines = machines
        self._host = host

    @property
    def devices(self) -> list[str]:
        return list(NAMES)

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
        sha256, size = download(image_url, self._host)
        machine.insert(image_url, sha256, size, device)
        return image_url

    def eject_image(self, identity: str, device: str) -> None:
        self._machine(identity, device).eject(device)

    def _machine(self, identity: str, device: str) -> Machine:
        if identity not in self._machines or device not in NAMES:
            raise error.NotFound(f"no virtual media device {device} of system {identity}")
        return self._machines[identity]


def download(url: object, source: str) -> tuple[str, int]:
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
    loopback = _loopback(host)
    bind = (source, 0) if loopback.version == 4 else None
    if parts.scheme == "https":
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE
        line: http.client.HTTPConnection = http.client.HTTPSConnection(
            str(loopback), port, timeout=DOWNLOAD_S, source_address=bind, context=anyone
        )
    else:
        line = http.client.HTTPConnection(str(loopback), port, timeout=DOWNLOAD_S, source_address=bind)
    target = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
    try:
        line.request("GET", target, headers={"Host": parts.netloc})
        return _digest(line.getresponse())
    except (OSError, http.client.HTTPException) as e:
        raise error.FishyError(f"Cannot download virtual media: {type(e).__name__}", code=502) from e
    finally:
        line.close()


def _digest(response: http.client.HTTPResponse) -> tuple[str, int]:
    with response:
        if response.status != 200:
            raise error.FishyError(f"Cannot download virtual media: the server answered {response.status}", code=400)
        expected = response.length
        digest, size = hashlib.sha256(), 0
        while chunk := response.read(1 << 16):
            digest.update(chunk)
            size += len(chunk)
        if expected is not None and size != expected:
            raise error.FishyError("Cannot download virtual media: it was cut short", code=502)
        return digest.hexdigest(), size


def _loopback(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise error.BadRequest(f"an emulated BMC downloads from loopback only, not from {host!r}") from None
    if not address.is_loopback:
        raise error.BadRequest(f"an emulated BMC downloads from loopback only, not from {host}")
    return address
