from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agent_machine import Machine
from bcmetal_agent.join import Waiting
from bcmetal_agent.state import Attempt, StateError, StateFolder, write_file
from fake_control_plane import ControlPlane, defer

DURABLE = frozenset({"fsync", "replace", "symlink"})


def calls_of(work: Callable[[], object]) -> list[str]:
    """The system calls of DURABLE that it makes, in order."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and getattr(called, "__name__", "") in DURABLE:
            seen.append(called.__name__)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def test_a_file_is_on_the_disk_before_it_bears_its_name_and_its_folder_after(tmp_path: Path) -> None:
    assert calls_of(lambda: write_file(tmp_path / "x", "text")) == ["fsync", "replace", "fsync"]
    assert os.listdir(tmp_path) == ["x"]


def test_an_admission_is_on_the_disk_before_the_one_rename_that_commits_it(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    old = machine.join()
    with machine.state.locked():
        seen = calls_of(lambda: machine.state.commit(old.key(), old.chain(), old.trust(), old.admission))
    assert seen == [*["fsync", "replace", "fsync"] * 4, *["fsync"] * 3, "symlink", "replace", "fsync"]


@pytest.mark.parametrize("rubbish", ["", "{", "[]", "null", '{"key": 1', '{"message": "x"}', "\x00"])
def test_a_damaged_file_is_told_and_never_taken_for_nothing(plane: ControlPlane, tmp_path: Path, rubbish: str) -> None:
    """Taken for nothing, it would cost an admitted key."""
    machine = Machine(plane, tmp_path)
    plane.next_joins = [defer]
    with machine.state.locked():
        assert isinstance(machine.agent().join(once=True), Waiting)
        (machine.state.path / "join.json").write_text(rubbish)
        with pytest.raises(StateError, match=r"join\.json is damaged"):
            machine.agent().join()
        machine.agent().join(anew=True)


def test_a_damaged_identity_is_told(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    identity = machine.join()
    identity.chain_file.write_text("rubbish")
    with machine.state.locked(), pytest.raises(StateError, match="is damaged"):
        machine.agent().join()


def test_what_a_crash_left_half_made_is_cleared_away(plane: ControlPlane, tmp_path: Path) -> None:
    machine = Machine(plane, tmp_path)
    identity = machine.join()
    left = machine.state.path / "identities/0011223344556677"
    left.mkdir()
    (left / "key.pem").write_text("x")
    (machine.state.path / ".join.json.new").write_text("x")
    (machine.state.path / ".current-0011223344556677").symlink_to("identities/0011223344556677")
    machine.state.keep("next", Attempt("key", "message", replaces="another"))
    with machine.state.locked():
        current = machine.state.current()
        assert current is not None
        assert current.name == identity.name
    names = {path.name for path in machine.state.path.iterdir()}
    assert names == {"current", "identities", "lock", "status.json"}
    assert [path.name for path in left.parent.iterdir()] == [identity.name]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot use the folder"), StateFolder(tmp_path / "file/state").locked():
        pass


def test_a_folder_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with StateFolder(folder).locked():
        assert folder.stat().st_mode & 0o777 == 0o700


def test_keys_show_in_no_representation() -> None:
    assert "private" not in repr(Attempt("private key", "message", ak_private="private blob"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away, which root alone may")
def test_a_folder_that_somebody_else_filled_is_not_taken(tmp_path: Path) -> None:
    """What is tidied away would be what his link points at."""
    folder, theirs = tmp_path / "state", tmp_path / "precious/file"
    theirs.parent.mkdir()
    theirs.write_text("x")
    folder.mkdir(mode=0o700)
    (folder / "identities").symlink_to(tmp_path)
    os.chown(folder, 65534, 65534)
    with pytest.raises(StateError, match="a folder of its own"), StateFolder(folder).locked():
        pass
    assert theirs.exists()


def test_a_folder_that_everybody_writes_to_is_not_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StateError, match="a folder of its own"), StateFolder(tmp_path).locked():
        pass


def test_a_lock_that_points_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="cannot use the folder"), StateFolder(tmp_path / "state").locked():
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_current_that_is_no_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(StateError, match="current is damaged"):
        StateFolder(tmp_path).current()
