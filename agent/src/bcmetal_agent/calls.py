"""One call over one connection: TLS that is proven before a byte is sent, a deadline for the whole call, the answer bounded.

No proxy variable is read and no redirect followed: http.client knows neither.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from bcmetal_agent import trust, wire
from bcmetal_agent.trust import Endpoint, Untrusted

_NAME: Final = "bcmetal-agent"
_NOT_YET_VALID: Final = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_WORDS: Final = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.ENETUNREACH: "no network: this machine has no address or no route there",
    errno.EHOSTUNREACH: "no way there: nobody answers for that address on this network",
    errno.EADDRNOTAVAIL: "no network: this machine has no address that could be used",
}


@dataclass(frozen=True)
class RetryLater:
    """No answer, or none to go by. `after_s`: what the server asked for. `cut`: TLS was begun and broken off, as a server
    does that does not like the client's certificate (its alert is often lost on the way)."""

    reason: str
    after_s: float | None = None
    cut: bool = False


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


def call(
    server: Endpoint,
    context: ssl.SSLContext,
    method: str,
    path: str,
    message: bytes | None,
    headers: Mapping[str, str],
    deadline_s: float,
    *,
    proven: bool,
    limit: int = wire.BODY_LIMIT,
) -> tuple[int, http.client.HTTPMessage, bytes] | RetryLater:
    """Status, headers and body of at most `limit` bytes. `proven`: the server must show itself to be one before a byte is sent.

    Raises Untrusted.
    """
    deadline = _Deadline(time.monotonic() + deadline_s)
    try:
        with _connected(server, context, deadline, proven=proven) as tls:
            connection = http.client.HTTPConnection(server.host, server.port)
            connection.sock = _Socket(tls, deadline)
            return _exchange(connection, method, path, message, headers, limit)
    except (TimeoutError, _Late):
        return RetryLater(f"{server} did not answer within {deadline_s:.0f} s")
    except ssl.SSLError as error:
        return RetryLater(f"TLS with {server} failed: {error.reason or 'closed by the other side'}", cut=True)
    except http.client.HTTPException as error:
        return RetryLater(f"{server} broke off or speaks no HTTP: {type(error).__name__}")
    except (ConnectionResetError, BrokenPipeError) as error:
        return RetryLater(f"{server} broke off: {error.strerror}", cut=True)
    except OSError as error:
        return RetryLater(f"cannot reach {server}: {_why(error)}")


class NotYetValid(Untrusted):
    """The server's certificate begins later than this machine's clock says."""


@contextlib.contextmanager
def _connected(
    server: Endpoint, context: ssl.SSLContext, deadline: _Deadline, *, proven: bool
) -> Iterator[ssl.SSLSocket]:
    with _connect(server, deadline) as plain:
        plain.settimeout(deadline.left())
        try:
            with context.wrap_socket(plain, server_hostname=server.host) as tls:
                if proven:
                    trust.check_server(tls.getpeercert(binary_form=True))
                yield tls
        except ssl.SSLCertVerificationError as error:
            kind = NotYetValid if error.verify_code == _NOT_YET_VALID else Untrusted
            raise kind(_unverified(error)) from None


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"its name is not found: {error.strerror} (does DNS answer?)"
    return _WORDS.get(error.errno or 0) or error.strerror or type(error).__name__


@contextlib.contextmanager
def connected(server: Endpoint, context: ssl.SSLContext, deadline_s: float) -> Iterator[ssl.SSLSocket]:
    """To a server that has shown itself to be one; nothing was sent yet. Raises Untrusted, OSError."""
    with _connected(server, context, _Deadline(time.monotonic() + deadline_s), proven=True) as tls:
        yield tls


@contextlib.contextmanager
def stream(
    server: Endpoint, context: ssl.SSLContext, path: str, headers: Mapping[str, str], *, open_s: float, read_s: float
) -> Iterator[http.client.HTTPResponse]:
    """A GET whose body is read as it comes. `open_s`: until the headers are there; `read_s`: the longest that nothing comes.

    Raises OSError for all that goes wrong, at opening and at reading.
    """
    try:
        with _connected(server, context, _Deadline(time.monotonic() + open_s), proven=True) as tls:
            tls.settimeout(open_s)
            connection = http.client.HTTPConnection(server.host, server.port)
            connection.sock = tls
            connection.request("GET", path, headers={"Connection": "close", "User-Agent": _NAME, **headers})
            with connection.getresponse() as response:
                tls.settimeout(read_s)
                yield response
    except Untrusted as error:
        raise OSError(str(error)) from None
    except http.client.HTTPException as error:
        raise OSError(f"{server} broke off or speaks no HTTP: {type(error).__name__}") from None


def _unverified(error: ssl.SSLCertVerificationError) -> str:
    hint = ""
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
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
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    message: bytes | None,
    more: Mapping[str, str],
    limit: int,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    headers = {"Accept": "application/json", "Connection": "close", "User-Agent": _NAME, **more}
    if message is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, path, body=message, headers=headers)
    with connection.getresponse() as response:
        body = response.read(limit + 1)
        if len(body) > limit:
            raise http.client.HTTPException("the answer is too large")
        return response.status, response.headers, body
