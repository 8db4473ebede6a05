"""Whom the agent sends its token to, and whom not: the fake control plane keeps every byte that it was sent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from agent_machine import Machine
from bcmetal.join import ca
from bcmetal_agent import client, trust, wire
from bcmetal_agent.bearer import Bearer
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import Client
from bcmetal_agent.join import Waiting
from bcmetal_agent.trust import Endpoint, Pin, Untrusted
from fake_control_plane import ControlPlane, a_token, micros, say


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[ControlPlane]:
    """Another control plane, of another root."""
    folder = tmp_path / "impostor"
    folder.mkdir()
    with ControlPlane(folder) as found:
        yield found


def refused(machine: Machine) -> str:
    with machine.state.locked(), pytest.raises(Untrusted) as caught:
        machine.agent().join()
    return str(caught.value)


def saw_the_token(plane: ControlPlane, machine: Machine) -> bool:
    secret = machine.token.partition(".")[2].encode()
    return any(secret in raw for raw in (b"".join(plane.received), *(call.body for call in plane.calls)))


def test_another_root_than_the_pinned_one_gets_no_token(
    plane: ControlPlane, impostor: ControlPlane, tmp_path: Path
) -> None:
    machine = Machine(impostor, tmp_path)
    machine_pin = Pin.parse(plane.pin)
    with machine.state.locked(), pytest.raises(Untrusted) as caught:
        machine.agent(pin=machine_pin).join()
    assert plane.pin in str(caught.value)
    assert impostor.pin in str(caught.value)
    assert impostor.received
    assert not saw_the_token(impostor, machine)
    assert {call.path for call in impostor.calls} == {wire.TRUST_BUNDLE_PATH}


def test_a_stranger_who_shows_the_pinned_root_gets_no_token(
    plane: ControlPlane, impostor: ControlPlane, tmp_path: Path
) -> None:
    """The root is public: anybody can hand it out, but not show a certificate that it vouches for."""
    impostor.bundle = plane.bundle
    machine = Machine(impostor, tmp_path)
    with machine.state.locked(), pytest.raises(Untrusted):
        machine.agent(pin=Pin.parse(plane.pin)).join()
    assert not saw_the_token(impostor, machine)


@pytest.mark.parametrize("kind", [ca.IssuerKind.NODE, ca.IssuerKind.NODE_TENANT])
def test_a_node_cannot_play_the_control_plane(plane: ControlPlane, tmp_path: Path, kind: ca.IssuerKind) -> None:
    plane.use_certificate(kind)
    machine = Machine(plane, tmp_path)
    refused(machine)
    assert not saw_the_token(plane, machine)


@pytest.mark.parametrize("kind", [ca.IssuerKind.NODE, ca.IssuerKind.NODE_TENANT])
def test_a_node_certificate_is_known_even_without_the_check_of_names(plane: ControlPlane, kind: ca.IssuerKind) -> None:
    """The chain holds, and no name is asked for: what is left is the issuer."""
    plane.use_certificate(kind)
    context = trust.verified(plane.root_pem)
    context.check_hostname = False
    bearer = Bearer(a_token())
    with pytest.raises(Untrusted, match="certificate of a node"):
        Client(Endpoint.parse(plane.url), context).join(b"{}", bearer)
    assert plane.received == []


def test_a_server_certificate_for_another_host_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    plane.use_certificate(ca.IssuerKind.SERVER, ("other.example", "192.0.2.1"))
    machine = Machine(plane, tmp_path)
    assert "certificate does not hold" in refused(machine)
    assert not saw_the_token(plane, machine)


def test_an_issuer_of_another_kind_under_the_same_root_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    """A company's CA may vouch for much else."""
    made = ca.make_issuer(ca.IssuerKind.SERVER, plane.root, micros(datetime.now(UTC)))
    other = ca.Issuer(made.kind, plane.root.certificate, (plane.root.certificate,), plane.root.key)
    key = ec.generate_private_key(ec.SECP256R1())
    now = micros(datetime.now(UTC))
    leaf = ca.issue_server_certificate(other, key.public_key(), ["127.0.0.1"], now, 1, 77)
    plane.use_files(leaf.chain, key)
    machine = Machine(plane, tmp_path)
    assert "issuer for servers" in refused(machine)
    assert not saw_the_token(plane, machine)


def test_a_redirect_is_not_followed(plane: ControlPlane, impostor: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [say(307, b"", ("Location", f"{impostor.url}{wire.JOIN_PATH}"))]
    with machine.state.locked():
        answer = machine.agent().join(once=True)
    assert isinstance(answer, Waiting)
    assert "never followed" in answer.reason
    assert impostor.received == []


def test_proxy_variables_are_not_read(
    plane: ControlPlane, impostor: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, impostor.url)
    Machine(plane, tmp_path).join()
    assert impostor.received == []


def test_a_bundle_without_roots_or_with_rubbish_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    bundles: tuple[tuple[str, ...], ...] = (
        (),
        ("rubbish",),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",),
    )
    for bundle in bundles:
        plane.bundle = bundle
        machine = Machine(plane, tmp_path / str(len(plane.received)))
        assert "no readable certificate" in refused(machine)


def test_the_pinned_root_is_found_among_others(plane: ControlPlane, impostor: ControlPlane, tmp_path: Path) -> None:
    plane.bundle = (impostor.root_pem, plane.root_pem)
    assert Machine(plane, tmp_path).join().trust() == impostor.root_pem + plane.root_pem


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:12", "md5:" + "0" * 64, "0" * 64, "sha256:" + "g" * 64])
def test_what_is_no_pin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a pin is sha256:"):
        Pin.parse(text)


def test_a_pin_may_be_written_as_openssl_prints_it(plane: ControlPlane) -> None:
    digits = plane.pin.partition(":")[2].upper()
    colons = ":".join(digits[n : n + 2] for n in range(0, 64, 2))
    assert Pin.parse(f"SHA256:{colons}") == Pin.parse(plane.pin)


@pytest.mark.parametrize(
    "url",
    [
        "http://h:1",
        "https://h",
        "https://u@h:1",
        "https://h:1/x",
        "https://h:1?x",
        "https://h\r\n:1",
        "https://.h:1",
        "h:1",
        "https://h:99999",
    ],
)
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Endpoint.parse(url)


# ---------------------------------------------------------------- time and size


def test_a_server_that_drips_bytes_gains_no_time(plane: ControlPlane) -> None:
    """Each byte comes in time, the answer never."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as door:

        def drip() -> None:
            plain, _ = door.accept()
            with plain, plane._context.wrap_socket(plain, server_side=True) as tls:
                tls.recv(4096)
                try:
                    while not ended.wait(0.05):
                        tls.sendall(b"H")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        server = Endpoint("127.0.0.1", door.getsockname()[1])
        answer = Client(server, trust.verified(plane.root_pem), 0.6).join(b"{}", None)
        took = time.monotonic() - began
        ended.set()
        thread.join(10)
    assert isinstance(answer, RetryLater)
    assert "did not answer" in answer.reason
    assert 0.5 < took < 3


def test_a_server_that_never_shakes_hands_gains_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = Endpoint("127.0.0.1", door.getsockname()[1])
        began = time.monotonic()
        answer = client.pinned_root(server, Pin("0" * 64), deadline_s=0.5)
        assert time.monotonic() - began < 3
    assert isinstance(answer, RetryLater)


def test_nobody_there_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = Endpoint("127.0.0.1", door.getsockname()[1])
    answer = client.pinned_root(server, Pin("0" * 64))
    assert isinstance(answer, RetryLater)
    assert "cannot reach" in answer.reason


def test_an_answer_past_its_bound_is_not_read(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [say(200, b" " * (wire.BODY_LIMIT + 1))]
    with machine.state.locked():
        answer = machine.agent().join(once=True)
    assert isinstance(answer, Waiting)
    assert "broke off" in answer.reason, "and not: read, and found to be no JSON"


def test_plain_http_on_the_port_is_waited_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:

        def speak() -> None:
            plain, _ = door.accept()
            with plain:
                plain.recv(4096)
                plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        answer = client.pinned_root(Endpoint("127.0.0.1", door.getsockname()[1]), Pin("0" * 64), deadline_s=5)
        thread.join(10)
    assert isinstance(answer, RetryLater)
    assert "TLS with" in answer.reason


def test_an_old_tls_is_not_spoken(plane: ControlPlane) -> None:
    import ssl

    context = trust.verified(plane.root_pem)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
