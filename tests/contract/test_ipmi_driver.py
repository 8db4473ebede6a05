"""The IPMI driver against the emulated IPMI BMC: what it asks for, what it makes of lies, losses and slowness."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyghmi.ipmi.private import session as pyghmi_session

from bcmetal_drivers import ipmi_packets
from bcmetal_drivers.capabilities import (
    Accounts,
    Baseline,
    BootOnce,
    DriveErase,
    Identifies,
    Inventories,
    Power,
    Readings,
    VirtualMedia,
    need,
    offers,
)
from bcmetal_drivers.errors import (
    Busy,
    MaybeSent,
    NotAsAsked,
    Refused,
    TimedOut,
    Unsupported,
)
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import BootDevice, BootMode, BootOverride, PowerAction, PowerState
from driver_bench import a_secret
from ipmi_bench import LIMITS, IpmiBench, Wrote, an_ipmi_bench, driving

SHORT = replace(LIMITS, total_s=3)


# ---------------------------------------------------------------- what it can do


def test_it_offers_what_ipmi_has_and_nothing_more(bmc: IpmiBmc) -> None:
    for capability in (Power, Readings, BootOnce, Identifies, Inventories, Accounts, Baseline):
        assert offers(bmc, capability)
    for absent in (VirtualMedia, DriveErase):
        with pytest.raises(Unsupported):
            need(bmc, absent)


def test_power_follows_each_action(bmc: IpmiBmc, bench: IpmiBench) -> None:
    assert bmc.power_state() is PowerState.OFF
    bmc.set_power(PowerAction.ON)
    assert bmc.reading().power is PowerState.ON
    bmc.set_power(PowerAction.CYCLE)
    assert len(bench.machine.boots) == 2
    bmc.set_power(PowerAction.NMI)
    assert bench.machine.nmis == 1
    bmc.set_power(PowerAction.SOFT_OFF)
    assert bmc.power_state() is PowerState.OFF


def test_being_there_already_is_success(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.set_power(PowerAction.OFF)
    bench.rule("chassis-control", "refuse", code=0xD5)
    bmc.set_power(PowerAction.OFF)
    assert bench.machine.boots == []


def test_a_cycle_of_a_machine_that_is_off_is_refused(bmc: IpmiBmc) -> None:
    with pytest.raises(Refused, match="is off"):
        bmc.set_power(PowerAction.CYCLE)


def test_a_refusal_in_the_present_state_is_worth_a_retry(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("chassis-control", "refuse", code=0xD5)
    with pytest.raises(Busy):
        bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON


@pytest.mark.parametrize("device", [BootDevice.PXE, BootDevice.DISK, BootDevice.CD, BootDevice.BIOS_SETUP])
@pytest.mark.parametrize("mode", [BootMode.UEFI, BootMode.LEGACY])
def test_the_boot_device_holds_for_one_boot(bmc: IpmiBmc, bench: IpmiBench, device: BootDevice, mode: BootMode) -> None:
    bmc.boot_once(device, mode)
    assert bmc.boot_override() == BootOverride(device, once=True, mode=mode)
    bmc.set_power(PowerAction.ON)
    assert bmc.boot_override().device is BootDevice.NONE
    expected = "disk" if device is BootDevice.CD else device.value  # no medium: it falls through
    assert [(b.device, b.mode) for b in bench.machine.boots] == [(expected, mode.value)]


def test_clearing_the_override_is_read_back(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.boot_once(BootDevice.PXE)
    bmc.clear_boot_override()
    assert bench.machine.override.device is BootDevice.NONE
    bmc.boot_once(BootDevice.PXE)
    bench.rule("set-boot-options", "ignore", path="none")
    with pytest.raises(NotAsAsked):
        bmc.clear_boot_override()


def test_a_bmc_that_acknowledges_and_does_nothing_is_caught(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-boot-options", "ignore", path="pxe", times=None)
    with pytest.raises(NotAsAsked, match="shows none"):
        bmc.boot_once(BootDevice.PXE)


def test_a_lost_uefi_flag_is_caught_where_a_mode_was_asked_for(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("forgets_uefi", True)
    with pytest.raises(NotAsAsked, match="legacy"):
        bmc.boot_once(BootDevice.PXE, BootMode.UEFI)
    bmc.boot_once(BootDevice.PXE)


def test_boot_flags_do_not_lapse_where_parameter_3_is_taken(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("flags_lapse_s", 0.0)
    bmc.boot_once(BootDevice.PXE)
    assert bmc.boot_override().device is BootDevice.PXE


def test_boot_flags_lapse_where_parameter_3_is_refused(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("parameter_3", False)
    bmc.boot_once(BootDevice.PXE)
    bench.front.set("flags_lapse_s", 0.0)
    bmc.set_power(PowerAction.ON)
    assert [boot.device for boot in bench.machine.boots] == ["disk"]


def test_identity_and_baseline_say_who_it_is(bmc: IpmiBmc, bench: IpmiBench) -> None:
    identity = bmc.identity()
    assert identity.product_uuid == str(bench.machine.uuid)
    assert (identity.serial, identity.manufacturer, identity.macs) == (bench.machine.serial, "Acme", ())
    info = bmc.bmc_info()
    assert (info.maker, info.firmware) == ("Supermicro", "3.74")
    assert info.clock is not None
    baseline = bmc.baseline()
    assert baseline["firmware"] == "3.74"
    assert baseline["accounts"] == [{"slot": "2", "username": "admin", "role": "ADMINISTRATOR", "enabled": True}]
    assert bmc.baseline() == baseline


def test_flags_that_are_lost_once_are_written_again(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-boot-options", "ignore", path="pxe")
    bmc.boot_once(BootDevice.PXE, BootMode.UEFI)
    assert bench.machine.override.device is BootDevice.PXE


def test_the_inventory_has_what_records_tell_of(bmc: IpmiBmc, bench: IpmiBench) -> None:
    inventory = bmc.inventory()
    assert inventory.psus == (
        {
            "id": "PS1 FRU",
            "name": "DPS-1200",
            "manufacturer": "Delta",
            "partNumber": "PWS-1K2",
            "serial": f"PSU{bench.machine.serial}",
        },
    )
    assert [fan["name"] for fan in inventory.fans] == ["FAN1"]
    assert (inventory.sections["psus"], inventory.sections["fans"], inventory.sections["memory"]) == (
        "ok",
        "ok",
        "absent",
    )


@pytest.mark.parametrize(("code", "says"), [(0xC1, "absent"), (0xFF, "partial: ")])
def test_records_that_cannot_be_read_cost_the_parts_alone(bmc: IpmiBmc, bench: IpmiBench, code: int, says: str) -> None:
    bench.rule("get-sdr", "refuse", times=None, code=code)
    inventory = bmc.inventory()
    assert inventory.identity.serial == bench.machine.serial
    assert inventory.sections["psus"].startswith(says)


def test_a_fru_with_a_bad_checksum_is_read_and_named(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("fru", "checksum")
    inventory = bmc.inventory()
    assert inventory.identity.serial == bench.machine.serial
    assert "checksum" in inventory.sections["identity"]


@pytest.mark.parametrize("fru", ["garbled", "absent"])
def test_a_bad_fru_costs_its_section_only(bmc: IpmiBmc, bench: IpmiBench, fru: str) -> None:
    bench.front.set("fru", fru)
    inventory = bmc.inventory()
    assert inventory.identity.serial is None
    assert inventory.identity.product_uuid == str(bench.machine.uuid)
    assert inventory.sections["identity"] not in ("ok", "")
    assert inventory.sections["bmc"] == "ok"


# ---------------------------------------------------------------- writes, lost and refused


@pytest.mark.parametrize("action", [PowerAction.ON, PowerAction.OFF])
def test_a_lost_answer_is_looked_after_and_not_sent_again(bmc: IpmiBmc, bench: IpmiBench, action: PowerAction) -> None:
    bmc.set_power(PowerAction.ON if action is PowerAction.OFF else PowerAction.OFF)
    rule = bench.rule("chassis-control", "drop_after", times=None)
    bmc.set_power(action)
    assert rule.fired == 1


def test_a_command_that_never_arrived_is_sent_once_more(bmc: IpmiBmc, bench: IpmiBench) -> None:
    rule = bench.rule("chassis-control", "drop_before")
    bmc.set_power(PowerAction.ON)
    assert (rule.fired, bench.effects("chassis-control")) == (1, ["on"])
    assert bmc.power_state() is PowerState.ON


def test_a_reset_whose_answer_is_lost_reaches_the_bmc_once(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.set_power(PowerAction.ON)
    bench.rule("chassis-control", "drop_after", times=None)
    with pytest.raises(MaybeSent):
        bmc.set_power(PowerAction.CYCLE)
    assert bench.effects("chassis-control") == ["on", "cycle"]
    assert len(bench.machine.boots) == 2


@pytest.mark.slow
def test_when_the_look_fails_too_the_write_stays_uncertain(bench: IpmiBench) -> None:
    limits = SHORT
    with driving(bench, limits) as bmc:
        bmc.power_state()
        bench.rule("chassis-control", "drop_after", times=None)
        bench.rule("get-chassis-status", "drop_before", times=None)
        began = time.monotonic()
        with pytest.raises(MaybeSent):
            bmc.set_power(PowerAction.ON)
        assert time.monotonic() - began < limits.total_s + 1
    assert bench.effects("chassis-control") == ["on"]


def test_lost_boot_flags_are_set_again(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-boot-options", "drop_before", path="pxe")
    bmc.boot_once(BootDevice.PXE)
    assert bench.machine.override.device is BootDevice.PXE


@pytest.mark.parametrize("code", [0xC0, 0xDF])
def test_busy_codes_are_waited_out(bmc: IpmiBmc, bench: IpmiBench, code: int) -> None:
    bench.rule("chassis-control", "refuse", code=code)
    bench.rule("get-chassis-status", "refuse", code=code)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON
    assert bench.effects("chassis-control") == ["on"]


def test_a_timeout_code_on_a_write_means_look_first(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.set_power(PowerAction.ON)
    bench.rule("chassis-control", "refuse", code=0xC3)
    with pytest.raises(MaybeSent):
        bmc.set_power(PowerAction.CYCLE)
    assert bench.effects("chassis-control") == ["on"]


@pytest.mark.slow
def test_a_bmc_that_stays_busy_says_so(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("get-chassis-status", "refuse", times=None, code=0xC0)
    with pytest.raises(Busy):
        bmc.power_state()


@pytest.mark.parametrize(
    ("code", "error"), [(0xC1, Unsupported), (0xD6, Unsupported), (0xCC, Refused), (0xD4, Refused)]
)
def test_completion_codes_have_their_errors(bmc: IpmiBmc, bench: IpmiBench, code: int, error: type[Exception]) -> None:
    bench.rule("get-chassis-status", "refuse", code=code)
    with pytest.raises(error, match=f"0x{code:02x}"):
        bmc.power_state()


def test_a_slow_bmc_is_waited_for(bmc: IpmiBmc, bench: IpmiBench) -> None:
    """Its first answer comes after the read was sent again."""
    bmc.power_state()
    bench.rule("get-chassis-status", "delay", seconds=1.5)
    assert bmc.power_state() is PowerState.OFF
    assert bmc.bmc_info().maker == "Supermicro"


def test_a_call_ends_with_its_deadline(bench: IpmiBench) -> None:
    with driving(bench, replace(LIMITS, total_s=2)) as bmc:
        bench.rule("get-chassis-status", "drop_before", times=None)
        began = time.monotonic()
        with pytest.raises(TimedOut):
            bmc.power_state()
        assert time.monotonic() - began < 3


def test_an_observed_bmc_is_read_and_never_written(bench: IpmiBench) -> None:
    with driving(bench, replace(LIMITS, write_allowed=False)) as bmc:
        assert bmc.power_state() is PowerState.OFF
        with pytest.raises(Refused):
            bmc.set_power(PowerAction.ON)
        with pytest.raises(Refused):
            bmc.boot_once(BootDevice.PXE)
        with pytest.raises(Refused):
            bmc.clear_boot_override()
        with pytest.raises(Refused):
            bmc.set_password("admin", a_secret())
    assert [w for w in bench.writes if w.kind == "effect"] == []


def test_a_write_is_reported_before_it_is_answered(bmc: IpmiBmc, bench: IpmiBench) -> None:
    seen: list[tuple[str, PowerState]] = []

    def note(write: Wrote) -> None:
        if write.kind == "effect":
            seen.append((write.path, bench.machine.power))

    bench.on_write = note
    bmc.set_power(PowerAction.ON)
    assert seen == [("on", PowerState.ON)]


# ---------------------------------------------------------------- many at once


def test_sixteen_bmcs_are_driven_by_sixteen_threads_at_once() -> None:
    together = threading.Barrier(16)

    def drive(bench: IpmiBench) -> tuple[PowerState, str | None]:
        with driving(bench) as bmc:
            together.wait(timeout=20)
            bmc.boot_once(BootDevice.PXE, BootMode.UEFI)
            bmc.set_power(PowerAction.ON)
            return bmc.power_state(), bmc.identity().serial

    with ExitStack() as stack:
        benches = [stack.enter_context(an_ipmi_bench()) for _ in range(16)]
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(drive, benches))
        assert answers == [(PowerState.ON, bench.machine.serial) for bench in benches]
        assert [[boot.device for boot in bench.machine.boots] for bench in benches] == [["pxe"]] * 16
        assert sum(bench.front.sessions() for bench in benches) == 0


@pytest.mark.slow
def test_a_dead_bmc_holds_no_other_up() -> None:
    with an_ipmi_bench() as dead, an_ipmi_bench() as live, driving(dead, SHORT) as first, driving(live) as second:
        first.power_state()
        dead.rule("get-chassis-status", "drop_before", times=None)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(first.power_state)
            began = time.monotonic()
            for _ in range(20):
                assert second.power_state() is PowerState.OFF
            assert time.monotonic() - began < 2
            assert isinstance(waiting.exception(timeout=30), TimedOut)


def test_no_thread_and_no_session_stays_behind() -> None:
    """Nothing of pyghmi runs in the background: no I/O thread, no socket of the process."""
    before = threading.active_count()
    with an_ipmi_bench() as bench, driving(bench) as bmc:
        bmc.inventory()
        bmc.sensors()
        bmc.event_log()
        console = bmc.open_console()
        console.close()
    assert threading.active_count() == before
    assert pyghmi_session.iothread is None
    assert pyghmi_session.iosockets == []
    tables = pyghmi_session.Session
    for table in (tables.bmc_handlers, tables.waiting_sessions, tables.initting_sessions, tables.keepalive_sessions):
        assert not table
    assert not tables.socketpool


def test_pyghmi_is_behind_one_door() -> None:
    """Its framing in the packets, its tables of words, its reading of FRUs; nothing else of the drivers knows that there is one."""
    package = Path(ipmi_packets.__file__).parent
    using = {
        path.name for path in package.glob("*.py") if re.search(r"^\s*(import|from) pyghmi", path.read_text(), re.M)
    }
    assert using == {"ipmi_packets.py", "ipmi_words.py", "ipmi_fru.py"}
