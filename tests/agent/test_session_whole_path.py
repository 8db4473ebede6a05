"""The agent in the ramdisk as its own process, against a door that speaks the wire."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.ramdisk_door import Door, a_task


@contextmanager
def an_agent(door: Door, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """With programs `poweroff` and `reboot` that write down that they were called."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("poweroff", "reboot"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/called\n')
        program.chmod(0o700)
    options = ["--site-file", str(door.site_file(tmp_path)), "--token-file", str(door.token_file(tmp_path))]
    command = [sys.executable, "-m", "bcmetal_agent", "ramdisk", *options, "--run-dir", str(tmp_path / "run")]
    with (tmp_path / "console").open("ab") as console:
        process = subprocess.Popen(
            command, stdout=console, stderr=console, env={**os.environ, "BCMETAL_AGENT_PATH": str(programs)}
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["poweroff", "reboot"])
def test_the_machine_goes_only_once_the_daemon_has_heard_of_it(kind: str, door: Door, tmp_path: Path) -> None:
    task = a_task(kind)
    called = tmp_path / "called"
    there: list[bool] = []
    door.faults["/api/agent/report"] = [lambda call: there.append(called.exists())] * 4
    door.tasks.append(task)
    with an_agent(door, tmp_path) as process:
        door.wait_for(lambda: door.ended(task["taskId"]))
        assert not any(there)
        door.wait_for(called.exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert called.read_text().strip() == kind


def test_an_agent_that_is_killed_and_started_again_keeps_its_session(door: Door, tmp_path: Path) -> None:
    with an_agent(door, tmp_path) as process:
        door.wait_for(lambda: bool(door.number))
        process.kill()
        process.wait(10)
    before = door.number
    task = a_task("setBoot", {"disk": {"serial": "X", "sizeBytes": 1}, "surprise": 1})
    door.tasks.append(task)
    with an_agent(door, tmp_path):
        door.wait_for(lambda: door.ended(task["taskId"]))
    assert door.number > before
    assert len({hello.public_key for hello in door.hellos}) == 1 < len(door.hellos)
    last = door.told[task["taskId"]].last
    assert last is not None
    assert (last.error_code, last.error_message) == ("bad-params", "the task's surprise: is not known here")


def test_a_task_that_this_agent_does_not_know_fails_and_the_next_one_is_done(door: Door, tmp_path: Path) -> None:
    unknown, known = a_task("brewCoffee"), a_task("poweroff")
    door.tasks += [unknown, known]
    with an_agent(door, tmp_path):
        door.wait_for(lambda: door.ended(known["taskId"]))
    last = door.told[unknown["taskId"]].last
    assert last is not None
    assert last.error_code == "unknown-task"
    assert door.told[known["taskId"]].states[-1] == "done"


def test_a_secret_of_a_task_or_the_token_is_never_on_the_console(door: Door, tmp_path: Path) -> None:
    task = a_task("rescue", {"sshKeys": ["ssh-rsa A" + "B" * 40], "unknown": door.token})
    door.tasks.append(task)
    with an_agent(door, tmp_path):
        door.wait_for(lambda: "task rescue failed" in (tmp_path / "console").read_text())
    console = (tmp_path / "console").read_text()
    assert door.token.partition(".")[2] not in console
    assert "BBBB" not in console
