"""Who signs certificates for nodes now, and which roots are trusted. In memory; read again after a rollover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cryptography import x509

from bcmetal.decisions import Micros
from bcmetal.errors import Unavailable
from bcmetal.join.ca import (
    SERIAL_BYTES,
    Issued,
    Issuer,
    IssuerKind,
    issue_node_certificate,
    kind_of,
    new_serial,
    pem_of,
    renew_after,
)
from bcmetal.join.issuer_keys import OpenIssuers
from bcmetal.join.public_keys import AllowedKey
from bcmetal.settings import Joining

NO_CA = "this daemon has no certificate authority yet: `bcmetal ca init` on its host"


@dataclass(frozen=True, slots=True)
class Authority:
    """`issuers`: the current one of each kind. `node_issuers`: every certificate that a live leaf may come from. `roots`: PEM."""

    issuers: Mapping[IssuerKind, Issuer] = field(repr=False)
    node_issuers: tuple[x509.Certificate, ...]
    roots: tuple[str, ...]
    trust_domain: str
    certificate_s: int
    entropy: Callable[[int], bytes]

    @property
    def trust_bundle(self) -> str:
        return "".join(self.roots)

    def roots_to_pin(self) -> tuple[str, ...]:
        """The roots, first the one that vouches for this daemon's own listeners now: while the root changes, not the newest."""
        current = pem_of([self.issuer(IssuerKind.SERVER).root])
        return tuple(sorted(self.roots, key=lambda root: root != current))

    def issuer(self, kind: IssuerKind) -> Issuer:
        """Raises Unavailable when there is none."""
        found = self.issuers.get(kind)
        if found is None:
            raise Unavailable(NO_CA)
        return found

    def issue(self, kind: IssuerKind, key: AllowedKey, node_id: str, now: Micros) -> tuple[Issued, Micros]:
        """A node's certificate, and when it should be renewed. Raises Unavailable when the issuer cannot sign."""
        serial = new_serial(self.entropy(SERIAL_BYTES))
        issuer = self.issuer(kind)
        issued = issue_node_certificate(
            issuer, key, node_id, self.trust_domain, now, serial, lifetime_s=self.certificate_s
        )
        return issued, renew_after(issued.not_before_at, issued.not_after_at, self.entropy(8))


def authority_from(opened: OpenIssuers, settings: Joining, entropy: Callable[[int], bytes]) -> Authority | None:
    """None: there is no CA yet."""
    if not opened.issuers:
        return None
    trusted = (one for one in opened.trusted.values() if kind_of(one.subject) is not IssuerKind.SERVER)
    return Authority(
        issuers=opened.issuers,
        node_issuers=tuple(trusted),
        roots=tuple(pem_of([root]) for root in opened.roots),
        trust_domain=settings.trust_domain,
        certificate_s=settings.certificate_s,
        entropy=entropy,
    )
