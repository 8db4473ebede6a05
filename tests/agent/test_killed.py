"""kill -9 at every moment: whatever was on its way, a restart ends with one admitted key that fits its certificate."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agent_killer
from agent_machine import Machine
from bcmetal_agent import keys
from bcmetal_agent.state import Identity
from fake_control_plane import ControlPlane, a_token

HOURS = 3600


class Lives:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def live(self, machine: Machine, verb: str, *, kill_at: int = 0, ahead_s: int = 0) -> int:
        """The exit status of one life of the agent; -9 when it was killed."""
        order: dict[str, Any] = {
            "url": machine.plane.url,
            "nodeUrl": machine.plane.node_url,
            "pin": machine.plane.pin,
            "folder": str(machine.folder),
            "token": machine.token,
            "verb": verb,
            "killAt": kill_at,
            "aheadS": ahead_s,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    here = str(Path(agent_killer.__file__).parent)
    with subprocess.Popen(
        [sys.executable, agent_killer.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PYTHONPATH": here, "PATH": "/usr/bin:/bin"},
    ) as process:
        yield Lives(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def fitting(machine: Machine) -> Identity:
    """The current identity, whose key is its certificate's."""
    found = machine.state.current()
    assert found is not None
    leaf = keys.facts(keys.split_pem(found.chain())[0])
    assert leaf.spki == keys.public_der(keys.read_key(found.key()))
    assert found.trust()
    return found


def left_behind(machine: Machine) -> set[str]:
    """Names of whatever is neither the current identity nor for people."""
    found = machine.state.current()
    assert found is not None
    kept = {"current", "identities", "lock", "status.json", f"identities/{found.name}"}
    paths = {str(path.relative_to(machine.state.path)) for path in machine.state.path.rglob("*")}
    return {path for path in paths if path not in kept and not path.startswith(f"identities/{found.name}/")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_any_moment_of_a_join_the_machine_joins_once(
    lives: Lives, plane: ControlPlane, tmp_path: Path
) -> None:
    token, kill_at, killed = a_token(), 0, True
    while killed:
        kill_at += 1
        plane.admitted.clear()
        machine = Machine(plane, tmp_path / str(kill_at), token)
        killed = lives.live(machine, "join", kill_at=kill_at) == -signal.SIGKILL
        before = machine.state.current()
        assert lives.live(machine, "join") == 0, f"after a kill at {kill_at}"
        after = fitting(machine)
        assert before is None or before.name == after.name
        assert len(plane.admitted) == 1, f"another key joined after a kill at {kill_at}"
        assert left_behind(machine) == set()
        shutil.rmtree(machine.folder)
    assert kill_at > 40  # it was killed at that many moments


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_any_moment_of_a_renewal_the_machine_keeps_or_renews_its_identity(
    lives: Lives, plane: ControlPlane, tmp_path: Path
) -> None:
    joined = Machine(plane, tmp_path / "joined")
    assert lives.live(joined, "join") == 0
    old = fitting(joined)
    kill_at, killed = 0, True
    while killed:
        kill_at += 1
        plane.renewed.clear()
        machine = Machine(plane, tmp_path / str(kill_at), joined.token)
        shutil.copytree(joined.state.path, machine.state.path, symlinks=True)
        killed = lives.live(machine, "run", kill_at=kill_at, ahead_s=20 * HOURS) == -signal.SIGKILL
        between = fitting(machine)
        assert lives.live(machine, "run", ahead_s=20 * HOURS if between.name == old.name else 0) == 0
        assert fitting(machine).name != old.name
        assert not plane.cloned, f"a second key asked after a kill at {kill_at}"
        assert len(plane.renewed) == 1
        assert left_behind(machine) == set()
        shutil.rmtree(machine.folder)
    assert kill_at > 40
