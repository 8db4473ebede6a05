"""What was seen of a BMC before it is enrolled, as JSON, and what of it a person should know. Texts of the BMC are bounded and printable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509

from bcmetal.decisions import SECOND, Micros
from bcmetal.store.values import Json
from bcmetal.store.views import stamp
from bcmetal.text import clean
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.first_look import RedfishSeen, ServiceRoot
from bcmetal_drivers.ipmi_offered import IpmiSeen
from bcmetal_drivers.quirks import Row

NAMES: Final = 20
TEXT: Final = 256
SKEW_S: Final = 120
SAFE_SUITES: Final = frozenset({3, 17})
UNENCRYPTED: Final = frozenset({1, 2, 6, 7, 11, 15, 16})


@dataclass(frozen=True, slots=True)
class Seen:
    """`trusted`: a trust was given or configured, by which the certificate is judged."""

    address: str
    redfish: RedfishSeen
    ipmi: IpmiSeen
    ipmi_at: str
    at: Micros
    trusted: bool

    @property
    def there(self) -> bool:
        return self.redfish.there or self.ipmi.there


def trouble_of(error: DriverError | None) -> Json | None:
    return None if error is None else {"code": error.code, "message": clean(str(error))}


def shown(seen: Seen) -> dict[str, Any]:
    certificate = _certificate(seen.redfish.certificate)
    root = seen.redfish.root
    skew = _skew_s(root, seen.at)
    return {
        "address": seen.address,
        "at": stamp(seen.at),
        "redfish": {
            "there": seen.redfish.there,
            "address": str(seen.redfish.address),
            "trouble": trouble_of(seen.redfish.trouble),
            "tries": seen.redfish.tries,
            "maker": root.maker if root else None,
            "vendor": root.vendor if root else None,
            "product": root.product if root else None,
            "redfishVersion": root.redfish_version if root else None,
            "uuid": root.uuid if root else None,
            "clockSkewS": skew,
            "certificate": None
            if seen.redfish.certificate is None
            else {
                "fingerprint": seen.redfish.fingerprint,
                "trusted": (seen.redfish.mistrust is None) if seen.trusted else None,
                "mistrust": trouble_of(seen.redfish.mistrust),
                **_certificate_shown(certificate),
            },
        },
        "ipmi": {
            "there": seen.ipmi.there,
            "address": seen.ipmi_at,
            "trouble": trouble_of(seen.ipmi.trouble),
            "versions": [name for name, has in (("1.5", seen.ipmi.v1_5), ("2.0", seen.ipmi.v2_0)) if has],
            "authentication": list(seen.ipmi.authentication),
            "anonymous": seen.ipmi.anonymous,
            "nullNames": seen.ipmi.null_names,
            "twoKeys": seen.ipmi.two_keys,
            "cipherSuites": None if seen.ipmi.suites is None else list(seen.ipmi.suites),
        },
        "behaviours": [behaviour(row) for row in (root.behaviours if root else ())],
        "warnings": [
            *_of_the_service(seen, skew),
            *_of_the_certificate(certificate, seen.at),
            *_of_ipmi(seen.ipmi),
        ],
    }


def behaviour(row: Row) -> Json:
    return {"differs": sorted(row.differs), "source": row.source}


# ---------------------------------------------------------------- certificate and clock


@dataclass(frozen=True, slots=True)
class _Certificate:
    subject: str
    issuer: str
    names: list[str] | None
    begins: datetime
    ends: datetime
    self_signed: bool


def _certificate(der: bytes | None) -> _Certificate | None:
    """None for one that cannot be read whole: BMCs make all kinds of them, and its parts are read when they are asked for."""
    if not der:
        return None
    try:
        read = x509.load_der_x509_certificate(der)
        return _Certificate(
            _name(read.subject),
            _name(read.issuer),
            _names(read),
            read.not_valid_before_utc,
            read.not_valid_after_utc,
            read.subject == read.issuer,
        )
    except (ValueError, TypeError, x509.InvalidVersion):
        return None


def _certificate_shown(certificate: _Certificate | None) -> Json:
    if certificate is None:
        return dict.fromkeys(("subject", "issuer", "names", "notBefore", "notAfter", "selfSigned"))
    return {
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "names": certificate.names,
        "notBefore": f"{certificate.begins:%Y-%m-%dT%H:%M:%SZ}",
        "notAfter": f"{certificate.ends:%Y-%m-%dT%H:%M:%SZ}",
        "selfSigned": certificate.self_signed,
    }


def _name(name: x509.Name) -> str:
    return clean(name.rfc4514_string())[:TEXT]


def _names(certificate: x509.Certificate) -> list[str] | None:
    """What it is for; None where that cannot be read."""
    try:
        said = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = [*said.get_values_for_type(x509.DNSName), *map(str, said.get_values_for_type(x509.IPAddress))]
    except x509.ExtensionNotFound:
        return []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None
    return [clean(name)[:TEXT] for name in found[:NAMES]]


def _skew_s(root: ServiceRoot | None, at: Micros) -> float | None:
    """How far the BMC's clock is ahead of ours."""
    if root is None or root.date is None:
        return None
    date = root.date if root.date.tzinfo is not None else root.date.replace(tzinfo=UTC)
    return round(date.timestamp() - at / SECOND, 1)


# ---------------------------------------------------------------- warnings


def _of_the_service(seen: Seen, skew: float | None) -> Iterator[str]:
    if seen.redfish.there and seen.redfish.root is None:
        yield "the BMC answers 401 to its service root: what it is shows after a login alone"
    if seen.redfish.there and seen.redfish.tries > 1:
        yield f"Redfish answered at try {seen.redfish.tries} only: the BMC or the way to it is unsteady"
    if seen.redfish.mistrust is not None:
        yield f"the certificate is not trusted: {clean(str(seen.redfish.mistrust))}"
    if seen.redfish.there and seen.redfish.certificate is None:
        yield "Redfish is spoken without TLS there: a shared credential is not sent"
    if skew is not None and abs(skew) > SKEW_S:
        where = "ahead" if skew > 0 else "behind"
        yield f"the BMC's clock is {abs(skew):.0f} s {where}: certificates, logs and sessions may be misjudged"


def _of_the_certificate(certificate: _Certificate | None, at: Micros) -> Iterator[str]:
    if certificate is None:
        return
    now = datetime.fromtimestamp(at / SECOND, UTC)
    if now > certificate.ends:
        yield "the certificate has expired: only its fingerprint can be trusted"
    if now < certificate.begins:
        yield "the certificate is not valid yet, or a clock is wrong: only its fingerprint can be trusted"


def _of_ipmi(ipmi: IpmiSeen) -> Iterator[str]:
    suites = frozenset(ipmi.suites or ())
    if 0 in suites:
        yield "IPMI cipher suite 0 is offered: whoever knows a user's name comes in without a password; close it at the BMC, or let a commission close it"
    if suites & UNENCRYPTED:
        listed = ", ".join(map(str, sorted(suites & UNENCRYPTED)))
        yield f"IPMI cipher suites without encryption are offered ({listed})"
    if ipmi.suites is not None and not suites & SAFE_SUITES:
        yield "neither IPMI cipher suite 17 nor 3 is offered: bcmetal logs in by `legacy` alone (`[pools.NAME.ipmi]`)"
    if ipmi.anonymous:
        yield "IPMI lets users in that have neither name nor password"
    if ipmi.null_names:
        yield "IPMI has a user without a name"
    if ipmi.there and not ipmi.v2_0:
        yield "IPMI 1.5 alone is spoken: bcmetal logs in by `legacy` alone (`[pools.NAME.ipmi]`)"
    if ipmi.two_keys:
        yield "IPMI asks for a K_g beside the password: name its place as `kg` in `[pools.NAME.ipmi]`"
