from __future__ import annotations

import dataclasses
import json
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from agent_machine import UUID, Machine
from bcmetal_agent import keys, wire
from bcmetal_agent.join import Denied, NotConfigured, Waiting
from bcmetal_agent.state import Identity
from fake_control_plane import NODE_ID, Answer, Call, ControlPlane, Turn, a_root, admit, defer, lose, refuse, say


def test_a_machine_joins_with_its_token(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    identity = machine.join()
    assert identity.admission.node_id == NODE_ID
    leaf = keys.facts(keys.split_pem(identity.chain())[0])
    assert leaf.spki == keys.public_der(keys.read_key(identity.key()))
    (call,) = [call for call in plane.calls if call.path == wire.JOIN_PATH]
    assert call.authorization == f"Bearer {machine.token}"
    message = wire.decode(wire.Join, call.body)
    assert (message.identifiers.product_uuid, message.identifiers.serial) == (UUID, "SN-4711")
    assert message.identifiers.macs == ("3c:ec:ef:00:11:22",)
    assert (message.tenant_id, message.pool_id, message.attestor) == (None, None, "token")


def test_the_identity_serves_a_stock_tls_client(plane: ControlPlane, tmp_path: Path) -> None:
    Machine(plane, tmp_path).join()
    current = tmp_path / "state/current"
    context = ssl.create_default_context(cafile=str(current / "trust.pem"))
    context.load_cert_chain(current / "chain.pem", current / "key.pem")
    assert context.cert_store_stats()["x509_ca"] == 1


def test_everything_in_the_folder_is_for_its_owner_alone(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    before = os.umask(0)
    try:
        machine.join()
    finally:
        os.umask(before)
    assert machine.state.path.stat().st_mode & 0o777 == 0o700
    files = [path for path in machine.state.path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_machine_that_has_joined_asks_no_more(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    first = machine.join()
    calls = len(plane.calls)
    machine.token_file.unlink()
    assert machine.join().name == first.name
    assert len(plane.calls) == calls


def test_the_key_is_on_the_disk_before_the_first_call(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    seen = []

    def look(plane: ControlPlane, call: Call) -> Answer:
        seen.append(json.loads((machine.state.path / "join.json").read_text()))
        assert seen[-1]["message"].encode() == call.body
        return plane.admit(call)

    plane.next_joins = [look]
    identity = machine.join()
    assert seen[0]["key"] == identity.key()
    assert not (machine.state.path / "join.json").exists()


def test_a_lost_answer_is_asked_for_with_the_very_same_message(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [lose(admit), lose(admit)]
    machine.join()
    bodies = {call.body for call in plane.calls if call.path == wire.JOIN_PATH}
    assert len(plane.requests) == 3
    assert len(bodies) == 1
    assert len(plane.admitted) == 1


def test_the_same_message_is_sent_after_a_restart_even_where_the_hardware_changed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer]
    with machine.state.locked():
        assert isinstance(machine.agent().join(once=True), Waiting)
    (machine.root / "sys/class/dmi/id/product_serial").write_text("another")
    machine.join()
    assert len({call.body for call in plane.calls if call.path == wire.JOIN_PATH}) == 1


def test_a_deferred_machine_waits_as_long_as_it_is_told(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer, defer]
    machine.join()
    assert machine.clock.slept == [7 + 0.5 * 7 / 4] * 2
    assert machine.state.status().request_id == ""


def test_once_tells_what_it_waits_for(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer]
    with machine.state.locked():
        answer = machine.agent().join(once=True)
    assert isinstance(answer, Waiting)
    assert answer.request_id == "jr_" + "0" * 26
    assert machine.clock.slept == []
    assert machine.state.status().request_id == answer.request_id


def test_a_retry_after_is_kept_to(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [say(429, b"{}", ("Retry-After", "40"))]
    machine.join()
    assert machine.clock.slept == [45.0]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 302])
def test_passing_trouble_is_waited_out(plane: ControlPlane, tmp_path: Path, status: int) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [say(status), say(status)]
    machine.join()
    assert machine.clock.slept == [0.5, 1.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
def test_a_refusal_is_final_and_says_why(plane: ControlPlane, tmp_path: Path, status: int) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [refuse(status, "SOME_CODE", "not\x1b[31m this one")]
    with machine.state.locked(), pytest.raises(Denied) as caught:
        machine.agent().join()
    assert str(caught.value) == f"the control plane refused ({status} SOME_CODE): not [31m this one"
    assert machine.state.status().last_error == str(caught.value)
    assert machine.clock.slept == []


def test_a_new_token_goes_with_the_old_message(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [refuse(401, "UNAUTHENTICATED", "no")]
    with machine.state.locked(), pytest.raises(Denied):
        machine.agent().join()
    machine.join()
    first, second = plane.requests
    assert first == second


def test_anew_makes_a_new_key_and_keeps_the_identity_until_it_is_replaced(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    plane.next_joins = [defer]
    with machine.state.locked():
        assert isinstance(machine.agent().join(once=True, anew=True), Waiting)
        current = machine.state.current()
        assert current is not None
        assert current.name == old.name
    new = machine.join()  # continues the one that was begun
    assert new.name != old.name
    one, two, three = plane.requests
    assert one != two == three
    assert [path.name for path in (machine.state.path / "identities").iterdir()] == [new.name]


def test_without_a_token_tenant_and_pool_are_named(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    with machine.state.locked(), pytest.raises(NotConfigured):
        machine.agent(token=None, attestor="discovery").join()
    machine.join(token=None, attestor="discovery", tenant="tenant-a", pool="pl_1")
    (call,) = [call for call in plane.calls if call.path == wire.JOIN_PATH]
    message = wire.decode(wire.Join, call.body)
    assert (message.tenant_id, message.pool_id, message.attestor) == ("tenant-a", "pl_1", "discovery")
    assert call.authorization == ""


def test_another_attestor_keeps_the_key_that_was_begun_with(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer]
    with machine.state.locked():
        machine.agent().join(once=True)
    machine.join(attestor="discovery")
    one, two = plane.requests
    assert one == two


def other_key(plane: ControlPlane, call: Call) -> Answer:
    return Answer(200, wire.encode(plane.admission(keys.request_pem(keys.new_key()))))


def other_root(plane: ControlPlane, call: Call) -> Answer:
    admitted = plane.admission(wire.decode(wire.Join, call.body).csr)
    return Answer(200, wire.encode(dataclasses.replace(admitted, trust_bundle=a_root("Stranger"))))


def other_node(plane: ControlPlane, call: Call) -> Answer:
    admitted = plane.admission(wire.decode(wire.Join, call.body).csr)
    return Answer(200, wire.encode(dataclasses.replace(admitted, node_id="nd_" + "z" * 26)))


def a_leaf_as_root(plane: ControlPlane, call: Call) -> Answer:
    admitted = plane.admission(wire.decode(wire.Join, call.body).csr)
    return Answer(200, wire.encode(dataclasses.replace(admitted, trust_bundle=admitted.certificate)))


@pytest.mark.parametrize("turn", [other_key, other_root, other_node, a_leaf_as_root])
def test_an_admission_that_does_not_fit_is_not_kept(plane: ControlPlane, tmp_path: Path, turn: Turn) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [turn]
    with machine.state.locked():
        answer = machine.agent().join(once=True)
        assert isinstance(answer, Waiting)
        assert "cannot be used" in answer.reason
        assert machine.state.current() is None
        assert isinstance(machine.agent().join(once=True), Identity)


def test_a_clock_that_is_off_is_told(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.said_time = lambda: machine.clock.now() - timedelta(seconds=300)
    machine.join()
    assert 295 <= machine.state.status().clock_skew_s <= 305
