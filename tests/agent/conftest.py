from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_control_plane import ControlPlane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    folder = tmp_path / "plane"
    folder.mkdir()
    with ControlPlane(folder) as found:
        yield found
