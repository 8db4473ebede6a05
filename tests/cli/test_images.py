"""`bcmetal image` against a real daemon process, whose image server is the demo's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import in_memory
from bcmetal.demo.site import Site, emulated_site
from cli.running import Ran, Run, invoke

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        in_memory.a_folder(tmp_path_factory.mktemp("site")) as folder,
        emulated_site(folder, redfish=1, ipmi=0) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def run(site: Site) -> Run:
    def at_the_site(*words: str, stdin: str | None = None) -> Ran:
        return invoke("--profile", str(site.profile_file), *words, stdin=stdin)

    return at_the_site


def test_an_image_is_pulled_listed_and_pruned(run: Run) -> None:
    assert "absent" in run("image", "list").out
    pulled = run("image", "pull", "demo")
    assert (pulled.code, pulled.out.startswith("demo: ready, ")) == (0, True), pulled.err
    shown = {one["name"]: one for one in run("image", "list", "--json").doc["images"]}["demo"]
    assert (shown["state"], shown["public"], shown["format"]) == ("ready", True, "iso")
    again = run("image", "pull", "demo", "--no-wait", "--json")
    assert again.doc["images"][0]["file"] == shown["file"]
    pruned = run("image", "prune")
    assert (pruned.code, pruned.out) == (0, ""), "it was looked at just now"
    assert "freed 0 B" in pruned.err
    assert run("image", "prune", "--json").doc == {"pruned": [], "bytes": 0}


def test_what_cannot_be_pulled_is_told_with_an_exit_code(run: Run) -> None:
    assert run("image", "pull").code == 2
    assert run("image", "pull", "demo", "--format", "raw").code == 2
    unknown = run("image", "pull", "nothing-of-this-name")
    assert (unknown.code, "image.name" in unknown.err) == (2, True)
    elsewhere = run("image", "pull", "--url", "http://198.51.100.1/x", "--sha256", "0" * 64)
    assert (elsewhere.code, "image.url" in elsewhere.err) == (2, True)
    assert run("image", "pull", "--url", "http://198.51.100.1/x").code == 2
