"""What the authority signs, for how long, and who its certificates say that they are."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.ca import (
    ROOT_YEARS,
    IssuerKind,
    IssuerUnusable,
    issue_node_certificate,
    issue_server_certificate,
    kind_of,
    make_issuer,
    make_root,
    new_serial,
    pin_of,
    renew_after,
    serial_text,
    spiffe_id,
)
from bcmetal.join.peers import PeerRefused, certificate_from_der, certificate_from_pem, identity_of, issuer_of
from bcmetal.join.public_keys import key_sha256
from join.authority import DAY, NODE, NOW, TRUST, Site, a_key, a_serial, a_site, later

NODE_KINDS = pytest.mark.parametrize("kind", [IssuerKind.NODE, IssuerKind.NODE_TENANT])


@pytest.fixture(scope="module")
def site() -> Site:
    return a_site()


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> x509.Extension[Any]:
    return certificate.extensions.get_extension_for_class(kind)


# ---------------------------------------------------------------- leaves


@NODE_KINDS
def test_a_nodes_certificate_is_its_spiffe_id_and_nothing_else(site: Site, kind: IssuerKind) -> None:
    issued = site.node(kind)
    leaf = issued.certificate
    names = extension(leaf, x509.SubjectAlternativeName)
    assert names.critical
    assert list(names.value) == [x509.UniformResourceIdentifier(f"spiffe://{TRUST}/{kind}/{NODE}")]
    assert len(leaf.subject) == 0
    constraints = extension(leaf, x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    usage = extension(leaf, x509.KeyUsage)
    assert usage.critical
    assert usage.value == x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    purposes = set(extension(leaf, x509.ExtendedKeyUsage).value)
    assert purposes == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}


def test_a_nodes_certificate_begins_five_minutes_ago_and_ends_in_a_day(site: Site) -> None:
    issued = site.node()
    assert issued.not_before_at == later(-300)
    assert issued.not_after_at == later(DAY)
    assert issued.certificate.not_valid_after_utc - issued.certificate.not_valid_before_utc == timedelta(
        days=1, minutes=5
    )


def test_a_leaf_ends_no_later_than_its_issuer(site: Site) -> None:
    end = site.issuers[IssuerKind.NODE].certificate.not_valid_after_utc
    last_hour = Micros(int(end.timestamp() - 3600) * SECOND)
    assert site.node(now=last_hour).certificate.not_valid_after_utc == end


@pytest.mark.parametrize("when", [later(-3600), later(366 * DAY)], ids=["clock-stepped-back", "ended"])
def test_an_issuer_that_is_not_good_now_signs_nothing(site: Site, when: Micros) -> None:
    with pytest.raises(IssuerUnusable, match="bcmetal ca rollover"):
        site.node(now=when)
    with pytest.raises(IssuerUnusable):
        site.server("api.site", now=when)


def test_a_root_past_its_end_makes_no_issuer(site: Site) -> None:
    with pytest.raises(IssuerUnusable):
        make_issuer(IssuerKind.NODE, site.root, later(366 * DAY * ROOT_YEARS))


def test_issuers_last_a_year_and_no_longer_than_their_root(site: Site) -> None:
    issuer = site.issuers[IssuerKind.NODE].certificate
    assert issuer.not_valid_after_utc - site.root.certificate.not_valid_before_utc <= timedelta(days=366)
    ninth = later((365 * ROOT_YEARS - 30) * DAY)
    late = make_issuer(IssuerKind.NODE, site.root, ninth).certificate
    assert late.not_valid_after_utc == site.root.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    ("node_id", "domain"),
    [
        ("nd_1", TRUST),
        (NODE + "/../node", TRUST),
        (NODE.upper(), TRUST),
        (NODE + "\n", TRUST),
        (NODE, "Bcmetal"),
        (NODE, "bcmetal/node"),
        (NODE, ""),
        (NODE, "*.bcmetal"),
    ],
)
def test_an_id_or_a_domain_of_another_form_is_never_written(site: Site, node_id: str, domain: str) -> None:
    with pytest.raises(ValueError, match="SPIFFE"):
        issue_node_certificate(site.issuers[IssuerKind.NODE], a_key().public_key(), node_id, domain, NOW, a_serial())


def test_each_issuer_issues_its_own_kind_only(site: Site) -> None:
    key = a_key().public_key()
    with pytest.raises(ValueError, match="no node"):
        issue_node_certificate(site.issuers[IssuerKind.SERVER], key, NODE, TRUST, NOW, a_serial())
    for kind in (IssuerKind.NODE, IssuerKind.NODE_TENANT):
        with pytest.raises(ValueError, match="no server"):
            issue_server_certificate(site.issuers[kind], key, ["api.site"], NOW, 30, a_serial())
    with pytest.raises(ValueError):
        spiffe_id(TRUST, IssuerKind.SERVER, NODE)
    with pytest.raises(ValueError, match="at least one name"):
        site.server()


def test_a_key_outside_of_the_policy_is_never_certified(site: Site) -> None:
    with pytest.raises(ValueError, match="P-256"):
        site.node(key=ec.generate_private_key(ec.SECP521R1()).public_key())


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["p-384", "ed25519", "rsa"],
)
def test_every_key_of_the_policy_is_certified(site: Site, key: ed25519.Ed25519PrivateKey) -> None:
    issued = site.node(key=key.public_key())
    assert issued.certificate.public_key() == key.public_key()
    assert issued.key_sha256 == key_sha256(key.public_key())


def test_a_servers_certificate_has_names_and_addresses_and_is_for_servers_only(site: Site) -> None:
    leaf = site.server("join.site", "10.30.0.5", "fd00::5", "join.site").certificate
    names = extension(leaf, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["join.site"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.30.0.5", "fd00::5"]
    assert list(extension(leaf, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_serial_is_positive_and_of_at_most_127_bits() -> None:
    assert new_serial(bytes(16)) == 1
    assert new_serial(b"\xff" * 16) == (1 << 127) - 1
    assert new_serial(os.urandom(16)) != new_serial(os.urandom(16))
    with pytest.raises(ValueError):
        new_serial(b"short")
    assert serial_text(255) == "0" * 30 + "ff"


# ---------------------------------------------------------------- issuers


def test_an_issuer_says_what_it_is_for_and_no_subject_is_like_another(site: Site) -> None:
    for kind, issuer in site.issuers.items():
        assert kind_of(issuer.certificate.subject) is kind
        constraints = extension(issuer.certificate, x509.BasicConstraints)
        assert constraints.critical
        assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    again = make_issuer(IssuerKind.NODE, site.root, NOW)
    assert again.certificate.subject != site.issuers[IssuerKind.NODE].certificate.subject
    assert kind_of(site.root.certificate.subject) is None


def test_a_subject_with_two_units_is_no_issuers() -> None:
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"bcmetal {kind}") for kind in ("node", "server")]
    assert kind_of(x509.Name(units)) is None
    assert kind_of(x509.Name(units[:1])) is IssuerKind.NODE
    assert kind_of(x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "node")])) is None


@pytest.mark.parametrize("name", ["", "a" * 33, "x\ny", "-x", "x/y", "ü"])
def test_a_root_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        make_root(name, NOW)


def test_no_key_is_shown(site: Site) -> None:
    shown = repr(site.root) + repr(site.issuers)
    assert "PrivateKey" not in shown


def test_the_pin_is_the_sha256_of_the_root(site: Site) -> None:
    assert pin_of(site.root.certificate) == "sha256:" + site.root.certificate.fingerprint(hashes.SHA256()).hex()


# ---------------------------------------------------------------- who a peer is


@NODE_KINDS
def test_a_nodes_certificate_tells_who_it_is(site: Site, kind: IssuerKind) -> None:
    issued = site.node(kind)
    who = identity_of(issued.certificate, TRUST)
    assert (who.node_id, who.kind, who.serial) == (NODE, kind, issued.serial)
    assert (who.not_after, who.key_sha256) == (issued.not_after_at, issued.key_sha256)


def test_a_server_is_no_node(site: Site) -> None:
    with pytest.raises(PeerRefused):
        identity_of(site.server("join.site").certificate, TRUST)
    with pytest.raises(PeerRefused):
        identity_of(site.issuers[IssuerKind.NODE].certificate, TRUST)
    with pytest.raises(PeerRefused):
        identity_of(site.root.certificate, TRUST)


def test_a_node_of_another_trust_domain_is_nobody(site: Site) -> None:
    with pytest.raises(PeerRefused, match="trust domain"):
        identity_of(site.node().certificate, "elsewhere")


def forged(
    site: Site,
    issuer: IssuerKind,
    names: list[x509.GeneralName],
    *,
    critical: bool = True,
    subject: str | None = None,
    ca: bool = False,
    usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.CLIENT_AUTH,),
) -> x509.Certificate:
    """What a stolen issuer's key could sign, or an operator's own issuer by mistake."""
    above = site.issuers[issuer]
    start = above.certificate.not_valid_before_utc
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else []))
        .issuer_name(above.certificate.subject)
        .public_key(a_key().public_key())
        .serial_number(a_serial())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=critical)
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(above.key, hashes.SHA256())
    )


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


GOOD = f"spiffe://{TRUST}/node/{NODE}"


def test_the_forger_of_these_tests_can_make_one_that_is_taken(site: Site) -> None:
    assert identity_of(forged(site, IssuerKind.NODE, [uri(GOOD)]), TRUST).node_id == NODE


def test_a_tenants_issuer_cannot_vouch_for_a_platform_node_nor_the_servers_for_any(site: Site) -> None:
    for issuer in (IssuerKind.NODE_TENANT, IssuerKind.SERVER):
        with pytest.raises(PeerRefused, match="another issuer"):
            identity_of(forged(site, issuer, [uri(GOOD)]), TRUST)
    tenants = uri(f"spiffe://{TRUST}/node-tenant/{NODE}")
    with pytest.raises(PeerRefused, match="another issuer"):
        identity_of(forged(site, IssuerKind.NODE, [tenants]), TRUST)


@pytest.mark.parametrize(
    "name",
    [
        f"spiffe://{TRUST}/server/{NODE}",
        f"spiffe://{TRUST}/node/{NODE}/",
        f"spiffe://{TRUST}/node/{NODE}?x",
        f"spiffe://{TRUST}/node/{NODE}#x",
        f"spiffe://{TRUST}/node//{NODE}",
        f"spiffe://{TRUST}/node/../node/{NODE}",
        f"spiffe://{TRUST}:443/node/{NODE}",
        f"spiffe://user@{TRUST}/node/{NODE}",
        f"spiffe://{TRUST.upper()}/node/{NODE}",
        f"SPIFFE://{TRUST}/node/{NODE}",
        f"spiffe://{TRUST}/node/{NODE[:-1]}",
        f"spiffe://{TRUST}/node/{NODE[:-1]}%65",
        f"spiffe://{TRUST}/node/{NODE}\n",
        f"https://{TRUST}/node/{NODE}",
        f"x spiffe://{TRUST}/node/{NODE}",
    ],
)
def test_a_name_that_is_nearly_a_nodes_is_nobodys(site: Site, name: str) -> None:
    with pytest.raises(PeerRefused):
        identity_of(forged(site, IssuerKind.NODE, [uri(name)]), TRUST)


def test_a_second_name_a_plain_one_or_a_subject_is_refused(site: Site) -> None:
    node = IssuerKind.NODE
    for certificate in (
        forged(site, node, [uri(GOOD), uri(f"spiffe://{TRUST}/node/nd_{'0' * 26}")]),
        forged(site, node, [uri(GOOD), x509.DNSName("api.site")]),
        forged(site, node, [x509.DNSName(GOOD)]),
        forged(site, node, [uri(GOOD)], critical=False),
        forged(site, node, [uri(GOOD)], subject="root"),
        forged(site, node, [uri(GOOD)], ca=True),
        forged(site, node, [uri(GOOD)], usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    ):
        with pytest.raises(PeerRefused):
            identity_of(certificate, TRUST)


def test_who_signed_a_certificate_is_proven_by_its_signature_not_by_its_words(site: Site) -> None:
    leaf = site.node().certificate
    issuers = [site.issuers[kind].certificate for kind in IssuerKind]
    assert issuer_of(leaf, issuers) == site.issuers[IssuerKind.NODE].certificate
    other = a_site()
    assert issuer_of(leaf, [one.certificate for one in other.issuers.values()]) is None
    assert issuer_of(leaf, []) is None
    same_words = x509.CertificateBuilder(
        issuer_name=leaf.issuer,
        subject_name=leaf.subject,
        public_key=leaf.public_key(),
        serial_number=leaf.serial_number,
        not_valid_before=leaf.not_valid_before_utc,
        not_valid_after=leaf.not_valid_after_utc,
        extensions=list(leaf.extensions),
    ).sign(a_key(), hashes.SHA256())
    assert identity_of(same_words, TRUST).node_id == NODE
    assert issuer_of(same_words, issuers) is None


FUZZED_SITE = a_site()
FUZZED = FUZZED_SITE.node().certificate.public_bytes(Encoding.DER)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.filterwarnings("ignore:Attribute's length:UserWarning")
@settings(max_examples=1500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(FUZZED) - 1), st.integers(1, 255)), min_size=1, max_size=3))
def test_whatever_a_certificate_holds_it_is_refused_in_one_way(changes: list[tuple[int, int]]) -> None:
    body = bytearray(FUZZED)
    for at, change in changes:
        body[at] ^= change
    try:
        certificate = certificate_from_der(bytes(body))
        identity_of(certificate, TRUST)
    except PeerRefused:
        return
    assert issuer_of(certificate, [FUZZED_SITE.issuers[IssuerKind.NODE].certificate]) is None or bytes(body) == FUZZED


@pytest.mark.parametrize("text", ["", "x", "é", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_nobodys(text: str) -> None:
    with pytest.raises(PeerRefused):
        certificate_from_pem(text)
    with pytest.raises(PeerRefused):
        certificate_from_der(text.encode())


def test_a_certificate_is_the_same_from_either_form(site: Site) -> None:
    issued = site.node()
    assert certificate_from_pem(issued.chain) == certificate_from_der(issued.certificate.public_bytes(Encoding.DER))


# ---------------------------------------------------------------- renewal


@given(st.integers(3600, 10 * 365 * DAY), st.binary(min_size=1, max_size=8))
def test_renewal_is_due_from_half_of_the_life_to_six_tenths(life_s: int, entropy: bytes) -> None:
    due = renew_after(NOW, later(life_s), entropy)
    assert later(life_s * 0.5 - 1) <= due <= later(life_s * 0.6 + 1)


def test_renewals_of_a_rack_are_spread() -> None:
    due = {renew_after(NOW, later(DAY), os.urandom(8)) for _ in range(100)}
    assert max(due) - min(due) > 3600 * SECOND
