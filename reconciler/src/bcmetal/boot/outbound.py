"""The door to addresses that somebody typed: parse, resolve, check each address against the site's list, connect to that very address.

A name that is listed may resolve to public and to private addresses. Every other special range (loopback, link-local, cloud metadata,
mapped IPv6, multicast …) is reached only where a listed network lies inside that range: `127.0.0.0/8` opens loopback, `0.0.0.0/0` does
not. Proxy variables are not read. Neither exception tells an address: what was refused is in the log alone.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]

MAX_URL = 2048
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\Z"
)
_TARGET: Final = re.compile(r"[!-~]+\Z")

_PRIVATE: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "fc00::/7")
)
_GUARDED: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        # metadata services inside ranges that may be listed for other reasons: AWS, Alibaba, Azure, Oracle
        *("169.254.169.254/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128"),
        # addresses that carry an IPv4 address inside: mapped, compatible, NAT64, Teredo, 6to4
        *("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"),
        *("::/128", "::1/128", "100::/64", "2001:db8::/32", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)

_CERTIFICATE: Final = {  # X509_V_ERR_*
    9: "the server's certificate is not valid yet",
    10: "the server's certificate has expired",
    62: "the server's certificate is for another name",
    64: "the server's certificate is for another name",
}


class AddressRefused(Exception):
    """The address is not allowed here."""


class NoConnection(Exception):
    """The server cannot be reached."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed address: `host` in lower case (IPv6 without brackets), `path` with its query, ready for a request line."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str) -> Target:
    """Strictly: http or https, ASCII, no user information, a host that is a name or a plain literal. Raises AddressRefused."""
    if len(url) > MAX_URL or not _TARGET.match(url) or "\\" in url:
        raise AddressRefused("the address is not a plain URL")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressRefused("the address is not a plain URL") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise AddressRefused("the address is neither http nor https")
    if "@" in parts.netloc:
        raise AddressRefused("the address holds a user name")
    host = host[:-1] if host.endswith(".") else host
    if literal(host) is None and not _HOST.match(host):
        raise AddressRefused("the address has no host that is a name or an IP address")
    if port is None:
        port = 443 if scheme == "https" else 80
    if not 0 < port < 65536:
        raise AddressRefused("the address has no usable port")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, host, port, path)


def literal(text: str) -> Address | None:
    """The address that a text is. Not `%eth0`, not `127.1`: forms that only some parsers know are how filters are passed."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def name_listed(host: str, allowed: Sequence[str]) -> bool:
    """Whether a host name is listed, itself or by `*.suffix` (which does not stand for the suffix alone)."""
    for entry in allowed:
        pattern = entry.lower().rstrip(".")
        if host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) >= len(pattern)):
            return True
    return False


def permitted(address: Address, listed_by_name: bool, allowed: Sequence[str]) -> bool:
    """Whether one resolved address may be connected to."""
    special = [n for n in (*_GUARDED, *_PRIVATE) if n.version == address.version and address in n]
    if special:
        narrowest = max(special, key=lambda n: n.prefixlen)
        if listed_by_name and narrowest in _PRIVATE:
            return True
    elif listed_by_name:
        return True
    for network in _networks(allowed):
        if network.version != address.version or address not in network:
            continue
        if not special or _inside(network, narrowest):
            return True
    return False


def _networks(allowed: Sequence[str]) -> list[Network]:
    found: list[Network] = []
    for entry in allowed:
        with suppress(ValueError):  # a host name
            found.append(ipaddress.ip_network(entry, strict=False))
    return found


def _inside(inner: Network, outer: Network) -> bool:
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def resolve(host: str, port: int) -> Sequence[str]:
    """The system's resolver. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def permitted_addresses(target: Target, allowed: Sequence[str], resolver: Resolver) -> tuple[Address, ...]:
    """Resolved once: what is checked here is what gets connected to. Raises AddressRefused, NoConnection."""
    own = literal(target.host)
    if own is not None:
        answers: Sequence[str] = (target.host,)
    else:
        try:
            answers = resolver(target.host, target.port)
        except (OSError, UnicodeError):
            raise NoConnection("the server's name does not resolve") from None
    listed = own is None and name_listed(target.host, allowed)
    addresses = [address for address in map(literal, answers) if address is not None]
    good = tuple(address for address in addresses if permitted(address, listed, allowed))
    if addresses and not good:
        log.warning("refused %s: %s not allowed", target.host, ", ".join(map(str, addresses)))
        raise AddressRefused("the address is not among those that the site allows")
    if not good:
        raise NoConnection("the server's name does not resolve")
    return good


def connect(target: Target, addresses: Sequence[Address], timeout_s: float, ca_file: Path | None) -> socket.socket:
    """A connected socket, for https with its certificate checked for the name. Raises AddressRefused, NoConnection.

    `ca_file` is trusted beside the system's own authorities. `timeout_s` is for all addresses and the handshake together.
    """
    context = _tls(ca_file) if target.scheme == "https" else None
    until = time.monotonic() + timeout_s
    refused: AddressRefused | None = None
    for address in addresses:
        left = until - time.monotonic()
        if left <= 0:
            break
        line = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
        try:
            line.settimeout(left)
            line.connect((str(address), target.port))
            if context is not None:
                line.settimeout(max(0.001, until - time.monotonic()))
                line = context.wrap_socket(line, server_hostname=target.host)
        except ssl.SSLCertVerificationError as error:
            line.close()
            refused = AddressRefused(_CERTIFICATE.get(error.verify_code, "the server's certificate is not trusted"))
            refused.__cause__ = error
        except (OSError, ValueError) as error:
            line.close()
            log.info("no connection to %s at %s: %s", target.host, address, error)
        else:
            return line
    if refused is not None:
        raise refused
    raise NoConnection("the server cannot be reached")


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise NoConnection("the file of certificate authorities cannot be read") from error
    return context
