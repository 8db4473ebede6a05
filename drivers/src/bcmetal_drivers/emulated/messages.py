"""A request to a Redfish BMC as the rack sees it, its answer, and the standard's error body (DSP0266, section "Error responses")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

BODY_LIMIT: Final = 1 << 20
STREAMED: Final = ("multipart/form-data", "application/octet-stream")  # bodies that their handler reads, from `environ`
READING: Final = ("GET", "HEAD")


@dataclass(slots=True)
class Answer:
    """`doc` is sent as JSON; where it is None, `body` is sent as it is."""

    status: int
    doc: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    stream: Iterable[bytes] | None = None  # in the place of a body: it goes on until one side ends it

    @property
    def line(self) -> str:
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"{self.status} Status"

    def payload(self) -> bytes:
        return self.body if self.doc is None else json.dumps(self.doc).encode()


class Refusal(Exception):
    """The BMC says no."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.answer = refusal(status, code, message, headers)


def refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    full = code if "." in code else f"Base.1.18.{code}"
    entry = {"MessageId": full, "Message": message, "MessageSeverity": "Critical", "Resolution": "None."}
    body = {"error": {"code": full, "message": message, "@Message.ExtendedInfo": [entry]}}
    return Answer(status, body, dict(headers or {}))


def not_found(path: str) -> Refusal:
    return Refusal(404, "ResourceMissingAtURI", f"The resource at the URI {path} was not found.")


@dataclass(slots=True)
class Request:
    """`path` has no trailing slash; `environ` is the WSGI environment, its body read."""

    method: str
    path: str
    query: str
    body: bytes
    environ: dict[str, Any]

    @classmethod
    def read(cls, environ: dict[str, Any]) -> Request:
        path = environ.get("PATH_INFO") or "/"
        length = environ.get("CONTENT_LENGTH") or "0"
        if str(environ.get("CONTENT_TYPE") or "").startswith(STREAMED):
            body = b""
        elif environ.get("wsgi.input_terminated"):
            body = environ["wsgi.input"].read(BODY_LIMIT)
        else:
            body = (
                environ["wsgi.input"].read(min(int(length), BODY_LIMIT)) if length.isdigit() and length != "0" else b""
            )
        return cls(environ["REQUEST_METHOD"], path.rstrip("/") or "/", environ.get("QUERY_STRING", ""), body, environ)

    @property
    def reads(self) -> bool:
        return self.method in READING

    def header(self, name: str) -> str | None:
        key = name.upper().replace("-", "_")
        value = self.environ.get("HTTP_" + key) or self.environ.get(key if key.startswith("CONTENT_") else "")
        return value if isinstance(value, str) else None

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty one is empty. Raises Refusal."""
        if not self.body:
            return {}
        try:
            doc = json.loads(self.body)
        except ValueError:
            doc = None
        if not isinstance(doc, dict):
            raise Refusal(400, "MalformedJSON", "The request body is no JSON object.")
        return doc
