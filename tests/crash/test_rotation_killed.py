"""A rotation killed after each of its effects: a password that works is stored at every moment, and the rotation comes to its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bcmetal.states import SideVerb, State, Verb
from bcmetal_drivers.emulated.faults import Rule
from crash.effects import Crashed, Effects, MortalStore
from credentials.bmc_secrets import present, stored
from emulated_site import Site, a_site

LOST = Rule(action="drop_after", method="PATCH", path=r"/AccountService/Accounts/1$", times=1)


@pytest.mark.parametrize(
    ("protocol", "fault", "first"),
    [("redfish", None, 1), ("redfish", LOST, 7), ("ipmi", None, 7)],  # up to the sending all go the same way
    ids=["redfish", "answer-lost", "ipmi"],
)
def test_a_rotation_killed_after_any_effect_ends_with_the_password_that_is_stored(
    protocol: str, fault: Rule | None, first: int, tmp_path: Path
) -> None:
    async def run() -> None:
        async with a_site(tmp_path) as site:
            bmc = site.rack.add_redfish("m1") if protocol == "redfish" else site.rack.add_ipmi("m1")
            site.rack.start()
            node_id = await site.enroll(bmc)
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
            effects = Effects(site.rack, site.store)
            site.engines_store = MortalStore(site.store, effects)
            await site.restart()
            killed: list[str] = []
            while True:
                failed = site.rack.failed_logins(bmc)
                rule = site.rack.rule(fault) if fault is not None else None
                operation_id = await site.queue(node_id, SideVerb.ROTATE_BMC_CREDENTIALS)
                before = present(bmc)
                effects.begin(first + len(killed))
                with suppress(Crashed):
                    await site.settle()
                died, last = effects.dead, effects.seen[-1]
                assert present(bmc) in (await stored(site, node_id)).values(), f"lost after {last}"
                effects.begin()
                if rule is not None:
                    site.rack.clear(rule)
                await end_of(site, node_id, operation_id)
                assert present(bmc) != before, last
                assert await stored(site, node_id) == {"current.password": present(bmc)}, last
                assert site.rack.failed_logins(bmc) - failed <= 2, last
                if not died:
                    break
                killed.append(last)
            assert first + len(killed) > 9
            assert any("set-user-password" in one or "PATCH" in one for one in killed), killed

    asyncio.run(run())


async def end_of(site: Site, node_id: str, operation_id: str) -> None:
    await site.restart()
    await site.settle()
    operation = await site.operation(operation_id)
    assert (operation.status, operation.error) == ("done", None)
