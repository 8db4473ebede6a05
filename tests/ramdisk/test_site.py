"""What of a site is built into its ramdisk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bcmetal.clock import SystemClock
from bcmetal.join.ca import make_root, pem_of
from bcmetal.ramdisk.build import Site
from bcmetal.ramdisk.faults import BuildFailed
from bcmetal_agent import session


@pytest.fixture(scope="module")
def roots() -> str:
    return pem_of([make_root("test", SystemClock().now()).certificate])


@pytest.mark.parametrize("url", ["https://10.0.0.1:8445", "https://[2001:db8::1]:8445/", "https://metal.example:443"])
def test_the_agent_reads_what_the_build_wrote(url: str, roots: str, tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    path.write_text(json.dumps(Site(url, roots, "fra1").document()))
    read = session.Site.read(path)
    assert (str(read.server), read.roots, read.name) == (url.rstrip("/"), roots, "fra1")


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1:8445", "https://10.0.0.1", "https://10.0.0.1:0", "https://a:1/path", "https://u@a:1"]
)
def test_an_address_that_the_agent_would_not_call_is_refused(url: str, roots: str) -> None:
    with pytest.raises(BuildFailed):
        Site(url, roots, "fra1")
