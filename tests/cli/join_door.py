"""The API of a site that machines join, behind a real TLS socket: what the command line asks is answered by the application itself."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from bcmetal.install.certificate import self_signed
from bcmetal.install.configuration import client_profile
from bcmetal.install.files import write_new
from cli.running import Ran, invoke
from join.site import OWNER, POOL, JoinSite


@dataclass(frozen=True)
class Door:
    """`cut_after`: how many calls are answered before the line is cut; None: all. `paths`: what was asked."""

    site: JoinSite
    folder: Path
    address: str
    paths: list[str]
    cut_after: list[int | None]

    def run(self, *words: str, stdin: str | None = None, who: str = "owner", pool: str = POOL) -> Ran:
        """`bcmetal --profile … WORDS`, with the key of one of the site's identities."""
        profile = str(self.folder / f"{who}.toml")
        return invoke("--profile", profile, "--pool", pool, *words, stdin=stdin)

    @property
    def pin(self) -> str:
        der = ssl.PEM_cert_to_DER_cert(self.site.authority.roots[0].strip())
        return f"sha256:{hashlib.sha256(der).hexdigest()}"


@contextmanager
def open_door(site: JoinSite, folder: Path) -> Iterator[Door]:
    pair = self_signed(["127.0.0.1"])
    write_new(folder / "api.crt", pair.certificate_pem, private=False)
    write_new(folder / "api.key", pair.key_pem, private=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.crt", folder / "api.key")
    paths: list[str] = []
    cut_after: list[int | None] = [None]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            paths.append(self.path)
            if cut_after[0] is not None:
                cut_after[0] -= 1
                if cut_after[0] < 0:
                    self.close_connection = True
                    return
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            answer = site.run(site.send(site.api, self.path, body, headers, method=self.command))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.raw)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    address = f"https://127.0.0.1:{server.server_address[1]}"
    for who, key in site.keys.items():
        write_new(folder / f"{who}.key", key + "\n", private=True)
        text = client_profile(address, pair.fingerprint, OWNER, POOL).replace("admin.key", f"{who}.key")
        write_new(folder / f"{who}.toml", text, private=False)
    try:
        yield Door(site, folder, address, paths, cut_after)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
