"""Errors as the API shows them, and pydantic's findings as faults with paths."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from starlette.responses import JSONResponse

from bcmetal.errors import BcmetalError, Fault, Internal, InvalidInput, RateLimited, Unavailable
from bcmetal.models_words import MAC, NAME, NODE, PRINTABLE, WORD

log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 1
MESSAGE_LIMIT: Final = 1000
FAULTS_SHOWN: Final = 100
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class NotAllowedMethod(InvalidInput):
    """The method is called by POST."""

    http = 405


class TooLarge(InvalidInput):
    """The body is too large."""

    http = 413


class NotJson(InvalidInput):
    """The body must be JSON, with `Content-Type: application/json` and no encoding."""

    http = 415


_FORMS: Final = {  # what a pattern asks for, in words
    NAME: "must be lower-case letters, digits and hyphens only, at most 63",
    NODE: "must be a node's name (lower-case letters, digits and hyphens, at most 63) or its id",
    MAC: "must be a MAC address such as 3c:ec:ef:00:00:01",
    WORD: "must be letters, digits, dots, hyphens and underscores only, at most 63, a letter or digit first",
    PRINTABLE: "must be one line without control characters",
}


def input_faults(error: ValidationError) -> InvalidInput:
    """Every fault at once, each with its path. Nothing of the input is repeated: it may be a password."""
    found: dict[str, Fault] = {}
    for detail in error.errors(include_url=False, include_input=False)[:FAULTS_SHOWN]:
        path = ""
        for part in detail["loc"]:
            if part == "[key]":
                continue
            path += f"[{part}]" if isinstance(part, int) else f".{_safe(part)}" if path else _safe(part)
        message = {
            "missing": "is missing",
            "extra_forbidden": "is not known here",
            "json_invalid": "the body is no JSON",
            "string_pattern_mismatch": _FORMS.get(str(detail.get("ctx", {}).get("pattern"))),
        }.get(detail["type"]) or str(detail["msg"]).removeprefix("Value error, ")
        found.setdefault(path, Fault(path, message[:1].lower() + message[1:]))
    return InvalidInput(list(found.values()))


def _safe(part: str) -> str:
    """A path may hold a caller's own words: bounded, and printable."""
    return "".join(char for char in part if char.isprintable())[:64]


def error_doc(error: BcmetalError, trace_id: str) -> dict[str, Any]:
    inside = error.api_code == Internal.api_code
    message = Internal.__doc__ or "" if inside else str(error)
    details: Mapping[str, object] = {} if inside else error.details
    return {
        "error": {
            "code": error.api_code,
            "message": message[:MESSAGE_LIMIT],
            "details": dict(details),
            "traceId": trace_id,
        }
    }


def error_response(error: BcmetalError, trace_id: str) -> JSONResponse:
    headers = dict(HEADERS)
    if isinstance(error, RateLimited | Unavailable):
        headers["Retry-After"] = str(error.details.get("retryAfterS", RETRY_AFTER_S))
    if error.http == NotAllowedMethod.http:
        headers["Allow"] = "POST"
    if error.http == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_doc(error, trace_id), error.http, headers)
