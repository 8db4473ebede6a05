from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from erase_bench import why_no_loop
from image_bench import ImageBench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageBench]:
    """Loop devices, and in place of the programs that erase drives those of the fakes."""
    reason = why_no_loop()
    if reason is not None:
        pytest.skip(reason)
    made = ImageBench(tmp_path)
    monkeypatch.setenv("BCMETAL_AGENT_PATH", f"{made.cabinet.programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    yield made
    made.close()
