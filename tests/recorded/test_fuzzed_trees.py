"""Trees with anything in them replaced, dropped, retyped or huge raise nothing but our typed errors, and end; what is read of them is of the
kinds that the capabilities say, bounded and printable.

BCMETAL_FUZZ says how many times as many as usual are tried.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.recorded import RecordedTree
from bcmetal_drivers.emulated.recorded_front import RecordedService
from bcmetal_drivers.emulated.recorded_line import driving
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.resources import BootDevice, BootMode, KeyReset, PowerAction
from recorded.mutations import mutated
from recorded.recordings import recorded
from recorded.sane import insane
from recorded.tables import TREES
from recorded.trees import MAKERS, ROOT, tree_of

TIMES = int(os.environ.get("BCMETAL_FUZZ", "1"))
LIMITS = Limits(connect_s=1, read_s=1, total_s=4)
LONGEST_S = 6.0
STUMBLED = (TypeError, LookupError, AttributeError, ArithmeticError)  # over what a reader took for something else
LARGEST = 4 * 1024 * 1024  # of what comes out of an inventory, as JSON

Call = Callable[[Any], object]
LOOKS: dict[str, Call] = {
    "inventory": lambda bmc: bmc.inventory(),
    "identity": lambda bmc: bmc.identity(),
    "bmc_info": lambda bmc: bmc.bmc_info(),
    "reading": lambda bmc: bmc.reading(),
    "power_state": lambda bmc: bmc.power_state(),
    "boot_override": lambda bmc: bmc.boot_override(),
    "boot_mode": lambda bmc: bmc.boot_mode(),
    "secure_boot": lambda bmc: bmc.secure_boot(),
    "secure_boot_mode": lambda bmc: bmc.secure_boot_mode(),
    "inserted": lambda bmc: bmc.inserted(),
    "accounts": lambda bmc: bmc.accounts(),
    "account_policy": lambda bmc: bmc.account_policy(),
    "baseline": lambda bmc: bmc.baseline(),
    "drives": lambda bmc: bmc.drives(),
    "bios": lambda bmc: bmc.bios(),
    "firmware": lambda bmc: bmc.firmware(),
    "volumes": lambda bmc: bmc.volumes(),
    "sensors": lambda bmc: bmc.sensors(),
    "power_draw_w": lambda bmc: bmc.power_draw_w(),
    "event_log": lambda bmc: bmc.event_log(),
    "identified": lambda bmc: bmc.identified(),
    "bmc_clock": lambda bmc: bmc.bmc_clock(),
    "bmc_network": lambda bmc: bmc.bmc_network(),
    "consoles": lambda bmc: bmc.consoles(),
    "host_ways": lambda bmc: bmc.host_ways(),
}
WRITES: dict[str, Call] = {
    "set_power": lambda bmc: bmc.set_power(PowerAction.CYCLE),
    "boot_once": lambda bmc: bmc.boot_once(BootDevice.PXE, BootMode.UEFI),
    "clear_boot_override": lambda bmc: bmc.clear_boot_override(),
    "boot_always": lambda bmc: bmc.boot_always(BootDevice.DISK),
    "set_boot_mode": lambda bmc: bmc.set_boot_mode(BootMode.LEGACY),
    "set_secure_boot": lambda bmc: bmc.set_secure_boot(False),
    "reset_secure_boot_keys": lambda bmc: bmc.reset_secure_boot_keys(KeyReset.FACTORY),
    "insert": lambda bmc: bmc.insert("https://127.0.0.1/media/one.iso"),
    "eject": lambda bmc: bmc.eject(),
    "erase": lambda bmc: bmc.erase("DRIVE-0"),
    "set_bios": lambda bmc: bmc.set_bios({"BootMode": "Uefi"}),
    "set_password": lambda bmc: bmc.set_password("someone", SecretStr(secrets.token_hex(8))),
    "identify": lambda bmc: bmc.identify(True),
    "set_bmc_clock": lambda bmc: bmc.set_bmc_clock(datetime(2026, 1, 1, tzinfo=UTC)),
}


def tried(docs: dict[str, Any], calls: dict[str, Call], story: str) -> None:
    """Each call on a conversation of its own; raises AssertionError with what was done to the tree."""
    with driving(RecordedService(RecordedTree(docs)), LIMITS) as bmc:
        for name, call in calls.items():
            if not hasattr(bmc, name):
                continue
            began = time.monotonic()
            cause: BaseException | None = None
            try:
                found = call(bmc)
            except DriverError as error:
                found, cause = str(error), error.__cause__
            except Exception as error:
                raise AssertionError(f"{name} raised {type(error).__name__}: {story}") from error
            finally:
                assert time.monotonic() - began < LONGEST_S, (name, story)
            assert not isinstance(cause, STUMBLED), (name, story)
            assert list(insane(found, name))[:3] == [], story
            if is_dataclass(found) and not isinstance(found, type):
                assert len(json.dumps(asdict(found), default=dict)) < LARGEST, (name, story)


def paths_read(docs: dict[str, Any], calls: dict[str, Call]) -> list[str]:
    service = RecordedService(RecordedTree(docs))
    with driving(service, LIMITS) as bmc:
        for name, call in calls.items():
            if hasattr(bmc, name):
                try:
                    call(bmc)
                except DriverError:
                    continue  # a tree offers what it offers
    by_key = {path.lower(): path for path in docs}
    return [by_key[path] for path in service.reads if path in by_key] or [ROOT]


def fuzz(docs: dict[str, Any], seed: str, rounds: int, calls: dict[str, Call]) -> None:
    rng = random.Random(seed)
    paths = paths_read(docs, calls)
    for n in range(rounds * TIMES):
        made, story = mutated(docs, rng, paths)
        if isinstance(made[ROOT.lower()], dict):
            tried(made, calls, f"{seed} round {n}: {story}")


@pytest.mark.parametrize("tree", MAKERS)
def test_looks_at_fuzzed_trees_of_our_own_raise_typed_errors_only(tree: str) -> None:
    docs = dict(tree_of(MAKERS[tree]()).all())
    fuzz(docs, f"looks {tree}", 40, LOOKS)


def test_writes_to_fuzzed_trees_of_our_own_raise_typed_errors_only() -> None:
    docs = dict(tree_of(MAKERS["everything"]()).all())
    fuzz(docs, "writes", 100, WRITES)


@pytest.mark.recordings
@pytest.mark.parametrize("name", TREES)
def test_fuzzed_recordings_raise_typed_errors_only(name: str) -> None:
    docs = dict(recorded(name).all())
    few = ("inventory", "baseline", "inserted", "boot_override", "sensors", "event_log", "firmware")
    fuzz(docs, f"recorded {name}", 8, {call: LOOKS[call] for call in few})
