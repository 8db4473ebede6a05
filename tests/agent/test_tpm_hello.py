"""The ramdisk's agent against the daemon's own door, by a real software TPM that is on record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.served_door import Served
from agent_door.test_tpm_hello import on_record
from bcmetal.join.tpm_structures import public_from_wire
from bcmetal.store import boot_tokens
from bcmetal_agent import attesting, boot_token, wire_tasks
from bcmetal_agent.client import Refused
from bcmetal_agent.ramdisk import Places, Ramdisk
from bcmetal_agent.session import Site
from join.swtpm import a_software_tpm

NOWHERE = "device:/dev/null/none"


class Slept(BaseException):
    """The agent takes a break."""


class NoPatience:
    """A clock by which nobody sleeps."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        raise Slept


@pytest.fixture(scope="module")
def tcti(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with a_software_tpm(tmp_path_factory.mktemp("tpm")) as found:
        yield found.tcti


@pytest.fixture
def served(tmp_path: Path, tcti: str) -> Iterator[Served]:
    """As a join by this TPM leaves it."""
    claim, _ = attesting.claim(tcti)
    made = Served(tmp_path)
    with made.door:
        on_record(made.door, hashlib.sha256(public_from_wire(claim.ek_public).spki).hexdigest())
        yield made


def test_the_machine_proves_its_tpm_within_one_hello(served: Served, tcti: str) -> None:
    token = served.door.a_token()

    def work(site: Site) -> None:
        welcome = served.session(site, token, tcti=tcti).hello()
        assert isinstance(welcome, wire_tasks.Welcome)
        again = served.session(site, token, tcti=NOWHERE)  # killed and started: the key is proven
        assert again.hello() == welcome
        assert again.next() == wire_tasks.Idle()

    served.run(work)
    row = served.door.agent()
    assert row is not None
    assert row.tpm_proven


def test_who_has_the_token_and_another_tpm_gets_nothing(
    served: Served, tcti: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = served.door.a_token()
    with a_software_tpm(tmp_path_factory.mktemp("other"), certified=False) as other:

        def work(site: Site) -> None:
            for folder, chip in (("other", other.tcti), ("none", NOWHERE)):
                refused = served.session(site, token, folder, tcti=chip).hello()
                assert isinstance(refused, Refused)
                assert "on record" in refused.message
            assert isinstance(served.session(site, token, tcti=tcti).hello(), wire_tasks.Welcome)

        served.run(work)
    assert served.door.condition() is None
    assert served.door.db.read(boot_tokens.conflicts, served.door.operation_id) == 0


def test_an_agent_without_a_tpm_says_why_and_waits(served: Served) -> None:
    token, clock = served.door.a_token(), NoPatience()

    def work(site: Site) -> None:
        token_file, site_file = served.folder / "boot-token", served.folder / "site.json"
        token_file.write_bytes(boot_token.render(token))
        site_file.write_text(json.dumps({"agentUrl": str(site.server), "caPem": site.roots, "site": site.name}))
        agent = Ramdisk(
            Places(token_file, site_file, served.folder / "agent", None),
            lambda: 0.5,
            clock=clock,
            open_session=lambda site, token, folder: served.session(site, token, tcti=NOWHERE),
        )
        with pytest.raises(Slept):
            agent.run()

    served.run(work)
    assert clock.asked == [30.0]
    assert served.door.condition() == ("warning", "no-tpm")
