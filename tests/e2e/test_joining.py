"""Machines join a running daemon: real processes, real TLS, both databases; OpenSSL as the witness that is not ours."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import secrets
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr

from bcmetal.client import Client, Profile
from bcmetal.install.ca import init_ca
from bcmetal.install.certificate import self_signed
from bcmetal.install.files import write_new
from bcmetal.install.local import first_key
from bcmetal.join.ca import pem_of, pin_of
from bcmetal.vault import new_key
from bcmetal_agent.wire import JOIN_PATH, SECRETS_PATH
from e2e.mortal_site import MortalDaemon
from join.site import Box, a_box

pytestmark = pytest.mark.slow

LISTENERS: Final = re.compile(r"machines join at https://127\.0\.0\.1:(\d+), nodes renew at https://127\.0\.0\.1:(\d+)")
CLIENTS: Final = 64
USES: Final = 10
CLOSED_WITHIN_S: Final = 10.0

CONFIG: Final = """
[daemon]
database = "{database}"
api_listen = "127.0.0.1:0"
agent_listen = "127.0.0.1:0"
node_listen = "127.0.0.1:0"
media_listen = "127.0.0.1:0"
tls_cert = "{folder}/api.crt"
tls_key = "file:{folder}/tls.key"
vault_key = "file:{folder}/vault.key"
image_folder = "{folder}/images"

[sites.site-a]
owner = "platform"

[sites.site-a.secrets]
registry = "file:{folder}/registry"

[profiles.commission.std]
erase = "none"

[profiles.release.std]
erase = "none"

[pools.metal]
owner = "platform"
site = "site-a"
agent = "bcd"
commission = "std"
release = "std"

[[grants]]
to = "key:admin"
role = "admin"
on = "compute-pool/metal"
"""


@dataclass(frozen=True, slots=True)
class Running:
    folder: Path
    daemon: MortalDaemon
    client: Client
    agent_port: int
    node_port: int
    root: Path  # PEM
    pin: str
    registry: str

    def api(self, path: str, **body: Any) -> dict[str, Any]:
        place = {"tenantId": "platform", "poolId": "metal"}
        group, _, method = path.partition("/")
        return dict(self.client.call(group, method, {**place, **body}))

    def token(self, **more: Any) -> str:
        body = {"ttlSeconds": 600, "idempotencyKey": secrets.token_hex(8), **more}
        return str(self.api("joinTokens/create", **body)["token"])

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.root))

    def join(self, bearer: str, box: Box, context: ssl.SSLContext) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"csr": box.csr, "identifiers": box.says()})
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", self.agent_port, context=context)) as line:
            line.request("POST", JOIN_PATH, body, headers)
            answer = line.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    database = f"sqlite:///{tmp_path / 'db'}"
    if request.param == "postgresql":
        database = request.getfixturevalue("postgres_url")
    yield from serving(tmp_path, database)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Running]:
    yield from serving(tmp_path, f"sqlite:///{tmp_path / 'db'}")


def serving(folder: Path, database: str) -> Iterator[Running]:
    new_key(folder / "vault.key")
    pair = self_signed(["127.0.0.1"])
    registry = secrets.token_urlsafe(16)
    write_new(folder / "api.crt", pair.certificate_pem, private=False)
    write_new(folder / "tls.key", pair.key_pem, private=True)
    write_new(folder / "registry", registry + "\n", private=True)
    config = folder / "bcmetal.toml"
    write_new(config, CONFIG.format(folder=folder, database=database), private=False)
    key = first_key(config, "admin", "platform")
    write_new(folder / "admin.key", key.get_secret_value() + "\n", private=True)
    installed = init_ca(config, "test", folder / "root.key.pem", SecretStr(secrets.token_urlsafe(16)))
    write_new(folder / "root.pem", pem_of([installed.root]), private=False)
    log = folder / "daemon.log"
    daemon = MortalDaemon(config, log)
    daemon.start()
    try:
        ports = LISTENERS.search(log.read_text(encoding="utf-8"))
        assert ports is not None, daemon.last_words()
        profile = Profile(daemon.address, folder / "admin.key", pair.fingerprint, None, "platform", "metal")
        pin = pin_of(installed.root)
        with contextlib.closing(Client(profile)) as client:
            yield Running(folder, daemon, client, int(ports[1]), int(ports[2]), folder / "root.pem", pin, registry)
    finally:
        assert daemon.stop() == 0, daemon.last_words()


def test_sixty_four_machines_race_for_ten_uses(running: Running) -> None:
    bearer = running.token(maxUses=USES)
    boxes = [a_box(n) for n in range(CLIENTS)]
    context = running.trusting()
    gate = threading.Barrier(CLIENTS)

    def one(box: Box) -> int:
        gate.wait()
        return running.join(bearer, box, context)[0]

    with ThreadPoolExecutor(CLIENTS) as pool:
        statuses = sorted(pool.map(one, boxes))
    assert statuses == [200] * USES + [401] * (CLIENTS - USES), running.daemon.last_words()
    assert len(running.api("nodes/list")["nodes"]) == USES
    (token,) = running.api("joinTokens/list", includeInactive=True)["tokens"]
    assert (token["uses"], token["reserved"]) == (USES, 0)


def machine_tree(folder: Path, box: Box) -> Path:
    """What the kernel would show of a machine."""
    dmi = folder / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_uuid").write_text(f"{box.uuid}\n")
    (dmi / "product_serial").write_text(f"{box.serial}\n")
    (folder / "sys/class/net").mkdir(parents=True)
    return folder


def agent(running: Running, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bcmetal_agent", *words, "--state-dir", str(folder / "state")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def joined_agent(running: Running, folder: Path, bearer: str) -> Path:
    """Where an agent's chain and key are after it joined."""
    folder.mkdir()
    token = folder / "token"
    write_new(token, bearer + "\n", private=True)
    tree = machine_tree(folder / "root", a_box(7))
    servers = ["--server", f"https://127.0.0.1:{running.agent_port}", "--node-server"]
    servers += [f"https://127.0.0.1:{running.node_port}", "--ca", running.pin]
    done = agent(running, folder, "join", *servers, "--token-file", str(token), "--root", str(tree), "--once")
    assert done.returncode == 0, (done.stdout, done.stderr, running.daemon.last_words())
    assert bearer not in done.stdout + done.stderr
    return folder / "state/current"


def test_an_agent_joins_and_openssl_talks_with_its_certificate(on_sqlite: Running, tmp_path: Path) -> None:
    files = joined_agent(on_sqlite, tmp_path / "machine", on_sqlite.token(expect={"serial": a_box(7).serial}))
    status = json.loads(agent(on_sqlite, tmp_path / "machine", "status", "--json").stdout)
    assert status["joined"] is True
    (node,) = on_sqlite.api("nodes/list")["nodes"]
    assert node["nodeId"] == status["nodeId"]
    ask = "GET /api/compute/trustBundle HTTP/1.1\r\nHost: bcmetal\r\nConnection: close\r\n\r\n"
    command = ["openssl", "s_client", "-quiet", "-verify_return_error", "-CAfile", str(on_sqlite.root)]
    command += ["-connect", f"127.0.0.1:{on_sqlite.node_port}", "-verify_ip", "127.0.0.1"]
    shown = ["-cert", str(files / "chain.pem"), "-cert_chain", str(files / "chain.pem")]
    shown += ["-key", str(files / "key.pem"), "-ign_eof"]
    talked = subprocess.run([*command, *shown], input=ask, capture_output=True, text=True, timeout=30, check=False)
    assert "HTTP/1.1 200" in talked.stdout, (talked.stdout, talked.stderr)
    without = subprocess.run([*command, "-ign_eof"], input=ask, capture_output=True, text=True, timeout=30, check=False)
    assert "HTTP/1.1" not in without.stdout
    leaf = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", str(files / "chain.pem")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    assert f"URI:spiffe://bcmetal/node/{node['nodeId']}" in leaf
    assert "X509v3 Subject Alternative Name: critical" in leaf
    assert "TLS Web Client Authentication, TLS Web Server Authentication" in leaf
    assert "CA:FALSE" in leaf


def test_a_revoked_certificate_is_refused_and_what_it_has_open_is_closed(on_sqlite: Running, tmp_path: Path) -> None:
    files = joined_agent(on_sqlite, tmp_path / "machine", on_sqlite.token())
    context = on_sqlite.trusting()
    context.load_cert_chain(files / "chain.pem", files / "key.pem")
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", on_sqlite.node_port, context=context, timeout=10)
    ) as line:
        line.request("POST", SECRETS_PATH, "{}", headers)
        answer = line.getresponse()
        given = json.loads(answer.read())
        assert (answer.status, given) == (200, {"secrets": [{"name": "registry", "value": on_sqlite.registry}]})
        (node,) = on_sqlite.api("nodes/list")["nodes"]
        evicted = on_sqlite.api("nodes/evict", nodeId=node["nodeId"])
        assert evicted["rotate"] == ["registry"]
        assert line.sock is not None
        line.sock.settimeout(CLOSED_WITHIN_S)
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            assert line.sock.recv(1) == b""
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", on_sqlite.node_port, context=context, timeout=10)
    ) as line:
        line.request("POST", SECRETS_PATH, "{}", headers)
        assert line.getresponse().status == 401


def test_the_servers_certificates_are_of_their_own_issuer(on_sqlite: Running) -> None:
    command = ["openssl", "s_client", "-verify_return_error", "-CAfile", str(on_sqlite.root), "-showcerts"]
    command += ["-connect", f"127.0.0.1:{on_sqlite.agent_port}", "-verify_ip", "127.0.0.1"]
    seen = subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False)
    assert "Verify return code: 0 (ok)" in seen.stdout, (seen.stdout, seen.stderr)
    assert "OU = bcmetal server" in seen.stdout


def test_the_bearer_stands_nowhere(on_sqlite: Running, tmp_path: Path) -> None:
    bearer = on_sqlite.token()
    secret = bearer.rpartition(".")[2]
    joined_agent(on_sqlite, tmp_path / "machine", bearer)
    on_sqlite.join(bearer, a_box(2), on_sqlite.trusting())
    with contextlib.suppress(http.client.HTTPException, OSError):
        context = on_sqlite.trusting()
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", on_sqlite.agent_port, context=context)
        ) as line:
            line.request("POST", f"{JOIN_PATH}?token={bearer}", "{", {"Authorization": f"Bearer {bearer}"})
            assert secret not in line.getresponse().read().decode()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not on_sqlite.daemon.last_words():
        time.sleep(0.05)
    assert secret.encode() not in (on_sqlite.folder / "daemon.log").read_bytes()
    with contextlib.closing(sqlite3.connect(on_sqlite.folder / "db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for file in on_sqlite.folder.glob("db*"):
        assert secret.encode() not in file.read_bytes(), file.name
    assert on_sqlite.daemon.alive()


def test_without_an_authority_nobody_joins_and_the_daemon_says_so(tmp_path: Path) -> None:
    new_key(tmp_path / "vault.key")
    pair = self_signed(["127.0.0.1"])
    write_new(tmp_path / "api.crt", pair.certificate_pem, private=False)
    write_new(tmp_path / "tls.key", pair.key_pem, private=True)
    write_new(tmp_path / "registry", "x\n", private=True)
    config = tmp_path / "bcmetal.toml"
    write_new(config, CONFIG.format(folder=tmp_path, database=f"sqlite:///{tmp_path / 'db'}"), private=False)
    first_key(config, "admin", "platform")
    daemon = MortalDaemon(config, tmp_path / "daemon.log")
    daemon.start()
    try:
        assert "no machine can join yet" in daemon.last_words()
        init_ca(config, "test", tmp_path / "root.key.pem", SecretStr(secrets.token_urlsafe(16)))
        deadline = time.monotonic() + 20
        while (ports := LISTENERS.search((tmp_path / "daemon.log").read_text())) is None:
            assert time.monotonic() < deadline, daemon.last_words()
            time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", int(ports[1])), timeout=5):
            pass
    finally:
        assert daemon.stop() == 0
