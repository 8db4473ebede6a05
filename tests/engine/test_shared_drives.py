"""Storage that two machines see is erased by neither."""

from __future__ import annotations

import pytest

from bcmetal.states import Disks, SideVerb, State, Verb
from bcmetal_drivers.emulated.rack import EmulatedBmc
from emulated_site import OnASite, Site


def attach(bmc: EmulatedBmc, elsewhere: EmulatedBmc) -> str:
    """The first drive of one machine in another one too, as a switched enclosure does it; its serial."""
    serial, drive = next(iter(elsewhere.machine.drives.items()))
    bmc.machine.drives[serial] = drive
    return serial


async def fails_to_commission(site: Site, node_id: str, serial: str) -> None:
    before = (await site.node(node_id)).facts.disks
    assert await site.live(node_id, Verb.COMMISSION) is State.INSPECTED  # untouched
    node = await site.node(node_id)
    assert node.last_error is not None
    assert node.last_error["code"] == "erase-shared-drive"
    assert serial in node.last_error["message"]
    assert node.facts.disks is before


def test_a_drive_that_two_nodes_report_is_erased_by_neither(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        one, two = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        serial = attach(two, one)
        one.machine.plant(serial)
        site.rack.start()
        ids = [await site.enroll(bmc) for bmc in (one, two)]
        for node_id in ids:
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        for node_id in ids:
            await fails_to_commission(site, node_id, serial)
        assert one.machine.drives[serial].holds_data

    on_each_database(scenario)


def test_a_drive_that_was_moved_is_erased_once_its_old_machine_was_read_again(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        one, two = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        site.rack.start()
        ids = [await site.enroll(bmc) for bmc in (one, two)]
        assert await site.live(ids[0], Verb.INSPECT) is State.INSPECTED
        serial = attach(two, one)
        del one.machine.drives[serial]
        assert await site.live(ids[1], Verb.INSPECT) is State.INSPECTED
        await fails_to_commission(site, ids[1], serial)
        await site.queue(ids[0], SideVerb.REFRESH)
        await site.settle()
        assert await site.live(ids[1], Verb.COMMISSION) is State.AVAILABLE

    on_each_database(scenario)


@pytest.mark.parametrize("seen", ["by the plan", "by the erase itself"])
def test_what_another_node_is_found_to_see_meanwhile_is_not_erased(seen: str, on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        one, two = site.rack.add_redfish("m1"), site.rack.add_redfish("m2")
        site.rack.start()
        ids = [await site.enroll(bmc) for bmc in (one, two)]
        assert await site.live(ids[0], Verb.INSPECT) is State.INSPECTED
        serial = attach(two, one)
        one.machine.plant(serial)
        operation_id = await site.start(ids[0], Verb.COMMISSION)
        if seen == "by the erase itself":
            await site.up_to(operation_id, lambda operation, step: step == "erase_the_drives")
        await site.set_node(ids[0], maintenance=True)
        assert await site.live(ids[1], Verb.INSPECT) is State.INSPECTED
        await site.set_node(ids[0], maintenance=False)
        await site.settle()
        node = await site.node(ids[0])
        assert node.last_error is not None
        assert node.last_error["code"] == "erase-shared-drive"
        assert node.facts.disks is (Disks.HALF if seen == "by the erase itself" else Disks.FOREIGN)
        assert one.machine.drives[serial].holds_data

    on_each_database(scenario)
