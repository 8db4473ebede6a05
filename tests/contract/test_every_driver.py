"""What every driver holds to, whatever its BMC speaks."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pytest

from bcmetal_drivers.capabilities import BootOnce, Identifies, Inventories, Power, Readings, need
from bcmetal_drivers.connection import Credential, Limits
from bcmetal_drivers.errors import (
    DriverError,
    MaybeSent,
    NotAsAsked,
    Refused,
    RejectedCredentials,
    TimedOut,
    Transient,
    Unreachable,
    Unsupported,
)
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState
from driver_bench import LIMITS, Seat, a_wrong_credential


def power(seat: Seat) -> Power:
    return need(seat.open(), Power)


# ---------------------------------------------------------------- power


def test_power_follows_each_action(seat: Seat) -> None:
    bmc = power(seat)
    assert bmc.power_state() is PowerState.OFF
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON
    bmc.set_power(PowerAction.CYCLE)
    assert bmc.power_state() is PowerState.ON
    bmc.set_power(PowerAction.SOFT_OFF)
    assert bmc.power_state() is PowerState.OFF
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.OFF)
    assert bmc.power_state() is PowerState.OFF
    assert len(seat.bmc.machine.boots) == 3


def test_being_there_already_is_success(seat: Seat) -> None:
    bmc = power(seat)
    bmc.set_power(PowerAction.OFF)
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.ON)
    assert len(seat.bmc.machine.boots) == 1


def test_a_restart_of_a_machine_that_is_off_is_refused_and_starts_nothing(seat: Seat) -> None:
    bmc = power(seat)
    with pytest.raises(Refused):
        bmc.set_power(PowerAction.CYCLE)
    assert seat.bmc.machine.boots == []


def test_an_nmi_is_asked_for_once(seat: Seat) -> None:
    bmc = power(seat)
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.NMI)
    assert seat.bmc.machine.nmis == 1
    assert bmc.power_state() is PowerState.ON


@pytest.mark.parametrize("action", [PowerAction.SOFT_RESTART, PowerAction.POWER_CYCLE, PowerAction.PUSH_BUTTON])
def test_a_restart_of_another_kind_is_asked_for_once_or_not_offered(seat: Seat, action: PowerAction) -> None:
    bmc = power(seat)
    bmc.set_power(PowerAction.ON)
    before = len(seat.effects())
    try:
        bmc.set_power(action)
    except Unsupported:
        assert seat.bench.scheme == "ipmi" or seat.bmc.kind == "ipmi"
        assert len(seat.effects()) == before
    else:
        assert len(seat.effects()) == before + 1
        pressed = action is PowerAction.PUSH_BUTTON
        assert bmc.power_state() is (PowerState.OFF if pressed else PowerState.ON)
        assert len(seat.bmc.machine.boots) == (1 if pressed else 2)


def test_a_restart_that_the_bmc_does_not_have_is_unsupported_and_nothing_is_written(redfish: Seat) -> None:
    redfish.bmc.set(without_resets=("GracefulRestart", "PowerCycle"))
    bmc = power(redfish)
    bmc.set_power(PowerAction.ON)
    before = len(redfish.effects())
    for action in (PowerAction.SOFT_RESTART, PowerAction.POWER_CYCLE):
        with pytest.raises(Unsupported):
            bmc.set_power(action)
    assert len(redfish.effects()) == before


def test_a_power_action_does_not_wait_for_the_machine(seat: Seat) -> None:
    seat.bmc.set(power_lag_s=30.0)
    bmc = power(seat)
    began = time.monotonic()
    bmc.set_power(PowerAction.ON)
    assert time.monotonic() - began < 5
    assert bmc.power_state() is not PowerState.ON


def test_an_acknowledgement_that_is_a_lie_does_not_change_what_is_read(seat: Seat) -> None:
    fired = seat.disturb("power", "ignore")
    bmc = power(seat)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.OFF
    assert seat.rack.fired(fired) == 1


# ---------------------------------------------------------------- lost answers


def test_a_restart_whose_answer_is_lost_is_maybe_sent_and_reached_the_bmc_once(seat: Seat) -> None:
    bmc = power(seat)
    bmc.set_power(PowerAction.ON)
    before = len(seat.effects())
    seat.disturb("power", "drop_after")
    with pytest.raises(MaybeSent):
        bmc.set_power(PowerAction.CYCLE)
    assert len(seat.effects()) == before + 1
    assert len(seat.bmc.machine.boots) == 2


def test_a_power_on_whose_answer_is_lost_is_seen_to_have_happened(seat: Seat) -> None:
    bmc = power(seat)
    fired = seat.disturb("power", "drop_after")
    bmc.set_power(PowerAction.ON)
    assert seat.rack.fired(fired) == 1
    assert len(seat.effects()) == 1


def test_a_boot_override_whose_answer_is_lost_is_read_back(seat: Seat) -> None:
    bmc = need(seat.open(), BootOnce)
    fired = seat.disturb("boot", "drop_after")
    bmc.boot_once(BootDevice.PXE)
    assert seat.rack.fired(fired) == 1
    assert seat.bmc.machine.would_boot()[0] == BootDevice.PXE.value


# ---------------------------------------------------------------- boot


@pytest.mark.parametrize("device", [BootDevice.CD, BootDevice.PXE, BootDevice.DISK, BootDevice.BIOS_SETUP])
def test_a_boot_override_is_read_back_and_used_up_by_one_boot(seat: Seat, device: BootDevice) -> None:
    opened = seat.open()
    bmc = need(opened, BootOnce)
    bmc.boot_once(device, BootMode.UEFI)
    shown = bmc.boot_override()
    assert (shown.device, shown.once) == (device, True)
    assert seat.bmc.machine.override.device is device
    need(opened, Power).set_power(PowerAction.ON)
    assert bmc.boot_override().device is BootDevice.NONE
    assert seat.bmc.machine.would_boot()[0] == BootDevice.DISK.value


def test_a_boot_override_can_be_cleared(seat: Seat) -> None:
    bmc = need(seat.open(), BootOnce)
    bmc.boot_once(BootDevice.PXE)
    bmc.clear_boot_override()
    bmc.clear_boot_override()
    assert bmc.boot_override().device is BootDevice.NONE
    assert seat.bmc.machine.override.device is BootDevice.NONE


def test_a_boot_override_in_legacy_mode_is_shown_as_such(seat: Seat) -> None:
    bmc = need(seat.open(), BootOnce)
    bmc.boot_once(BootDevice.PXE, BootMode.LEGACY)
    assert bmc.boot_override().mode is BootMode.LEGACY


def test_a_boot_override_that_is_acknowledged_and_not_done_is_not_as_asked(seat: Seat) -> None:
    bmc = need(seat.open(), BootOnce)
    seat.disturb("boot", "ignore", times=None)
    with pytest.raises(NotAsAsked):
        bmc.boot_once(BootDevice.CD)
    assert seat.bmc.machine.override.device is BootDevice.NONE


# ---------------------------------------------------------------- logging in


def test_a_wrong_password_is_rejected_for_one_failed_login(seat: Seat) -> None:
    bmc = need(seat.open(credential=a_wrong_credential(seat.bmc.username)), Power)
    with pytest.raises(RejectedCredentials):
        bmc.power_state()
    assert seat.rack.failed_logins(seat.bmc) == seat.bench.failed_logins
    assert seat.effects() == []


def test_an_unknown_account_is_rejected(seat: Seat) -> None:
    bmc = need(seat.open(credential=a_wrong_credential("nobody")), Power)
    with pytest.raises(RejectedCredentials):
        bmc.power_state()


def test_a_rejected_password_does_not_stand_in_the_way_of_the_right_one(seat: Seat) -> None:
    wrong = need(seat.open(credential=a_wrong_credential(seat.bmc.username)), Power)
    with pytest.raises(RejectedCredentials):
        wrong.power_state()
    assert power(seat).power_state() is PowerState.OFF


def test_sessions_that_end_in_the_middle_are_opened_anew(seat: Seat) -> None:
    bmc = power(seat)
    bmc.set_power(PowerAction.ON)
    seat.bmc.front.drop_sessions()
    assert bmc.power_state() is PowerState.ON
    seat.bmc.front.drop_sessions()
    bmc.set_power(PowerAction.OFF)
    assert seat.bmc.machine.power is PowerState.OFF
    assert seat.rack.failed_logins(seat.bmc) == 0
    assert seat.rack.sessions(seat.bmc) <= 1


def test_no_session_is_left_at_the_bmc_after_close(seat: Seat) -> None:
    opened = seat.open()
    bmc = need(opened, Power)
    for _ in range(3):
        bmc.power_state()
    assert seat.rack.sessions(seat.bmc) <= 1
    opened.close()
    opened.close()
    assert seat.rack.sessions(seat.bmc) == 0


def test_closing_at_a_bmc_that_is_gone_is_quiet(seat: Seat) -> None:
    opened = seat.open()
    need(opened, Power).power_state()
    seat.rack.stop()
    began = time.monotonic()
    opened.close()
    assert time.monotonic() - began < 6


# ---------------------------------------------------------------- deadlines


def test_a_slow_bmc_times_out_within_the_deadline(seat: Seat) -> None:
    bmc = need(seat.open(Limits(connect_s=1, read_s=1, total_s=3)), Power)
    bmc.power_state()
    seat.disturb("look", "delay", times=None, seconds=30.0)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        bmc.power_state()
    assert time.monotonic() - began < 5


def test_a_closed_port_is_found_out_soon(seat: Seat) -> None:
    bmc = need(seat.open(Limits(connect_s=1, read_s=1, total_s=3), address=seat.closed_port()), Power)
    began = time.monotonic()
    with pytest.raises((Unreachable, TimedOut)):
        bmc.power_state()
    assert time.monotonic() - began < 5


def test_a_bmc_that_comes_back_is_driven_on(seat: Seat) -> None:
    bmc = need(seat.open(Limits(connect_s=1, read_s=1, total_s=3)), Power)
    bmc.power_state()
    away = seat.disturb("look", "drop_before", times=None)
    with pytest.raises(Transient):
        bmc.power_state()
    seat.rack.clear(away)
    assert bmc.power_state() is PowerState.OFF


# ---------------------------------------------------------------- observing, secrets


def test_an_observed_bmc_gets_no_write(seat: Seat) -> None:
    opened = seat.open(replace(LIMITS, write_allowed=False))
    with pytest.raises(Refused):
        need(opened, Power).set_power(PowerAction.ON)
    with pytest.raises(Refused):
        need(opened, BootOnce).boot_once(BootDevice.CD)
    assert need(opened, Power).power_state() is PowerState.OFF
    assert seat.effects() == []


def test_no_secret_is_in_an_error_or_in_the_log(seat: Seat, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = a_wrong_credential(seat.bmc.username)
    texts = [_trouble(seat, wrong)]
    seat.disturb("look", "refuse", times=None, status=500, code=0xFF)
    texts.append(_trouble(seat, seat.credential))
    for text in (*texts, caplog.text):
        assert text.count(wrong.password.get_secret_value()) == 0
        assert text.count(seat.bmc.password.get_secret_value()) == 0


def _trouble(seat: Seat, credential: Credential) -> str:
    with pytest.raises(DriverError) as raised:
        need(seat.open(credential=credential), Power).power_state()
    chain: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        chain.append(f"{error!r} {error}")
        error = error.__cause__
    return " ".join(chain)


# ---------------------------------------------------------------- reading


def test_who_the_machine_is_agrees_with_the_machine(seat: Seat) -> None:
    identity = need(seat.open(), Identifies).identity()
    machine = seat.bmc.machine
    assert (identity.product_uuid or "").lower() == str(machine.uuid)
    assert identity.serial == machine.serial
    assert set(identity.macs) <= set(machine.macs)


def test_the_bmc_says_what_it_is(seat: Seat) -> None:
    info = need(seat.open(), Identifies).bmc_info()
    assert info.firmware
    assert info.certificate_fp == (seat.bmc.fingerprint or None)


def test_the_inventory_says_of_each_section_how_it_went(seat: Seat) -> None:
    inventory = need(seat.open(), Inventories).inventory()
    assert inventory.sections["identity"] == "ok"
    assert {"cpus", "memory", "nics", "drives", "gpus", "tpm"} <= inventory.sections.keys()
    assert "Power" in inventory.capabilities


def test_a_reading_shows_the_power(seat: Seat) -> None:
    opened = seat.open()
    need(opened, Power).set_power(PowerAction.ON)
    assert need(opened, Readings).reading().power is PowerState.ON
