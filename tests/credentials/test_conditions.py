"""The condition `credentials` says what is wrong with them, on both protocols, and ends when it is over."""

from __future__ import annotations

import secrets

import pytest
from pydantic import SecretStr

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store.values import OperationRow
from bcmetal.sweeps import sweep
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rule
from credentials.bmc_secrets import present, rotate, stored
from emulated_site import OnASite, Site

both = pytest.mark.parametrize("protocol", ["redfish", "ipmi"])


async def a_node(site: Site, protocol: str = "redfish") -> tuple[str, EmulatedBmc]:
    bmc = site.rack.add_redfish("m1") if protocol == "redfish" else site.rack.add_ipmi("m1")
    site.rack.start()
    node_id = await site.enroll(bmc)
    assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
    await site.lines.close_idle(-1.0)
    return node_id, bmc


async def refreshed(site: Site, node_id: str) -> OperationRow:
    operation_id = await site.queue(node_id, SideVerb.REFRESH)
    await site.settle()
    return await site.operation(operation_id)


async def condition(site: Site, node_id: str) -> tuple[str, str] | None:
    return (await site.conditions(node_id)).get("credentials")


async def later(site: Site, seconds: int = 61) -> int:
    """One sweep over new connections; how many machines answered."""
    await site.lines.close_idle(-1.0)
    site.clock.skip_to(Micros(site.clock.now() + seconds * SECOND))
    return await sweep(site.engine.doors, site.lines, "test-daemon")


@both
def test_a_password_that_was_changed_elsewhere_is_rejected_after_two_tries(protocol: str, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site, protocol)
        elsewhere = SecretStr(secrets.token_hex(8))
        if isinstance(bmc.front, IpmiFront):
            bmc.front.users.slots[2].password = elsewhere
        else:
            bmc.change_password(elsewhere)
        ended = await refreshed(site, node_id)
        assert (ended.status, ended.error and ended.error["code"]) == ("failed", "bmc-credentials-rejected")
        assert await condition(site, node_id) == ("error", "rejected")
        assert site.rack.failed_logins(bmc) <= 2
        await site.give_credentials(node_id, bmc.username, elsewhere)
        await site.settle()
        assert await condition(site, node_id) is None

    on_a_site(scenario)


def test_a_locked_account_is_left_alone_for_as_long_as_the_bmc_says(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, _ = await a_node(site)
        locked = Rule(
            action="refuse",
            method="POST",
            path="/Sessions$",
            status=403,
            code="AccountLocked",
            message="The account is locked.",
            headers={"Retry-After": "300"},
        )
        number = site.rack.rule(locked)
        assert await later(site) == 0
        assert await condition(site, node_id) == ("warning", "locked")
        for _ in range(3):
            assert await later(site) == 0
        assert site.rack.fired(number) == 1, "a login during a lock-out makes it longer"
        site.rack.clear(number)
        assert await later(site, 300) == 1
        assert await condition(site, node_id) is None

    on_a_site(scenario)


def test_a_password_that_must_be_changed_first_is_expired_until_it_is_rotated(on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, bmc = await a_node(site)
        assert isinstance(bmc.front, RedfishFront)
        bmc.front.accounts.slots["1"].must_change = True
        ended = await refreshed(site, node_id)
        assert (ended.status, ended.error and ended.error["code"]) == ("failed", "bmc-password-change-required")
        assert await condition(site, node_id) == ("error", "expired")
        assert (await rotate(site, node_id)).status == "done"
        assert await stored(site, node_id) == {"current.password": present(bmc)}
        assert await condition(site, node_id) is None
        assert (await refreshed(site, node_id)).status == "done"
        assert site.rack.failed_logins(bmc) == 0

    on_a_site(scenario)


@both
def test_nothing_is_known_of_a_password_whose_bmc_is_away(protocol: str, on_a_site: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id, _ = await a_node(site, protocol)
        site.rack.stop()
        for _ in range(3):
            assert await later(site) == 0
        assert await condition(site, node_id) == ("warning", "unreachable")
        site.rack.start()
        assert await later(site, 600) == 1
        assert await condition(site, node_id) is None

    on_a_site(scenario)
