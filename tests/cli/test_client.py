"""The pinned client, against a small TLS server of the test's own."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bcmetal.client import ApiError, Client, Profile, ProfileFault, Unreachable, load_profile, normal_fingerprint
from bcmetal.install.certificate import self_signed


class Peer:
    """Answers with what `answers` holds, in turn (the last one for ever); None cuts the line. Keeps what it was asked."""

    def __init__(self, folder: Path) -> None:
        pair = self_signed(["127.0.0.1"])
        (folder / "peer.crt").write_text(pair.certificate_pem)
        (folder / "peer.key").write_text(pair.key_pem)
        self.fingerprint = pair.fingerprint
        self.answers: list[tuple[int, str, dict[str, str]] | None] = [(200, "{}", {})]
        self.asked: list[tuple[str, dict[str, object], str]] = []
        self.accepted = 0
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                peer.asked.append((self.path, body, self.headers["Authorization"]))
                answer = peer.answers.pop(0) if len(peer.answers) > 1 else peer.answers[0]
                if answer is None:
                    self.close_connection = True
                    return
                status, text, headers = answer
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                return None

        class Server(ThreadingHTTPServer):
            def get_request(self) -> tuple[ssl.SSLSocket, object]:
                peer.accepted += 1
                raw, address = super().get_request()
                return context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False), address

            def handle_error(self, request: object, client_address: object) -> None:
                return None  # a client that refuses our certificate hangs up: that is what is tested

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "peer.crt", folder / "peer.key")
        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        if not self.thread.is_alive():
            return
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    running = Peer(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(32) + "\n")
    return path


@pytest.fixture
def profile(peer: Peer, key_file: Path) -> Profile:
    return Profile(f"https://127.0.0.1:{peer.server.server_address[1]}", key_file, peer.fingerprint)


def test_one_connection_serves_many_calls(peer: Peer, profile: Profile) -> None:
    with Client(profile) as client:
        for _ in range(3):
            assert client.call("metal", "list", {"tenantId": "t"}) == {}
    assert peer.accepted == 1
    assert peer.asked[0][0] == "/api/compute/metal/list"


def test_the_key_is_not_sent_to_another_certificate(peer: Peer, profile: Profile, key_file: Path) -> None:
    wrong = Profile(profile.address, key_file, "0" * 64)
    with Client(wrong) as client, pytest.raises(Unreachable, match="another certificate"):
        client.call("metal", "list", {})
    assert peer.asked == []


def test_a_ca_can_stand_in_for_the_pin(peer: Peer, profile: Profile, key_file: Path, tmp_path: Path) -> None:
    by_ca = Profile(profile.address, key_file, ca_file=tmp_path / "peer.crt")
    with Client(by_ca) as client:
        assert client.call("metal", "list", {}) == {}


def test_a_kept_line_that_was_cut_is_dialled_again_with_the_same_key(peer: Peer, profile: Profile) -> None:
    peer.answers = [(200, "{}", {}), None, (200, '{"state": "inspecting"}', {})]
    with Client(profile) as client:
        client.call("metal", "list", {})
        assert client.mutate("metal", "inspect", {"nodeId": "n"}) == {"state": "inspecting"}
    first, second = peer.asked[1][1], peer.asked[2][1]
    assert first["idempotencyKey"] == second["idempotencyKey"]


def test_an_error_keeps_its_code_and_every_fault(peer: Peer, profile: Profile) -> None:
    faults = [{"field": "bmc.address", "message": "is no address"}, {"field": "name", "message": "is too long"}]
    error = {"code": "INVALID_INPUT", "message": "2 faults", "details": {"faults": faults}, "traceId": "t1"}
    peer.answers = [(400, json.dumps({"error": error}), {})]
    with Client(profile) as client, pytest.raises(ApiError) as refused:
        client.mutate("metal", "enroll", {})
    assert refused.value.code == "INVALID_INPUT"
    assert list(refused.value.faults) == faults


def test_a_busy_daemon_is_asked_again_after_the_time_that_it_names(peer: Peer, profile: Profile) -> None:
    busy = json.dumps({"error": {"code": "UNAVAILABLE", "message": "starting", "details": {}, "traceId": "t"}})
    peer.answers = [(503, busy, {"Retry-After": "0"}), (200, "{}", {})]
    with Client(profile) as client:
        assert client.call("metal", "list", {}) == {}
    assert len(peer.asked) == 2


def test_something_that_is_no_api_is_named_as_such(peer: Peer, profile: Profile) -> None:
    peer.answers = [(200, "<html>", {})]
    with Client(profile) as client, pytest.raises(Unreachable, match="not in JSON"):
        client.call("metal", "list", {})


@pytest.mark.parametrize("arrived", ["", '{"state": "insp'])
def test_an_answer_that_was_cut_short_is_no_answer(peer: Peer, profile: Profile, arrived: str) -> None:
    """A daemon that dies while it answers: its status line came, its body did not."""
    whole = '{"state": "inspecting"}'
    peer.answers = [(200, arrived, {"Content-Length": str(len(whole)), "Connection": "close"})]
    with Client(profile) as client, pytest.raises(Unreachable, match="no daemon at"):
        client.mutate("metal", "inspect", {"nodeId": "n"})
    peer.answers = [(200, "{}", {}), *peer.answers, (200, whole, {})]
    with Client(profile) as client:
        client.call("metal", "list", {})
        assert client.mutate("metal", "inspect", {"nodeId": "n"}) == {"state": "inspecting"}


def test_nobody_at_the_address_is_said(peer: Peer, profile: Profile) -> None:
    peer.stop()
    with Client(profile) as client, pytest.raises(Unreachable, match=r"no daemon at .*start it with `bcmetal serve`"):
        client.call("metal", "list", {})


def test_a_key_that_others_can_read_is_refused(profile: Profile, key_file: Path) -> None:
    key_file.chmod(0o644)
    with pytest.raises(ProfileFault, match="chmod 600"):
        Client(profile)


def test_a_profile_that_is_not_there_is_said_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ProfileFault, match=r"client profile .*none\.toml: No such file or directory; `bcmetal init`"):
        load_profile(tmp_path / "none.toml")


def test_all_faults_of_a_profile_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('adress = "x"\npool = 3\n')
    with pytest.raises(ProfileFault) as refused:
        load_profile(path)
    for part in ("adress", "pool", "address", "key_file", "fingerprint or ca_file"):
        assert part in str(refused.value)


@pytest.mark.parametrize("text", ["ab" * 32, "AB:" * 31 + "AB", "sha256:" + "ab" * 32])
def test_fingerprints_of_all_spellings_are_one(text: str) -> None:
    assert normal_fingerprint(text) == "ab" * 32


@pytest.mark.parametrize("text", ["", "ab" * 31, "zz" * 32])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(ProfileFault):
        normal_fingerprint(text)
