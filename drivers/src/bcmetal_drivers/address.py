"""Addresses of BMCs, as people write them.

    redfish://HOST[:PORT][/redfish/v1/Systems/ID]    HTTPS, port 443
    redfish+https://…                                 the same
    redfish+http://…                                  port 80; needs a trust that verifies nothing
    ipmi://HOST[:PORT]                                port 623
    HOST, HOST:PORT                                   scheme "" and, without a port, port 0: to be probed

Metal3's forms (`redfish-virtualmedia`, `idrac-virtualmedia`, `idrac-redfish`, `ilo5-redfish`, …, each also with `+http` or `+https`)
become `redfish` or `redfish+http` with the maker as a hint. IPv6 literals stand in brackets wherever a port may follow.

No message repeats the text that was given: it may hold a password.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from bcmetal_drivers.connection import BmcAddress
from bcmetal_drivers.errors import BadAddress
from bcmetal_drivers.schemes import REDFISH, REDFISH_HTTP, SCHEMES, TO_BE_PROBED, written

TEXT_LIMIT: Final = 1024

_FORM: Final = re.compile(
    r"(?P<maker>redfish|idrac|ilo[4-9]?|irmc)(?:-(?:redfish|virtualmedia|uefihttp))?(?P<transport>\+https?)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ID: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})+")
_SYSTEM: Final = re.compile(r"/redfish/v1/systems/([^/]+)", re.IGNORECASE)


def parse(text: str) -> BmcAddress:
    """The address that this text means. Raises BadAddress, with what to write instead."""
    text = text.strip()
    if not text or len(text) > TEXT_LIMIT or not text.isascii() or not text.isprintable() or " " in text:
        raise BadAddress(f"a BMC's address is plain text without blanks: {_how()}")
    if "@" in text:
        raise BadAddress("leave the user name and the password out of the address: they are given apart")
    if "?" in text or "#" in text:
        raise BadAddress(f"an address has no query and no fragment: {_how()}")
    form, separator, rest = text.partition("://")
    if not separator:
        return _bare(text)
    scheme, maker = _scheme(form)
    authority, slash, path = rest.partition("/")
    host, port = _authority(authority, SCHEMES[scheme].port)
    if not SCHEMES[scheme].has_systems and slash + path not in ("", "/"):
        raise BadAddress(f"an address of {scheme} has no path: write {scheme}://HOST[:PORT]")
    return BmcAddress(scheme, host, port, _system_path(slash + path), maker)


def _how() -> str:
    return f"write {written()}, or HOST to have it probed"


def _bare(text: str) -> BmcAddress:
    if "/" in text:
        raise BadAddress(f"an address with a path needs its scheme: {_how()}")
    if text.count(":") > 1 and not text.startswith("["):
        return BmcAddress(TO_BE_PROBED, _host(f"[{text}]"), 0)
    host, port = _authority(text, 0)
    return BmcAddress(TO_BE_PROBED, host, port)


def _scheme(form: str) -> tuple[str, str | None]:
    form = form.lower()
    if form in SCHEMES:
        return form, None
    match = _FORM.fullmatch(form)
    if match is None:
        raise BadAddress(f"no driver knows this scheme: {_how()}")
    maker = match["maker"]
    scheme = REDFISH_HTTP if match["transport"] == "+http" else REDFISH
    return scheme, None if maker == "redfish" else maker


def _authority(authority: str, default_port: int) -> tuple[str, int]:
    if authority.startswith("["):
        literal, bracket, tail = authority.partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise BadAddress("an IPv6 literal stands in brackets: [2001:db8::1] or [2001:db8::1]:443")
        return _host(literal + bracket), _port(tail[1:]) if tail else default_port
    host, colon, port = authority.partition(":")
    if ":" in port:
        raise BadAddress("an IPv6 literal stands in brackets: [2001:db8::1] or [2001:db8::1]:443")
    return _host(host), _port(port) if colon else default_port


def _port(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise BadAddress("the port is a number from 1 to 65535")
    return int(text)


def _host(text: str) -> str:
    if text.startswith("["):
        if "%" in text:
            raise BadAddress("an address with a zone (fe80::1%eth0) means nothing on another host: use a global one")
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise BadAddress("what stands in the brackets is no IPv6 address") from None
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadAddress(f"the host is no name and no IP address: {_how()}")
    if labels[-1].isdigit():  # no top-level domain is a number, so this is meant as IPv4
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise BadAddress("the host is no IPv4 address: four numbers from 0 to 255, without leading zeros") from None
    return name


def _system_path(path: str) -> str | None:
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    if path.lower() in ("", "/redfish", "/redfish/v1", "/redfish/v1/systems"):
        return None
    match = _SYSTEM.fullmatch(path)
    if match is None or not _ID.fullmatch(match[1]) or re.search(r"%2f|%2e|%[01]|%7f", match[1], re.IGNORECASE):
        raise BadAddress("the path names one system: /redfish/v1/Systems/ID")
    if match[1].strip(".") == "":
        raise BadAddress("the path names one system: /redfish/v1/Systems/ID")
    return f"/redfish/v1/Systems/{match[1]}"
