"""From `bcmetal token create` to `bcmetal joined evict`, against a real daemon, with the real agent and the very line that is printed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import in_memory
from agent_machine import UUID, a_sys
from bcmetal.demo.site import JOIN_POOL, Site, emulated_site
from cli.running import Ran, invoke

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        in_memory.a_folder(tmp_path_factory.mktemp("site")) as folder,
        emulated_site(folder, redfish=1, ipmi=0) as running,
    ):
        yield running


def run(site: Site, *words: str, stdin: str | None = None) -> Ran:
    return invoke("--profile", str(site.profile_file), "--pool", JOIN_POOL, *words, stdin=stdin)


def agent(line: str, machine: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The printed line, typed on a machine of the test's making."""
    words = shlex.split(line)
    assert words[0] == "bcmetal-agent"
    here = ["--state-dir", str(machine / "state"), "--root", str(machine), "--once"]
    command = [sys.executable, "-m", "bcmetal_agent", *words[1:], *here, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def line_of(made: Ran) -> str:
    return next(one for one in made.err.splitlines() if one.startswith("join line: ")).removeprefix("join line: ")


def test_the_printed_line_joins_a_machine_that_is_then_listed_and_put_out(site: Site, tmp_path: Path) -> None:
    machine = a_sys(tmp_path / "machine")
    out = tmp_path / "one.token"
    made = run(site, "token", "create", "--expect-uuid", UUID, "--out", str(out))
    assert made.code == 0, made.err
    joined = agent(line_of(made), machine)
    assert joined.returncode == 0, joined.stderr
    (node,) = run(site, "joined", "list", "--json").doc["nodes"]
    assert node["nodeId"] in joined.stdout
    assert "SN-4711" in run(site, "joined", "show", node["nodeId"]).out
    gone = run(site, "joined", "evict", node["nodeId"], "--reason", "test over", stdin="y\n")
    assert gone.code == 0, gone.err
    assert run(site, "joined", "show", node["nodeId"], "--json").doc["state"] == "evicted"
    text = site.daemon.log.read_text() + made.err + joined.stderr + joined.stdout
    assert out.read_text().strip() not in text


def test_a_machine_that_waits_is_let_in_by_a_person(site: Site, tmp_path: Path) -> None:
    machine = a_sys(tmp_path / "machine")
    (machine / "sys/class/dmi/id/product_uuid").write_text("03000200-0400-0500-0006-000700080009\n")
    (machine / "sys/class/dmi/id/product_serial").write_text("SN-4712\n")
    (machine / "sys/class/net/eno1/address").write_text("3c:ec:ef:00:11:23\n")
    made = run(site, "token", "create", "--out", str(tmp_path / "two.token"))
    waits = agent(line_of(made), machine)
    assert waits.returncode == 4, waits.stderr
    (request,) = run(site, "request", "list", "--json").doc["requests"]
    assert request["requestId"] in waits.stdout
    shown = run(site, "request", "show", request["requestId"]).out
    assert "NO: a placeholder" in shown
    assert run(site, "request", "approve", request["requestId"], stdin="y\n").code == 0
    joined = agent(line_of(made), machine)
    assert joined.returncode == 0, joined.stderr
    assert run(site, "request", "list").out == ""
