"""The one way to run a program: what it prints is bounded, its time too, and nothing of it outlives a task."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agent.task_doing import Kept
from bcmetal_agent.tasks.doing import Stopped
from bcmetal_agent.tasks.tools import ToolFailed, ToolMissing, ToolTimedOut, run


def a_program(folder: Path, script: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def is_gone(pid_file: Path, within_s: float = 5.0) -> bool:
    until = time.monotonic() + within_s
    pid = int(pid_file.read_text())
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_output_past_the_limit_is_left_out_and_said_so(tmp_path: Path) -> None:
    ran = run([a_program(tmp_path, "head -c 300000 /dev/zero; echo bad >&2")], deadline_s=20, limit=1000)
    assert (len(ran.out), ran.err, ran.cut) == (1000, b"bad\n", True)
    ran = run([a_program(tmp_path, "head -c 1000 /dev/zero")], deadline_s=20, limit=1000)
    assert (len(ran.out), ran.cut) == (1000, False)


def test_no_shell_looks_at_the_arguments(tmp_path: Path) -> None:
    ran = run([a_program(tmp_path, 'printf "%s|" "$@"'), "$(id)", "a; b", "*"], deadline_s=20)
    assert ran.text == "$(id)|a; b|*|"


def test_input_that_the_program_does_not_read_is_no_fault(tmp_path: Path) -> None:
    assert run([a_program(tmp_path, "cat")], deadline_s=20, stdin=b"x" * 300_000).out == b"x" * 300_000
    assert run([a_program(tmp_path, "exec <&-; echo done")], deadline_s=20, stdin=b"x" * 300_000).out == b"done\n"


def test_an_unexpected_code_tells_the_programs_last_words(tmp_path: Path) -> None:
    program = a_program(tmp_path, "echo first >&2; echo why >&2; exit 3")
    with pytest.raises(ToolFailed, match=r"ended with 3: why$") as failed:
        run([program], deadline_s=20)
    assert failed.value.ran.code == 3
    assert run([program], deadline_s=20, expect=(0, 3)).code == 3


def test_a_program_that_is_not_there_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCMETAL_AGENT_PATH", str(tmp_path))
    for name in ("sh", str(tmp_path / "none")):
        with pytest.raises(ToolMissing):
            run([name], deadline_s=20)


@pytest.mark.parametrize("then", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60"])
def test_a_program_that_does_not_end_is_killed(tmp_path: Path, then: str) -> None:
    with pytest.raises(ToolTimedOut):
        run([a_program(tmp_path, f"echo $$ >{tmp_path}/pid; {then}")], deadline_s=0.5)
    assert is_gone(tmp_path / "pid")


def test_what_a_program_left_at_its_output_is_killed_with_it(tmp_path: Path) -> None:
    with pytest.raises(ToolTimedOut):
        run([a_program(tmp_path, f"sleep 60 & echo $! >{tmp_path}/pid; exit 0")], deadline_s=0.5)
    assert is_gone(tmp_path / "pid")


def test_a_stop_kills_the_program(tmp_path: Path) -> None:
    class Stopping(Kept):
        def check(self) -> None:
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
                raise Stopped

    with pytest.raises(Stopped):
        run([a_program(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 60")], deadline_s=20, doing=Stopping())
    assert is_gone(tmp_path / "pid")


def test_a_program_sees_neither_the_agents_environment_nor_its_folder(tmp_path: Path) -> None:
    said = run([a_program(tmp_path, "env; pwd")], deadline_s=20).text
    assert not {"VIRTUAL_ENV", "USER", "PYTEST_CURRENT_TEST"} & {line.partition("=")[0] for line in said.splitlines()}
    assert said.splitlines()[-1] == "/"
    assert "PYTEST_CURRENT_TEST" in os.environ
