"""What stands in the calls of agents in the ramdisk: a boot token, a signature, messages; read strictly, and told what is wrong with them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any, Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.requests import Request
from starlette.responses import Response

from bcmetal.api.faults import HEADERS, NotJson
from bcmetal.errors import Fault, InvalidInput
from bcmetal.store.agent_tasks import NewReport
from bcmetal.text import clean, log_text
from bcmetal_agent import wire, wire_tasks

T = TypeVar("T")
DEPTH: Final = 32  # of a result
UNNAMED: Final = "task-failed"
_TOKEN: Final = re.compile(r"bcbt_[0-9a-z]{26}\.[A-Za-z0-9_-]{43}")
_TASK: Final = re.compile(r"at_[0-9a-hjkmnp-tv-z]{26}")
_CODE: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def bearer_digest(request: Request) -> bytes | None:
    """The digest of the boot token; None: none came, or what has not its form."""
    given = [value for name, value in request.scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, text = given[0].decode("latin-1").strip().partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(text.strip()):
        return None
    return hashlib.sha256(text.strip().encode()).digest()


def public_key(text: str) -> bytes:
    """Raises InvalidInput."""
    try:
        raw = base64.b64decode(text, validate=True)
        Ed25519PublicKey.from_public_bytes(raw)
    except (binascii.Error, ValueError):
        raise InvalidInput([Fault("publicKey", "is not base64 of an Ed25519 key's 32 bytes")]) from None
    return raw


def is_signed(key: bytes, signature: str, statement: bytes) -> bool:
    try:
        raw = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(key).verify(raw, statement)
    except (binascii.Error, ValueError, InvalidSignature):
        return False
    return True


def decoded(kind: type[T], request: Request, raw: bytes, limit: int) -> T:
    """Raises InvalidInput."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise NotJson([], NotJson.__doc__ or "")
    try:
        return wire.decode(kind, raw, limit)
    except wire.BadMessage as error:
        raise InvalidInput([Fault(error.path, error.message)]) from None
    except RecursionError:
        raise InvalidInput([Fault("", "is nested too deep")]) from None


def said_in(message: wire_tasks.Report) -> NewReport:
    """A report with what its texts may not hold taken out; the log's is taken out where it is stored, for its offsets count what was sent.

    Raises InvalidInput.
    """
    if not _TASK.fullmatch(message.task_id):  # PostgreSQL takes no text with a NUL
        raise InvalidInput([Fault("taskId", "is no task's id")])
    failed = message.state == "failed"
    code = message.error_code or ""
    return NewReport(
        state=message.state,
        progress=min(message.progress, 1000),
        message=None if message.message is None else clean(message.message),
        result=None if message.result is None else _plain(message.result),
        error_code=(code if _CODE.fullmatch(code) else UNNAMED) if failed else None,
        error_message=clean(message.error_message or "the agent gave no reason") if failed else None,
        log=message.log or "",
        log_offset=message.log_offset,
    )


def _plain(value: Any, depth: int = 0) -> Any:
    """Every text in it without control characters. Raises InvalidInput."""
    if depth > DEPTH:
        raise InvalidInput([Fault("result", "is nested too deep")])
    if isinstance(value, str):
        return log_text(value)
    if isinstance(value, dict):
        return {log_text(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, depth + 1) for inner in value]
    return value


def answered(answer: object) -> Response:
    return Response(wire.encode(answer), 200, HEADERS, media_type="application/json")
