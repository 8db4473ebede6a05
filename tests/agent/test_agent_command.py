"""The command line, each time as a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import bcmetal_agent
from agent_machine import Machine
from bcmetal_agent import wire
from fake_control_plane import NODE_ID, Answer, Call, ControlPlane, defer, refuse, say


def start(machine: Machine, arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bcmetal_agent", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def call(machine: Machine, *arguments: str, typed: str = "", **environment: str) -> tuple[int, str, str]:
    with start(machine, list(arguments), **environment) as process:
        out, err = process.communicate(typed, timeout=60)
    return process.returncode, out, err


def test_join_prints_the_node_and_where_its_certificate_lies(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    code, out, err = call(machine, *machine.arguments("join", "--wait"))
    assert code == 0, err
    assert f"joined as {NODE_ID}" in out
    assert f"certificate: {machine.state.path / 'current/chain.pem'}" in out
    code, out, _ = call(machine, *machine.arguments("join", "--json"))
    doc = json.loads(out)
    assert (code, doc["joined"], doc["nodeId"]) == (0, True, NODE_ID)
    assert Path(doc["key"]).exists()


def test_the_token_may_come_from_a_credential_or_standard_input(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    machine.token_file.rename(credentials / "join-token")
    arguments = [one.replace(str(machine.token_file), "credential:join-token") for one in machine.arguments("join")]
    code, _, err = call(machine, *arguments)
    assert (code, "not started by systemd" in err) == (1, True)
    assert call(machine, *arguments, CREDENTIALS_DIRECTORY=str(credentials))[0] == 0
    other = Machine(plane, tmp_path / "other")
    arguments = [one.replace(str(other.token_file), "-") for one in other.arguments("join")]
    assert call(other, *arguments, typed=other.token)[0] == 0
    assert plane.calls[-1].authorization == f"Bearer {other.token}"


def test_the_bearer_is_in_no_output_and_in_no_file_but_its_own(plane: ControlPlane, tmp_path: Path) -> None:
    """Not even where the server says it back."""
    machine = Machine(plane, tmp_path / "machine")

    def echo(plane: ControlPlane, call: Call) -> Answer:
        return refuse(503, call.authorization, f"you sent {call.authorization}")(plane, call)

    def echo_a_refusal(plane: ControlPlane, call: Call) -> Answer:
        return refuse(403, "NO", f"you sent {call.authorization} {machine.token.partition('.')[2]}")(plane, call)

    def echo_a_field(plane: ControlPlane, call: Call) -> Answer:
        return Answer(200, json.dumps({"status": "deferred", call.authorization.partition(".")[2]: 1}).encode())

    said = ""
    plane.next_joins = [echo, echo_a_field, echo_a_refusal]
    for _ in range(3):
        code, out, err = call(machine, *machine.arguments("join", "--once", "--json"))
        assert code in (3, 4)
        said += out + err
    said += "".join(call(machine, *machine.arguments("join", "--once"))[1:])
    said += "".join(call(machine, "status", "--state-dir", str(machine.state.path))[1:])
    secret = machine.token.partition(".")[2]
    assert "(the secret)" in said or "(the token)" in said
    assert secret not in said
    files = [path for path in machine.folder.rglob("*") if path.is_file() and path != machine.token_file]
    assert len(files) >= 6
    assert [path for path in files if secret in path.read_text()] == []


def test_exit_codes_tell_what_to_do(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [refuse(403, "PERMISSION_DENIED", "no"), defer]
    assert call(machine, *machine.arguments("join"))[0] == 3
    code, out, _ = call(machine, *machine.arguments("join", "--once", "--json"))
    assert (code, json.loads(out)["requestId"]) == (4, "jr_" + "0" * 26)
    wrong = [one.replace(plane.pin, "sha256:" + "0" * 64) for one in machine.arguments("join")]
    assert call(machine, *wrong)[0] == 5
    assert call(machine, "join", "--state-dir", str(machine.state.path))[0] == 2
    machine.token_file.unlink()
    assert call(machine, *machine.arguments("join"))[0] == 1


@pytest.mark.parametrize(
    "text", ["", "hunter2", "bcjt_x", "bcjt_a.b\r\nX-Header: 1", "bcjt_a.b c", "bcjt_" + "a" * 2000 + ".b", "\udc80"]
)
def test_what_is_no_token_is_neither_sent_nor_shown(plane: ControlPlane, tmp_path: Path, text: str) -> None:
    machine = Machine(plane, tmp_path)
    machine.token_file.write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out, err = call(machine, *machine.arguments("join"))
    assert code == 1
    assert not text or text not in out + err
    assert plane.calls == []


def test_the_token_cannot_be_given_on_the_command_line(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    for option in ("--token", "--token-file"):
        code, out, err = call(machine, *machine.arguments("join", option, machine.token))
        assert code == 2
        assert "revoke it" in err
        assert machine.token not in out + err
    assert plane.calls == []


def test_status_tells_whether_and_until_when(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    where = ["--state-dir", str(machine.state.path)]
    assert call(machine, "status", *where) == (4, "joined: no\n", "")
    machine.join()
    code, out, _ = call(machine, "status", "--json", *where)
    doc = json.loads(out)
    assert (code, doc["joined"], doc["expired"], doc["nodeId"]) == (0, True, False, NODE_ID)
    assert (doc["server"], doc["nodeServer"]) == (plane.url, plane.node_url)
    assert datetime.fromisoformat(doc["renewAt"]) < datetime.fromisoformat(doc["notAfter"])
    assert doc["last"]["doing"] == f"joined as {NODE_ID}"


def test_status_tells_of_a_certificate_past_its_end(plane: ControlPlane, tmp_path: Path) -> None:
    plane.issue_at = lambda: datetime.now(UTC) - timedelta(days=2)
    machine = Machine(plane, tmp_path)
    machine.join()
    code, out, _ = call(machine, "status", "--state-dir", str(machine.state.path))
    assert code == 6
    assert "past its end" in out


def test_two_agents_do_not_share_a_folder(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    with machine.state.locked():
        code, _, err = call(machine, *machine.arguments("join"))
    assert code == 1
    assert "another bcmetal-agent works in" in err


# ---------------------------------------------------------------- run, under something like systemd


class Systemd:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.bind(str(self.path))

    def hear(self, wanted: str, within_s: float = 30.0) -> bool:
        """Whether a message that begins so comes in time."""
        end = time.monotonic() + within_s
        while (left := end - time.monotonic()) > 0 and select.select([self.door], [], [], left)[0]:
            if self.door.recv(4096).decode().startswith(wanted):
                return True
        return False


def ended(process: subprocess.Popen[str]) -> tuple[int, float, str]:
    """Exit code, how long it took, and what it said."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    return process.returncode, time.monotonic() - began, err


def test_run_joins_renews_what_is_due_and_ends_on_sigterm(plane: ControlPlane, tmp_path: Path) -> None:
    plane.issue_at = lambda: datetime.now(UTC) - timedelta(hours=20)
    machine = Machine(plane, tmp_path)
    machine.join()
    plane.issue_at = lambda: datetime.now(UTC)
    plane.platform_secrets = {"site-key": "value"}
    systemd = Systemd(tmp_path)
    more = ["--secrets", "site-key", "--secrets-dir", str(tmp_path / "secrets")]
    environment = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "400000"}
    with systemd.door, start(machine, machine.arguments("run", *more), **environment) as process:
        assert systemd.hear("READY=1")
        assert systemd.hear(f"STATUS=renewed as {NODE_ID}")
        assert systemd.hear("WATCHDOG=1")
        assert systemd.hear("WATCHDOG=1")
        code, took_s, err = ended(process)
        assert systemd.hear("STOPPING=1")
    assert code == 0, err
    assert took_s < 5
    assert (tmp_path / "secrets/site-key").read_text() == "value"
    assert machine.token not in err


def test_run_ends_on_sigterm_while_it_waits_for_approval(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer] * 10
    systemd = Systemd(tmp_path)
    with systemd.door, start(machine, machine.arguments("run"), NOTIFY_SOCKET=str(systemd.path)) as process:
        assert systemd.hear("STATUS=waits for approval")
        code, took_s, _ = ended(process)
    assert code == 0
    assert took_s < 5
    assert machine.state.attempt("join") is not None


def test_run_goes_on_from_what_it_knows_without_any_join_option(plane: ControlPlane, tmp_path: Path) -> None:
    plane.issue_at = lambda: datetime.now(UTC) - timedelta(hours=20)
    machine = Machine(plane, tmp_path)
    machine.join()
    plane.issue_at = lambda: datetime.now(UTC)
    systemd = Systemd(tmp_path)
    arguments = ["run", "--state-dir", str(machine.state.path)]
    with systemd.door, start(machine, arguments, NOTIFY_SOCKET=str(systemd.path)) as process:
        assert systemd.hear(f"STATUS=renewed as {NODE_ID}")
        assert ended(process)[0] == 0
    assert [one.path for one in plane.calls].count(wire.RENEW_PATH) == 1


def test_run_gives_up_where_the_join_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [say(401, b"{}")]
    assert call(machine, *machine.arguments("run"))[0] == 3


def test_a_refused_join_is_told_where_its_reason_stands(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    plane.next_joins = [refuse(403, "PERMISSION_DENIED", "The join is refused.")]
    code, _, err = call(machine, *machine.arguments("join", "--once"))
    assert code == 3
    assert "the daemon's log says why" in err
    assert "--anew" in err


def test_help_names_every_exit_code(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    for verb in ("join", "run", "status"):
        code, out, _ = call(machine, verb, "--help")
        assert code == 0
        assert "exit codes:" in out
        assert "--state-dir" in out


def test_the_installed_command_is_the_same() -> None:
    command = Path(sys.executable).parent / "bcmetal-agent"
    if not command.exists():
        pytest.skip("installed before it had a command")
    said = subprocess.run([command, "--help"], capture_output=True, text=True, check=True, env={**os.environ})
    assert "Joins this machine to its pool" in said.stdout


# ---------------------------------------------------------------- the oldest Python and cryptography that it runs on

DEBIAN = Path("/usr/bin/python3")
SOURCES = Path(bcmetal_agent.__file__).parent.parent


def of_debian_12() -> bool:
    asks = "import cryptography, sys; sys.exit(not cryptography.__version__.startswith('38.'))"
    return DEBIAN.exists() and subprocess.run([DEBIAN, "-c", asks], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not of_debian_12(), reason="needs Debian 12's python3-cryptography 38")
def test_it_runs_on_debian_12_without_a_warning(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCES)}
    command = [str(DEBIAN), "-W", "error", "-m", "bcmetal_agent"]
    plane.issue_at = lambda: datetime.now(UTC) - timedelta(hours=20)
    arguments = [*command, *machine.arguments("join")]
    joined = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (joined.returncode, joined.stderr.count("\n")) == (0, 1), joined.stderr
    plane.issue_at = lambda: datetime.now(UTC)
    systemd = Systemd(tmp_path)
    running = [*command, "run", "--state-dir", str(machine.state.path)]
    environment["NOTIFY_SOCKET"] = str(systemd.path)
    with systemd.door, subprocess.Popen(running, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert systemd.hear(f"STATUS=renewed as {NODE_ID}")
        assert ended(process)[0] == 0
