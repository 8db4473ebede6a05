from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from erase_bench import why_no_loop
from image_bench import ImageBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ImageBench]:
    reason = why_no_loop()
    if reason is not None:
        pytest.skip(reason)
    made = ImageBench(tmp_path)
    yield made
    made.close()
