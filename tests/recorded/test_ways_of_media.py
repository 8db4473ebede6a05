"""Virtual media in the ways that makers' trees offer it."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.errors import Unsupported
from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import MANAGER, ROOT, SYSTEM, Docs, collection

ISO = "https://192.0.2.1/boot/a.iso"
SLOTS = f"{MANAGER}/VirtualMedia"


def with_slots(**slots: dict[str, Any]) -> Docs:
    docs = trees.bare()
    del docs[f"{SLOTS}/CD1"]
    collection(docs, SLOTS, slots, "VirtualMedia")
    return docs


def by_the_standard(slot: str) -> dict[str, Any]:
    where = f"{SLOTS}/{slot}/Actions/VirtualMedia"
    return {f"#VirtualMedia.{name}": {"target": f"{where}.{name}"} for name in ("InsertMedia", "EjectMedia")}


def by_its_own(slot: str) -> dict[str, Any]:
    target = f"{SLOTS}/{slot}/Oem/Maker/Actions/VirtualMedia.VmmControl"
    return {"#VirtualMedia.VmmControl": {"target": target}}


def put_in_and_out(docs: Docs) -> str:
    """The slot that took it."""
    with bmc_of(docs) as bmc:
        slot = bmc.insert(ISO)
        assert [one.url for one in bmc.inserted() if one.inserted] == [ISO]
        bmc.eject()
        assert not any(one.inserted for one in bmc.inserted())
        return slot.path.rpartition("/")[2]


@pytest.mark.parametrize("where", ["Oem", "Actions"])
def test_a_slot_that_only_a_makers_own_action_fills_is_filled_by_it(where: str) -> None:
    own = by_its_own("CD")
    told = {"Oem": {"Maker": {"Actions": own}}} if where == "Oem" else {"Actions": {"Oem": own}}
    docs = with_slots(
        CD={"MediaTypes": ["CD"], "Inserted": False, **told}, USBStick={"MediaTypes": ["USBStick"], **told}
    )
    assert put_in_and_out(docs) == "CD"


def test_the_standards_action_is_taken_before_a_makers_own() -> None:
    docs = with_slots(
        CD1={"MediaTypes": ["CD"], "Oem": {"Maker": {"Actions": by_its_own("CD1")}}, "Inserted": True, "Image": "old"},
        CD2={"MediaTypes": ["CD"], "Actions": by_the_standard("CD2"), "Oem": {"Maker": {"Actions": by_its_own("CD2")}}},
    )
    docs[f"{SLOTS}/CD2"]["Oem"]["Maker"]["Actions"]["#VirtualMedia.VmmControl"]["target"] = f"{ROOT}/Nowhere"
    assert put_in_and_out(docs) == "CD2"


@pytest.mark.parametrize(
    ("slot", "told", "takes"),
    [
        ("Slot_0", {}, True),
        ("Slot_0", {"MediaTypes": []}, True),
        ("EXT1", {"MediaTypes": ["CD/DVD", "USBStick"]}, True),
        ("1", {"MediaTypes": ["CDROM"]}, True),
        ("Slot_0", {"MediaTypes": ["Floppy"]}, False),
        ("HD1", {}, False),
        ("RemovableDisk", {"MediaTypes": None}, False),
    ],
)
def test_a_slot_is_for_a_cd_where_it_says_so_or_says_nothing(slot: str, told: dict[str, Any], takes: bool) -> None:
    docs = with_slots(**{slot: {"Inserted": False, "Actions": by_the_standard(slot), **told}})
    if takes:
        assert put_in_and_out(docs) == slot
    else:
        with bmc_of(docs) as bmc, pytest.raises(Unsupported, match="no virtual CD"):
            bmc.insert(ISO)


def test_a_slot_that_says_nothing_and_takes_nothing_is_none() -> None:
    with bmc_of(with_slots(Slot_0={"Inserted": False})) as bmc, pytest.raises(Unsupported, match="no virtual CD"):
        bmc.insert(ISO)


def switched_off() -> Docs:
    docs = with_slots(CD1={"MediaTypes": ["CD"], "Inserted": False, "Actions": by_the_standard("CD1")})
    docs[SLOTS] |= {"Members": [], "Members@odata.count": 0}
    docs[MANAGER]["Oem"] = {"Ami": {"VirtualMedia": {"RMediaStatus": "Disabled"}}}
    docs[MANAGER]["Actions"] = {
        "Oem": {
            "#AMIManager.RedfishDBReset": {"target": f"{MANAGER}/Actions/Oem/AMIManager.RedfishDBReset"},
            "#AMIVirtualMedia.EnableRMedia": {"target": f"{MANAGER}/Actions/Oem/AMIVirtualMedia.EnableRMedia"},
        }
    }
    return docs


def test_slots_that_are_switched_off_are_switched_on_to_insert_and_not_to_look() -> None:
    with bmc_of(switched_off()) as bmc, pytest.raises(Unsupported):
        bmc.inserted()
    assert put_in_and_out(switched_off()) == "cd1"
    docs = switched_off()
    docs[MANAGER]["Oem"]["Ami"]["VirtualMedia"]["RMediaStatus"] = "Enabled"
    with bmc_of(docs) as bmc, pytest.raises(Unsupported, match="no virtual CD"):
        bmc.insert(ISO)


def test_slots_under_the_system_are_taken_first() -> None:
    docs = trees.bare()
    own = f"{SYSTEM}/VirtualMedia"
    actions = {
        f"#VirtualMedia.{name}": {"target": f"{own}/1/Actions/VirtualMedia.{name}"}
        for name in ("InsertMedia", "EjectMedia")
    }
    docs[SYSTEM]["VirtualMedia"] = collection(docs, own, {"1": {"MediaTypes": ["DVD"], "Actions": actions}})
    assert put_in_and_out(docs) == "1"
