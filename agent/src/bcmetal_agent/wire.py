"""The messages between the agent and the daemon, as standard-library dataclasses with one strict codec for both sides.

JSON objects with camelCase names. `decode` refuses what it does not know: unknown or missing fields, other types, texts and lists past
their bounds. What a field may hold beyond its shape is judged by whoever reads it.
"""

from __future__ import annotations

import dataclasses
import json
import types
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

JOIN_PATH: Final = "/api/compute/join"
RENEW_PATH: Final = "/api/compute/nodes/renew"
SECRETS_PATH: Final = "/api/compute/nodes/secrets"
TRUST_BUNDLE_PATH: Final = "/api/compute/trustBundle"
BODY_LIMIT: Final = 64 * 1024  # bytes of a message, either way

T = TypeVar("T")


class BadMessage(ValueError):
    """A message that is not of its shape; `path` names the field, as in `identifiers.macs[3]`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


@dataclass(frozen=True)
class AtMost:
    """The most characters of a text, or entries of a list."""

    limit: int


Json = dict[
    str, Any
]  # an object of any fields, whose depth and size the message's limit bounds: `decode` keeps it as it came


Csr = Annotated[str, AtMost(8192)]  # one PEM PKCS#10 request
Word = Annotated[str, AtMost(128)]
Blob = Annotated[str, AtMost(4096)]  # base64
Pem = Annotated[str, AtMost(32 * 1024)]


# ---------------------------------------------------------------- what the agent says


@dataclass(frozen=True)
class Identifiers:
    """As SMBIOS, the kernel and the GPUs' tools tell them; what cannot be read is absent."""

    product_uuid: Annotated[str, AtMost(64)] | None = None
    serial: Word | None = None
    macs: Annotated[tuple[Annotated[str, AtMost(17)], ...], AtMost(64)] = ()
    gpu_uuids: Annotated[tuple[Annotated[str, AtMost(68)], ...], AtMost(32)] = ()


@dataclass(frozen=True)
class TpmClaim:
    """`ek_public`, `ak_public`: a TPM2B_PUBLIC each; `ek_certificate`: DER. All base64."""

    ek_public: Blob
    ak_public: Blob
    ek_certificate: Annotated[str, AtMost(8192)] | None = None


@dataclass(frozen=True)
class Proof:
    """The answer to a challenge: base64 of HMAC-SHA256(secret, challengeId ‖ SHA-256(CSR DER))."""

    challenge_id: Annotated[str, AtMost(64)]
    proof: Annotated[str, AtMost(64)]


@dataclass(frozen=True)
class Join:
    """The body of the join call; the bearer stands in `Authorization`. `tenant_id` and `pool_id` only where there is no token."""

    csr: Csr
    identifiers: Identifiers = field(default_factory=Identifiers)
    attestor: Literal["token", "discovery", "tpm"] = "token"
    tpm: TpmClaim | None = None
    challenge: Proof | None = None
    tenant_id: Word | None = None
    pool_id: Word | None = None


@dataclass(frozen=True)
class Expired:
    """For a certificate that is past its end: the certificate, and base64 of the old key's signature over `renewal_statement`."""

    certificate: Pem
    signature: Blob


@dataclass(frozen=True)
class Renew:
    """`expired` only over a listener that asked for no client certificate."""

    csr: Csr
    expired: Expired | None = None


@dataclass(frozen=True)
class AskSecrets:
    """`names` empty: every one."""

    names: Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(64)] = ()


# ---------------------------------------------------------------- what the daemon answers


@dataclass(frozen=True)
class Admitted:
    """`certificate`: PEM, the leaf first, then its issuer. `trust_bundle`: PEM roots. Times: RFC 3339, UTC."""

    node_id: Annotated[str, AtMost(64)]
    certificate: Pem
    trust_bundle: Annotated[str, AtMost(64 * 1024)]
    renew_after: Annotated[str, AtMost(40)]
    server_time: Annotated[str, AtMost(40)]
    status: Literal["admitted"] = "admitted"


@dataclass(frozen=True)
class Challenge:
    """TPM2_ActivateCredential's input: a TPM2B_ID_OBJECT and a TPM2B_ENCRYPTED_SECRET, base64."""

    challenge_id: Annotated[str, AtMost(64)]
    credential_blob: Blob
    encrypted_secret: Blob
    expires_in_s: int
    status: Literal["challenge"] = "challenge"


@dataclass(frozen=True)
class Deferred:
    """A person has to decide; ask again with the very same message."""

    request_id: Annotated[str, AtMost(64)]
    retry_after_seconds: int
    server_time: Annotated[str, AtMost(40)]
    status: Literal["deferred"] = "deferred"


@dataclass(frozen=True)
class TrustBundle:
    """The roots as PEM, newest first; whoever has a pin compares it with the SHA-256 of their DER."""

    roots: Annotated[tuple[Pem, ...], AtMost(8)]


@dataclass(frozen=True)
class Secret:
    """One platform secret of the site."""

    name: Annotated[str, AtMost(64)]
    value: Annotated[str, AtMost(32 * 1024)] = field(repr=False)


@dataclass(frozen=True)
class Secrets:
    """Those that were asked for."""

    secrets: Annotated[tuple[Secret, ...], AtMost(64)]


def renewal_statement(csr_der: bytes) -> bytes:
    """What the old key signs for a renewal after the end: no other signature of that key can be taken for it."""
    return b"bcmetal/renew-expired/v1\0" + csr_der


# ---------------------------------------------------------------- the codec


def encode(message: Any) -> bytes:
    """JSON of a message; absent fields are left out."""
    return json.dumps(_plain(message), separators=(",", ":"), ensure_ascii=False).encode()


def decode(kind: type[T], raw: bytes, limit: int = BODY_LIMIT) -> T:
    """Read one message of at most `limit` bytes. Raises BadMessage."""
    if len(raw) > limit:
        raise BadMessage("", f"is larger than {limit} bytes")
    try:
        doc = json.loads(raw, object_pairs_hook=_no_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also what is no UTF-8
        raise error if isinstance(error, BadMessage) else BadMessage("", "is no JSON") from None
    return read_doc(kind, doc)


def read_doc(kind: type[T], doc: Any) -> T:
    """Read a message that is parsed already, such as a `Json` field of another. Raises BadMessage."""
    found: T = _read(kind, doc, "", ())
    return found


def to_doc(message: Any) -> Json:
    """A message as a JSON object; absent fields are left out."""
    doc: Json = _plain(message)
    return doc


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {_camel(name): _plain(inner) for name, inner in fields if inner is not None}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


@cache
def _shape(kind: type[Any]) -> dict[str, tuple[str, Any, bool]]:
    """JSON name → field name, type, required."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        _camel(one.name): (
            one.name,
            hints[one.name],
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
        )
        for one in dataclasses.fields(kind)
    }


def _read(kind: Any, value: Any, path: str, limits: tuple[Any, ...]) -> Any:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *marks = get_args(kind)
        return _read(inner, value, path, tuple(marks))
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(kind) if one is not type(None))
        return None if value is None else _read(inner, value, path, ())
    if origin is Literal:
        if value not in get_args(kind) or not isinstance(value, str):
            raise BadMessage(path, f"must be one of {', '.join(get_args(kind))}")
        return value
    limit = next((mark.limit for mark in limits if isinstance(mark, AtMost)), None)
    if origin is tuple:
        if not isinstance(value, list):
            raise BadMessage(path, "must be a list")
        if limit is not None and len(value) > limit:
            raise BadMessage(path, f"has more than {limit} entries")
        return tuple(_read(get_args(kind)[0], one, f"{path}[{n}]", ()) for n, one in enumerate(value))
    if kind is str:
        if not isinstance(value, str):
            raise BadMessage(path, "must be a text")
        if limit is not None and len(value) > limit:
            raise BadMessage(path, f"is longer than {limit} characters")
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise BadMessage(path, "holds half a character")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise BadMessage(path, "must be true or false")
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise BadMessage(path, "must be an object")
        _sound(value, path)
        return value
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
            raise BadMessage(path, "must be a whole number from 0")
        return value
    return _read_object(kind, value, path)


def _sound(value: Any, path: str) -> None:
    """No half characters (they cannot be stored), at any depth."""
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise BadMessage(path, "holds half a character")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _sound(name, path)
            _sound(inner, path)
    elif isinstance(value, list):
        for inner in value:
            _sound(inner, path)


def _read_object(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise BadMessage(path, "must be an object")
    shape = _shape(kind)
    for name in value:
        if name not in shape:
            shown = "".join(char for char in name if char.isprintable())[:64]
            raise BadMessage(f"{path}.{shown}" if path else shown, "is not known here")
    found = {}
    for name, (inner, hint, required) in shape.items():
        at = f"{path}.{name}" if path else name
        if name in value:
            found[inner] = _read(hint, value[name], at, ())
        elif required:
            raise BadMessage(at, "is missing")
    return kind(**found)


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadMessage("", "names a field twice")
    return found


def _no_constant(text: str) -> Any:
    raise BadMessage("", f"{text} is no JSON")
