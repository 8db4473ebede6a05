"""Where a BMC is and what it may be told: its address, its network, how it is trusted, and which credentials may go there.

A credential goes only where the site's configuration lets it: an address that a caller typed is not trusted with a shared password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography import x509

from bcmetal.errors import Fault, InvalidInput
from bcmetal.models import Tls
from bcmetal.settings import Network, Settings
from bcmetal.store.values import BmcRow
from bcmetal_drivers.address import parse
from bcmetal_drivers.connection import BmcAddress, TrustKind
from bcmetal_drivers.errors import BadAddress
from bcmetal_drivers.schemes import SCHEMES, family_of

PIN_FIRST: Final = "pin-first"  # the first certificate that is seen is the one; pinned by the first inspect
_SYSTEM: Final = re.compile(r"(/redfish/v1/Systems/)?[A-Za-z0-9._~:-]{1,120}")


@dataclass(frozen=True, slots=True)
class Place:
    address: BmcAddress
    network: Network
    trust_kind: str
    trust_value: str


def place_of(
    settings: Settings,
    text: str,
    driver: str | None = None,
    system_id: str | None = None,
    tls: Tls | None = None,
    before: BmcRow | None = None,
) -> tuple[Place | None, list[Fault]]:
    """The place that an input means, or what is wrong with it. `before`: what its trust stays as when `tls` says nothing."""
    try:
        address = parse(text)
    except BadAddress as error:
        return None, [Fault("bmc.address", str(error))]
    faults = list(_address_faults(address, driver, system_id))
    if driver is not None and not address.scheme:
        address = replace(address, scheme=driver, port=address.port or SCHEMES[driver].port)
    if system_id is not None:
        path = system_id if system_id.startswith("/") else f"/redfish/v1/Systems/{system_id}"
        address = replace(address, system_path=path)
    network = settings.network_for(address.host)
    if network is None:
        text = "no network of the configuration holds it: add it to the cidrs (a host name: to the names) of a [networks] table"
        return None, [*faults, Fault("bmc.address", text)]
    if _in_clear(address) and not network.plain_http:
        text = f"[networks.{network.name}] does not allow {address.scheme}, which has no TLS (plain_http)"
        faults.append(Fault("bmc.address", text))
    kind, value, wrong = _trust(address, network, tls, before)
    faults += wrong
    return Place(address, network, kind, value), faults


def _in_clear(address: BmcAddress) -> bool:
    return address.scheme in SCHEMES and SCHEMES[address.scheme].in_clear


def _address_faults(address: BmcAddress, driver: str | None, system_id: str | None) -> Iterator[Fault]:
    family = family_of(address.scheme)
    if driver is not None and family and family != driver:
        yield Fault("bmc.driver", f"the address is one of {family}")
    if system_id is None:
        return
    if not _SYSTEM.fullmatch(system_id):
        yield Fault("bmc.systemId", "must be the system's id, or its path under /redfish/v1/Systems/")
    elif (family or driver) and not SCHEMES[family or driver or ""].has_systems:
        yield Fault("bmc.systemId", f"a BMC of {family or driver} has one system, without an id")
    elif address.system_path is not None and address.system_path.rpartition("/")[2] != system_id.rpartition("/")[2]:
        yield Fault("bmc.systemId", "the address names another system")


def _trust(
    address: BmcAddress, network: Network, tls: Tls | None, before: BmcRow | None
) -> tuple[str, str, list[Fault]]:
    said = tls is not None and bool(tls.model_fields_set)
    if address.scheme and not SCHEMES[address.scheme].has_certificate:
        wrong = [Fault("bmc.tls", f"{address.scheme} has no certificate")] if said else []
        return (TrustKind.NONE if _in_clear(address) else TrustKind.SYSTEM).value, "", wrong
    if tls is not None and tls.fingerprint is not None:
        return TrustKind.FINGERPRINT.value, tls.fingerprint, []
    if tls is not None and tls.ca_pem is not None:
        return TrustKind.CA.value, tls.ca_pem, list(_pem_faults("bmc.tls.caPem", tls.ca_pem))
    if tls is not None and tls.verify is False:
        if network.tls == "off":
            return TrustKind.NONE.value, "", []
        text = f'[networks.{network.name}] does not allow an unverified certificate (tls = "off"): give tls.fingerprint'
        return TrustKind.NONE.value, "", [Fault("bmc.tls.verify", text)]
    if tls is not None and tls.verify is True:
        return TrustKind.SYSTEM.value, "", []
    if before is not None:
        wrong = []
        if before.trust_kind == PIN_FIRST:
            wrong = [Fault("bmc.tls", "the BMC's certificate was never pinned: give tls.fingerprint")]
        return before.trust_kind, before.trust_value, wrong
    return _trust_of(network)


def _trust_of(network: Network) -> tuple[str, str, list[Fault]]:
    kind, _, file = network.tls.partition(":")
    if kind != "ca":
        return {"verify": TrustKind.SYSTEM.value, "off": TrustKind.NONE.value}.get(kind, PIN_FIRST), "", []
    try:
        pem = Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = f"the CA file of [networks.{network.name}] cannot be read: mend it, or give tls.fingerprint"
        return TrustKind.CA.value, "", [Fault("bmc.tls", text)]
    return TrustKind.CA.value, pem, list(_pem_faults("bmc.tls", pem))


def _pem_faults(path: str, pem: str) -> Iterator[Fault]:
    try:
        x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        yield Fault(path, "holds no certificate in PEM form")


def reference_faults(settings: Settings, name: str, place: Place) -> Iterator[Fault]:
    """Why a credential of the configuration does not go there."""
    found = settings.credentials.get(name)
    if found is None:
        known = ", ".join(sorted(settings.credentials)) or "none"
        yield Fault("bmc.credentialRef", f"there is no credential {name}; there are: {known}")
        return
    if place.network.name not in found.networks:
        text = f"credential {name} is not for network {place.network.name}: add it to its networks in the configuration"
        yield Fault("bmc.credentialRef", text)
    if found.of_one_machine:
        return  # what its network allows, it may be spent on: no other machine is lost with it
    if _in_clear(place.address):
        yield Fault("bmc.credentialRef", "a shared credential is not sent without TLS: give username and password")
    unproven = (TrustKind.NONE.value,) if not place.address.scheme else (TrustKind.NONE.value, PIN_FIRST)
    if place.trust_kind in unproven:
        text = "a shared credential is sent only to a pinned or verified certificate: give the SHA-256 that the BMC's own page shows"
        yield Fault("bmc.tls.fingerprint", f"is missing: {text}")


def length_faults(scheme: str, username: str, password: str, prefix: str = "") -> Iterator[Fault]:
    """The protocol's own limits; those of all protocols are the models'."""
    spoken = SCHEMES.get(scheme)
    if spoken is None:
        return
    for field, value, most in (
        ("username", username, spoken.username_bytes),
        ("password", password, spoken.password_bytes),
    ):
        if most is not None and len(value.encode()) > most:
            yield Fault(f"{prefix}{field}", f"{scheme} takes at most {most} bytes")


def refuse(faults: list[Fault]) -> None:
    if faults:
        raise InvalidInput(faults)
