"""The test `network`: links that are up, as fast as they should be, and stay up without errors for the test's time."""

from __future__ import annotations

import time
from typing import Final

from bcmetal_agent.tasks import look_nics
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import Machine, number
from bcmetal_agent.wire_inventory import Nic
from bcmetal_agent.wire_tasks import TestResult

# What no healthy link counts; dropped packets are left out: what no protocol wants is dropped, too.
_ERRORS: Final = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")
_STEP_S: Final = 0.5


def links(trial: Trial) -> TestResult:
    machine = trial.machine
    look_nics.raise_links(machine, trial.doing.check)
    cards = look_nics.cards(machine)
    if not cards:
        return TestResult("the machine has no network card")
    before = {name: (_errors(machine, name), _flaps(machine, name)) for name in cards}
    while (elapsed := time.monotonic() - trial.started) < trial.duration_s:
        trial.doing.check()
        trial.doing.progress(min(int(elapsed / trial.duration_s * 1000), 990), "watching the links")
        time.sleep(min(_STEP_S, trial.duration_s - elapsed))
    figures: dict[str, object] = {}
    wrong, up, errors, flaps = [], [], 0, 0
    for nic in look_nics.nics(machine):
        known = before.get(nic.name)
        if known is None:
            continue
        new_errors = max(_errors(machine, nic.name) - known[0], 0)
        new_flaps = max(_flaps(machine, nic.name) - known[1], 0)
        errors, flaps = errors + new_errors, flaps + new_flaps
        figures[nic.name] = {"up": nic.carrier, "mbps": nic.speed_mbps, "errors": new_errors, "flaps": new_flaps}
        trial.log(f"{_label(nic)}: {figures[nic.name]}")
        if nic.carrier:
            up.append(nic)
            wrong += trial.under("floor_mbps", nic.speed_mbps, f"{_label(nic)} Mbit/s")
    gone = sorted(set(cards) - set(figures))
    wrong += [f"{name} went away during the test" for name in gone]
    wrong += trial.under("links", len(up), "links that are up")
    wrong += trial.over("errors", errors, "errors of the links")
    wrong += trial.over("flaps", flaps, "changes of a carrier")
    told = f"{len(up)} of {len(cards)} links are up ({', '.join(map(_speed, up))})"
    return TestResult("; ".join(wrong) or told, not wrong, figures)


def _speed(nic: Nic) -> str:
    return f"{nic.name} {nic.speed_mbps} Mbit/s" if nic.speed_mbps else f"{nic.name}, whose driver tells no speed"


def _label(nic: Nic) -> str:
    return f"{nic.name} ({nic.permanent_mac or nic.mac})"


def _errors(machine: Machine, name: str) -> int:
    """rx_errors holds the CRC and frame errors with most drivers, not with all: the largest tells of all, once."""
    found = look_nics.counters(machine, name, _ERRORS)
    received = [found.get(one, 0) for one in _ERRORS if one.startswith("rx")]
    return max(received) + max(found.get("tx_errors", 0), found.get("tx_carrier_errors", 0))


def _flaps(machine: Machine, name: str) -> int:
    return number(machine.path(look_nics.NET) / name / "carrier_changes") or 0
