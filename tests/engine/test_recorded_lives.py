"""Machines whose BMCs are recorded trees go through their whole lives; the oracle judges each verb."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from bcmetal_drivers.emulated.recorded_source import RecordedSource, machine_of
from crash.life import LIFE
from emulated_site import OnASite, Site
from recorded.recordings import recorded
from recorded.tables import TREES

BMC_ERASES = ("dell-r750-idrac9-6.00",)


@pytest.mark.recordings
@pytest.mark.parametrize("name", TREES)
def test_a_recorded_machine_lives(name: str, on_a_site: OnASite) -> None:
    tree = recorded(name)

    async def scenario(site: Site) -> None:
        rack = site.rack
        machine = machine_of(tree, rack.clock)
        bmc = rack.add_redfish("r1", username="root", machine=machine, source=RecordedSource(tree, machine))
        rack.start()
        node_id = await site.enroll(bmc, system_path=f"/redfish/v1/Systems/{next(iter(bmc.by_system))}")
        for chapter in LIFE:
            boots = len(bmc.machine.boots)
            if chapter.plant and name in BMC_ERASES:
                for serial in bmc.machine.drives:
                    bmc.machine.plant(serial)
            state = await site.live(node_id, chapter.verb, chapter.params, **chapter.given)
            assert state is chapter.state, (chapter.verb, (await site.node(node_id)).last_error)
            assert chapter.judge(bmc, boots) == [], chapter.verb
        assert Verb.RETIRE is LIFE[-1].verb

    on_a_site(scenario, '["bmc"]' if name in BMC_ERASES else '"none"')
