"""One emulated site for the command line's tests: a rack in this process, a daemon in its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from bcmetal.cli.main import cli
from bcmetal.demo.site import Site, emulated_site


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def doc(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Ran]


def invoke(*words: str, stdin: str | None = None) -> Ran:
    result = CliRunner().invoke(cli, list(words), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with emulated_site(tmp_path_factory.mktemp("site"), redfish=4, ipmi=1) as running:
        yield running


@pytest.fixture
def run(site: Site) -> Run:
    """`bcmetal --profile … WORDS`."""

    def at_the_site(*words: str, stdin: str | None = None) -> Ran:
        return invoke("--profile", str(site.profile_file), *words, stdin=stdin)

    return at_the_site


@pytest.fixture
def node(site: Site, run: Run) -> Iterator[str]:
    """The name of an inspected node that no other test uses meanwhile; forgotten afterwards."""
    name = "node-a"
    answer = enroll(run, site, 0, name)
    assert answer.code == 0, answer.err
    yield name
    run("remove", name, "--yes", "--abandon", "the test is over")


def enroll(run: Run, site: Site, n: int, name: str, *more: str) -> Ran:
    bmc = site.redfish[n]
    words = ["node", "enroll", bmc.address, "--name", name, "--username", bmc.username, "--password-file", "-"]
    return run(
        *words,
        "--fingerprint",
        bmc.fingerprint,
        "--wait",
        "--timeout",
        "60s",
        *more,
        stdin=bmc.password.get_secret_value(),
    )
