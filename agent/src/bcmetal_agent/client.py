"""Calls to the control plane: one connection each, a deadline for the whole call, answers bounded, every outcome a type.

No proxy variable is read and no redirect followed: http.client knows neither.
"""

from __future__ import annotations

import email.utils
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from bcmetal_agent import trust, wire
from bcmetal_agent.bearer import Bearer
from bcmetal_agent.trust import Endpoint, Untrusted

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


@dataclass(frozen=True)
class RetryLater:
    """No answer, or none to go by. `after_s`: what the server asked for. `cut`: TLS was begun and broken off, as a server
    does that does not like the client's certificate (its alert is often lost on the way)."""

    reason: str
    after_s: float | None = None
    cut: bool = False


JoinAnswer = wire.Admitted | wire.Challenge | wire.Deferred | Refused | RetryLater
RenewAnswer = wire.Admitted | wire.Deferred | Refused | RetryLater


def pinned_root(server: Endpoint, pin: trust.Pin, *, deadline_s: float = CALL_S) -> str | RetryLater:
    """The pinned root as PEM, fetched over a connection that carries nothing of ours. Raises Untrusted."""
    answer = _call(server, trust.unverified(), "GET", wire.TRUST_BUNDLE_PATH, None, None, deadline_s, proven=False)
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
        return self._ask(wire.JOIN_PATH, message, bearer, lambda body: _by_status(kinds, body))

    def renew(self, message: bytes) -> RenewAnswer:
        """Raises Untrusted."""
        kinds = {"admitted": wire.Admitted, "deferred": wire.Deferred}
        return self._ask(wire.RENEW_PATH, message, None, lambda body: _by_status(kinds, body))

    def secrets(self, names: tuple[str, ...]) -> wire.Secrets | Refused | RetryLater:
        """Raises Untrusted."""
        message = wire.encode(wire.AskSecrets(names))
        return self._ask(wire.SECRETS_PATH, message, None, lambda body: wire.decode(wire.Secrets, body))

    def alive(self) -> wire.TrustBundle | Refused | RetryLater:
        """Be heard from: a running node's place is not given to another machine. Raises Untrusted."""
        path = wire.TRUST_BUNDLE_PATH
        return self._ask(path, None, None, lambda body: wire.decode(wire.TrustBundle, body), "GET")

    def _ask(
        self, path: str, message: bytes | None, bearer: Bearer | None, read: Callable[[bytes], T], method: str = "POST"
    ) -> T | Refused | RetryLater:
        answer = _call(self.server, self.context, method, path, message, bearer, self.deadline_s, proven=True)
        if isinstance(answer, RetryLater):
            return answer
        status, headers, body = answer
        if status not in (200, 202):
            return _said(status, headers, body, bearer)
        try:
            return read(body)
        except wire.BadMessage as error:
            return RetryLater(_hidden(f"the server's answer is not of its shape: {_clean(str(error))}", bearer))


def _by_status(kinds: dict[str, type[Any]], body: bytes) -> Any:
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


# ---------------------------------------------------------------- one call


class _Late(OSError):
    """The call's deadline has passed."""


@dataclass
class _Deadline:
    end: float

    def left(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise _Late("deadline")
        return left


class _Stream(io.RawIOBase):
    """Reads that share one deadline: a server that drips bytes gains no time by it."""

    def __init__(self, tls: ssl.SSLSocket, deadline: _Deadline) -> None:
        self._tls, self._deadline = tls, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._tls.settimeout(self._deadline.left())
        return self._tls.recv_into(buffer)


class _Socket:
    """What http.client wants of a socket. It is closed by the call, not by http.client."""

    def __init__(self, tls: ssl.SSLSocket, deadline: _Deadline) -> None:
        self._tls, self._deadline = tls, deadline

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._tls.settimeout(self._deadline.left())
            view = view[self._tls.send(view) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Stream(self._tls, self._deadline))

    def close(self) -> None:
        pass


def _call(
    server: Endpoint,
    context: ssl.SSLContext,
    method: str,
    path: str,
    message: bytes | None,
    bearer: Bearer | None,
    deadline_s: float,
    *,
    proven: bool,
) -> tuple[int, http.client.HTTPMessage, bytes] | RetryLater:
    """Status, headers and body. `proven`: the server must show itself to be one before a byte is sent."""
    deadline = _Deadline(time.monotonic() + deadline_s)
    try:
        with _connect(server, deadline) as plain:
            plain.settimeout(deadline.left())
            with context.wrap_socket(plain, server_hostname=server.host) as tls:
                if proven:
                    trust.check_server(tls.getpeercert(binary_form=True))
                return _exchange(server, tls, deadline, method, path, message, bearer)
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(_unverified(error)) from None
    except (TimeoutError, _Late):
        return RetryLater(f"{server} did not answer within {deadline_s:.0f} s")
    except ssl.SSLError as error:
        return RetryLater(f"TLS with {server} failed: {error.reason or 'closed by the other side'}", cut=True)
    except http.client.HTTPException as error:
        return RetryLater(f"{server} broke off or speaks no HTTP: {type(error).__name__}")
    except (ConnectionResetError, BrokenPipeError) as error:
        return RetryLater(f"{server} broke off: {error.strerror}", cut=True)
    except OSError as error:
        return RetryLater(f"cannot reach {server}: {error.strerror or type(error).__name__}")


def _unverified(error: ssl.SSLCertVerificationError) -> str:
    hint = ""
    if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
        hint = f"; this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return f"the server's certificate does not hold: {error.verify_message}{hint}. Nothing was sent"


def _connect(server: Endpoint, deadline: _Deadline) -> socket.socket:
    last: OSError = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(deadline.left())
            plain.connect(address)
        except OSError as error:
            plain.close()
            last = error
        else:
            return plain
    raise last


def _exchange(
    server: Endpoint,
    tls: ssl.SSLSocket,
    deadline: _Deadline,
    method: str,
    path: str,
    message: bytes | None,
    bearer: Bearer | None,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    headers = {"Accept": "application/json", "Connection": "close", "User-Agent": "bcmetal-agent"}
    if message is not None:
        headers["Content-Type"] = "application/json"
    if bearer is not None:
        headers["Authorization"] = f"Bearer {bearer.value}"
    connection = http.client.HTTPConnection(server.host, server.port)
    connection.sock = _Socket(tls, deadline)
    connection.request(method, path, body=message, headers=headers)
    with connection.getresponse() as response:
        body = response.read(wire.BODY_LIMIT + 1)
        if len(body) > wire.BODY_LIMIT:
            raise http.client.HTTPException("the answer is too large")
        return response.status, response.headers, body
