"""What can go wrong with the image of a deploy, from its server to the disk: each ends in a state with its reason, and only the disk of the
plan is ever written to."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection, text

from agent_life.agent import Line
from agent_life.life import off_and_empty
from agent_life.machine import GIB
from agent_life.site import IMAGE, LifeSite, a_life_site
from bcmetal.decisions import SECOND
from bcmetal.states import Disks, State, Verb
from bcmetal_agent import wire_tasks
from bcmetal_agent.wire_tasks import Task
from boot.origin import Exchange, Page, a_file, an_origin, cut_after, status
from faults_on_the_machine.real_disks import (
    MIB,
    RealMachine,
    a_real_machine,
    a_system,
    holds,
    note,
    noted,
    ready_to_deploy,
    starts_nothing,
)
from image_bench import ImageBench
from in_process import Answered

SIZES: Final = (5 * GIB, 6 * GIB)  # the smaller one takes the system
OURS: Final = """
[images.odd]
url = "{url}"
sha256 = "{sha256}"
format = "{format}"
"""
Scenario = Callable[[LifeSite, RealMachine, str], Awaitable[None]]


def on_a_machine(
    scenario: Scenario, folder: Path, bench: ImageBench, *sizes: int, more: str = "", disk_folder: Path | None = None
) -> None:
    """Both disks hold something. The one of the plan, which is the first, may lose it; the other one must not."""

    async def run() -> None:
        async with a_life_site(folder, erase='"none"', more=more) as life:
            machine = a_real_machine(life, bench, *(sizes or SIZES), folder=disk_folder)
            node_id = await ready_to_deploy(life)
            note(machine.planned[1])
            if disk_folder is None:
                note(machine.planned[0])
            await scenario(life, machine, node_id)
            assert noted(machine.planned[1])

    asyncio.run(run())


async def deployed(life: LifeSite, node_id: str, name: str = "system") -> None:
    state = await life.live(node_id, Verb.DEPLOY, image={"name": name}, kind="image")
    assert state is State.DEPLOYED, (await life.node(node_id)).last_error


async def not_deployed(life: LifeSite, machine: RealMachine, node_id: str, code: str, name: str = "system") -> str:
    """Failed by this code, off, and its disks said to be the tenant's; the message."""
    message = await life.failed(node_id, Verb.DEPLOY, code, image={"name": name}, kind="image")
    facts = (await life.node(node_id)).facts
    assert (facts.state, facts.disks) == (State.DEPLOY_FAILED, Disks.TENANT)
    assert off_and_empty(machine) == []
    return message


async def not_begun(life: LifeSite, machine: RealMachine, node_id: str, code: str) -> str:
    """As before the deploy, which failed by this code; the message."""
    error, facts = (await life.node(node_id)).last_error, (await life.node(node_id)).facts
    assert error is not None
    assert error["code"] == code, error
    assert (facts.state, facts.disks) == (State.AVAILABLE, Disks.CLEAN)
    assert machine.record.boots == []
    assert noted(machine.planned[0])
    return str(error["message"])


# ---------------------------------------------------------------- the image's server


def with_page(folder: Path, bench: ImageBench, page: Page, scenario: Scenario, sha256: str, format_: str) -> None:
    with an_origin() as origin:
        origin.pages["/odd"] = page
        more = OURS.format(url=origin.url("/odd"), sha256=sha256, format=format_)
        on_a_machine(scenario, folder, bench, more=more)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


BACKED: Final = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 104, 11, 16, GIB).ljust(104, b"\0") + b"/etc/shadow"
UNFIT: Final[dict[str, tuple[Page, str, str, str, str]]] = {
    "a wrong checksum": (a_file(IMAGE[::-1]), sha256_of(IMAGE), "raw", "image-checksum", "checksum"),
    "a qcow2 with a backing file": (a_file(BACKED), sha256_of(BACKED), "qcow2", "image-format", "backing file"),
    "an ISO that is none": (a_file(IMAGE), sha256_of(IMAGE), "qcow2", "image-format", ""),
    "no such image": (status(404), sha256_of(IMAGE), "raw", "image-not-found", "404"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_an_image_that_cannot_be_used_ends_the_deploy_before_the_machine_is_touched(
    what: str, tmp_path: Path, bench: ImageBench
) -> None:
    page, sha256, format_, code, words = UNFIT[what]

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        await life.live(node_id, Verb.DEPLOY, image={"name": "odd"}, kind="image")
        assert words in await not_begun(life, machine, node_id, code)

    with_page(tmp_path, bench, page, scenario, sha256, format_)


def test_a_server_that_breaks_off_is_asked_for_the_rest(tmp_path: Path, bench: ImageBench) -> None:
    image = a_system(tmp_path)
    whole, short = a_file(image), cut_after(MIB, image)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        await deployed(life, node_id, "odd")
        assert holds(machine.planned[0], image)

    def page(x: Exchange) -> None:
        (whole if "Range" in x.headers else short)(x)

    with_page(tmp_path, bench, page, scenario, sha256_of(image), "raw")


def _nearly_over(c: Connection, operation_id: str) -> None:
    doc = {"operation_id": operation_id, "budget_us": 60 * SECOND}
    c.execute(text("UPDATE operations SET budget_us = :budget_us WHERE operation_id = :operation_id"), doc)


def test_a_server_that_never_answers_ends_the_deploy_at_its_deadline_with_what_it_waited_for(
    tmp_path: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        operation_id = await life.begin(node_id, Verb.DEPLOY, image={"name": "odd"}, kind="image")
        while "image" not in ((await life.site.operation(operation_id)).waiting_for or ""):
            assert await life.site.advance()
        await life.site.store.write(_nearly_over, operation_id)
        await life.site.settle()
        assert "image" in await not_begun(life, machine, node_id, "deadline")

    with_page(tmp_path, bench, status(503), scenario, sha256_of(IMAGE), "raw")


# ---------------------------------------------------------------- between the daemon and the machine

Answers = Callable[[Answered, int], Answered | None]


def at_the_image(answers: Answers) -> Callable[[Line], Line]:
    """What becomes of the n-th answer that brings some of the image."""
    calls = 0

    def through(line: Line) -> Line:
        async def changed(
            method: str, path: str, body: bytes, headers: Mapping[str, str], address: str
        ) -> Answered | None:
            nonlocal calls
            answer = await line(method, path, body, headers, address)
            if path != wire_tasks.IMAGE_PATH or answer is None:
                return answer
            calls += 1
            return answers(answer, calls)

        return changed

    return through


def spoilt(answer: Answered, n: int) -> Answered:
    return Answered(answer.status, answer.headers, answer.raw[:-1] + bytes([answer.raw[-1] ^ 1]))


def cut(answer: Answered, n: int) -> Answered:
    return Answered(answer.status, answer.headers, answer.raw[:1000])


LOST: Final[dict[str, tuple[Answers, str, str]]] = {
    "damaged": (spoilt, "image-checksum", "SHA-256"),
    "cut each time": (lambda answer, n: Answered(answer.status, answer.headers, b""), "image-stalled", "byte 0 of"),
    "never there": (lambda answer, n: None, "image-stalled", "no answer"),
}


@pytest.mark.parametrize("what", LOST)
def test_an_image_that_does_not_arrive_whole_leaves_a_disk_that_starts_nothing(
    what: str, tmp_path: Path, bench: ImageBench
) -> None:
    answers, code, words = LOST[what]

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        machine.through = at_the_image(answers)
        assert words in await not_deployed(life, machine, node_id, code)
        assert starts_nothing(machine.planned[0])

    on_a_machine(scenario, tmp_path, bench)


def test_an_image_that_is_cut_now_and_then_arrives(tmp_path: Path, bench: ImageBench) -> None:
    image = a_system(tmp_path)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        machine.through = at_the_image(lambda answer, n: cut(answer, n) if n < 3 else answer)
        await deployed(life, node_id, "odd")
        assert holds(machine.planned[0], image)
        assert "resumed 2 times" in machine.recorder.text

    with_page(tmp_path, bench, a_file(image), scenario, sha256_of(image), "raw")


# ---------------------------------------------------------------- the disk


def test_an_image_larger_than_every_disk_is_told_with_the_disks(tmp_path: Path, bench: ImageBench) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        message = await not_deployed(life, machine, node_id, "no-root-device")
        assert all(disk.serial in message for disk in machine.planned)
        assert noted(machine.planned[0])

    on_a_machine(scenario, tmp_path, bench, 32 * MIB, 64 * MIB)


def test_an_image_that_unpacks_to_more_than_its_disk_is_stopped_there(tmp_path: Path, bench: ImageBench) -> None:
    packed = gzip.compress(IMAGE + bytes(40 * MIB), 1)

    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        await life.site.set_node(node_id, root_device={"serial": machine.planned[0].serial})
        message = await not_deployed(life, machine, node_id, "image-too-large", "odd")
        assert machine.planned[0].serial in message
        assert starts_nothing(machine.planned[0])

    with an_origin() as origin:
        origin.pages["/odd"] = a_file(packed)
        more = OURS.format(url=origin.url("/odd"), sha256=sha256_of(packed), format="raw")
        on_a_machine(scenario, tmp_path, bench, 32 * MIB, 64 * MIB, more=more)


@pytest.fixture
def small_folder(tmp_path: Path) -> Iterator[Path]:
    """A filesystem that takes one MiB and no more: a disk on it fails after that."""
    folder = tmp_path / "small"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(argv, capture_output=True, timeout=10).returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield folder
    deadline = time.monotonic() + 10
    while subprocess.run(["umount", folder], capture_output=True, timeout=10).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_disk_that_fails_half_way_ends_the_deploy_with_its_name(
    tmp_path: Path, small_folder: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        message = await not_deployed(life, machine, node_id, "disk-write-failed")
        assert machine.planned[0].serial in message

    on_a_machine(scenario, tmp_path, bench, disk_folder=small_folder)


def test_a_disk_that_is_pulled_before_it_is_written_to_is_told_and_no_other_takes_its_place(
    tmp_path: Path, bench: ImageBench
) -> None:
    async def scenario(life: LifeSite, machine: RealMachine, node_id: str) -> None:
        def pulled(task: Task) -> bool:
            if task.kind == "writeImage":
                bench.cabinet.unplug(machine.planned[0])
            return False

        machine.doing = pulled
        message = await not_deployed(life, machine, node_id, "disk-missing")
        assert machine.planned[0].serial in message
        assert noted(machine.planned[0])

    on_a_machine(scenario, tmp_path, bench)
