from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from erase_bench import Bench, why_no_loop


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    reason = why_no_loop()
    if reason is not None:
        pytest.skip(reason)
    made = Bench(tmp_path)
    monkeypatch.setenv("BCMETAL_AGENT_PATH", f"{made.cabinet.programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    yield made
    made.close()
