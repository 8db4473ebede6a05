"""Powering off and rebooting, with programs that only write down that they were called."""

from __future__ import annotations

from pathlib import Path

import pytest

from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.power import act


class Off(BaseException):
    """The machine is off: whatever the agent would do next, it does not."""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("poweroff", "reboot"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/called\n')
        program.chmod(0o700)
    monkeypatch.setenv("BCMETAL_AGENT_PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "called"


@pytest.mark.parametrize("kind", ["poweroff", "reboot"])
def test_init_is_asked_and_nothing_more_while_the_machine_goes_down(kind: str, called: Path) -> None:
    def wait(seconds: float) -> None:
        raise Off

    with pytest.raises(Off):
        act(kind, wait)
    assert called.read_text().split() == [kind]


def test_a_machine_that_stays_on_is_forced_and_then_told_of(called: Path) -> None:
    waits: list[float] = []
    with pytest.raises(TaskFailed, match="the machine did not reboot"):
        act("reboot", waits.append)
    assert called.read_text().splitlines() == ["reboot", "reboot -f"]
    assert waits == [20, 20]
