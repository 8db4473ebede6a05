"""An image server of the tests' own, on loopback, that misbehaves as a page tells it."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Page = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin
    timeout = 20

    def do_GET(self) -> None:
        self.close_connection = True
        self.server.asked.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
        self.server.pages[self.path.partition("?")[0]](self)

    def head(self, status: int, **fields: str | int) -> None:
        self.send_response(status)
        for name, text in fields.items():
            self.send_header(name.replace("_", "-"), str(text))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Origin(ThreadingHTTPServer):
    """`pages` by path; `asked` is what came in: path and header fields in lower case."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__((address, 0), Exchange)
        self.address = address
        self.context = context
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.over = threading.Event()

    def get_request(self) -> tuple[socket.socket, Any]:
        line, peer = super().get_request()
        self.connections += 1
        if self.context is not None:
            line.settimeout(5)
            return self.context.wrap_socket(line, server_side=True), peer
        return line, peer

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up here on purpose."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str, host: str | None = None) -> str:
        return f"{'https' if self.context else 'http'}://{host or self.address}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def an_origin(address: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> Iterator[Origin]:
    with Origin(address, context) as origin:
        thread = threading.Thread(target=origin.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield origin
        finally:
            origin.over.set()
            origin.shutdown()
            thread.join()


def a_file(body: bytes, etag: str = '"one"') -> Page:
    """Served as a good server does, ranges and If-Range included."""

    def page(x: Exchange) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", x.headers.get("Range", ""))
        start = int(found[1]) if found else 0
        if found and x.headers.get("If-Range", etag) == etag:
            if start >= len(body):
                x.head(416, Content_Range=f"bytes */{len(body)}", Content_Length=0)
                return
            there = f"bytes {start}-{len(body) - 1}/{len(body)}"
            x.head(206, Content_Range=there, Content_Length=len(body) - start, ETag=etag)
            x.wfile.write(body[start:])
        else:
            x.head(200, Content_Length=len(body), ETag=etag)
            x.wfile.write(body)

    return page


def cut_after(count: int, body: bytes, etag: str | None = '"one"') -> Page:
    """Promises the whole and hangs up after `count` bytes."""

    def page(x: Exchange) -> None:
        x.head(200, Content_Length=len(body), **({"ETag": etag} if etag else {}))
        x.wfile.write(body[:count])

    return page


def held(body: bytes, first: int, gate: threading.Event) -> Page:
    """Sends `first` bytes at once and the rest when the gate opens, or nothing more when the test is over."""

    def page(x: Exchange) -> None:
        x.head(200, Content_Length=len(body), ETag='"one"')
        x.wfile.write(body[:first])
        x.wfile.flush()
        while not gate.wait(0.02):
            if x.server.over.is_set():
                return
        x.wfile.write(body[first:])

    return page


def redirect(location: str, status: int = 302) -> Page:
    return lambda x: x.head(status, Location=location, Content_Length=0)


def status(code: int) -> Page:
    return lambda x: x.head(code, Content_Length=0)


def raw(text: bytes) -> Page:
    def page(x: Exchange) -> None:
        x.wfile.write(text)

    return page


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def sha512(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest()


def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Waits for something that another thread does."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)
