"""What a liar can send in place of a TPM's words. No TPM is needed: the refusals come before one would be asked."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bcmetal_agent
from bcmetal.join.tpm import (
    check_ek_certificate,
    ek_sha256,
    make_credential,
    proof,
    read_claim,
)
from bcmetal.join.tpm_certificates import CERTIFICATE_LIMIT, NAME_LIMIT, vendor_of
from bcmetal.join.tpm_structures import PUBLIC_LIMIT, Attribute, TpmRefused, parse_public, public_from_wire
from bcmetal_agent.tpm import der_certificate
from join.tpm_bytes import (
    AES_128_CFB,
    AES_256_CFB,
    AK,
    ECDSA,
    EK,
    NONE,
    NOW,
    RSAPSS,
    Maker,
    a_p256_key,
    an_ak,
    an_area,
    an_ek,
    sized,
    text,
)

RSA_KEY = rsa.generate_private_key(65537, 2048)
P256_KEY = a_p256_key()
AN_EK, AN_AK = an_ek(RSA_KEY), an_ak(P256_KEY)
ROOT = Maker("Acme TPM Root")
ISSUER = Maker("Acme TPM Issuer 1", above=ROOT)
BUNDLE = (ROOT.certificate, ISSUER.certificate)
CERTIFICATE = ISSUER.certifies(RSA_KEY.public_key())
hostile = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def refused(reason: str) -> pytest.RaisesExc[TpmRefused]:
    return pytest.RaisesExc(TpmRefused, check=lambda error: error.reason == reason)


# ---------------------------------------------------------------- structures


@pytest.mark.parametrize(
    "raw",
    [AN_EK, an_ek(RSA_KEY, exponent=65537), an_ek(P256_KEY), AN_AK, an_ak(RSA_KEY, scheme=RSAPSS)],
    ids=["ek", "ek with its exponent", "ek of P-256", "ak", "ak of RSA"],  # keys made anew are no names
)
def test_keys_as_tpms_write_them_are_read(raw: bytes) -> None:
    public = public_from_wire(text(raw))
    assert public.area == raw[2:]
    assert public.key.public_numbers() in (
        RSA_KEY.public_key().public_numbers(),
        P256_KEY.public_key().public_numbers(),
    )


def test_a_key_has_one_digest_however_it_is_written() -> None:
    assert ek_sha256(parse_public(an_ek(RSA_KEY))) == ek_sha256(parse_public(an_ek(RSA_KEY, exponent=65537)))
    assert ek_sha256(parse_public(an_ek(RSA_KEY))) != ek_sha256(parse_public(an_ek(P256_KEY)))


def test_the_name_covers_every_byte_of_the_area() -> None:
    assert parse_public(an_ak(P256_KEY)).name != parse_public(an_ak(P256_KEY, attributes=AK | Attribute.NO_DA)).name


@pytest.mark.parametrize("raw", [AN_EK, AN_AK], ids=["ek", "ak"])
def test_a_structure_cut_anywhere_is_refused(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(TpmRefused):
            parse_public(raw[:size])
        with pytest.raises(TpmRefused):
            parse_public(sized(raw[2 : 2 + size]) if size < len(raw) - 2 else b"")


@pytest.mark.parametrize("raw", [AN_EK + b"\0", sized(AN_EK[2:] + b"\0"), AN_EK[2:]], ids=["after", "inside", "bare"])
def test_bytes_too_many_or_no_size_in_front_are_refused(raw: bytes) -> None:
    with pytest.raises(TpmRefused):
        parse_public(raw)


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    with refused("oversized"):
        parse_public(bytes(PUBLIC_LIMIT + 1))
    with refused("oversized"):
        public_from_wire("A" * 10_000_000)
    with refused("oversized"):
        read_claim(text(AN_EK), text(AN_AK), text(bytes(CERTIFICATE_LIMIT + 3)))


@hostile
@given(raw=st.binary(max_size=PUBLIC_LIMIT + 8))
def test_random_bytes_are_only_ever_refused(raw: bytes) -> None:
    with pytest.raises(TpmRefused):
        parse_public(raw)


@hostile
@given(data=st.data(), raw=st.sampled_from([AN_EK, AN_AK, an_ek(P256_KEY), an_ak(RSA_KEY, scheme=RSAPSS)]))
def test_a_changed_structure_is_refused_or_has_another_name(data: st.DataObject, raw: bytes) -> None:
    at = data.draw(st.integers(0, len(raw) - 1))
    changed = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    with suppress(TpmRefused):
        assert parse_public(changed).name != parse_public(raw).name


@hostile
@given(sent=st.one_of(st.text(max_size=80), st.text("ABC+/=-_ \n", max_size=80)))
def test_random_text_is_only_ever_refused(sent: str) -> None:
    for ek, ak, certificate in ((sent, text(AN_AK), None), (text(AN_EK), sent, None), (text(AN_EK), text(AN_AK), sent)):
        with pytest.raises(TpmRefused):
            read_claim(ek, ak, certificate)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s + "\n",
        lambda s: " " + s,
        lambda s: s.rstrip("="),
        lambda s: s.replace("=", "", 1) + "=A==",
        lambda s: "-" + s[1:],
        lambda s: s[:-3] + chr(ord(s[-3]) + 1) + s[-2:],
    ],
)
def test_only_one_text_stands_for_a_structure(change: object) -> None:
    assert callable(change)
    raw = AN_EK
    sent = text(raw)
    assert sent.endswith("==")  # so that there are bits beside the value, which the last case sets
    with refused("malformed"):
        public_from_wire(change(sent))


RSA_3072, RSA_1024 = (rsa.generate_private_key(65537, bits) for bits in (3072, 1024))
P384_KEY = ec.generate_private_key(ec.SECP384R1())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (an_ek(RSA_3072), "malformed"),
        (an_ek(RSA_1024), "unsupported"),
        (an_ek(RSA_KEY, exponent=3), "unsupported"),
        (an_ek(P384_KEY), "malformed"),
        (sized(an_area(P256_KEY, EK, AES_128_CFB, NONE, curve=4)), "unsupported"),
        (sized(an_area(P256_KEY, AK, NONE, ECDSA, name_algorithm=0x0004)), "unsupported"),
        (sized(an_area(P256_KEY, AK, NONE, bytes.fromhex("00180004"))), "unsupported"),
        (sized(an_area(P256_KEY, AK, NONE, bytes.fromhex("001a000b0001"))), "unsupported"),
        (sized(an_area(P256_KEY, EK, bytes.fromhex("000600800042"), NONE)), "unsupported"),
        (sized(an_area(P256_KEY, EK, bytes.fromhex("000600c00043"), NONE)), "unsupported"),
        (sized(an_area(P256_KEY, AK, NONE, ECDSA, policy=bytes(20))), "malformed"),
        (an_ak(attributes=AK | 1), "malformed"),
        (an_ak(attributes=AK | 1 << 31), "malformed"),
        (AN_EK[:-1] + bytes([AN_EK[-1] & 0xFE]), "malformed"),
        (AN_EK[:-256] + bytes(1) + AN_EK[-255:], "malformed"),
        (AN_AK[:-32] + bytes(32), "malformed"),
        (bytes.fromhex("0008") + bytes.fromhex("0008000b00020040"), "unsupported"),
    ],
    ids=[
        "RSA-3072",
        "RSA-1024",
        "exponent 3",
        "P-384 said to be P-256",
        "P-384",
        "named by SHA-1",
        "signs by SHA-1",
        "signs by ECDAA",
        "AES-CBC",
        "AES-192",
        "a short policy",
        "attribute 0",
        "attribute 31",
        "an even modulus",
        "a short modulus",
        "no point of the curve",
        "a keyed hash",
    ],
)
def test_keys_that_a_join_does_not_know_are_refused(raw: bytes, reason: str) -> None:
    with refused(reason):
        parse_public(raw)


# ---------------------------------------------------------------- what the keys say of themselves


@pytest.mark.parametrize("missing", ["FIXED_TPM", "FIXED_PARENT", "SENSITIVE_DATA_ORIGIN", "RESTRICTED", "SIGN"])
def test_an_ak_without_one_of_its_attributes_is_refused(missing: str) -> None:
    read_claim(text(AN_EK), text(AN_AK), None)
    with refused("ak-attributes"):
        read_claim(text(AN_EK), text(an_ak(attributes=AK & ~Attribute[missing])), None)


def test_an_ak_that_decrypts_is_refused() -> None:
    with refused("ak-attributes"):
        read_claim(text(AN_EK), text(an_ak(attributes=AK | Attribute.DECRYPT)), None)


@pytest.mark.parametrize("ak", [an_ak(scheme=NONE), an_ak(symmetric=AES_128_CFB)], ids=["any scheme", "wraps keys"])
def test_an_ak_without_a_scheme_or_with_a_cipher_is_refused(ak: bytes) -> None:
    with refused("ak-scheme"):
        read_claim(text(AN_EK), text(ak), None)


@pytest.mark.parametrize("missing", ["FIXED_TPM", "FIXED_PARENT", "RESTRICTED", "DECRYPT"])
def test_an_ek_without_one_of_its_attributes_is_refused(missing: str) -> None:
    ek = an_ek(RSA_KEY, attributes=EK & ~Attribute[missing])
    with refused("ek-attributes"):
        read_claim(text(ek), text(AN_AK), None)
    with refused("ek-attributes"):
        make_credential(parse_public(ek), parse_public(AN_AK).name, bytes(32))


def test_an_ek_that_signs_is_refused() -> None:
    with refused("ek-attributes"):
        read_claim(text(an_ek(RSA_KEY, attributes=EK | Attribute.SIGN)), text(AN_AK), None)


@pytest.mark.parametrize(
    ("symmetric", "scheme"),
    [(AES_256_CFB, NONE), (NONE, NONE), (AES_128_CFB, RSAPSS)],
    ids=["AES-256", "none", "a scheme"],
)
def test_an_ek_of_another_cipher_or_with_a_scheme_is_refused(symmetric: bytes, scheme: bytes) -> None:
    with refused("ek-scheme"):
        read_claim(text(an_ek(RSA_KEY, symmetric=symmetric, scheme=scheme)), text(AN_AK), None)


def test_the_two_keys_cannot_change_places() -> None:
    with refused("ak-attributes"):
        read_claim(text(AN_AK), text(AN_EK), None)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_of_another_size_is_not_wrapped(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        make_credential(parse_public(AN_EK), parse_public(AN_AK).name, bytes(size))


# ---------------------------------------------------------------- the answer to a challenge


def test_a_proof_is_for_one_secret_one_challenge_and_one_csr() -> None:
    right = proof(b"s" * 32, "ch_1", b"csr")
    assert right == hmac.digest(b"s" * 32, b"ch_1" + hashlib.sha256(b"csr").digest(), "sha256")
    others = (proof(b"t" * 32, "ch_1", b"csr"), proof(b"s" * 32, "ch_2", b"csr"), proof(b"s" * 32, "ch_1", b"another"))
    assert len({right, *others}) == 4


# ---------------------------------------------------------------- EK certificates


def test_a_certificate_about_the_ek_is_taken() -> None:
    assert read_claim(text(AN_EK), text(AN_AK), text(CERTIFICATE)).ek_certificate == CERTIFICATE


def test_a_key_that_its_maker_marked_for_oaep_is_the_same_key() -> None:
    certificate = ISSUER.certifies_for_oaep(RSA_KEY.public_key())
    with pytest.raises(UnsupportedAlgorithm):  # why it is read by hand
        x509.load_der_x509_certificate(certificate).public_key()
    check_ek_certificate(parse_public(AN_EK), certificate)
    assert vendor_of(certificate, BUNDLE, NOW) == "Acme TPM Issuer 1"
    with refused("ek-certificate"):
        check_ek_certificate(parse_public(an_ek(P256_KEY)), certificate)


@pytest.mark.parametrize(
    "certificate",
    [ISSUER.certifies(P256_KEY.public_key()), CERTIFICATE[:-1], CERTIFICATE + b"\0", b"", b"\x30\x00"],
    ids=["another key", "cut", "trailing", "empty", "hollow"],
)
def test_a_certificate_about_another_key_or_none_is_refused(certificate: bytes) -> None:
    with refused("ek-certificate"):
        read_claim(text(AN_EK), text(AN_AK), text(certificate))


@hostile
@given(data=st.data(), whole=st.sampled_from([CERTIFICATE, ISSUER.certifies_for_oaep(RSA_KEY.public_key())]))
@pytest.mark.filterwarnings("ignore")
def test_what_a_maker_did_not_sign_is_vouched_for_by_nobody(data: st.DataObject, whole: bytes) -> None:
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    if vendor_of(changed, BUNDLE, NOW) is not None:  # the signature's own wrapping may be written in other ways
        signed = [x509.load_der_x509_certificate(one).tbs_certificate_bytes for one in (changed, whole)]
        assert signed[0] == signed[1]
    with suppress(TpmRefused):
        check_ek_certificate(parse_public(AN_EK), changed)


@hostile
@given(raw=st.binary(max_size=200))
def test_random_bytes_are_no_certificate(raw: bytes) -> None:
    assert vendor_of(raw, BUNDLE, NOW) is None
    with pytest.raises(TpmRefused):
        check_ek_certificate(parse_public(AN_EK), raw)


def test_the_bundle_vouches_by_a_chain_to_its_root() -> None:
    assert vendor_of(CERTIFICATE, BUNDLE, NOW) == "Acme TPM Issuer 1"
    assert vendor_of(CERTIFICATE, BUNDLE[::-1], NOW) == "Acme TPM Issuer 1"
    assert vendor_of(ROOT.certifies(RSA_KEY.public_key()), BUNDLE, NOW) == "Acme TPM Root"
    assert vendor_of(ISSUER.certifies(RSA_KEY.public_key(), purposes=()), BUNDLE, NOW) == "Acme TPM Issuer 1"


@pytest.mark.parametrize("bundle", [(), (ROOT.certificate,), (ISSUER.certificate,)], ids=["empty", "root", "issuer"])
def test_a_chain_with_a_gap_vouches_for_nothing(bundle: tuple[x509.Certificate, ...]) -> None:
    assert vendor_of(CERTIFICATE, bundle, NOW) is None


def test_another_ca_of_the_same_name_vouches_for_nothing() -> None:
    impostor = Maker("Acme TPM Issuer 1", above=Maker("Acme TPM Root"))
    assert vendor_of(impostor.certifies(RSA_KEY.public_key()), BUNDLE, NOW) is None
    assert vendor_of(impostor.certifies(RSA_KEY.public_key()), (*BUNDLE, impostor.certificate), NOW) is None
    assert vendor_of(CERTIFICATE, (impostor.certificate, *BUNDLE), NOW) == "Acme TPM Issuer 1"


@pytest.mark.parametrize(
    "issuer",
    [
        Maker("Issuer", above=ROOT, ca=False),
        Maker("Issuer", above=ROOT, signs_certificates=False),
        Maker("Issuer", above=ROOT, until=NOW - timedelta(days=1)),
    ],
    ids=["no CA", "signs no certificates", "ended"],
)
def test_an_issuer_that_may_not_issue_vouches_for_nothing(issuer: Maker) -> None:
    assert vendor_of(issuer.certifies(RSA_KEY.public_key()), (*BUNDLE, issuer.certificate), NOW) is None


def test_a_path_longer_than_a_ca_allows_vouches_for_nothing() -> None:
    short = Maker("Short", above=ROOT, path_length=0)
    below = Maker("Below", above=short)
    bundle = (ROOT.certificate, short.certificate, below.certificate)
    assert vendor_of(short.certifies(RSA_KEY.public_key()), bundle, NOW) == "Short"
    assert vendor_of(below.certifies(RSA_KEY.public_key()), bundle, NOW) is None


@pytest.mark.parametrize(
    "certificate",
    [
        ISSUER.certifies(RSA_KEY.public_key(), until=NOW - timedelta(seconds=1)),
        ISSUER.certifies(RSA_KEY.public_key(), purposes=(ExtendedKeyUsageOID.SERVER_AUTH,)),
        ISSUER.certifies(RSA_KEY.public_key(), ca=True),
    ],
    ids=["ended", "for a server", "a CA"],
)
def test_a_certificate_that_is_no_eks_or_ended_is_vouched_for_by_nobody(certificate: bytes) -> None:
    assert vendor_of(certificate, BUNDLE, NOW) is None


def test_a_certificate_from_the_future_is_vouched_for_by_nobody() -> None:
    assert vendor_of(CERTIFICATE, BUNDLE, NOW - timedelta(days=7300)) is None


def test_a_signature_over_sha1_vouches_for_nothing() -> None:
    certificate = ISSUER.certifies_by_sha1(RSA_KEY.public_key())
    assert vendor_of(certificate, BUNDLE, NOW) is None


def test_a_chain_longer_than_any_makers_is_not_followed() -> None:
    chain = [ROOT]
    for n in range(6):
        chain.append(Maker(f"Level {n}", above=chain[-1]))
    bundle = [one.certificate for one in chain]
    assert vendor_of(chain[5].certifies(RSA_KEY.public_key()), bundle, NOW) == "Level 4"
    assert vendor_of(chain[6].certifies(RSA_KEY.public_key()), bundle, NOW) is None


def test_cas_that_certify_each_other_come_to_an_end() -> None:
    one, two = Maker("One"), Maker("Two")
    circle = [
        Maker("One", above=two, key=one.key).certificate,
        Maker("Two", above=one, key=two.key).certificate,
    ]
    assert vendor_of(one.certifies(RSA_KEY.public_key()), circle * 20, NOW) is None


def test_the_name_of_an_issuer_is_safe_to_show() -> None:
    root = Maker("\x1b[31mAcme\u202e\x00" + "x" * 40)
    assert vendor_of(root.certifies(RSA_KEY.public_key()), (root.certificate,), NOW) == "[31mAcme" + "x" * 40
    endless = Maker("", organisation="O" * 500)
    shown = vendor_of(endless.certifies(RSA_KEY.public_key()), (endless.certificate,), NOW)
    assert shown is not None
    assert shown.startswith("O=OOO")
    assert len(shown) == NAME_LIMIT


# ---------------------------------------------------------------- the agent's side


@given(padding=st.binary(max_size=64))
def test_padding_behind_a_stored_certificate_is_left_out(padding: bytes) -> None:
    small = x509.load_der_x509_certificate(CERTIFICATE).public_bytes(Encoding.DER)
    assert der_certificate(small + padding) == small


@given(stored=st.binary(max_size=64))
def test_an_area_without_a_certificate_holds_none(stored: bytes) -> None:
    found = der_certificate(stored)
    assert found is None or (stored.startswith(found) and found[0] == 0x30)
    assert der_certificate(CERTIFICATE[:-1]) is None


def test_an_agent_without_the_package_says_so() -> None:
    """Without any site-packages: the agent's module loads on the standard library alone."""
    source = Path(bcmetal_agent.__file__).parents[1]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from bcmetal_agent.tpm import NoTpm, Tpm\n"
        "try:\n    Tpm.open()\nexcept NoTpm as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert "tpm2-pytss is not installed" in done.stdout
