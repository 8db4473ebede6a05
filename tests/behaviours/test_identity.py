"""Who the machine is and what is in it."""

from __future__ import annotations

import pytest

from bcmetal.placeholders import normal_uuid
from bcmetal.states import State, Verb
from bcmetal_drivers.connection import Limits
from behaviours.frame import Case, Judge, Row, Shared
from emulated_site import Site

SYSTEM = r"/redfish/v1/Systems/[^/]+"
IMPATIENT = Limits(connect_s=2.0, read_s=1.0, total_s=12.0)


def known_by(kind: str, *words: str) -> Judge:
    """These identifiers, each with its source."""

    async def judge(case: Case) -> None:
        machine = case.bmc.machine
        wanted = {getattr(machine.hardware, word) for word in words}
        found = {i.raw for i in (await case.node()).identifiers if i.kind == kind}
        assert found == wanted
        assert {i.source for i in (await case.node()).identifiers} == {"bmc"}

    return judge


async def the_same_uuid(case: Case) -> None:
    """Compared, both byte orders are one."""
    [uuid] = [i for i in (await case.node()).identifiers if i.kind == "uuid"]
    assert uuid.value_norm == normal_uuid(str(case.bmc.machine.uuid))


async def both_nics(case: Case) -> None:
    """The two that the machine has, and no other."""
    inventory = await case.inventory()
    assert {nic["mac"] for nic in inventory.doc["nics"]} == set(case.bmc.machine.macs)
    assert set(inventory.doc["identity"]["macs"]) == set(case.bmc.machine.macs)


async def no_nics(case: Case) -> None:
    inventory = await case.inventory()
    assert inventory.doc["nics"] == []
    assert inventory.sections["nics"] == "absent"
    assert len(inventory.doc["drives"]) == 2


async def one_nic(case: Case) -> None:
    """The bad one is dropped, the good one stays."""
    inventory = await case.inventory()
    assert [nic["mac"] for nic in inventory.doc["nics"]] == [case.bmc.machine.macs[0]]


async def all_numbers(case: Case) -> None:
    inventory, machine = await case.inventory(), case.bmc.machine
    assert inventory.doc["memory_bytes"] == machine.hardware.memory_gib * 1024**3
    assert [cpu["cores"] for cpu in inventory.doc["cpus"]] == [16, 16]
    assert sum(dimm["capacityBytes"] for dimm in inventory.doc["dimms"]) == 64 * 1024**3
    assert {drive["capacity_bytes"] for drive in inventory.doc["drives"]} == {960_197_124_096}


async def without_what_is_none(case: Case) -> None:
    inventory = await case.inventory()
    assert inventory.doc["identity"]["asset_tag"] is None
    assert len(inventory.doc["cpus"]) == 2
    assert len(inventory.doc["drives"]) == 2


async def without_sizes(case: Case) -> None:
    inventory = await case.inventory()
    assert {drive["serial"] for drive in inventory.doc["drives"]} == set(case.bmc.machine.drives)
    assert {drive["capacity_bytes"] for drive in inventory.doc["drives"]} == {None}
    assert inventory.doc["memory_bytes"] == 64 * 1024**3  # the summary has it


async def nothing_made_up(case: Case) -> None:
    """No CPU is not known to be none: the rest is there."""
    inventory = await case.inventory()
    assert inventory.sections["cpus"].startswith("unknown")
    assert inventory.doc["memory_bytes"] is None
    assert len(inventory.doc["drives"]) == 2


async def by_the_summary(case: Case) -> None:
    """What the lists do not tell, the system's summary does."""
    inventory = await case.inventory()
    assert inventory.doc["dimms"] == []
    assert inventory.doc["memory_bytes"] == 64 * 1024**3
    assert len(inventory.doc["drives"]) == 2


def lacks(*sections: str) -> Judge:
    """The sections that are missing say why, and the rest is there."""

    async def judge(case: Case) -> None:
        inventory = await case.inventory()
        for name in sections:
            assert inventory.sections[name] != "ok", inventory.sections
        assert len(inventory.doc["drives"]) == 2
        assert len(inventory.doc["nics"]) == 2

    return judge


async def the_bmcs_maker(case: Case) -> None:
    node = await case.node()
    assert node.bmc is not None
    assert node.bmc.maker == "Supermicro"


async def a_drive_that_came(case: Case) -> None:
    """One is missing; after the BMC's reset it is there, and the change is kept."""
    inventory = await case.inventory()
    assert len(inventory.doc["drives"]) == 1
    case.bmc.set(misses_a_drive=False)
    assert await case.live(Verb.INSPECT) is State.INSPECTED
    after = await case.inventory()
    assert len(after.doc["drives"]) == 2
    assert after.inventory_id != inventory.inventory_id


ROWS = (
    Row("serial-is-the-boards", judge=known_by("serial", "board_serial")),
    Row("serial-is-the-boards", note="label", judge=known_by("sku", "sku")),
    Row("uuid-byte-order", until=Verb.COMMISSION, judge=the_same_uuid),
    Row("nics-none-listed", judge=no_nics),
    Row("nics-under-adapters-only", judge=both_nics),
    Row("nics-that-are-none", judge=both_nics),
    Row("one-bad-nic", judge=one_nic),
    Row("numbers-as-strings", judge=all_numbers),
    Row("arrays-for-scalars", judge=without_what_is_none),
    Row("capacity-null", judge=without_sizes),
    Row("off-reports-no-cpus", judge=nothing_made_up),
    Row("sections-404", judge=lacks("firmware")),
    Row("sections-400", judge=by_the_summary),
    Row("sections-time-out", limits=IMPATIENT, judge=lacks("cpus")),
    Row("manufacturer-is-another", judge=the_bmcs_maker),
    Row("device-missing-until-the-bmc-is-reset", judge=a_drive_that_came),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)


def test_blades_that_share_a_serial_are_two_machines_and_it_is_said(shared: Shared) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("blades", behaviours=("serial-shared-by-blades",))
        site.rack.start()
        nodes = [
            await site.enroll(bmc, system_path=f"/redfish/v1/Systems/{n}", name=f"blade-{n}") for n in bmc.by_system
        ]
        for node_id in nodes:
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
        assert (await site.conditions(nodes[1]))["identity"][1] == "shared-serial"

    shared.run(scenario)


def test_a_uuid_that_moved_to_another_nic_of_the_machine_leaves_it_the_machine_that_it_was(shared: Shared) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("by-nic", behaviours=("uuid-from-the-nic",))
        site.rack.start()
        node_id = await site.enroll(bmc)
        for verb in (Verb.INSPECT, Verb.COMMISSION):
            await site.live(node_id, verb)
        bmc.overlay({SYSTEM: {"UUID": "00000000-0000-0000-0000-<mac-2-bare>"}})
        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED

    shared.run(scenario)


def test_a_uuid_that_no_nic_of_the_machine_explains_is_another_machine(shared: Shared) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("another")
        site.rack.start()
        node_id = await site.enroll(bmc)
        for verb in (Verb.INSPECT, Verb.COMMISSION):
            await site.live(node_id, verb)
        bmc.overlay({SYSTEM: {"UUID": "5d1b2c3a-8e7f-4a6b-9c0d-1e2f3a4b5c6d"}})
        assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is not State.DEPLOYED
        error = (await site.node(node_id)).last_error
        assert error is not None
        assert error["code"] == "identity-changed"
        assert bmc.machine.boots == []

    shared.run(scenario)
