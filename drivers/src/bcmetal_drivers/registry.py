"""Opens the driver of an address, and finds out which scheme a host speaks. Which driver speaks which scheme is in `schemes`."""

from __future__ import annotations

import importlib
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Final

from bcmetal_drivers.capabilities import Bmc
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import BadAddress, DriverError, InsecureTransport, NotThisService, Unreachable
from bcmetal_drivers.redfish_document import is_root
from bcmetal_drivers.schemes import IPMI, REDFISH, REDFISH_HTTP, SCHEMES
from bcmetal_drivers.session import ROOT

IPMI_TRIES: Final = 3
IPMI_WAIT_S: Final = 0.7


def open_bmc(
    address: BmcAddress,
    credential: Credential,
    trust: Trust | None = None,
    limits: Limits | None = None,
    learned: Mapping[str, object] | None = None,
) -> Bmc:
    """The driver for this address. It connects at its first call. `learned` is what `Remembers.learned` gave the last time; none of it
    is believed without a check. Raises BadAddress, InsecureTransport."""
    scheme = SCHEMES.get(address.scheme)
    if scheme is None:
        what = f"no driver speaks {address.scheme}" if address.scheme else "the address was not probed yet"
        raise BadAddress(f"{address}: {what}")
    module, _, name = scheme.driver.partition(":")
    driver: type[Bmc] = getattr(importlib.import_module(module), name)
    opened: Bmc = driver(address, credential, trust or Trust(), limits or Limits(), learned)  # type: ignore[call-arg]  # a Protocol has no __init__
    return opened


def probe(host: str, port: int | None = None, trust: Trust | None = None, limits: Limits | None = None) -> BmcAddress:
    """What speaks there: Redfish over HTTPS, over HTTP where the trust is none, else IPMI. No credential is sent.

    Raises UntrustedCertificate, InsecureTransport, NotThisService, Unreachable, TimedOut: the first trouble that tells something.
    """
    trust, limits = trust or Trust(), limits or Limits()
    troubles: list[DriverError] = []
    schemes = [REDFISH, REDFISH_HTTP] if trust.kind is TrustKind.NONE else [REDFISH]
    for scheme in schemes:
        address = BmcAddress(scheme, host, port or SCHEMES[scheme].port)
        try:
            if _speaks_redfish(address, trust, limits):
                return address
        except DriverError as error:
            troubles.append(error)
        else:
            troubles.append(NotThisService(f"{host}: the host answers, but it is no Redfish service"))
    address = BmcAddress(IPMI, host, port or SCHEMES[IPMI].port)
    if _speaks_ipmi(address, limits):
        return address
    telling = [error for error in troubles if not isinstance(error, Unreachable)]
    not_plain = [error for error in telling if not isinstance(error, InsecureTransport)]
    raise (not_plain or telling or troubles)[0]


def _speaks_redfish(address: BmcAddress, trust: Trust, limits: Limits) -> bool:
    door = Door(address, None, trust, limits)
    try:
        with door.call():
            answer = door.anonymous(ROOT)
            return answer.status_code == 401 or (answer.status_code == 200 and is_root(answer.json()))
    finally:
        door.close()


def _speaks_ipmi(address: BmcAddress, limits: Limits) -> bool:
    """Whether anything answers an RMCP presence ping (ASF 2.0, section 3.2.4.2) or Get Channel Authentication Capabilities."""
    tag = secrets.randbelow(0xFE)
    ping = bytes((0x06, 0x00, 0xFF, 0x06, 0, 0, 0x11, 0xBE, 0x80, tag, 0x00, 0x00))
    body = bytes((0x20, 0x18, 0xC8, 0x81, 0x00, 0x38, 0x8E, 0x04, 0xB5))
    ask = bytes((0x06, 0x00, 0xFF, 0x07, 0x00, *(0,) * 8, len(body))) + body
    try:
        family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
    except OSError:
        return False
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(where)
            for _ in range(IPMI_TRIES):
                sock.send(ping)
                sock.send(ask)
                if _answered(sock, min(IPMI_WAIT_S, limits.connect_s)):
                    return True
        except OSError:
            return False
    return False


def _answered(sock: socket.socket, wait_s: float) -> bool:
    end = time.monotonic() + wait_s
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if sock.recv(512)[:2] == b"\x06\x00":
                return True
        except TimeoutError:
            return False
    return False
