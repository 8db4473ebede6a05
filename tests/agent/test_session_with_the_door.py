"""The ramdisk's agent against the daemon's own door, over TLS: the door in this thread, the agent in another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.served_door import Served
from bcmetal.decisions import SECOND
from bcmetal_agent import boot_token, wire_tasks
from bcmetal_agent.client import Refused
from bcmetal_agent.ramdisk import Places, Ramdisk
from bcmetal_agent.session import AnyTask, Session, Site


class Gone(BaseException):
    """The machine is off."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    with made.door:
        yield made


def test_one_operation_from_hello_to_poweroff(served: Served) -> None:
    door = served.door
    image = bytes(range(256)) * 1000
    (door.folder / "image.raw").write_bytes(image)
    task_id = door.a_task("look", "inventory", file="image.raw")
    token = door.a_token()

    def work(site: Site) -> None:
        session = served.session(site, token)
        welcome = session.hello()
        assert isinstance(welcome, wire_tasks.Welcome)
        again = served.session(site, token)  # as an agent does that was killed
        assert again.hello() == welcome
        task = again.next()
        assert task == AnyTask(task_id, "inventory", {})
        for offset in (0, 1000, len(image)):
            with again.image(offset) as part:
                assert b"".join(iter(lambda: part.read(65536), b"")) == image[offset:]
        done = wire_tasks.Report(task_id, "done", 1000, result={"seen": True}, log="all of it\n")
        assert again.report(done) == wire_tasks.Heard(True)
        assert again.report(done) == wire_tasks.Heard(True)
        assert again.next() == wire_tasks.Idle()

    served.run(work)
    assert (door.task("look").state, door.task("look").result) == ("done", {"seen": True})
    assert served.steps[0] == pytest.approx(door.now / SECOND, abs=10)


def test_a_machine_is_powered_off_once_the_daemon_knows_that_it_will_be(served: Served) -> None:
    door = served.door
    door.a_task("off", "poweroff")
    token, acted = door.a_token(), list[str]()

    def power_off(kind: str, wait: Callable[[float], object]) -> None:
        acted.append(kind)
        raise Gone

    def work(site: Site) -> None:
        token_file, site_file = served.folder / "boot-token", served.folder / "site.json"
        token_file.write_bytes(boot_token.render(token))
        site_file.write_text(json.dumps({"agentUrl": str(site.server), "caPem": site.roots, "site": site.name}))
        places = Places(token_file, site_file, served.folder / "agent", None)
        agent = Ramdisk(
            places,
            lambda: 0.5,
            open_session=lambda site, token, folder: served.session(site, token),
            power_off=power_off,
        )
        with pytest.raises(Gone):
            agent.run()

    served.run(work)
    assert acted == ["poweroff"]
    assert (door.task("off").state, door.task("off").progress) == ("done", 1000)


def test_a_second_key_ends_the_token_for_both(served: Served) -> None:
    token = served.door.a_token()

    def work(site: Site) -> None:
        first = served.session(site, token)
        assert isinstance(first.hello(), wire_tasks.Welcome)
        other = Session(site, token, served.folder / "other", root=served.machine(), clock=served.steps.append)
        refused = other.hello()
        assert isinstance(refused, Refused)
        assert "two keys" in refused.message
        for answer in (first.next(), first.hello()):
            assert isinstance(answer, Refused)

    served.run(work)
