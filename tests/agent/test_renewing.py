from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from agent_machine import Machine
from bcmetal.join import ca
from bcmetal_agent import keys, wire
from bcmetal_agent.run import SecretsPlan, write_secrets
from bcmetal_agent.state import Identity
from fake_control_plane import Answer, Call, ControlPlane, a_root, admit, defer, lose, refuse, say

DAY = 24 * 3600


def renew(plane: ControlPlane, call: Call) -> Answer:
    return plane.renew(call)


def current(machine: Machine) -> Identity:
    found = machine.state.current()
    assert found is not None
    return found


def renewals(plane: ControlPlane) -> list[Call]:
    return [call for call in plane.calls if call.path == wire.RENEW_PATH]


def test_a_certificate_is_renewed_from_half_of_its_life(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    old_key, peer = old.key(), ssl.PEM_cert_to_DER_cert(keys.pem(keys.split_pem(old.chain())[0]))
    machine.run_for(DAY / 2 - 60)
    assert renewals(plane) == []
    machine.run_for(3600)
    (call,) = renewals(plane)
    assert call.peer is not None
    assert call.peer == peer
    assert current(machine).key() != old_key
    assert not old.folder.exists()


def test_the_jitter_of_a_renewal_stays_within_a_tenth_of_what_is_left(plane: ControlPlane, tmp_path: Path) -> None:
    for n, draw in enumerate((0.0, 0.25, 0.999)):
        machine = Machine(plane, tmp_path / str(n))
        with machine.state.locked():
            agent = machine.agent()
            assert agent.joiner is not None
            agent.joiner.random = lambda draw=draw: draw  # type: ignore[misc]
            identity = agent.join()
        assert isinstance(identity, Identity)
        after = identity.not_after - timedelta(seconds=DAY / 2)
        late = (identity.renew_at - after).total_seconds()
        assert abs(late - draw * DAY / 20) <= 2


def test_an_overdue_renewal_is_the_first_thing_after_a_start(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.join()
    machine.clock.ahead = timedelta(hours=20)
    machine.run_for(0)
    assert len(renewals(plane)) == 1


def test_a_renewal_whose_answer_is_lost_asks_again_with_the_same_key(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.join()
    machine.clock.ahead = timedelta(hours=20)
    plane.next_renewals = [lose(renew), say(503), say(429, b"{}", ("Retry-After", "5"))]
    machine.run_for(60)
    assert len(renewals(plane)) == 4
    assert len({call.body for call in renewals(plane)}) == 1
    assert not plane.cloned
    assert not (machine.state.path / "next.json").exists()


def test_past_its_end_the_old_key_vouches_over_the_join_listener(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    machine.clock.ahead = timedelta(days=5)
    machine.run_for(0)
    (call,) = renewals(plane)
    assert call.peer is None
    assert call.authorization == ""
    assert current(machine).name != old.name


def test_a_server_that_calls_the_certificate_expired_is_believed(plane: ControlPlane, tmp_path: Path) -> None:
    """This machine's clock is two days slow."""
    machine = Machine(plane, tmp_path)
    issue_now = plane.issue_at
    plane.issue_at = lambda: issue_now() - timedelta(days=2)
    old = machine.join()
    plane.issue_at = issue_now
    machine.clock.ahead = timedelta(days=-2, hours=20)
    machine.run_for(0)
    (call,) = renewals(plane)
    assert call.peer is None
    assert current(machine).name != old.name


def test_a_deferred_renewal_keeps_its_key_until_somebody_approves(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    machine.clock.ahead = timedelta(days=40)
    plane.next_renewals = [defer, defer]
    machine.run_for(10)
    assert current(machine).name == old.name
    assert machine.state.status().request_id == "jr_" + "0" * 26
    machine.run_for(60)
    csrs = {wire.decode(wire.Renew, call.body).csr for call in renewals(plane)}
    assert len(csrs) == 1
    assert current(machine).name != old.name


def test_a_refused_renewal_keeps_the_identity_and_is_not_hammered(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    machine.clock.ahead = timedelta(hours=20)
    plane.next_renewals = [refuse(403, "PERMISSION_DENIED", "no")] * 100
    machine.run_for(3600)
    assert 2 <= len(renewals(plane)) <= 4
    assert current(machine).name == old.name
    assert "refused (403" in machine.state.status().last_error


def test_a_control_plane_with_a_node_certificate_renews_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    plane.use_certificate(ca.IssuerKind.NODE)
    for ahead in (timedelta(hours=20), timedelta(days=3)):
        machine.clock.ahead = ahead
        machine.run_for(0)
    assert renewals(plane) == []
    assert current(machine).name == old.name


def test_after_joining_the_kept_roots_count_and_not_what_anybody_shows(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.join()
    folder = tmp_path / "impostor"
    folder.mkdir()
    with ControlPlane(folder) as impostor:
        other = Machine(impostor, tmp_path / "other")
        other.state = machine.state
        other.clock.ahead = timedelta(hours=20)
        other.run_for(0)
        assert impostor.received == []


def test_a_new_root_comes_only_over_a_connection_that_an_old_one_vouches_for(
    plane: ControlPlane, tmp_path: Path
) -> None:
    machine = Machine(plane, tmp_path)
    assert machine.join().trust() == plane.root_pem
    plane.bundle = (a_root("Successor"), plane.root_pem)
    machine.clock.ahead = timedelta(hours=20)
    machine.run_for(0)
    assert current(machine).trust() == "".join(plane.bundle)


def test_the_pin_vouches_where_the_root_changed_while_the_machine_was_off(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    folder = tmp_path / "successor"
    folder.mkdir()
    with ControlPlane(folder) as successor:
        after = Machine(successor, tmp_path / "after")  # its join line has the new pin
        after.state = machine.state
        after.clock.ahead = timedelta(days=5)
        after.run_for(0)
        assert len(renewals(successor)) == 1
    assert current(machine).name != old.name


@pytest.mark.parametrize("hours", [20, 30, 24 * 400])
def test_with_a_clock_far_ahead_renewals_do_not_chase_each_other(
    plane: ControlPlane, tmp_path: Path, hours: int
) -> None:
    machine = Machine(plane, tmp_path)
    machine.join()
    machine.clock.ahead = timedelta(hours=hours)
    machine.run_for(DAY / 6)
    assert len(renewals(plane)) == 1


def test_with_a_clock_far_behind_a_renewal_still_comes_in_time(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.clock.ahead = timedelta(days=-3)
    machine.run_for(DAY * 0.6)
    assert len(renewals(plane)) == 1


# ---------------------------------------------------------------- platform secrets


def test_secrets_are_fetched_after_the_join_and_after_each_renewal(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    value = keys.key_pem(keys.new_key())
    plane.platform_secrets = {"site-key": value, "other": "not asked for"}
    plan = SecretsPlan(("site-key",), tmp_path / "secrets")
    machine.run_for(0, secrets=plan)
    file = plan.folder / "site-key"
    assert file.read_text() == value
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in plan.folder.iterdir()] == ["site-key"]
    plane.platform_secrets = {"site-key": "newer"}
    machine.run_for(DAY * 0.6, secrets=plan)
    assert file.read_text() == "newer"


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "unasked", ""])
def test_a_secret_that_was_not_asked_for_becomes_no_file(tmp_path: Path, name: str) -> None:
    plan = SecretsPlan(("site-key",), tmp_path / "deep/secrets")
    write_secrets(plan, {name: "x"})
    assert list((tmp_path / "deep").rglob("*")) == [plan.folder]


def test_secrets_that_are_refused_do_not_stop_renewals(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.run_for(0, secrets=SecretsPlan(("a",), tmp_path / "secrets"))
    plane.next_joins = [admit]
    machine.run_for(DAY * 0.6, secrets=SecretsPlan(("a",), tmp_path / "secrets"))
    assert len(renewals(plane)) == 1


def test_a_node_is_heard_from_more_often_than_it_counts_as_running(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    machine.join()
    before = len(alive(plane))
    machine.run_for(1800)
    heard = alive(plane)[before:]
    assert 1800 / 240 - 1 <= len(heard) <= 1800 / 180
    assert all(call.peer is not None for call in heard)


def alive(plane: ControlPlane) -> list[Call]:
    """Calls for the trust bundle with a node's certificate."""
    return [call for call in plane.calls if call.path == wire.TRUST_BUNDLE_PATH and call.peer is not None]
