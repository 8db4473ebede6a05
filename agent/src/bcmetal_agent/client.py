"""Calls to the control plane: one connection each, a deadline for the whole call, answers bounded, every outcome a type.

No proxy variable is read and no redirect followed: http.client knows neither.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from bcmetal_agent import trust, wire
from bcmetal_agent.bearer import Bearer
from bcmetal_agent.calls import RetryLater, call
from bcmetal_agent.trust import Endpoint

CALL_S: Final = 30.0
_SHOWN: Final = 300  # characters of a server's message
_PASSING: Final = frozenset({408, 421, 425, 429})

T = TypeVar("T")


@dataclass(frozen=True)
class Refused:
    """The server's last word on this message; `message` is its text, cleaned."""

    status: int
    code: str
    message: str


JoinAnswer = wire.Admitted | wire.Challenge | wire.Deferred | Refused | RetryLater
RenewAnswer = wire.Admitted | wire.Deferred | Refused | RetryLater


def pinned_root(server: Endpoint, pin: trust.Pin, *, deadline_s: float = CALL_S) -> str | RetryLater:
    """The pinned root as PEM, fetched over a connection that carries nothing of ours. Raises Untrusted."""
    answer = call(server, trust.unverified(), "GET", wire.TRUST_BUNDLE_PATH, None, {}, deadline_s, proven=False)
    if isinstance(answer, RetryLater):
        return answer
    status, headers, body = answer
    if status != 200:
        said = _said(status, headers, body, None)
        return said if isinstance(said, RetryLater) else RetryLater(f"no trust bundle there: {status} {said.message}")
    try:
        bundle = wire.decode(wire.TrustBundle, body)
    except wire.BadMessage as error:
        return RetryLater(f"the trust bundle is not of its shape: {_clean(str(error))}")
    return pin.pick(bundle.roots)


@dataclass(frozen=True)
class Client:
    """Calls over connections that `context` vouches for."""

    server: Endpoint
    context: ssl.SSLContext
    deadline_s: float = CALL_S

    def join(self, message: bytes, bearer: Bearer | None) -> JoinAnswer:
        """Raises Untrusted."""
        kinds = {"admitted": wire.Admitted, "challenge": wire.Challenge, "deferred": wire.Deferred}
        return self.ask(wire.JOIN_PATH, message, bearer, lambda body: by_status(kinds, body))

    def renew(self, message: bytes) -> RenewAnswer:
        """Raises Untrusted."""
        kinds = {"admitted": wire.Admitted, "deferred": wire.Deferred}
        return self.ask(wire.RENEW_PATH, message, None, lambda body: by_status(kinds, body))

    def secrets(self, names: tuple[str, ...]) -> wire.Secrets | Refused | RetryLater:
        """Raises Untrusted."""
        message = wire.encode(wire.AskSecrets(names))
        return self.ask(wire.SECRETS_PATH, message, None, lambda body: wire.decode(wire.Secrets, body))

    def alive(self) -> wire.TrustBundle | Refused | RetryLater:
        """Be heard from: a running node's place is not given to another machine. Raises Untrusted."""
        path = wire.TRUST_BUNDLE_PATH
        return self.ask(path, None, None, lambda body: wire.decode(wire.TrustBundle, body), "GET")

    def ask(
        self,
        path: str,
        message: bytes | None,
        bearer: Bearer | None,
        read: Callable[[bytes], T],
        method: str = "POST",
        *,
        headers: Mapping[str, str] | None = None,
        limit: int = wire.BODY_LIMIT,
    ) -> T | Refused | RetryLater:
        """One call. `read` makes of the body what is meant, or raises wire.BadMessage. Raises Untrusted."""
        more = dict(headers or {})
        if bearer is not None:
            more["Authorization"] = f"Bearer {bearer.value}"
        answer = call(self.server, self.context, method, path, message, more, self.deadline_s, proven=True, limit=limit)
        if isinstance(answer, RetryLater):
            return answer
        status, said, body = answer
        if status not in (200, 202):
            return _said(status, said, body, bearer)
        try:
            return read(body)
        except wire.BadMessage as error:
            return RetryLater(_hidden(f"the server's answer is not of its shape: {_clean(str(error))}", bearer))


def by_status(kinds: dict[str, type[Any]], body: bytes) -> Any:
    """The message of the kind that its `status` names. Raises wire.BadMessage."""
    try:
        doc = json.loads(body)
    except (ValueError, RecursionError):
        raise wire.BadMessage("", "is no JSON") from None
    status = doc.get("status") if isinstance(doc, dict) else None
    if not isinstance(status, str) or status not in kinds:
        raise wire.BadMessage("status", f"must be one of {', '.join(kinds)}")
    return wire.decode(kinds[status], body)


def _said(status: int, headers: http.client.HTTPMessage, body: bytes, bearer: Bearer | None) -> Refused | RetryLater:
    code, message = _error(body)
    message = _hidden(message, bearer)
    if status >= 500 or status in _PASSING:
        return RetryLater(
            f"the server answered {status} {message or http.client.responses.get(status, '')}".strip(),
            _retry_after(headers),
        )
    if 400 <= status < 500:
        return Refused(status, code, message or http.client.responses.get(status, "no reason given"))
    if 300 <= status < 400:
        return RetryLater(f"the server answered with a redirect ({status}), which is never followed")
    return RetryLater(f"the server answered {status}, which says nothing here")


def _error(body: bytes) -> tuple[str, str]:
    """Code and message of `{"error": {"code", "message"}}`, empty where the body is something else."""
    try:
        doc = json.loads(body)
    except (ValueError, RecursionError):
        return "", ""
    error = doc.get("error") if isinstance(doc, dict) else None
    if not isinstance(error, dict):
        return "", ""
    code, message = error.get("code"), error.get("message")
    return _clean(code) if isinstance(code, str) else "", _clean(message) if isinstance(message, str) else ""


def _retry_after(headers: http.client.HTTPMessage) -> float | None:
    text = str(headers.get("Retry-After", "")).strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:_SHOWN])


def _hidden(text: str, bearer: Bearer | None) -> str:
    return text if bearer is None else bearer.hide_in(text)
