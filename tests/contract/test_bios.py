"""BIOS settings: written, waiting, in force after a boot, and every way in which they are not."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.capabilities import Bios, need, offers
from bcmetal_drivers.emulated.board import DEFAULTS
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import Busy, MaybeSent, NotAsAsked, Refused, ServerFault, Unsupported
from bcmetal_drivers.resources import BiosValue, BootMode
from driver_bench import Seat

SETTINGS = r"/Bios/(Settings|SD|Pending)$"
WANTED: dict[str, BiosValue] = {"ProcVirtualization": "Disabled", "BootRetryCount": 5, "QuietBoot": False}


def truth(seat: Seat) -> dict[str, BiosValue]:
    return {name: seat.bmc.machine.board.bios[name] for name in WANTED}


def test_bios_settings_wait_for_the_next_boot_and_are_in_force_after_it(seat: Seat) -> None:
    opened = seat.open()
    if not offers(opened, Bios):
        pytest.skip("this driver has no BIOS settings")
    bmc = need(opened, Bios)
    before = bmc.bios()
    assert before.attributes == DEFAULTS
    assert not before.pending
    bmc.set_bios(WANTED)
    waiting = bmc.bios()
    assert waiting.attributes == DEFAULTS
    assert waiting.pending == WANTED
    seat.boot()
    after = bmc.bios()
    assert after.attributes == {**DEFAULTS, **WANTED}
    assert not after.pending
    assert not after.rejected
    bmc.reset_bios()
    seat.boot()
    assert bmc.bios().attributes == DEFAULTS


FORMS: tuple[dict[str, Any], ...] = (
    {"bios_settings": "all"},
    {"bios_settings": "none", "bios_settings_at": "SD"},
    {"bios_settings_at": "Pending", "bios_settings_linked": False},
    {"bios_apply_time": "demanded"},
    {"bios_apply_time": "refused"},
    {"bios_job": True, "bios_apply_time": "demanded"},
    {"bios_registry": False},
    {"etag": True, "etag_form": "weak"},
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_each_form_of_settings_resource_is_written_once_and_comes_into_force(
    redfish: Seat, form: dict[str, Any]
) -> None:
    redfish.bmc.set(**form)
    bmc = need(redfish.open(), Bios)
    bmc.set_bios(WANTED)
    written = len(redfish.effects())
    if form.get("bios_settings") != "none":
        assert bmc.bios().pending == WANTED
        bmc.set_bios(WANTED)
        assert len(redfish.effects()) == written
    redfish.boot()
    assert truth(redfish) == WANTED
    assert not bmc.bios().pending


def test_a_change_that_takes_place_at_the_end_of_its_task_is_waited_for(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="task", method="PATCH", path=SETTINGS, seconds=0.3))
    bmc = need(redfish.open(), Bios)
    bmc.set_bios(WANTED)
    assert bmc.bios().pending == WANTED


def test_a_change_whose_task_fails_is_refused(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="task", method="PATCH", path=SETTINGS, seconds=0.1, ends="exception"))
    with pytest.raises(Refused):
        need(redfish.open(), Bios).set_bios(WANTED)


def test_what_is_so_already_is_not_written(redfish: Seat) -> None:
    bmc = need(redfish.open(), Bios)
    bmc.set_bios({"QuietBoot": True, "BootRetryCount": "3"})
    assert redfish.effects() == []
    bmc.set_bios({"BootRetryCount": "4", "QuietBoot": "false"})
    assert bmc.bios().pending == {"BootRetryCount": 4, "QuietBoot": False}


@pytest.mark.parametrize("registry", [True, False])
def test_names_that_do_not_exist_or_cannot_be_written_are_refused_by_name(redfish: Seat, registry: bool) -> None:
    redfish.bmc.set(bios_registry=registry)
    bmc = need(redfish.open(), Bios)
    with pytest.raises(Refused, match="NoSuchThing"):
        bmc.set_bios({"NoSuchThing": "Enabled", **WANTED})
    with pytest.raises(Refused, match="SystemBiosVersion"):
        bmc.set_bios({"SystemBiosVersion": "9.9.9", **WANTED})
    redfish.boot()
    assert redfish.bmc.machine.board.bios == DEFAULTS


def test_a_value_that_the_bmc_does_not_take_is_refused_and_none_is_written(redfish: Seat) -> None:
    bmc = need(redfish.open(), Bios)
    with pytest.raises(Refused, match="ProcVirtualization"):
        bmc.set_bios({**WANTED, "ProcVirtualization": "Perhaps"})
    assert not bmc.bios().pending


def test_what_a_boot_rejects_is_told_with_its_reason(redfish: Seat) -> None:
    redfish.bmc.set(bios_rejects=("ProcVirtualization",))
    bmc = need(redfish.open(), Bios)
    bmc.set_bios(WANTED)
    redfish.boot()
    state = bmc.bios()
    assert list(state.rejected) == ["ProcVirtualization"]
    assert "depends on another setting" in state.rejected["ProcVirtualization"]
    assert state.attributes["ProcVirtualization"] == "Enabled"
    assert state.attributes["BootRetryCount"] == 5


def test_settings_that_a_boot_forgets_are_seen_not_to_be_in_force(redfish: Seat) -> None:
    redfish.bmc.set(bios_lie="lost")
    bmc = need(redfish.open(), Bios)
    bmc.set_bios(WANTED)
    redfish.boot()
    state = bmc.bios()
    assert not state.pending
    assert state.attributes == DEFAULTS


def test_a_write_that_is_acknowledged_and_not_done_is_not_as_asked(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path=SETTINGS))
    with pytest.raises(NotAsAsked, match="QuietBoot"):
        need(redfish.open(), Bios).set_bios(WANTED)


def test_a_write_whose_answer_is_lost_is_read_back(redfish: Seat) -> None:
    bmc = need(redfish.open(), Bios)
    redfish.rack.rule(Rule(action="drop_after", method="PATCH", path=SETTINGS, times=1))
    bmc.set_bios(WANTED)
    assert bmc.bios().pending == WANTED
    redfish.rack.rule(Rule(action="drop_before", method="PATCH", path=SETTINGS, times=1))
    with pytest.raises(MaybeSent):
        bmc.set_bios({"BootRetryCount": 7})
    assert len(redfish.effects()) == 1


def test_settings_during_post_are_a_passing_fault(redfish: Seat) -> None:
    redfish.bmc.set(bios_post_s=3600.0)
    redfish.boot()
    bmc = need(redfish.open(), Bios)
    with pytest.raises(ServerFault):
        bmc.bios()
    with pytest.raises(ServerFault):
        bmc.set_bios(WANTED)
    redfish.bmc.set(bios_post_s=0.0)
    bmc.set_bios(WANTED)


def test_a_bmc_that_was_told_no_settings_yet_is_asked_again_later(redfish: Seat) -> None:
    redfish.bmc.machine.board.bios.clear()
    with pytest.raises(Busy):
        need(redfish.open(), Bios).set_bios(WANTED)


def test_a_model_without_bios_settings_says_so(redfish: Seat) -> None:
    redfish.bmc.set(bios=False)
    bmc = need(redfish.open(), Bios)
    for ask in (bmc.bios, bmc.reset_bios, lambda: bmc.set_bios(WANTED)):
        with pytest.raises(Unsupported):
            ask()


def test_a_boot_mode_among_the_settings_is_in_force_from_the_next_boot_on(redfish: Seat) -> None:
    bmc = need(redfish.open(), Bios)
    bmc.set_bios({"BootMode": "Bios"})
    assert redfish.bmc.machine.boot_mode is BootMode.UEFI
    redfish.boot()
    assert redfish.bmc.machine.boots[-1].mode == BootMode.LEGACY.value
