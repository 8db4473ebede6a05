"""A certificate authority for tests, made when first asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.ca import (
    Issued,
    Issuer,
    IssuerKind,
    Root,
    issue_node_certificate,
    issue_server_certificate,
    make_issuer,
    make_root,
    new_serial,
)
from bcmetal.join.public_keys import AllowedKey

NOW: Final = Micros(1_900_000_000 * SECOND)
DAY: Final = 86400
NODE: Final = "nd_01hq3v9m2x7k4zt8w5c6b0rjne"
TRUST: Final = "bcmetal"


def later(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * SECOND))


def a_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def a_serial() -> int:
    return new_serial(os.urandom(16))


@dataclass(frozen=True)
class Site:
    """A root and its three issuers."""

    root: Root
    issuers: dict[IssuerKind, Issuer]

    def node(
        self,
        kind: IssuerKind = IssuerKind.NODE,
        *,
        key: AllowedKey | None = None,
        now: Micros = NOW,
        node_id: str = NODE,
        lifetime_s: int = DAY,
    ) -> Issued:
        public = key or a_key().public_key()
        return issue_node_certificate(self.issuers[kind], public, node_id, TRUST, now, a_serial(), lifetime_s)

    def server(self, *names: str, now: Micros = NOW, key: AllowedKey | None = None) -> Issued:
        public = key or a_key().public_key()
        return issue_server_certificate(self.issuers[IssuerKind.SERVER], public, names, now, 30, a_serial())


def a_site(now: Micros = NOW, root: Root | None = None) -> Site:
    root = root or make_root("lab", now)
    return Site(root, {kind: make_issuer(kind, root, now) for kind in IssuerKind})
