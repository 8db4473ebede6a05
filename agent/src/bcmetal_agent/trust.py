"""Whom the agent believes to be its control plane.

Before it has joined: the root certificate whose SHA-256 stands in the join line. That root is fetched over a connection
that nobody vouches for, which does no harm, as it is compared with the pin; only then a second connection, verified
against that root alone, gets to see the token. After it has joined: the roots that came with the certificate.

The chain is not enough. Nodes' certificates come from the same root, so whoever poses as the control plane with one of
those must be refused: a server's certificate comes from the issuer for servers and names no node.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bcmetal_agent import keys

# The OU in the subject of an issuer says what it issues for.
NODE_ISSUERS: Final = frozenset({"bcmetal node", "bcmetal node-tenant"})
SERVER_ISSUER: Final = "bcmetal server"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_PIN = re.compile(r"sha256:([0-9a-f]{64})")


class Untrusted(Exception):
    """The other side is not the control plane that the agent was told to trust; nothing secret was sent."""


@dataclass(frozen=True)
class Pin:
    """SHA-256 of the DER of the CA's root certificate, in hex."""

    sha256: str

    @classmethod
    def parse(cls, text: str) -> Pin:
        """`sha256:<64 hex digits>`, colons between the digits allowed, as openssl prints them. Raises ValueError."""
        kind, _, digits = text.strip().lower().partition(":")
        found = _PIN.fullmatch(f"{kind}:{digits.replace(':', '')}")
        if found is None:
            raise ValueError("a pin is sha256: and the 64 hexadecimal digits of the CA certificate's SHA-256")
        return cls(found.group(1))

    def __str__(self) -> str:
        return f"sha256:{self.sha256}"

    def pick(self, roots: tuple[str, ...]) -> str:
        """The root that the pin names, as PEM. Raises Untrusted."""
        seen = []
        for text in roots:
            try:
                for certificate in keys.split_pem(text):
                    seen.append(keys.fingerprint(certificate))
                    if seen[-1] == self.sha256:
                        return keys.pem(certificate)
            except keys.BadCertificate:
                continue
        shown = ", ".join(f"sha256:{one}" for one in seen[:4]) or "no readable certificate"
        raise Untrusted(f"none of the server's roots is the pinned {self}; it showed {shown}. Nothing was sent")


@dataclass(frozen=True)
class Endpoint:
    """A listener of the control plane: TLS always. An IPv6 `host` is without brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """`https://HOST:PORT` and nothing more. Raises ValueError."""
        parts = urlsplit(url)
        if not url.isprintable() or parts.scheme != "https" or not parts.hostname or parts.port is None:
            raise ValueError("a server is given as https://HOST:PORT")
        if parts.username or parts.password or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("a server is given as https://HOST:PORT and nothing more")
        if not _is_host(parts.hostname):
            raise ValueError("the server is neither a host name nor an address")
        return cls(parts.hostname, parts.port)

    def __str__(self) -> str:
        return f"https://[{self.host}]:{self.port}" if ":" in self.host else f"https://{self.host}:{self.port}"


def unverified() -> ssl.SSLContext:
    """Only for fetching the roots that are then compared with a pin."""
    context = _client()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def verified(roots: str, *, key_file: Path | None = None, chain_file: Path | None = None) -> ssl.SSLContext:
    """These roots (PEM) and no others; the host's name or address must be in the certificate. Raises Untrusted."""
    context = _client()
    try:
        context.load_verify_locations(cadata="".join(keys.pem(one) for one in keys.split_pem(roots)))
    except (keys.BadCertificate, ssl.SSLError):
        raise Untrusted("the trusted roots on this machine cannot be read") from None
    if key_file is not None and chain_file is not None:
        context.load_cert_chain(chain_file, key_file)
    return context


def check_server(der: bytes | None) -> None:
    """What a verified chain leaves open: that it is a server's certificate. Raises Untrusted."""
    try:
        leaf = keys.facts(keys.load_der(der or b""))
    except keys.BadCertificate:
        raise Untrusted("the server's certificate cannot be read") from None
    if leaf.issuer_units & NODE_ISSUERS or leaf.uris:
        raise Untrusted("the server shows the certificate of a node: somebody poses as the control plane")
    if leaf.issuer_units != {SERVER_ISSUER}:
        raise Untrusted(f"the server's certificate does not come from an issuer for servers (OU={SERVER_ISSUER})")
    if not leaf.server or leaf.authority or not leaf.names:
        raise Untrusted("the server's certificate is not made for a server")


def check_roots(text: str) -> str:
    """A trust bundle as it may be kept: readable authorities only. Raises keys.BadCertificate."""
    roots = keys.split_pem(text)
    if not all(keys.facts(root).authority for root in roots):
        raise keys.BadCertificate("the trust bundle holds a certificate that is no authority")
    return "".join(keys.pem(root) for root in roots)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))
    return True


def _client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    return context
