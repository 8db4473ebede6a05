"""The folder with apt's lists, shared by builds that run at the same time."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bcmetal.ramdisk.apt import Apt

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get is not installed")


def test_builds_that_fetch_the_lists_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "Packages").write_text("")
    sources = tmp_path / "sources.list"
    sources.write_text(f"deb [trusted=yes] file:{archive} ./\n")
    said: list[str] = []
    builds = [Apt(tmp_path / "cache", said.append, sources=sources) for _ in range(4)]
    with ThreadPoolExecutor(len(builds)) as threads:
        for done in [threads.submit(build.refresh) for build in builds]:
            done.result()
    assert said.count("fetching the lists of packages") == 1, "the others found them there"
