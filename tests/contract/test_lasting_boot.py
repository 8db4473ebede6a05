"""What stays: the lasting boot device, the boot mode, and the keys of secure boot."""

from __future__ import annotations

from typing import Any

import pytest

from bcmetal_drivers.capabilities import (
    Bios,
    BootAlways,
    BootModes,
    BootOnce,
    SecureBoot,
    SecureBootKeys,
    need,
    offers,
)
from bcmetal_drivers.emulated.board import DATABASES
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.resources import BootDevice, BootMode, KeyReset, SecureBootMode
from driver_bench import Seat

SYSTEM = r"/Systems/1(/Settings)?$"
RESET_KEYS = r"ResetKeys$"


def boot(seat: Seat) -> str:
    """The device that it booted."""
    seat.boot()
    return seat.bmc.machine.boots[-1].device


# ---------------------------------------------------------------- boot device


def test_a_lasting_boot_device_is_booted_every_time(seat: Seat) -> None:
    opened = seat.open()
    if not offers(opened, BootAlways):
        pytest.skip("this driver has no lasting boot device")
    need(opened, BootAlways).boot_always(BootDevice.PXE)
    shown = need(opened, BootOnce).boot_override()
    assert (shown.device, shown.once) == (BootDevice.PXE, False)
    assert [boot(seat), boot(seat)] == [BootDevice.PXE.value] * 2
    need(opened, BootAlways).boot_always(BootDevice.NONE)
    assert boot(seat) == BootDevice.DISK.value


@pytest.mark.parametrize("where", ["system", "settings"])
def test_a_bmc_without_a_lasting_override_is_given_a_boot_order(redfish: Seat, where: str) -> None:
    redfish.bmc.set(continuous=False, boot_order=where)
    opened = redfish.open()
    need(opened, BootAlways).boot_always(BootDevice.PXE)
    written = len(redfish.effects())
    need(opened, BootAlways).boot_always(BootDevice.PXE)
    assert len(redfish.effects()) == written
    assert [boot(redfish), boot(redfish)] == [BootDevice.PXE.value] * 2
    need(opened, BootOnce).boot_once(BootDevice.DISK)
    assert [boot(redfish), boot(redfish)] == [BootDevice.DISK.value, BootDevice.PXE.value]


def test_a_bmc_that_refuses_it_without_having_said_so_is_given_a_boot_order(redfish: Seat) -> None:
    redfish.rack.rule(
        Rule(
            action="refuse",
            method="PATCH",
            path=SYSTEM,
            times=2,
            status=400,
            code="PropertyValueNotInList",
            message="Continuous is not acceptable.",
        )
    )
    need(redfish.open(), BootAlways).boot_always(BootDevice.PXE)
    assert boot(redfish) == BootDevice.PXE.value


def test_a_bmc_with_neither_does_not_support_a_lasting_boot_device(redfish: Seat) -> None:
    redfish.bmc.set(continuous=False, boot_order="none")
    with pytest.raises(Unsupported):
        need(redfish.open(), BootAlways).boot_always(BootDevice.PXE)
    redfish.bmc.set(boot_order="system")
    with pytest.raises(Unsupported, match="bios-setup"):
        need(redfish.open(), BootAlways).boot_always(BootDevice.BIOS_SETUP)


@pytest.mark.parametrize("quirks", [{}, {"continuous": False}], ids=["override", "order"])
def test_a_lasting_boot_device_that_is_acknowledged_and_not_set_is_not_as_asked(
    redfish: Seat, quirks: dict[str, Any]
) -> None:
    redfish.bmc.set(**quirks)
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path=SYSTEM))
    with pytest.raises(NotAsAsked):
        need(redfish.open(), BootAlways).boot_always(BootDevice.PXE)


# ---------------------------------------------------------------- boot mode


def test_a_one_time_boot_in_another_mode_is_booted_in_it(redfish: Seat) -> None:
    need(redfish.open(), BootOnce).boot_once(BootDevice.PXE, BootMode.LEGACY)
    boot(redfish)
    assert redfish.bmc.machine.boots[-1].mode == BootMode.LEGACY.value


@pytest.mark.parametrize("registry", [True, False])
def test_a_boot_mode_that_is_a_bios_setting_is_in_force_from_the_next_boot_on(redfish: Seat, registry: bool) -> None:
    redfish.bmc.set(mode_writable=False, bios_registry=registry)
    opened = redfish.open()
    need(opened, BootModes).set_boot_mode(BootMode.LEGACY)
    assert need(opened, Bios).bios().pending == {"BootMode": "Bios"}
    boot(redfish)
    assert need(opened, BootModes).boot_mode() is BootMode.LEGACY
    assert redfish.bmc.machine.boots[-1].mode == BootMode.LEGACY.value


def test_a_boot_mode_that_can_be_set_nowhere_is_refused(redfish: Seat) -> None:
    redfish.bmc.set(mode_writable=False, bios=False)
    with pytest.raises(Refused):
        need(redfish.open(), BootModes).set_boot_mode(BootMode.LEGACY)


# ---------------------------------------------------------------- keys of secure boot


@pytest.mark.parametrize("by", ["resource", "databases"])
def test_the_keys_of_secure_boot_are_reset_by_the_next_boot(seat: Seat, by: str) -> None:
    opened = seat.open()
    if not offers(opened, SecureBootKeys):
        pytest.skip("this driver cannot reset keys")
    bmc, board = need(opened, SecureBootKeys), seat.bmc.machine.board
    seat.bmc.set(secure_boot_keys=by)
    board.keys.update(db="custom", PK="custom")
    bmc.reset_secure_boot_keys(KeyReset.FACTORY)
    assert board.keys["db"] == "custom"
    boot(seat)
    assert board.keys == dict.fromkeys(DATABASES, "factory")
    assert bmc.secure_boot_mode() is SecureBootMode.USER
    bmc.reset_secure_boot_keys(KeyReset.DELETE_PK)
    boot(seat)
    assert bmc.secure_boot_mode() is SecureBootMode.SETUP
    assert board.keys["db"] == "factory"
    bmc.reset_secure_boot_keys(KeyReset.DELETE_ALL)
    boot(seat)
    assert board.keys == dict.fromkeys(DATABASES, "none")


def test_secure_boot_is_not_in_force_without_a_platform_key(redfish: Seat) -> None:
    opened = redfish.open()
    need(opened, SecureBoot).set_secure_boot(True)
    boot(redfish)
    assert redfish.bmc.machine.secure_boot_in_force
    need(opened, SecureBootKeys).reset_secure_boot_keys(KeyReset.DELETE_PK)
    boot(redfish)
    assert not redfish.bmc.machine.secure_boot_in_force


def test_a_key_reset_that_is_acknowledged_and_not_done_is_seen_after_the_boot(redfish: Seat) -> None:
    bmc = need(redfish.open(), SecureBootKeys)
    redfish.rack.rule(Rule(action="ignore", method="POST", path=RESET_KEYS))
    bmc.reset_secure_boot_keys(KeyReset.DELETE_PK)
    boot(redfish)
    assert bmc.secure_boot_mode() is SecureBootMode.USER


def test_a_key_reset_is_asked_for_once(redfish: Seat) -> None:
    bmc = need(redfish.open(), SecureBootKeys)
    redfish.rack.rule(Rule(action="drop_after", method="POST", path=RESET_KEYS, times=1))
    with pytest.raises(MaybeSent):
        bmc.reset_secure_boot_keys(KeyReset.FACTORY)
    assert len(redfish.effects()) == 1


def test_a_bmc_that_cannot_reset_keys_says_so(redfish: Seat) -> None:
    redfish.bmc.set(secure_boot_keys="none")
    with pytest.raises(Unsupported):
        need(redfish.open(), SecureBootKeys).reset_secure_boot_keys(KeyReset.FACTORY)
    assert redfish.effects() == []
