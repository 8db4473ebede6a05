"""A released machine's BMC is not believed: what its tenant planted there is removed, or named in a release that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from pydantic import SecretStr

from bcmetal.decisions import Params
from bcmetal.states import State, Verb
from bcmetal_drivers.emulated.accounts import Account
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.machine import FLOPPY
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerState
from emulated_site import OnASite, Site, a_site

SERVER = "ldap://192.0.2.66"
LISTENER = "https://192.0.2.66/events"


@pytest.fixture
def on_a_site(tmp_path: Path) -> OnASite:
    """SQLite alone: nothing here depends on the database."""

    def run(scenario: Callable[[Site], Awaitable[None]], erase: str = '["bmc"]') -> None:
        async def whole() -> None:
            async with a_site(tmp_path, None, erase) as site:
                await scenario(site)

        asyncio.run(whole())

    return run


def front(bmc: EmulatedBmc) -> RedfishFront:
    assert isinstance(bmc.front, RedfishFront)
    return bmc.front


async def deployed(site: Site, **quirks: Any) -> tuple[EmulatedBmc, str]:
    bmc = site.rack.add_redfish("m1", drives=1, **quirks)
    front(bmc).accounts.slots["7"] = Account("7", "monitoring", SecretStr(token_hex(8)), "ReadOnly")
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
    assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
    return bmc, node_id


def plant(bmc: EmulatedBmc) -> None:
    """As root on the host would, without a password."""
    bmc.host_side.add_account("mallory")
    bmc.host_side.use_directory(SERVER)
    bmc.host_side.subscribe(LISTENER)
    bmc.host_side.open_protocol("IPMI")
    bmc.host_side.log_in("HostAutoOS")  # an account that the host was given, and that is gone
    bmc.machine.insert("http://192.0.2.66/stick.img", "", slot=FLOPPY)


def test_a_planted_account_directory_subscription_and_protocol_are_removed(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site)
        plant(bmc)
        order = list(bmc.machine.board.boot_order)
        bmc.host_side.put_first(order[-1])
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
        there = front(bmc)
        assert bmc.machine.board.boot_order == order
        assert {one.username for one in there.accounts.slots.values()} == {bmc.username, "monitoring"}
        assert not there.outlets.directories["LDAP"].enabled
        assert there.outlets.subscriptions == {}
        assert there.outlets.protocols["IPMI"] is False
        assert bmc.host_side.sessions() == {bmc.username}
        assert bmc.machine.medium(FLOPPY) is None

    on_a_site(scenario)


def test_an_account_in_a_fixed_slot_is_emptied(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site, account_slots=16)
        plant(bmc)
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert "mallory" not in {one.username for one in front(bmc).accounts.slots.values() if one.enabled}

    on_a_site(scenario)


def test_bios_settings_are_put_back_by_a_start_of_the_machine_that_is_off_again_then(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site)
        machine = bmc.machine
        before = dict(machine.board.bios)
        bmc.host_side.change_bios("SriovGlobalEnable", "Enabled")
        bmc.host_side.change_bios("BootRetryCount", 9)
        machine.board.bios_pending["AcPowerRecovery"] = "On"
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert machine.board.bios == before
        assert machine.board.bios_pending == {}
        assert machine.power is PowerState.OFF
        assert machine.boots[-1].device == "bios-setup"

    on_a_site(scenario)


def test_the_tpm_is_cleared_by_the_start_that_brings_the_settings_back(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1)
        bmc.machine.board.bios["Tpm2Hierarchy"] = "Enabled"
        bmc, node_id = await deployed(site)
        bmc.host_side.change_bios("BootRetryCount", 9)
        boots = len(bmc.machine.boots)
        assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert bmc.machine.board.tpm_clears == 1
        assert bmc.machine.board.bios["BootRetryCount"] == 3
        assert len(bmc.machine.boots) == boots + 1

    on_a_site(scenario)


def test_what_cannot_be_put_back_is_named_in_a_release_that_fails(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc, node_id = await deployed(site)
        front(bmc).accounts.slots["7"].role = "Administrator"
        bmc.host_side.add_key(bmc.username, "ssh-ed25519 AAAA mallory")
        plant(bmc)
        assert await site.live(node_id, Verb.RELEASE) is State.RELEASE_FAILED
        error = (await site.node(node_id)).last_error
        assert error is not None
        assert (error["code"], error["step"]) == ("baseline-changed", "compare_the_baseline")
        key, role = error["message"].split("; ")
        assert key.startswith("account in slot 1 Keys was None, and is ")
        assert role == "account 'monitoring' in slot 7 had the role ReadOnly, and has Administrator"
        front(bmc).accounts.slots["7"].role = "ReadOnly"
        front(bmc).accounts.slots["1"].keys.clear()
        assert await site.live(node_id, Verb.RETRY, Params()) is State.AVAILABLE

    on_a_site(scenario)


def test_over_ipmi_a_planted_user_is_removed_and_a_changed_lan_setting_is_named(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_ipmi("m1")
        assert isinstance(bmc.front, IpmiFront)
        there = bmc.front
        site.rack.start()
        node_id = await site.enroll(bmc)
        await site.live(node_id, Verb.INSPECT)
        assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE, (await site.node(node_id)).last_error
        await site.store.write(_deployed, node_id)
        there.users.add("mallory", SecretStr(token_hex(8)), 4)
        there.commands.lan.set_parameter(12, bytes((192, 0, 2, 66)))
        assert await site.live(node_id, Verb.RELEASE) is State.RELEASE_FAILED
        error = (await site.node(node_id)).last_error
        assert error is not None
        assert "network.gateway was 0.0.0.0, and is 192.0.2.66" in error["message"]
        assert "mallory" not in error["message"]
        assert there.users.named("mallory") is None
        there.commands.lan.set_parameter(12, bytes(4))
        assert await site.live(node_id, Verb.RETRY) is State.AVAILABLE, (await site.node(node_id)).last_error
        assert (await site.conditions(node_id))["bmc-trust"] == ("warning", "unverified")

    on_a_site(scenario, '"none"')


def test_a_bmc_that_nobody_can_look_into_is_reused_or_held_as_the_pool_says(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("m1", drives=1)
        site.rack.start()
        for policy, held in (("reuse", False), ("hold", True)):
            node_id = await site.enroll(bmc, name=policy)
            await site.live(node_id, Verb.INSPECT)
            await site.set_node(node_id, system="present")
            await site.store.write(_deployed, node_id)
            site.set_pool(unverified_bmc=policy)
            assert await site.live(node_id, Verb.RELEASE) is State.AVAILABLE, (await site.node(node_id)).last_error
            assert (await site.conditions(node_id))["bmc-trust"] == ("warning", "unverified")
            assert (await site.node(node_id)).facts.protected is held
            await site.set_node(node_id, protected=False)
            assert await site.live(node_id, Verb.RETIRE) is State.RETIRED

    on_a_site(scenario)


def _deployed(c: Any, node_id: str) -> None:
    from sqlalchemy import text

    c.execute(text("UPDATE nodes SET state = 'deployed' WHERE node_id = :node_id"), {"node_id": node_id})
