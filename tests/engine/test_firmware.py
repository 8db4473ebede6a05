"""Firmware is brought to its baseline, judged by what the BMC shows several times in a row and not by what it acknowledges."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.firmware import image
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from emulated_site import Site, a_site, iso_server

WANTED = {"BMC": "9.9.1", "BIOS": "2.15.0"}
Scenario = Callable[[Site], Awaitable[None]]


def on_a_site_with(
    folder: Path, scenario: Scenario, wanted: dict[str, str], images: dict[str, bytes], **more: Any
) -> None:
    """A commission to a baseline of `wanted`; of those that have no image only the version is compared."""

    async def whole() -> None:
        with ExitStack() as servers:
            lines = []
            for component, version in wanted.items():
                line = f'"{component}" = {{ version = "{version}"'
                if component in images:
                    url = servers.enter_context(iso_server(images[component]))
                    digest = hashlib.sha256(images[component]).hexdigest()
                    line += f', url = "{url}/{component}.raw", sha256 = "{digest}"'
                lines.append(line + " }")
            tables = "\n".join(("[firmware.base]", *lines))
            profile = "\n".join(('firmware = "base"', *more.get("profile", ())))
            async with a_site(folder, places={"commission": profile, "more": tables}) as site:
                await scenario(site)

    asyncio.run(whole())


def front(bmc: EmulatedBmc) -> RedfishFront:
    assert isinstance(bmc.front, RedfishFront)
    return bmc.front


async def commissioned(site: Site, **quirks: Any) -> tuple[EmulatedBmc, str, State]:
    bmc = site.rack.add_redfish("m1", drives=1, **quirks)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    return bmc, node_id, await site.live(node_id, Verb.COMMISSION)


async def failure(site: Site, node_id: str) -> tuple[str, str]:
    error = (await site.node(node_id)).last_error
    assert error is not None
    return error["code"], error["message"]


def images(**versions: str) -> dict[str, bytes]:
    return {component: image(component, version) for component, version in versions.items()}


@pytest.mark.parametrize(
    "quirks",
    [
        {"update_s": 40.0},
        {"update_restart_s": 30.0, "update_flaps": 2},
        {"update_task_named": False},
        {"update_forms": ("multipart",)},
    ],
    ids=lambda quirks: "-".join(quirks),
)
def test_a_machine_is_brought_to_its_baseline_a_bios_by_a_start_of_it(tmp_path: Path, quirks: dict[str, Any]) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, state = await commissioned(site, **quirks)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert {name: front(bmc).firmware[name] for name in WANTED} == WANTED
        assert [boot.device for boot in bmc.machine.boots] == ["bios-setup"]
        assert bmc.machine.power is PowerState.OFF
        writes = len(site.rack.writes)
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
        assert not [one for one in site.rack.writes[writes:] if "Update" in one.path or "upload" in one.path]

    on_a_site_with(tmp_path, scenario, WANTED, images(**WANTED))


def test_an_update_that_is_called_complete_and_changed_nothing_is_a_failure(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, state = await commissioned(site, update_lie="unchanged")
        assert state is State.COMMISSION_FAILED
        code, message = await failure(site, node_id)
        assert code == "firmware-update"
        assert "9.9.1" in message
        assert bmc.machine.power is PowerState.OFF

    on_a_site_with(tmp_path, scenario, {"BMC": "9.9.1"}, images(BMC="9.9.1"))


def test_an_image_that_the_bmc_refuses_fails_with_its_reason(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        _, node_id, state = await commissioned(site)
        assert state is State.COMMISSION_FAILED
        assert (await failure(site, node_id))[0] == "firmware-update"

    on_a_site_with(tmp_path, scenario, {"BMC": "9.9.1"}, {"BMC": image("BMC", "9.9.1") + b"cut"})


def test_a_version_without_an_image_is_compared_and_named(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        _, node_id, state = await commissioned(site)
        assert state is State.INSPECTED  # nothing was touched
        code, message = await failure(site, node_id)
        assert (code, message) == (
            "firmware-update",
            "NIC.1 is 22.36.10.10; 1.2.3 is wanted, and no image of it is named",
        )

    on_a_site_with(tmp_path, scenario, {"NIC\\\\.[0-9]": "1.2.3"}, {})


@pytest.mark.parametrize("has_image", [True, False])
def test_firmware_that_a_tenant_flashed_is_brought_back_or_named_at_release(tmp_path: Path, has_image: bool) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id, state = await commissioned(site)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
        bmc.host_side.flash("BIOS", "6.6.6")
        ends = await site.live(node_id, Verb.RELEASE)
        if has_image:
            assert ends is State.AVAILABLE, (await site.node(node_id)).last_error
            assert front(bmc).firmware["BIOS"] == WANTED["BIOS"]
            assert bmc.machine.power is PowerState.OFF
        else:
            assert ends is State.RELEASE_FAILED
            code, message = await failure(site, node_id)
            assert (code, message) == ("baseline-changed", "firmware BIOS was 2.14.1, and is 6.6.6")

    if has_image:
        on_a_site_with(tmp_path, scenario, {"BIOS": WANTED["BIOS"]}, images(BIOS=WANTED["BIOS"]))
    else:
        on_a_site_with(tmp_path, scenario, {"BIOS": "2.14.1"}, {})


def test_a_component_that_the_bmc_does_not_list_is_told_as_the_profile_says(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        _, node_id, state = await commissioned(site)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert (await site.conditions(node_id))["hardware"] == ("warning", "not-offered")

    on_a_site_with(tmp_path, scenario, {"CPLD": "1"}, {}, profile=('unsupported = "skip"',))
