"""What is proven through one node behind a BMC holds for the others behind it."""

from __future__ import annotations

import secrets

import pytest
from pydantic import SecretStr

from bcmetal.decisions import SECOND, Micros
from bcmetal.states import SideVerb, State, Verb
from bcmetal.sweeps import SWEEP_EVERY_S, sweep
from emulated_site import OnASite, Site


async def later(site: Site) -> int:
    """One sweep over new connections; how many machines answered."""
    await site.lines.close_idle(older_s=-1.0)
    site.clock.skip_to(Micros(site.clock.now() + (SWEEP_EVERY_S + 1) * SECOND))
    return await sweep(site.engine.doors, site.lines, "test-daemon")


@pytest.mark.parametrize("proven_by", ["setBmcCredentials", "refresh"])
def test_credentials_that_one_node_proved_are_good_for_all_behind_the_bmc(
    proven_by: str, on_each_database: OnASite
) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("blades", systems=2)
        site.rack.start()
        paths = [f"/redfish/v1/Systems/{system}" for system in bmc.by_system]
        ids = [await site.enroll(bmc, system_path=path, name=f"blade-{n}") for n, path in enumerate(paths)]
        for node_id in ids:
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        before = bmc.password
        bmc.change_password(SecretStr(secrets.token_urlsafe(12)))
        for _ in range(2):  # a password that worked is not given up after one refusal
            assert await later(site) == 0
        for node_id in ids:
            assert (await site.conditions(node_id))["credentials"] == ("error", "rejected")
        if proven_by == "setBmcCredentials":
            await site.give_credentials(ids[0], bmc.username, bmc.password)
        else:
            bmc.change_password(before)  # somebody put it back
            site.clock.skip_to(Micros(site.clock.now() + 11 * 60 * SECOND))
            await site.queue(ids[0], SideVerb.REFRESH)
        await site.settle()
        for node_id in ids:
            assert "credentials" not in await site.conditions(node_id)
        assert await later(site) == 2

    on_each_database(scenario)
