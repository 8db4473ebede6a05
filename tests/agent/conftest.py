from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.ramdisk_door import Door, a_token
from fake_control_plane import ControlPlane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    folder = tmp_path / "plane"
    folder.mkdir()
    with ControlPlane(folder) as found:
        yield found


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    folder = tmp_path / "door"
    folder.mkdir()
    with Door(folder, a_token()) as found:
        yield found
