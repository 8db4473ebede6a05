"""Credential activation between the daemon's side and the agent's, through a real (software) TPM: only the right one opens a challenge."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bcmetal.join.tpm import Claim, Credential, ek_sha256, make_credential, read_claim
from bcmetal.join.tpm_certificates import vendor_of
from bcmetal.join.tpm_structures import TpmRefused, parse_public
from bcmetal_agent.tpm import AttestationKey, EkKind, NoTpm, Tpm, TpmError
from join.swtpm import SoftwareTpm, a_software_tpm, needs_a_tpm
from join.tpm_bytes import Maker, a_p256_key, an_ak, an_ek, text

KINDS = pytest.mark.parametrize("kind", list(EkKind), ids=["rsa", "ecc"])
ECC_CERTIFICATE = 0x01C0000A  # the NV index of template L-2


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoftwareTpm]:
    with a_software_tpm(tmp_path_factory.mktemp("tpm")) as one:
        yield one


@pytest.fixture(scope="module")
def another_chip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoftwareTpm]:
    """Of another maker; its EKs have no certificates in it."""
    with a_software_tpm(tmp_path_factory.mktemp("another"), certified=False) as one:
        yield one


def claimed(tpm: Tpm, ak: AttestationKey) -> Claim:
    certificate = tpm.ek_certificate()
    return read_claim(text(tpm.ek_public()), text(ak.public), None if certificate is None else text(certificate))


def challenged(claim: Claim) -> tuple[bytes, Credential]:
    secret = secrets.token_bytes(32)
    return secret, make_credential(claim.ek, claim.ak.name, secret)


@KINDS
def test_a_tpm_opens_the_challenge_that_was_made_for_it(chip: SoftwareTpm, kind: EkKind) -> None:
    with Tpm.open(chip.tcti, kind) as tpm:
        ak = tpm.ak()
        for _ in range(3):  # the shared point of an ECC challenge differs each time
            secret, challenge = challenged(claimed(tpm, ak))
            opened = tpm.activate(ak, challenge.id_object, challenge.encrypted_secret)
            assert opened == secret


@KINDS
def test_a_saved_ak_is_the_same_at_the_next_start(chip: SoftwareTpm, kind: EkKind) -> None:
    with Tpm.open(chip.tcti, kind) as tpm:
        ak = tpm.ak()
        secret, challenge = challenged(claimed(tpm, ak))
        ek_public = tpm.ek_public()
    with Tpm.open(chip.tcti, kind) as tpm:
        again = AttestationKey(bytes(ak.public), bytes(ak.private))
        assert tpm.activate(again, challenge.id_object, challenge.encrypted_secret) == secret
        assert tpm.ek_public() == ek_public
        assert tpm.ak() != ak


def test_the_allow_list_knows_an_ek_by_its_certificates_key(chip: SoftwareTpm) -> None:
    with Tpm.open(chip.tcti) as tpm:
        claim = claimed(tpm, tpm.ak())
    assert claim.ek_certificate is not None
    key = x509.load_der_x509_certificate(claim.ek_certificate).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert ek_sha256(claim.ek) == hashlib.sha256(der).hexdigest()


@KINDS
def test_a_challenge_for_another_tpms_ek_is_not_opened(
    chip: SoftwareTpm, another_chip: SoftwareTpm, kind: EkKind
) -> None:
    """A machine that sends an EK of the allow-list which is not its own."""
    with Tpm.open(another_chip.tcti, kind) as known:
        foreign = known.ek_public()
    with Tpm.open(chip.tcti, kind) as tpm:
        ak = tpm.ak()
        _, challenge = challenged(read_claim(text(foreign), text(ak.public), None))
        with pytest.raises(TpmError):
            tpm.activate(ak, challenge.id_object, challenge.encrypted_secret)


def test_another_ek_does_not_go_with_the_certificate(chip: SoftwareTpm, another_chip: SoftwareTpm) -> None:
    with Tpm.open(another_chip.tcti, EkKind.RSA) as other, Tpm.open(chip.tcti) as tpm:
        certificate = tpm.ek_certificate()
        assert certificate is not None
        with pytest.raises(TpmRefused, match="another key"):
            read_claim(text(other.ek_public()), text(tpm.ak().public), text(certificate))


@KINDS
def test_an_ak_that_no_tpm_made_is_not_proven(chip: SoftwareTpm, kind: EkKind) -> None:
    """Made in software, with all the attributes claimed: the TPM has no such object to open the challenge with."""
    software = an_ak(a_p256_key())
    with Tpm.open(chip.tcti, kind) as tpm:
        real = tpm.ak()
        _, challenge = challenged(read_claim(text(tpm.ek_public()), text(software), None))
        for ak in (real, AttestationKey(software, real.private), AttestationKey(software, b"\0\0")):
            with pytest.raises(TpmError):
                tpm.activate(ak, challenge.id_object, challenge.encrypted_secret)


@KINDS
def test_a_challenge_for_one_ak_is_not_opened_with_another(chip: SoftwareTpm, kind: EkKind) -> None:
    with Tpm.open(chip.tcti, kind) as tpm:
        one, another = tpm.ak(), tpm.ak()
        _, challenge = challenged(claimed(tpm, one))
        with pytest.raises(TpmError, match="integrity"):
            tpm.activate(another, challenge.id_object, challenge.encrypted_secret)


def test_a_challenge_for_one_of_the_eks_is_not_opened_with_the_other(chip: SoftwareTpm) -> None:
    with Tpm.open(chip.tcti, EkKind.RSA) as tpm:
        ak = tpm.ak()
        _, challenge = challenged(claimed(tpm, ak))
    with Tpm.open(chip.tcti, EkKind.ECC) as tpm, pytest.raises(TpmError):
        tpm.activate(ak, challenge.id_object, challenge.encrypted_secret)


@KINDS
def test_a_challenge_changed_in_any_part_is_not_opened(chip: SoftwareTpm, kind: EkKind) -> None:
    with Tpm.open(chip.tcti, kind) as tpm:
        ak = tpm.ak()
        secret, challenge = challenged(claimed(tpm, ak))
        blob, wrapped = challenge.id_object, challenge.encrypted_secret
        for at in (0, 1, 2, 3, 4, 35, 36, 40, len(blob) - 1):
            with pytest.raises(TpmError):
                tpm.activate(ak, _flipped(blob, at), wrapped)
        for at in (0, 1, 2, 3, len(wrapped) // 2, len(wrapped) - 1):
            with pytest.raises(TpmError):
                tpm.activate(ak, blob, _flipped(wrapped, at))
        for pair in ((blob + b"\0", wrapped), (blob, wrapped + b"\0"), (blob[:-1], wrapped), (b"", b"")):
            with pytest.raises(TpmError):
                tpm.activate(ak, *pair)
        assert tpm.activate(ak, blob, wrapped) == secret  # the TPM is none the worse


def _flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def test_the_daemon_computes_the_name_as_the_tpm_does(chip: SoftwareTpm) -> None:
    """The TPM's own word on it, through its library."""
    import tpm2_pytss

    with Tpm.open(chip.tcti) as tpm:
        for public in (tpm.ek_public(), tpm.ak().public):
            theirs = tpm2_pytss.TPM2B_PUBLIC.unmarshal(public)[0].get_name()
            assert parse_public(public).name == bytes(theirs)


def test_two_challenges_with_one_secret_have_nothing_in_common() -> None:
    key = rsa.generate_private_key(65537, 2048)
    ek, ak = parse_public(an_ek(key)), parse_public(an_ak())
    one, two = (make_credential(ek, ak.name, bytes(32)) for _ in range(2))
    assert one.id_object != two.id_object
    assert one.encrypted_secret != two.encrypted_secret


# ---------------------------------------------------------------- certificates


def test_the_makers_ca_is_named_where_the_site_knows_it(chip: SoftwareTpm, another_chip: SoftwareTpm) -> None:
    with Tpm.open(chip.tcti) as tpm:
        certificate = tpm.ek_certificate()
    assert certificate is not None
    now = datetime.now(UTC)
    root, issuer = chip.vendor_bundle
    assert vendor_of(certificate, (root, issuer), now) == "swtpm-localca"
    assert vendor_of(certificate, (root,), now) is None
    assert vendor_of(certificate, (issuer,), now) is None
    assert vendor_of(certificate, another_chip.vendor_bundle, now) is None
    assert vendor_of(_flipped(certificate, len(certificate) - 1), (root, issuer), now) is None
    assert vendor_of(certificate, (root, issuer), datetime(2001, 1, 1, tzinfo=UTC)) is None


def test_a_tpm_with_a_certificate_of_its_ecc_ek_alone_shows_that_one(tmp_path: Path) -> None:
    """And the padding that its maker left behind it in the TPM does not come along."""
    with a_software_tpm(tmp_path, certified=False) as chip:
        with Tpm.open(chip.tcti) as tpm:
            assert tpm.ek_certificate() is None
            assert parse_public(tpm.ek_public()).key.key_size == 2048
        with Tpm.open(chip.tcti, EkKind.ECC) as tpm:
            ek = parse_public(tpm.ek_public())
        maker = Maker("Acme TPM Root")
        certificate = maker.certifies(ek.key)
        _store(chip.tcti, ECC_CERTIFICATE, certificate + b"\xff" * 200)
        with Tpm.open(chip.tcti) as tpm:
            claim = claimed(tpm, tpm.ak())
            assert claim.ek_certificate == certificate
            assert claim.ek.key.key_size == 256
            assert vendor_of(certificate, (maker.certificate,), datetime.now(UTC)) == "Acme TPM Root"
        with Tpm.open(chip.tcti, EkKind.RSA) as tpm:
            assert tpm.ek_certificate() is None


def _store(tcti: str, index: int, data: bytes) -> None:
    """As a maker does on the line."""
    import tpm2_pytss as t

    area = t.TPMS_NV_PUBLIC(
        nvIndex=index,
        nameAlg=t.TPM2_ALG.SHA256,
        attributes=t.TPMA_NV.OWNERWRITE | t.TPMA_NV.AUTHREAD | t.TPMA_NV.OWNERREAD | t.TPMA_NV.NO_DA,
        dataSize=len(data),
    )
    with t.ESAPI(tcti) as esapi:
        handle = esapi.nv_define_space(None, t.TPM2B_NV_PUBLIC(nvPublic=area))
        for at in range(0, len(data), 512):
            esapi.nv_write(handle, data[at : at + 512], offset=at, auth_handle=t.ESYS_TR.OWNER)


# ---------------------------------------------------------------- no TPM


def test_where_no_tpm_answers_the_agent_says_so() -> None:
    needs_a_tpm()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # held, and not listening
        port = nobody.getsockname()[1]
        with pytest.raises(NoTpm, match="no TPM answers"):
            Tpm.open(f"swtpm:host=127.0.0.1,port={port}")
    with pytest.raises(NoTpm, match="no TPM answers"):
        Tpm.open("device:/dev/no-such-tpm")


def test_an_ak_of_another_tpm_is_not_loaded(chip: SoftwareTpm, another_chip: SoftwareTpm) -> None:
    with Tpm.open(another_chip.tcti) as other:
        foreign = other.ak()
    with Tpm.open(chip.tcti) as tpm:
        _, challenge = challenged(claimed(tpm, foreign))
        with pytest.raises(TpmError, match="load the attestation key"):
            tpm.activate(foreign, challenge.id_object, challenge.encrypted_secret)
