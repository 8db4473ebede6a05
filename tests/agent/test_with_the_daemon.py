"""The agent and the daemon, both as they are: real processes, real TLS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from agent_machine import Machine
from bcmetal_agent.join import Denied, Waiting
from bcmetal_agent.run import SecretsPlan
from bcmetal_agent.state import Identity
from e2e.test_joining import Running, serving

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class There:
    url: str
    node_url: str
    pin: str


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Running]:
    folder = tmp_path / "daemon"
    folder.mkdir()
    yield from serving(folder, f"sqlite:///{folder / 'db'}")


def a_machine(daemon: Running, folder: Path, bearer: str) -> Machine:
    there = There(f"https://127.0.0.1:{daemon.agent_port}", f"https://127.0.0.1:{daemon.node_port}", daemon.pin)
    return Machine(there, folder, bearer)


def current(machine: Machine) -> Identity:
    found = machine.state.current()
    assert found is not None
    return found


def test_a_machine_joins_renews_in_time_and_late_and_gets_its_secrets(daemon: Running, tmp_path: Path) -> None:
    machine = a_machine(daemon, tmp_path / "machine", daemon.token())
    joined = machine.join()
    nodes = daemon.api("nodes/list")["nodes"]
    assert [node["nodeId"] for node in nodes] == [joined.admission.node_id]
    machine.clock.ahead = timedelta(hours=20)
    machine.run_for(0, secrets=SecretsPlan(("registry",), tmp_path / "secrets"))
    renewed = current(machine)
    assert renewed.name != joined.name
    assert (tmp_path / "secrets/registry").read_text() == daemon.registry
    machine.clock.ahead = timedelta(days=3)  # past its end by this machine's clock: the old key signs
    machine.run_for(0)
    assert current(machine).name != renewed.name
    assert current(machine).admission.node_id == joined.admission.node_id
    assert machine.state.status().last_error == ""


def test_a_deferred_machine_joins_once_somebody_approves(daemon: Running, tmp_path: Path) -> None:
    machine = a_machine(daemon, tmp_path / "machine", daemon.token())
    (machine.root / "sys/class/dmi/id/product_uuid").write_text("03000200-0400-0500-0006-000700080009\n")
    with machine.state.locked():
        answer = machine.agent().join(once=True)
    assert isinstance(answer, Waiting)
    daemon.api("joinRequests/approve", requestId=answer.request_id)
    joined = machine.join()
    assert daemon.api("joinRequests/get", requestId=answer.request_id)["nodeId"] == joined.admission.node_id


def test_an_evicted_node_keeps_asking_slowly_and_joins_anew_when_told(daemon: Running, tmp_path: Path) -> None:
    machine = a_machine(daemon, tmp_path / "machine", daemon.token())
    joined = machine.join()
    daemon.api("nodes/evict", nodeId=joined.admission.node_id, reason="test")
    machine.clock.ahead = timedelta(hours=20)
    machine.run_for(0)
    assert current(machine).name == joined.name
    assert "refused (401" in machine.state.status().last_error
    again = a_machine(daemon, machine.folder, daemon.token())
    again.token_file.write_text(again.token)
    with again.state.locked():
        answer = again.agent().join(anew=True)
    assert isinstance(answer, Identity)
    assert answer.name != joined.name


def test_a_token_that_is_used_up_or_wrong_is_refused(daemon: Running, tmp_path: Path) -> None:
    bearer = daemon.token()
    a_machine(daemon, tmp_path / "first", bearer).join()
    other = a_machine(daemon, tmp_path / "second", bearer)
    (other.root / "sys/class/dmi/id/product_uuid").write_text("7c0f1a52-6a3e-4c1b-8a57-0d8f6a1b2c3e\n")
    with other.state.locked(), pytest.raises(Denied) as caught:
        other.agent().join()
    assert caught.value.answer.status == 401
