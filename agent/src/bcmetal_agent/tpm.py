"""The machine's TPM: its endorsement key (EK), an attestation key (AK), and opening a challenge with both.

Needs `tpm2-pytss`, the extra `[tpm]` (Debian: python3-tpm2-pytss); it is imported on `Tpm.open`, so that an agent without it still runs.
Bytes go in and out in the TPM's own forms (TCG TPM 2.0 Library, Part 2): TPM2B_PUBLIC, TPM2B_PRIVATE, TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tpm2_pytss import ESAPI

RESOURCE_MANAGER: Final = "device:/dev/tpmrm0"  # Linux's own; it shares the TPM with whoever else uses it


class TpmError(Exception):
    """The TPM refused, or did not do, what it was asked; the text is safe to show."""


class NoTpm(TpmError):
    """There is no TPM to talk to, or nothing to talk to it with."""


class EkKind(Enum):
    """An EK of the default templates L-1 and L-2. The value is its name in tpm2-pytss."""

    RSA = "EK-RSA2048"
    ECC = "EK-ECC256"


@dataclass(frozen=True)
class AttestationKey:
    """A TPM2B_PUBLIC and a TPM2B_PRIVATE. The latter only the TPM that made it can use, until its owner clears it: both may be saved."""

    public: bytes
    private: bytes = field(repr=False)


class Tpm:
    """An open connection: a context manager. Every method raises TpmError. Making an EK takes some TPMs many seconds; it is made once."""

    def __init__(self, esapi: ESAPI, ek: EkKind | None) -> None:
        self._esapi = esapi
        self._wanted = ek
        self._ek: tuple[int, bytes, bytes | None] | None = None  # handle, TPM2B_PUBLIC, certificate

    @classmethod
    def open(cls, tcti: str | None = None, ek: EkKind | None = None) -> Tpm:
        """`tcti` as tpm2-tools write it, as in `swtpm:host=127.0.0.1,port=2321`; None: RESOURCE_MANAGER. Raises NoTpm.

        `ek` None: RSA, but ECC where only that EK has a certificate.
        """
        os.environ.setdefault("TSS2_LOG", "all+NONE")  # tpm2-tss writes what it also returns to stderr
        try:
            import tpm2_pytss
        except ImportError as error:
            raise NoTpm("tpm2-pytss is not installed, so that no TPM can be asked") from error
        try:
            esapi = tpm2_pytss.ESAPI(tcti or RESOURCE_MANAGER)
        except tpm2_pytss.TSS2_Exception as error:
            raise NoTpm(f"no TPM answers at {tcti or RESOURCE_MANAGER}: {error}") from error
        return cls(esapi, ek)

    def __enter__(self) -> Tpm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget the EK's handle in the TPM and end the connection."""
        made, self._ek = self._ek, None
        try:
            if made is not None:
                with self._flushed(made[0]):
                    pass
        finally:
            self._esapi.close()

    def ek_public(self) -> bytes:
        """A TPM2B_PUBLIC."""
        return self._endorsement_key()[1]

    def ek_certificate(self) -> bytes | None:
        """DER, as the maker stored it in the TPM, without the padding that some leave behind it. None where there is none."""
        return self._endorsement_key()[2]

    def ak(self) -> AttestationKey:
        """A new key: P-256, restricted, signs what the TPM itself says. Keep it: a join's retry shows the same."""
        from tpm2_pytss import TPM2B_SENSITIVE_CREATE

        with _telling("make an attestation key"), self._storage_key() as parent:
            private, public, *_ = self._esapi.create(parent, TPM2B_SENSITIVE_CREATE(), _ak_template())
            return AttestationKey(bytes(public.marshal()), bytes(private.marshal()))

    def activate(self, ak: AttestationKey, id_object: bytes, encrypted_secret: bytes) -> bytes:
        """The secret of a challenge (a TPM2B_ID_OBJECT, a TPM2B_ENCRYPTED_SECRET) that was made for this TPM's EK and this AK."""
        from tpm2_pytss import TPM2B_ENCRYPTED_SECRET, TPM2B_ID_OBJECT

        ek = self._endorsement_key()[0]
        blob, secret = _whole(TPM2B_ID_OBJECT, id_object), _whole(TPM2B_ENCRYPTED_SECRET, encrypted_secret)
        with self._loaded(ak) as handle, _telling("open the challenge"), self._ek_session() as session:
            return bytes(self._esapi.activate_credential(handle, ek, blob, secret, session2=session))

    def _endorsement_key(self) -> tuple[int, bytes, bytes | None]:
        if self._ek is None:
            with _telling("make its endorsement key"):
                certificate, template = self._ek_template()
                handle, public, *_ = self._esapi.create_primary(None, template, self._tr().ENDORSEMENT)
                self._ek = (handle, bytes(public.marshal()), certificate)
        return self._ek

    def _ek_template(self) -> tuple[bytes | None, Any]:
        """With the nonce and the template that a maker may have stored beside the certificate."""
        from tpm2_pytss.utils import NVReadEK, create_ek_template

        read = NVReadEK(self._esapi)
        found = []
        for kind in (self._wanted,) if self._wanted else EkKind:
            stored, template = create_ek_template(kind.value, read)
            found.append((None if stored is None else der_certificate(bytes(stored)), template))
        return next((one for one in found if one[0] is not None), found[0])

    @contextlib.contextmanager
    def _storage_key(self) -> Iterator[int]:
        """The storage root: a primary key of the owner, the same each time."""
        handle, *_ = self._esapi.create_primary(None, _storage_template(), self._tr().OWNER)
        with self._flushed(handle):
            yield handle

    @contextlib.contextmanager
    def _loaded(self, ak: AttestationKey) -> Iterator[int]:
        from tpm2_pytss import TPM2B_PRIVATE, TPM2B_PUBLIC

        private, public = _whole(TPM2B_PRIVATE, ak.private), _whole(TPM2B_PUBLIC, ak.public)
        with _telling("load the attestation key"), self._storage_key() as parent:
            handle = self._esapi.load(parent, private, public)
        with self._flushed(handle):
            yield handle

    @contextlib.contextmanager
    def _ek_session(self) -> Iterator[int]:
        """The EK may be used under the policy that whoever may use the endorsement hierarchy may: PolicySecret (annex B of the profile)."""
        from tpm2_pytss import TPM2_ALG, TPM2_SE, TPMT_SYM_DEF

        tr = self._tr()
        session = self._esapi.start_auth_session(
            tr.NONE, tr.NONE, TPM2_SE.POLICY, TPMT_SYM_DEF(algorithm=TPM2_ALG.NULL), TPM2_ALG.SHA256
        )
        with self._flushed(session):
            self._esapi.policy_secret(
                tr.ENDORSEMENT, session, nonce_tpm=b"", cp_hash_a=b"", policy_ref=b"", expiration=0
            )
            yield session

    @contextlib.contextmanager
    def _flushed(self, handle: int) -> Iterator[None]:
        try:
            yield
        finally:
            with _telling("forget what it was given"):
                self._esapi.flush_context(handle)

    @staticmethod
    def _tr() -> Any:
        from tpm2_pytss import ESYS_TR

        return ESYS_TR


def der_certificate(stored: bytes) -> bytes | None:
    """The DER at the beginning of an NV area, by its own length; None where it holds none."""
    if stored[:1] != b"\x30" or len(stored) < 4:
        return None
    if stored[1] & 0x80:
        start = 2 + (stored[1] & 0x7F)
        end = start + int.from_bytes(stored[2:start], "big")
    else:
        end = 2 + stored[1]
    return stored[:end] if 4 <= end <= len(stored) else None


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    from tpm2_pytss import TSS2_Exception

    try:
        yield
    except TSS2_Exception as error:
        raise TpmError(f"the TPM did not {what}: {error}") from error


def _whole(kind: Any, raw: bytes) -> Any:
    """One structure and nothing behind it."""
    from tpm2_pytss import TSS2_Exception

    try:
        found, used = kind.unmarshal(raw)
    except (TSS2_Exception, ValueError) as error:
        raise TpmError(f"this is no {kind.__name__}") from error
    if used != len(raw):
        raise TpmError(f"this is no {kind.__name__}: bytes follow its end")
    return found


def _ak_template() -> Any:
    return _p256(restricted_signs=True)


def _storage_template() -> Any:
    return _p256(restricted_signs=False)


def _p256(restricted_signs: bool) -> Any:
    """A restricted P-256 key: it signs (ECDSA with SHA-256), or it wraps others (AES-128-CFB)."""
    import tpm2_pytss as t

    attributes = (
        t.TPMA_OBJECT.FIXEDTPM
        | t.TPMA_OBJECT.FIXEDPARENT
        | t.TPMA_OBJECT.SENSITIVEDATAORIGIN
        | t.TPMA_OBJECT.USERWITHAUTH
        | t.TPMA_OBJECT.NODA
        | t.TPMA_OBJECT.RESTRICTED
    )
    parameters = t.TPMS_ECC_PARMS(
        symmetric=t.TPMT_SYM_DEF_OBJECT(algorithm=t.TPM2_ALG.NULL),
        scheme=t.TPMT_ECC_SCHEME(scheme=t.TPM2_ALG.NULL),
        curveID=t.TPM2_ECC.NIST_P256,
        kdf=t.TPMT_KDF_SCHEME(scheme=t.TPM2_ALG.NULL),
    )
    if restricted_signs:
        attributes |= t.TPMA_OBJECT.SIGN_ENCRYPT
        parameters.scheme.scheme = t.TPM2_ALG.ECDSA
        parameters.scheme.details.ecdsa.hashAlg = t.TPM2_ALG.SHA256
    else:
        attributes |= t.TPMA_OBJECT.DECRYPT
        parameters.symmetric.algorithm = t.TPM2_ALG.AES
        parameters.symmetric.keyBits.aes = 128
        parameters.symmetric.mode.aes = t.TPM2_ALG.CFB
    return t.TPM2B_PUBLIC(
        publicArea=t.TPMT_PUBLIC(
            type=t.TPM2_ALG.ECC,
            nameAlg=t.TPM2_ALG.SHA256,
            objectAttributes=attributes,
            parameters=t.TPMU_PUBLIC_PARMS(eccDetail=parameters),
        )
    )
