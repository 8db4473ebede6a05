"""Tasks: one that is gone says nothing, one that failed is looked behind, and none is taken for the state itself."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.firmware import image
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc
from behaviours.frame import Row, Shared
from emulated_site import Site, a_site, iso_server

FIRMWARE = "9.9.1"
SETTING = "SriovGlobalEnable"

ROWS = (
    Row("task-purged", until=Verb.DEPLOY),
    Row("task-fails", until=Verb.RELEASE),
    Row("task-completed-with-errors", until=Verb.DEPLOY),
    Row("erase-completed-with-errors", until=Verb.COMMISSION, fails="erase-failed"),
    Row("task-404-at-first", until=Verb.DEPLOY),
    Row("accepted-without-a-task", until=Verb.DEPLOY),
    Row("reset-wants-a-body", until=Verb.DEPLOY, fires=False),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)


def commissioned(folder: Path, *behaviours: str) -> tuple[EmulatedBmc, State, str]:
    """By a profile that wants another firmware of the BMC and another BIOS setting; the code of the failure, if it is one."""

    async def whole(url: str, digest: str) -> tuple[EmulatedBmc, State, str]:
        baseline = f'[firmware.base]\n"BMC" = {{ version = "{FIRMWARE}", url = "{url}/bmc.raw", sha256 = "{digest}" }}'
        profile = f'firmware = "base"\nbios = {{ {SETTING} = "Enabled" }}'
        async with a_site(folder, places={"commission": profile, "more": baseline}) as site:
            return await commission(site)

    async def commission(site: Site) -> tuple[EmulatedBmc, State, str]:
        bmc = site.rack.add_redfish("one", drives=1, behaviours=behaviours)
        site.rack.start()
        node_id = await site.enroll(bmc)
        assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        state = await site.live(node_id, Verb.COMMISSION)
        error = (await site.node(node_id)).last_error
        return bmc, state, str(error["code"]) if error else ""

    content = image("BMC", FIRMWARE)
    with iso_server(content) as url:
        return asyncio.run(whole(url, hashlib.sha256(content).hexdigest()))


FIRMWARE_ROWS = (
    Row("bmc-restarts-after-update"),
    Row("bios-after-a-reboot"),
    Row("push-by-form"),
    Row("push-then-install"),
    Row("push-wants-an-image-type"),
)


@pytest.mark.parametrize("row", FIRMWARE_ROWS, ids=str)
def test_firmware_and_settings_are_there_whatever_the_bmc_does_meanwhile(row: Row, tmp_path: Path) -> None:
    bmc, state, code = commissioned(tmp_path, row.behaviour)
    assert (state, code) == (State.AVAILABLE, "")
    assert isinstance(bmc.front, RedfishFront)
    assert bmc.front.firmware["BMC"] == FIRMWARE
    assert bmc.machine.board.bios[SETTING] == "Enabled"


@pytest.mark.parametrize(
    "row",
    [Row("update-changes-nothing", fails="firmware-update"), Row("bios-change-lost", fails="bios-rejected")],
    ids=str,
)
def test_what_was_acknowledged_and_is_not_there_is_a_failure(row: Row, tmp_path: Path) -> None:
    _, state, code = commissioned(tmp_path, row.behaviour)
    assert (state, code) == (State.COMMISSION_FAILED, row.fails)
