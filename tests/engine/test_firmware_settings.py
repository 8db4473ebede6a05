"""A commission brings BIOS settings, keys and passwords to the profile: by a start of the machine, read back, and named when refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.host_side import Closed
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from emulated_site import Site, a_site

BIOS = 'bios = { SriovGlobalEnable = "Enabled", BootRetryCount = 9, QuietBoot = false }'
WANTED = {"SriovGlobalEnable": "Enabled", "BootRetryCount": 9, "QuietBoot": False}
Scenario = Callable[[Site], Awaitable[None]]


class Run(Protocol):
    def __call__(self, scenario: Scenario, profile: str, erase: str = '["bmc"]') -> None: ...


@pytest.fixture
def by_profile(tmp_path: Path) -> Run:
    """A scenario on a site whose commission profile has these lines."""

    def run(scenario: Scenario, profile: str, erase: str = '["bmc"]') -> None:
        async def whole() -> None:
            async with a_site(tmp_path, None, erase, places={"commission": profile}) as site:
                await scenario(site)

        asyncio.run(whole())

    return run


async def commissioned(site: Site, bmc: EmulatedBmc) -> tuple[str, State]:
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    return node_id, await site.live(node_id, Verb.COMMISSION)


async def failure(site: Site, node_id: str) -> tuple[str, str]:
    error = (await site.node(node_id)).last_error
    assert error is not None
    return error["code"], error["message"]


@pytest.mark.parametrize(
    "quirks", [{}, {"bios_job": True, "power_lag_s": 20.0}, {"bios_settings_at": "SD", "bios_post_s": 90.0}]
)
def test_bios_settings_are_taken_by_one_start_of_the_machine(by_profile: Run, quirks: dict[str, Any]) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, **quirks)
        node_id, state = await commissioned(site, bmc)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert {name: bmc.machine.board.bios[name] for name in WANTED} == WANTED
        assert [boot.device for boot in bmc.machine.boots] == ["bios-setup"]
        assert bmc.machine.power is PowerState.OFF
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
        assert len(bmc.machine.boots) == 1  # nothing to be done a second time

    by_profile(scenario, BIOS)


def test_a_bios_setting_that_the_boot_does_not_take_is_named(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, bios_rejects=("BootRetryCount",))
        node_id, state = await commissioned(site, bmc)
        assert state is State.COMMISSION_FAILED
        code, message = await failure(site, node_id)
        assert code == "bios-rejected"
        assert "BootRetryCount: The value 9 of BootRetryCount depends on another setting." in message
        assert bmc.machine.power is PowerState.OFF

    by_profile(scenario, BIOS)


def test_a_boot_that_loses_the_bios_settings_is_no_success(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, bios_lie="lost")
        node_id, state = await commissioned(site, bmc)
        assert state is State.COMMISSION_FAILED
        assert (await failure(site, node_id))[0] == "bios-rejected"

    by_profile(scenario, BIOS)


@pytest.mark.parametrize(("unsupported", "ends"), [("fail", State.COMMISSION_FAILED), ("skip", State.AVAILABLE)])
def test_what_a_bmc_does_not_offer_fails_or_is_told_as_the_profile_says(
    by_profile: Run, unsupported: str, ends: State
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, bios=False, secure_boot_keys="none")
        node_id, state = await commissioned(site, bmc)
        assert state is ends
        if state is State.COMMISSION_FAILED:
            assert (await failure(site, node_id))[0] == "bmc-unsupported"
        else:
            assert (await site.conditions(node_id))["hardware"] == ("warning", "not-offered")

    by_profile(scenario, f'{BIOS}\nsecure_boot_keys = "factory"\nunsupported = "{unsupported}"')


def test_secure_boot_has_the_makers_keys_again(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1)
        bmc.machine.board.keys = dict.fromkeys(bmc.machine.board.keys, "custom")
        node_id, state = await commissioned(site, bmc)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert set(bmc.machine.board.keys.values()) == {"factory"}
        assert bmc.machine.secure_boot_in_force
        assert len(bmc.machine.boots) == 1

    by_profile(scenario, 'secure_boot = true\nsecure_boot_keys = "factory"')


def test_a_bmc_gets_a_password_of_its_own(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1)
        before = bmc.password.get_secret_value()
        node_id, state = await commissioned(site, bmc)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert bmc.password.get_secret_value() != before
        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error

    by_profile(scenario, "rotate_bmc = true")


def test_the_hosts_ways_are_closed_before_a_tenant_is_there(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1, oem_kcs=True)
        node_id, state = await commissioned(site, bmc)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        with pytest.raises(Closed):
            bmc.host_side.add_account("mallory")
        assert "host-interface" not in await site.conditions(node_id)

    by_profile(scenario, "")


def test_a_host_way_that_the_bmc_does_not_tell_of_or_does_not_close_is_told(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        untold, lying = site.rack.add_redfish("m1", drives=1), site.rack.add_redfish("m2", drives=1, oem_kcs=True)
        site.rack.rule(Rule(action="ignore", method="PATCH", path=r"/HostInterfaces/[^/]+$", bmc="m2"))
        for bmc in (untold, lying):
            node_id, state = await commissioned(site, bmc)
            assert state is State.AVAILABLE, (await site.node(node_id)).last_error
            assert (await site.conditions(node_id))["host-interface"] == ("warning", "open")

    by_profile(scenario, "")


def test_a_host_way_that_cannot_be_closed_is_told(by_profile: Run) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_ipmi("m1")
        node_id, state = await commissioned(site, bmc)
        assert state is State.AVAILABLE, (await site.node(node_id)).last_error
        assert (await site.conditions(node_id))["host-interface"] == ("warning", "open")

    by_profile(scenario, "", '"none"')
