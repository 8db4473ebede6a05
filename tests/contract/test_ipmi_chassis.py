"""Boot flags in makers' selectors, the identify light, the clock and restarts of the BMC over IPMI."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bcmetal_drivers.emulated.ipmi_commands import SELECTORS
from bcmetal_drivers.errors import NotAsAsked, Unsupported
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import BootDevice, BootMode, BootOverride, PowerAction, PowerState
from ipmi_bench import IpmiBench

# ---------------------------------------------------------------- boot


def test_a_lasting_override_outlives_boots(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.boot_always(BootDevice.PXE, BootMode.UEFI)
    assert bmc.boot_override() == BootOverride(BootDevice.PXE, once=False, mode=BootMode.UEFI)
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.CYCLE)
    assert [boot.device for boot in bench.machine.boots] == ["pxe", "pxe"]


def test_persistence_that_is_lost_is_caught(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("forgets_persistence", True)
    with pytest.raises(NotAsAsked, match="one boot only"):
        bmc.boot_always(BootDevice.PXE, BootMode.UEFI)


def test_supermicros_own_selector_is_written_for_the_disk_of_a_uefi_machine(bmc: IpmiBmc, bench: IpmiBench) -> None:
    own = {n: device for n, device in SELECTORS.items() if device is not BootDevice.DISK} | {9: BootDevice.DISK}
    bench.front.set("selectors", own)
    bmc.boot_once(BootDevice.DISK, BootMode.UEFI)
    assert bench.effects("set-boot-options") == ["parameter-3", "disk"]


def test_a_selector_that_is_refused_gives_way_to_one_that_means_the_same(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("selectors", {n: d for n, d in SELECTORS.items() if n != 5})
    bmc.boot_once(BootDevice.CD, BootMode.UEFI)
    assert bench.machine.override.device is BootDevice.CD


def test_a_device_that_no_selector_reaches_is_unsupported(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("selectors", {0: BootDevice.NONE})
    with pytest.raises(Unsupported, match="every selector"):
        bmc.boot_once(BootDevice.PXE)


# ---------------------------------------------------------------- power


def test_a_bmc_that_knows_no_reset_is_power_cycled(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.set_power(PowerAction.ON)
    bench.rule("chassis-control", "refuse", code=0xCC)
    bmc.set_power(PowerAction.CYCLE)
    assert len(bench.machine.boots) == 2


# ---------------------------------------------------------------- the light


def test_the_light_is_lit_until_it_is_put_out(bmc: IpmiBmc, bench: IpmiBench) -> None:
    assert bmc.identified() is False
    bmc.identify(True)
    assert (bmc.identified(), bench.machine.identify) == (True, True)
    bmc.identify(False)
    assert (bmc.identified(), bench.machine.identify) == (False, False)


def test_a_light_that_goes_out_by_itself_is_not_what_was_asked_for(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("light_stays", False)
    with pytest.raises(Unsupported, match="some seconds"):
        bmc.identify(True)


def test_a_light_that_was_acknowledged_and_stays_dark_is_caught(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("chassis-identify", "ignore")
    with pytest.raises(NotAsAsked):
        bmc.identify(True)


def test_a_bmc_that_does_not_tell_of_its_light_is_believed(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("tells_light", False)
    bmc.identify(True)
    assert bmc.identified() is None
    assert bench.machine.identify


# ---------------------------------------------------------------- the BMC itself


@pytest.mark.parametrize(("hard", "command"), [(False, "warm-reset"), (True, "cold-reset")])
def test_the_bmc_restarts_and_the_machine_does_not(bmc: IpmiBmc, bench: IpmiBench, hard: bool, command: str) -> None:
    bmc.set_power(PowerAction.ON)
    bmc.reset_bmc(hard)
    assert bench.effects(command) == [""]
    assert bench.front.sessions() == 0
    assert bmc.power_state() is PowerState.ON
    assert len(bench.machine.boots) == 1


def test_a_bmc_without_a_warm_reset_is_reset_cold(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("warm-reset", "refuse", code=0xC1)
    bmc.reset_bmc()
    assert bench.effects("cold-reset") == [""]


def test_the_clock_is_read_and_set(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.commands.log.clock_ahead_s = 86_400
    wanted = datetime.now(UTC)
    bmc.set_bmc_clock(wanted)
    shown = bmc.bmc_clock()
    assert shown is not None
    assert abs(datetime.fromisoformat(shown) - wanted) < timedelta(seconds=10)


def test_a_clock_that_was_acknowledged_and_stays_wrong_is_caught(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.commands.log.clock_ahead_s = 86_400
    bench.rule("set-sel-time", "ignore")
    with pytest.raises(NotAsAsked, match="s off"):
        bmc.set_bmc_clock(datetime.now(UTC))


def test_a_clock_that_counts_from_the_bmcs_start_is_none(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.commands.log.clock_ahead_s = -bench.front.commands.log.now() + 3600
    assert bmc.bmc_clock() is None
