"""A service does what it was asked by name, brings the machine back as it was, leaves its disks, and says so when it failed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from bcmetal.cli.service import STEPS
from bcmetal.decisions import Params
from bcmetal.models import ServiceStep
from bcmetal.states import State, Verb
from bcmetal.workflows.service import WORKS
from bcmetal_drivers.emulated.firmware import image
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from emulated_site import Site, a_site, iso_server

NEW_BIOS = image("BIOS", "2.15.0")
Scenario = Callable[[Site], Awaitable[None]]


@pytest.fixture
def on_a_site(tmp_path: Path) -> Callable[[Scenario], None]:
    """Machines are commissioned by `standard`; `newer` has other BIOS settings and firmware."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            with iso_server(NEW_BIOS) as url:
                digest = hashlib.sha256(NEW_BIOS).hexdigest()
                more = f"""
[firmware.base]
"BIOS" = {{ version = "2.15.0", url = "{url}/bios.raw", sha256 = "{digest}" }}

[profiles.commission.newer]
erase = ["bmc"]
firmware = "base"
bios = {{ SriovGlobalEnable = "Enabled" }}
"""
                async with a_site(tmp_path, places={"more": more}) as site:
                    await scenario(site)

        asyncio.run(whole())

    return run


async def available(site: Site, **quirks: Any) -> tuple[EmulatedBmc, str]:
    bmc = site.rack.add_redfish("m1", drives=1, **quirks)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
    return bmc, node_id


async def deployed(site: Site, **quirks: Any) -> tuple[EmulatedBmc, str]:
    bmc, node_id = await available(site, **quirks)
    assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
    bmc.machine.plant(next(iter(bmc.machine.drives)))
    return bmc, node_id


def power_of(bmc: EmulatedBmc) -> PowerState:
    return bmc.machine.power


def firmware(bmc: EmulatedBmc) -> dict[str, str]:
    assert isinstance(bmc.front, RedfishFront)
    return bmc.front.firmware


def test_every_work_of_a_service_is_offered_by_the_api_and_by_the_command() -> None:
    assert set(get_args(ServiceStep)) == set(STEPS.values()) == {"powerCycle", *WORKS}


def test_a_deployed_machine_has_its_firmware_and_settings_changed_and_is_up_again(
    on_a_site: Callable[[Scenario], None],
) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site)
        boots = len(bmc.machine.boots)
        asked: dict[str, Any] = {"steps": ["firmware", "bios", "resetBmc"], "profile": "newer"}
        assert await site.live(node_id, Verb.SERVICE, **asked) is State.DEPLOYED, (await site.node(node_id)).last_error
        assert firmware(bmc)["BIOS"] == "2.15.0"
        assert bmc.machine.board.bios["SriovGlobalEnable"] == "Enabled"
        assert bmc.machine.power is PowerState.ON
        made = [boot.device for boot in bmc.machine.boots[boots:]]
        assert (made[:2], len(made)) == (["bios-setup", "bios-setup"], 3)
        assert all(drive.holds_data for drive in bmc.machine.drives.values())
        # what we changed is no change of the tenant's; what he changes is
        bmc.host_side.change_bios("BootRetryCount", 9)
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert firmware(bmc)["BIOS"] == "2.15.0"
        assert bmc.machine.board.bios["SriovGlobalEnable"] == "Enabled"
        assert bmc.machine.board.bios["BootRetryCount"] == 3

    on_a_site(scenario)


@pytest.mark.parametrize("force", [False, True])
def test_a_system_that_does_not_shut_down_is_switched_off_only_where_that_was_agreed(
    on_a_site: Callable[[Scenario], None], force: bool
) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site, ignores_soft_off=True)
        boots = len(bmc.machine.boots)
        assert await site.live(node_id, Verb.SERVICE, steps=["powerCycle"], force=force) is State.DEPLOYED
        assert bmc.machine.power is PowerState.ON
        assert len(bmc.machine.boots) - boots == int(force)
        if force:
            assert "service" not in await site.conditions(node_id)
        else:
            assert (await site.conditions(node_id))["service"] == ("error", "power-not-reached")
            assert await site.live(node_id, Verb.SERVICE, steps=["powerCycle"], force=True) is State.DEPLOYED
            assert "service" not in await site.conditions(node_id)

    on_a_site(scenario)


def test_a_service_that_fails_leaves_a_deployed_machine_up_and_an_available_one_to_be_retried(
    on_a_site: Callable[[Scenario], None],
) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await available(site)
        bmc.set(update_lie="unchanged")
        asked: dict[str, Any] = {"steps": ["firmware"], "profile": "newer"}
        assert await site.live(node_id, Verb.SERVICE, **asked) is State.COMMISSION_FAILED
        assert (await site.conditions(node_id))["service"] == ("error", "firmware-update")
        assert power_of(bmc) is PowerState.OFF
        bmc.set(update_lie=None)
        assert await site.live(node_id, Verb.RETRY, Params(), **asked) is State.AVAILABLE
        assert firmware(bmc)["BIOS"] == "2.15.0"

        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
        bmc.set(bios_rejects=("SriovGlobalEnable",))
        assert await site.live(node_id, Verb.SERVICE, steps=["bios"], profile="newer") is State.DEPLOYED
        assert (await site.conditions(node_id))["service"] == ("error", "bios-rejected")
        assert power_of(bmc) is PowerState.ON
        assert bmc.machine.boots[-1].device != "bios-setup"

    on_a_site(scenario)
