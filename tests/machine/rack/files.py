"""A small file server on the tests' network: media for BMCs, scripts for iPXE, images for the daemon."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was answered."""

    path: str
    client: str
    status: int


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], files: Mapping[str, Path | str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.files = files
        self.asked: list[Asked] = []
        self.news = threading.Condition()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        path = unquote(self.path)
        what = self.server.files.get(path)
        self.send_response(404 if what is None else 200)
        if isinstance(what, Path):
            with what.open("rb") as file:
                self.send_header("Content-Length", str(what.stat().st_size))
                self.end_headers()
                shutil.copyfileobj(file, self.wfile, 1 << 18)
        else:
            body = (what or "").encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        with self.server.news:
            self.server.asked.append(Asked(path, str(self.client_address[0]), 404 if what is None else 200))
            self.server.news.notify_all()

    def log_message(self, format: str, *args: Any) -> None:
        """Kept in `asked`."""


class FileServer:
    """Files, or texts, by path; made inside the wire, at an address there."""

    def __init__(self, address: str, files: Mapping[str, Path | str]) -> None:
        self._server = _Server((address, 0), files)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}"

    @property
    def asked(self) -> list[Asked]:
        return list(self._server.asked)

    def wait_for(self, path: str, timeout_s: float) -> Asked:
        """The first answer to that path. Raises AssertionError when nobody asks for it."""
        with self._server.news:
            self._server.news.wait_for(lambda: any(one.path == path for one in self._server.asked), timeout_s)
            found = next((one for one in self._server.asked if one.path == path), None)
        assert found is not None, f"nobody asked for {path} within {timeout_s:.0f} s, but for {self._server.asked}"
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)
