"""A deployed machine's first start: it joins by what its config drive says, and never needs the drive again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_machine import Machine
from bcmetal_agent.config_drive import ConfigDrive
from bcmetal_agent.join import NotConfigured
from bcmetal_agent.state import StateFolder
from fake_control_plane import NODE_ID, ControlPlane


def a_drive(plane: ControlPlane, machine: Machine, folder: Path) -> Path:
    (folder / "bcmetal").mkdir(parents=True)
    doc = {"server": plane.url, "nodeServer": plane.node_url, "ca": plane.pin, "later": {"more": 1}}
    (folder / "bcmetal/join.json").write_text(json.dumps(doc))
    (folder / "bcmetal/token").write_text(machine.token + "\n")
    return folder


def run_until(true: Callable[[], bool], drive: Path, state: Path) -> str:
    """`run` until it is so; what it said."""
    command = [sys.executable, "-m", "bcmetal_agent", "run", "--config-drive", str(drive), "--state-dir", str(state)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"PATH": os.defpath}) as process:
        end_s = time.monotonic() + 20
        while not true() and process.poll() is None:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    return said


def test_it_joins_by_the_drive_and_goes_on_without_it(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path / "machine")
    drive, state = a_drive(plane, machine, tmp_path / "drive"), tmp_path / "state"
    joined = StateFolder(state)
    said = run_until(lambda: joined.status().doing.startswith("joined as"), drive, state)
    assert f"joined as {NODE_ID}" in said
    assert plane.calls[-1].authorization == f"Bearer {machine.token}"
    assert machine.token.partition(".")[2] not in said
    calls = len(plane.calls)
    (drive / "bcmetal/token").unlink()
    (drive / "bcmetal/join.json").write_text("")
    (state / "status.json").unlink()
    assert "joined as" in run_until((state / "status.json").exists, drive, state)
    assert len(plane.calls) == calls


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"server": 1}', '{"server": "http://a:1", "nodeServer": "https://a:1", "ca": "sha256:00"}'],
)
def test_a_drive_that_does_not_say_whom_to_join_is_told_of(text: str, tmp_path: Path) -> None:
    (tmp_path / "bcmetal").mkdir()
    (tmp_path / "bcmetal/join.json").write_text(text)
    with pytest.raises(NotConfigured, match=r"join\.json"):
        ConfigDrive.read(tmp_path)


def test_no_drive_is_told_of_by_its_path(tmp_path: Path) -> None:
    state = tmp_path / "state"
    said = run_until(lambda: False, tmp_path / "none", state)
    assert f"does not say whom to join: {tmp_path}/none/bcmetal/join.json: No such file" in said
