"""TLS to a BMC: who is trusted, and in which words not."""

from __future__ import annotations

import ssl
import warnings
from pathlib import Path

import pytest

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import (
    InsecureTransport,
    UntrustedCertificate,
)
from bcmetal_drivers.tls import fetch_fingerprint
from raw_bmc import DOCS, LIMITS, a_certificate, a_credential, a_door, a_raw_bmc, answer, documents, get


def test_the_pinned_certificate_is_trusted_however_its_fingerprint_is_written(tmp_path: Path) -> None:
    certificate = a_certificate(tmp_path, host="127.0.0.9")
    colons = ":".join(certificate.fingerprint[n : n + 2] for n in range(0, 64, 2)).upper()
    for written in (certificate.fingerprint, colons):
        trust = Trust(TrustKind.FINGERPRINT, written)
        with a_raw_bmc(documents(DOCS), certificate.context) as bmc, a_door(bmc, trust=trust) as door:
            get(door)
            assert door.certificate_fp == certificate.fingerprint


def test_a_ca_is_trusted_for_the_right_name(tmp_path: Path) -> None:
    certificate = a_certificate(tmp_path)
    trust = Trust(TrustKind.CA, certificate.pem)
    with a_raw_bmc(documents(DOCS), certificate.context) as bmc, a_door(bmc, trust=trust) as door:
        assert get(door)["Id"] == "1"


@pytest.mark.parametrize(
    ("host", "days", "kind", "why"),
    [
        ("127.0.0.1", (-1, 30), TrustKind.SYSTEM, "self-signed"),
        ("127.0.0.1", (-9, -2), TrustKind.CA, "expired"),
        ("127.0.0.1", (2, 9), TrustKind.CA, "not valid yet"),
        ("127.0.0.9", (-1, 30), TrustKind.CA, "another IP address"),
        ("127.0.0.1", (-1, 30), TrustKind.FINGERPRINT, "not the pinned one"),
    ],
)
def test_a_distrusted_certificate_is_told_apart_and_gets_no_request(
    tmp_path: Path, host: str, days: tuple[int, int], kind: TrustKind, why: str
) -> None:
    certificate = a_certificate(tmp_path, host, days)
    value = {TrustKind.CA: certificate.pem, TrustKind.FINGERPRINT: "0" * 64}.get(kind, "")
    with a_raw_bmc(documents(DOCS), certificate.context) as bmc, a_door(bmc, trust=Trust(kind, value)) as door:
        with pytest.raises(UntrustedCertificate, match=why):
            get(door)
        assert bmc.asked == []


def test_a_ca_that_is_no_pem_is_said_to_be_none(tmp_path: Path) -> None:
    trust = Trust(TrustKind.CA, "no pem")
    with a_raw_bmc(documents(DOCS), a_certificate(tmp_path).context) as bmc, a_door(bmc, trust=trust) as door:
        with pytest.raises(UntrustedCertificate, match="PEM"):
            get(door)
        assert bmc.asked == []


def test_a_port_without_tls_is_insecure() -> None:
    with a_raw_bmc(lambda asked: [answer({})]) as plain:
        door = Door(BmcAddress("redfish", "127.0.0.1", plain.port), a_credential(), Trust(), LIMITS)
        with pytest.raises(InsecureTransport, match="does not speak TLS"):
            get(door)
        assert plain.asked == []


def test_plain_http_needs_a_trust_of_none() -> None:
    for kind in (TrustKind.SYSTEM, TrustKind.CA, TrustKind.FINGERPRINT):
        with pytest.raises(InsecureTransport):
            Door(BmcAddress("redfish+http", "127.0.0.1", 1), a_credential(), Trust(kind, "x"), LIMITS)


def test_the_fingerprint_is_fetched_without_a_request(tmp_path: Path) -> None:
    certificate = a_certificate(tmp_path)
    with a_raw_bmc(documents(DOCS), certificate.context) as bmc:
        assert fetch_fingerprint("127.0.0.1", bmc.port, LIMITS) == certificate.fingerprint
        assert bmc.asked == []


@pytest.mark.parametrize("trust", [TrustKind.NONE, TrustKind.CA], ids=["unverified", "verified"])
def test_a_tls_that_is_too_old_is_said_to_be_that(tmp_path: Path, trust: TrustKind) -> None:
    certificate = a_certificate(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the test
        certificate.context.minimum_version = ssl.TLSVersion.TLSv1
        certificate.context.maximum_version = ssl.TLSVersion.TLSv1_1
    certificate.context.set_ciphers("ALL:@SECLEVEL=0")
    value = certificate.pem if trust is TrustKind.CA else ""
    with a_raw_bmc(documents(DOCS), certificate.context) as bmc, a_door(bmc, trust=Trust(trust, value)) as door:
        with pytest.raises(InsecureTransport, match="too old"):
            get(door)
        assert bmc.asked == []
