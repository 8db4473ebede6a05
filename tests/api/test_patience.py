"""Connections that ask for nothing, never come to an end of it, or say too much first."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from bcmetal.patience import HEADER_LIMIT, PatientHttpTools

SOON_S = 1.0
LATE_S = 10.0
MANY = 5
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


class Hasty(PatientHttpTools):
    asked_within_s = SOON_S
    at_most_waiting = MANY


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body's length; `/early` before the body is there."""
    request = Request(scope, receive)
    length = -1 if scope["path"] == "/early" else len(await request.body())
    await PlainTextResponse(str(length))(scope, receive, send)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, http=Hasty, ws="none", lifespan="off", log_config=None, access_log=False)
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [handle]})
        thread.start()
        end = time.monotonic() + LATE_S
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.01)
        yield handle.getsockname()[1]
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=LATE_S) as line:
        yield line


def is_cut(line: socket.socket) -> bool:
    """Within LATE_S; else TimeoutError."""
    try:
        return line.recv(4096) == b""
    except ConnectionResetError:
        return True


def asked(line: socket.socket, path: str = "/", body: bytes = b"abc") -> bytes:
    line.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    return answer(line)


def dripping(line: socket.socket, first: bytes, each_s: float) -> None:
    """Raises ConnectionError once the other side is gone: what the kernel takes nobody may have read."""
    line.sendall(first)
    end = time.monotonic() + LATE_S
    while time.monotonic() < end:
        time.sleep(each_s)
        line.sendall(b"y")


def answer(line: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got or not got.partition(b"\r\n\r\n")[2]:
        chunk = line.recv(4096)
        assert chunk, got
        got += chunk
    return got.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("said", [b"", b"P", HEAD + b"Content-Length: 9\r\n\r\nabc"], ids=["nothing", "P", "half"])
def test_who_does_not_finish_is_cut(port: int, said: bytes) -> None:
    with connected(port) as line:
        line.sendall(said)
        assert is_cut(line)


def test_who_drips_is_cut_all_the_same(port: int) -> None:
    with connected(port) as line, pytest.raises(ConnectionError):
        dripping(line, HEAD + b"X-A: ", SOON_S / 10)


def test_who_was_answered_may_ask_again_and_is_cut_when_he_does_not(port: int) -> None:
    with connected(port) as line:
        for _ in range(4):
            assert asked(line) == b"3"
            time.sleep(SOON_S / 4)
        assert is_cut(line)


def test_what_was_answered_before_it_was_whole_is_waited_for_as_long(port: int) -> None:
    with connected(port) as line:
        line.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        assert answer(line) == b"-1"
        line.sendall(b"abc")
        assert asked(line) == b"3"
        assert is_cut(line)


@pytest.mark.parametrize(
    "said",
    [
        HEAD + b"X-A: " + b"y" * 2**23,
        HEAD + (b"X-A: " + b"y" * 999 + b"\r\n") * 2**13,
        b"\r\n" * 2**22,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + (b"X-A: " + b"y" * 999 + b"\r\n") * 2**13,
    ],
    ids=["one header", "many headers", "no request", "trailers"],
)
def test_who_says_too_much_before_he_asks_is_cut_soon(port: int, said: bytes) -> None:
    began = time.monotonic()
    with connected(port) as line, pytest.raises(ConnectionError):
        dripping(line, said, SOON_S / 50)
    assert time.monotonic() - began < SOON_S


def test_a_body_is_no_head(port: int) -> None:
    with connected(port) as line:
        size = 16 * HEADER_LIMIT
        assert asked(line, body=b"y" * size) == str(size).encode()


def test_of_many_that_ask_nothing_the_oldest_makes_room(port: int) -> None:
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connected(port)) for _ in range(MANY + 1)]
        began = time.monotonic()
        assert is_cut(lines[0])
        assert time.monotonic() - began < SOON_S / 2
        assert asked(lines[-1]) == b"3"
