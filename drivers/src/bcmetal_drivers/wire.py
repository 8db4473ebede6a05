"""The wire to a BMC: deadlines that hold, TCP and TLS under them, and one kept-alive HTTP line.

A socket's own timeout is for each read, so that an answer of a byte a second would run on for ever. Here every connect, handshake,
send and receive is given what is left of the total deadline, so that no watchdog is needed. A body of a large file has longer than that for
as long as it goes on. Proxy variables mean nothing here.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import select
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bcmetal_drivers.connection import Limits, Trust
from bcmetal_drivers.errors import Busy, Malformed, Refused, ServerFault, TimedOut
from bcmetal_drivers.tcp import Deadline, connect
from bcmetal_drivers.tls import handshake

BODY_LIMIT: Final = 8 * 1024 * 1024
CHUNK: Final = 65536
DIGITS: Final = 40  # of an integer
PADDING: Final = b"\0 \t\r\n"  # after a document: some firmware sends the whole of its buffer
SLOWEST: Final = 32 * 1024  # bytes a second, below which an upload has no end in sight
# What is understood although `identity` is asked for: some firmware does not look at what it is asked. gzip, and zlib's own form under either name.
COMPRESSED: Final = {"gzip": 47, "x-gzip": 47, "deflate": 47}


class _Bounded(io.RawIOBase):
    """The receiving side of a socket: each receive has what is left of the deadline."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._line.receive(buffer)


class _Sock:
    """What http.client needs of a socket."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def sendall(self, data: bytes) -> None:
        self._line.send(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Bounded(self._line), CHUNK)

    def close(self) -> None:
        """The line outlives each answer; `Line.close` ends it."""


class CutShort(Exception):
    """An upload was ended before all of it was sent, by whoever is told of it: the BMC begins nothing with it.

    `hands_off`: nothing more may be written to the BMC either, not even to tidy up there.
    """

    def __init__(self, *, hands_off: bool = False) -> None:
        super().__init__()
        self.hands_off = hands_off


@dataclass(frozen=True, slots=True)
class Upload:
    """A request's body of which `file` is read while it is sent; `size` is the file's, and what it must still have then."""

    kind: str  # the Content-Type
    file: Path
    size: int
    before: bytes = b""
    after: bytes = b""
    told: Callable[[float], None] | None = None  # how much of it went out, below 1; what it raises ends the upload

    @property
    def length(self) -> int:
        return len(self.before) + self.size + len(self.after)

    def chunks(self) -> Iterator[bytes]:
        """The whole body from its beginning. Raises Refused when the file is not as long as it was."""
        yield self.before
        left = self.size
        with self.file.open("rb") as source:
            while left and (chunk := source.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk
        if left:
            raise Refused(f"{self.file.name} became shorter while it was sent")
        yield self.after


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read to its end."""

    status_code: int
    headers: http.client.HTTPMessage  # `get` takes a name in any case
    content: bytes
    url: str

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    @property
    def is_cut(self) -> bool:
        """Whether a document begins and does not end, in an answer that says that it is whole."""
        return self.content[:64].lstrip()[:1] == b"{" and self.content.rstrip(PADDING)[-1:] != b"}"

    def json(self) -> dict[str, Any]:
        """The document. Raises Malformed unless it is one JSON object.

        NaN and infinities are no JSON; firmware writes them where a sensor has no reading, so that they are read as absent, and so are
        integers of absurd length. Bytes that are no UTF-8 (parts' names come from EEPROMs) cost the text that they are in, and not the rest.
        """
        absent: list[str] = []

        def number(text: str) -> object:
            value = float(text)  # NaN, Infinity, and what is too large for a number, such as 1e999
            if math.isfinite(value):
                return value
            absent.append(text)
            return _NO_NUMBER

        def integer(text: str) -> object:
            return int(text) if len(text) <= DIGITS else number("inf")

        try:
            text = self.content.rstrip(PADDING).decode("utf-8-sig", errors="replace")
            document = json.loads(text, parse_constant=number, parse_float=number, parse_int=integer, strict=False)
            document = _present(document) if absent else document
        except (ValueError, RecursionError) as error:
            what = "an HTML page" if self.content.lstrip()[:1] == b"<" else "no JSON"
            raise Malformed(f"{self.url}: the answer ({self.status_code}) is {what}") from error
        if not isinstance(document, dict):
            raise Malformed(f"{self.url}: the answer is a JSON {type(document).__name__}, not an object")
        return document


_NO_NUMBER: Final = object()


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _present(one) for name, one in value.items() if one is not _NO_NUMBER}
    if isinstance(value, list):
        return [_present(one) for one in value if one is not _NO_NUMBER]
    return value


class Line:
    """One connection, kept alive between requests. Raises OSError or http.client's errors as they come: the door knows what they mean."""

    def __init__(self, origin: str, host: str, port: int, trust: Trust | None, limits: Limits) -> None:
        """`trust` None is plain HTTP."""
        self._origin = origin
        self._host = host
        self._port = port
        self._trust = trust
        self._limits = limits
        self._sock: socket.socket | None = None
        self._deadline = Deadline(0)
        self._patience_s = limits.read_s  # with one receive
        self.certificate_fp: str | None = None
        self.sent = False  # whether a byte of the present request went out

    def open(self, deadline: Deadline) -> bool:
        """Be connected. Returns whether the connection was kept from before; one that the other side has ended is replaced."""
        self._deadline = deadline
        if self._sock is not None:
            ended = select.poll()  # not select(): a daemon of a big site has more than 1024 files open
            ended.register(self._sock, select.POLLIN)
            if not ended.poll(0):
                return True
            self.close()
        sock = connect(self._host, self._port, self._limits, deadline)
        if self._trust is not None:
            budget = deadline.left(self._limits.connect_s + self._limits.read_s, self._origin)
            sock, self.certificate_fp = handshake(sock, self._host, self._port, self._trust, budget)
        self._sock = sock
        return False

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | Upload | None) -> Answer:
        """One request, one answer. An upload may be answered before all of it was taken; one that was cut short unanswered raises Busy."""
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.auto_open = 0
        connection.sock = _Sock(self)
        url = self._origin + path
        self.sent = False
        whole = True
        if isinstance(body, Upload):
            whole = self._upload(connection, method, path, headers, body)
        else:
            connection.request(method, path, body=body, headers=dict(headers))
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            if whole:
                raise
            raise Busy(f"{url}: the BMC hung up before it had the whole image, and says nothing") from error
        finally:
            self._patience_s = self._limits.read_s
        with response:
            content = _read(response, url)
            keep = whole and not response.will_close
            answer = Answer(response.status, response.headers, content, url)
        if not keep:
            self.close()
        return answer

    def _upload(
        self, connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str], body: Upload
    ) -> bool:
        """Whether all of it was taken. What has no whole body is not begun by the BMC: a stall raises Busy."""
        sized = {**headers, "Content-Length": str(body.length)}
        try:
            connection.request(method, path, body=self._going_on(body), headers=sized)
        except (TimeoutError, TimedOut) as error:
            raise Busy(f"{self._origin}{path}: the BMC stopped taking the image, or takes it too slowly") from error
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            return False  # it may have said why before it hung up
        self._patience_s = self._limits.total_s  # many check all of an image before they answer
        return True

    def _going_on(self, body: Upload) -> Iterator[bytes]:
        """Its chunks. Each that is taken moves the deadline, as far as a whole call may take, and up to what the slowest line needs for all."""
        last = Deadline(self._limits.total_s + body.length / SLOWEST)
        sent = 0
        for chunk in body.chunks():
            yield chunk
            sent += len(chunk)
            if sent == body.length:  # the BMC may begin: from here on it is an answer that is waited for
                self._deadline.extend(self._limits.total_s)
                return
            self._deadline.extend(last.left(self._limits.total_s, self._origin))
            if body.told is not None:
                body.told(sent / body.length)

    def another(self) -> Line:
        """One of its own to the same BMC, not connected."""
        return Line(self._origin, self._host, self._port, self._trust, self._limits)

    def stream(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """A GET whose answer is read by the caller, as it comes. The line is of no use for anything else afterwards."""
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.auto_open = 0
        connection.sock = _Sock(self)
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse()

    def listen(self, deadline: Deadline) -> None:
        """From now on a receive has the time until then, and not the wire's patience with one answer."""
        self._deadline, self._patience_s = deadline, math.inf

    def send(self, data: bytes) -> None:
        sock = self._open_socket()
        sock.settimeout(self._deadline.left(self._limits.read_s, self._origin))
        self.sent = True
        sock.sendall(data)

    def receive(self, buffer: Any) -> int:
        sock = self._open_socket()
        sock.settimeout(self._deadline.left(self._patience_s, self._origin))
        try:
            return sock.recv_into(buffer)
        except ssl.SSLEOFError:
            return 0  # many BMCs end TLS without saying so; the body's length tells whether it was whole

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def hang_up(self) -> None:
        """From any thread: the one that reads finds the end, and closes it."""
        sock = self._sock
        if sock is not None:
            with suppress(OSError):
                # not TLS's own: that one is used by the thread that reads
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _open_socket(self) -> socket.socket:
        if self._sock is None:
            raise ConnectionResetError("the line is closed")
        return self._sock


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := response.read(CHUNK):
        parts.append(part)
        size += len(part)
        if size > BODY_LIMIT:
            raise Malformed(f"{url}: the answer is longer than {BODY_LIMIT // 1024 // 1024} MiB")
    if response.length:
        raise ServerFault(f"{url}: the answer was cut short by {response.length} bytes")
    return _plain(b"".join(parts), response.headers.get("Content-Encoding") or "", url)


def _plain(content: bytes, encoding: str, url: str) -> bytes:
    """Decompressed, within the same limit, so that little on the wire cannot become much here."""
    name = encoding.strip().lower()
    if name in ("", "identity") or not content:
        return content
    if name not in COMPRESSED:
        raise Malformed(f"{url}: the answer is encoded as {name[:32]}, which nobody asked for")
    unpacking = zlib.decompressobj(COMPRESSED[name])
    try:
        plain = unpacking.decompress(content, BODY_LIMIT + 1)
    except zlib.error as error:
        raise Malformed(f"{url}: the answer says {name} and is none") from error
    if len(plain) > BODY_LIMIT:
        raise Malformed(f"{url}: the answer is longer than {BODY_LIMIT // 1024 // 1024} MiB")
    if not unpacking.eof:
        raise ServerFault(f"{url}: the compressed answer was cut short")
    return plain
