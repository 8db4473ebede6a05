"""What a BMC shows to whoever has no credential: its certificate and its service root. What its IPMI offers is in `ipmi_offered`.

Sent are a TLS handshake and GETs of the service root, on the address that was given and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from bcmetal_drivers.connection import BmcAddress, Limits, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import (
    DriverError,
    InsecureTransport,
    NotThisService,
    ServerFault,
    Transient,
    UntrustedCertificate,
)
from bcmetal_drivers.quirks import TABLE, Row
from bcmetal_drivers.redfish_document import Doc, is_root, text
from bcmetal_drivers.redfish_maker import maker_of, words_of
from bcmetal_drivers.schemes import REDFISH, REDFISH_HTTP, SCHEMES
from bcmetal_drivers.session import ROOT
from bcmetal_drivers.tcp import Deadline, connect
from bcmetal_drivers.tls import handshake
from bcmetal_drivers.wire import Answer

TRIES: Final = 2


@dataclass(frozen=True, slots=True)
class ServiceRoot:
    """As far as it is told. `date`: of the answer, by the BMC's clock; it comes without a zone where the BMC names none."""

    maker: str | None
    vendor: str | None
    product: str | None
    redfish_version: str | None
    uuid: str | None
    date: datetime | None
    behaviours: tuple[Row, ...]  # rows of the table of quirks that fit what is known before a login


@dataclass(frozen=True, slots=True)
class RedfishSeen:
    """`address`: where it was looked. `certificate`: DER; None without TLS. `root` None with no `trouble`: there, and only after a login.

    `mistrust`: why the certificate is not trusted by what was given; `trouble`: why no Redfish was seen.
    """

    address: BmcAddress
    certificate: bytes | None = None
    fingerprint: str | None = None
    mistrust: DriverError | None = None
    root: ServiceRoot | None = None
    trouble: DriverError | None = None
    tries: int = 1

    @property
    def there(self) -> bool:
        return self.trouble is None

    @property
    def pinned(self) -> Trust:
        """The very certificate that was seen."""
        if self.fingerprint is None:
            return Trust(TrustKind.NONE)
        return Trust(TrustKind.FINGERPRINT, self.fingerprint)


def redfish_seen(name: str, where: str, port: int, trust: Trust | None, limits: Limits, *, plain: bool) -> RedfishSeen:
    """`where` is the literal address that `name` was resolved to; `name` is what a certificate must be for. `trust` None: nobody said any.

    `plain`: without TLS. What passes by itself is tried once more.
    """
    address = BmcAddress(
        REDFISH_HTTP if plain else REDFISH, where, port or SCHEMES[REDFISH_HTTP if plain else REDFISH].port
    )
    found = RedfishSeen(address)
    for turn in range(1, TRIES + 1):
        try:
            return _looked(name, address, trust, limits, turn)
        except Transient as error:
            found = RedfishSeen(address, trouble=error, tries=turn)
        except DriverError as error:
            return RedfishSeen(address, trouble=error, tries=turn)
    return found


def _looked(name: str, address: BmcAddress, trust: Trust | None, limits: Limits, turn: int) -> RedfishSeen:
    if address.scheme == REDFISH_HTTP:
        return RedfishSeen(address, root=_root(address, Trust(TrustKind.NONE), limits), tries=turn)
    certificate, fingerprint = _shown(address.host, address, Trust(TrustKind.NONE), limits)
    mistrust: DriverError | None = None
    if trust is not None and trust.kind is not TrustKind.NONE:
        try:
            if _shown(name, address, trust, limits)[1] != fingerprint:
                mistrust = UntrustedCertificate(f"{address}: two handshakes were shown two certificates")
        except (UntrustedCertificate, InsecureTransport) as error:
            mistrust = error
    seen = RedfishSeen(address, certificate, fingerprint, mistrust, tries=turn)
    try:
        return replace(seen, root=_root(address, seen.pinned, limits))
    except DriverError as error:
        if isinstance(error, Transient) and turn < TRIES:
            raise
        return replace(seen, trouble=error)


def _shown(name: str, address: BmcAddress, trust: Trust, limits: Limits) -> tuple[bytes, str]:
    """The leaf's DER and its fingerprint; the certificate must be for `name` where the trust goes by names."""
    deadline = Deadline(limits.total_s)
    sock = connect(address.host, address.port, limits, deadline)
    budget = deadline.left(limits.connect_s + limits.read_s, str(address))
    secure, fingerprint = handshake(sock, name, address.port, trust, budget)
    with secure:
        return secure.getpeercert(binary_form=True) or b"", fingerprint


def _root(address: BmcAddress, trust: Trust, limits: Limits) -> ServiceRoot | None:
    door = Door(address, None, trust, limits)
    try:
        with door.call():
            answer = door.anonymous(ROOT)
            if answer.status_code == 401:
                return None
            if answer.status_code in (429, 502, 503, 504):
                raise ServerFault(f"{address}: the service root is answered with {answer.status_code}")
            if answer.status_code != 200 or not is_root(doc := answer.json()):
                raise NotThisService(f"{address}: the host answers {answer.status_code}, and it is no Redfish service")
            return _told(doc, answer)
    finally:
        door.close()


def _told(root: Doc, answer: Answer) -> ServiceRoot:
    maker = words_of(root)
    return ServiceRoot(
        maker=maker_of(root),
        vendor=text(root, "Vendor"),
        product=text(root, "Product"),
        redfish_version=text(root, "RedfishVersion"),
        uuid=text(root, "UUID"),
        date=_date(answer.headers.get("Date")),
        behaviours=known_behaviours(maker),
    )


def known_behaviours(maker: str, model: str = "", firmware: str = "") -> tuple[Row, ...]:
    """Rows of the table of quirks that are for such a BMC. A row that asks for more than is known is left out."""
    return tuple(row for row in TABLE if row.maker and row.fits(maker, model, firmware))


def _date(said: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(said) if said else None
    except (ValueError, TypeError, OverflowError):
        return None
