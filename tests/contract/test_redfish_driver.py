"""The Redfish driver against the emulated rack: media, boot, ETags, power, Tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from bcmetal_drivers.capabilities import BootModes, BootOnce, Power, Readings, SecureBoot, VirtualMedia, need
from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    NotAsAsked,
    Refused,
    ServerFault,
    TaskFailed,
    TimedOut,
    Unsupported,
)
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState
from driver_bench import Seat

SYSTEM = "/redfish/v1/Systems/1$"
INSERT = r"VirtualMedia\.InsertMedia$"
EJECT = r"VirtualMedia\.EjectMedia$"
ERASE = r"Drive\.SecureErase$"


class _Image(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"an image\n")

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def images() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Image) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(timeout=5)


# ---------------------------------------------------------------- virtual media


@pytest.mark.parametrize(
    "quirks",
    [
        {"media_at": "systems"},
        {"media_at": "managers"},
        {"media_at": "both"},
        {"media_insert": "patch"},
        {"media_insert": "patch", "etag": True},
    ],
    ids=str,
)
def test_a_medium_goes_in_is_read_back_and_comes_out(redfish: Seat, images: str, quirks: dict[str, Any]) -> None:
    redfish.bmc.set(**quirks)
    bmc = need(redfish.open(), VirtualMedia)
    slot = bmc.insert(f"{images}/one.iso")
    assert (slot.url, slot.inserted) == (f"{images}/one.iso", True)
    assert redfish.bmc.machine.media == f"{images}/one.iso"
    bmc.insert(f"{images}/two.iso")
    assert redfish.bmc.machine.media == f"{images}/two.iso"
    bmc.eject()
    bmc.eject()
    assert redfish.bmc.machine.media is None
    assert [slot.inserted for slot in bmc.inserted()] == [False] * len(bmc.inserted())


def test_a_machine_boots_what_was_inserted(redfish: Seat, images: str) -> None:
    opened = redfish.open()
    need(opened, VirtualMedia).insert(f"{images}/one.iso")
    need(opened, BootOnce).boot_once(BootDevice.CD, BootMode.UEFI)
    need(opened, Power).set_power(PowerAction.ON)
    assert redfish.bmc.machine.boots[-1].url == f"{images}/one.iso"


@pytest.mark.parametrize("path", [INSERT, EJECT])
def test_a_medium_that_is_acknowledged_and_not_moved_is_not_as_asked(redfish: Seat, images: str, path: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    bmc.insert(f"{images}/one.iso")
    if path == INSERT:
        bmc.eject()
    redfish.rack.rule(Rule(action="ignore", method="POST", path=path))
    with pytest.raises(NotAsAsked):
        bmc.insert(f"{images}/two.iso") if path == INSERT else bmc.eject()


@pytest.mark.parametrize(("status", "kind"), [(403, Refused), (500, ServerFault), (503, Busy), (409, DriverError)])
def test_an_eject_that_is_refused_counts_when_the_medium_is_still_there(
    redfish: Seat, images: str, status: int, kind: type[DriverError]
) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    bmc.insert(f"{images}/one.iso")
    redfish.rack.rule(
        Rule(action="refuse", method="POST", path=EJECT, status=status, code="GeneralError", message="no")
    )
    with pytest.raises(kind):
        bmc.eject()
    assert redfish.bmc.machine.media is not None


def test_an_insert_whose_answer_is_lost_is_read_back(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    fired = redfish.rack.rule(Rule(action="drop_after", method="POST", path=INSERT, times=1))
    assert bmc.insert(f"{images}/one.iso").inserted
    assert redfish.rack.fired(fired) == 1
    assert len([path for _, path in redfish.effects() if "InsertMedia" in path]) == 1


def test_an_insert_while_the_eject_still_runs_is_tried_again(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    redfish.rack.rule(Rule(action="refuse", method="POST", path=INSERT, times=1, status=500, code="GeneralError"))
    assert bmc.insert(f"{images}/one.iso").inserted


@pytest.mark.parametrize("missing", ["TransferProtocolType", "TransferMethod", "Inserted"])
def test_a_parameter_that_the_bmc_misses_is_sent(redfish: Seat, images: str, missing: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    rule = Rule(
        action="refuse",
        method="POST",
        path=INSERT,
        times=1,
        status=400,
        code="ActionParameterMissing",
        message=f"The action requires the parameter {missing}.",
    )
    redfish.rack.rule(rule)
    assert bmc.insert(f"{images}/one.iso").inserted


def test_an_image_that_cannot_be_fetched_is_an_error_and_leaves_the_slot_empty(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    with pytest.raises(DriverError):
        bmc.insert("http://127.0.0.1:9/one.iso")
    assert redfish.bmc.machine.media is None


# ---------------------------------------------------------------- boot, ETags


def test_a_boot_mode_is_set_and_read_back(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootModes)
    bmc.set_boot_mode(BootMode.LEGACY)
    assert bmc.boot_mode() is BootMode.LEGACY
    assert redfish.bmc.machine.boot_mode is BootMode.LEGACY


def test_a_boot_mode_that_is_acknowledged_and_not_set_is_not_as_asked(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootModes)
    redfish.disturb("boot", "ignore", times=None)
    with pytest.raises(NotAsAsked):
        bmc.set_boot_mode(BootMode.LEGACY)


def test_a_bmc_that_shows_no_boot_mode_has_none(redfish: Seat) -> None:
    redfish.bmc.set(mode_shown=False)
    opened = redfish.open()
    assert need(opened, BootModes).boot_mode() is None
    need(opened, BootOnce).boot_once(BootDevice.CD)
    with pytest.raises(Unsupported):
        need(opened, BootModes).set_boot_mode(BootMode.UEFI)


def test_secure_boot_is_set_and_read_back(redfish: Seat) -> None:
    bmc = need(redfish.open(), SecureBoot)
    assert bmc.secure_boot() is False
    bmc.set_secure_boot(True)
    assert bmc.secure_boot() is True
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path="SecureBoot"))
    with pytest.raises(NotAsAsked):
        bmc.set_secure_boot(False)


@pytest.mark.parametrize("form", ["strong", "weak", "empty", "absent"])
def test_whatever_etag_a_bmc_gives_and_demands_is_met(redfish: Seat, form: str) -> None:
    redfish.bmc.set(etag=True, etag_form=form)
    need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)
    assert redfish.bmc.machine.override.device is BootDevice.PXE


def test_another_writer_in_between_is_not_overwritten(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootOnce)
    machine = redfish.bmc.machine
    fired = redfish.rack.rule(Rule(action="delay", method="PATCH", path=SYSTEM, times=1, seconds=1.0))

    def interfere() -> None:
        deadline = time.monotonic() + 5
        while redfish.rack.fired(fired) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        machine.arm(BootDevice.DISK, once=False)

    other = threading.Thread(target=interfere)
    other.start()
    with pytest.raises(Busy, match="another writer"):
        bmc.boot_once(BootDevice.PXE)
    other.join(timeout=5)
    assert machine.override.device is BootDevice.DISK


def test_a_change_during_post_is_busy(redfish: Seat) -> None:
    redfish.disturb("boot", "refuse", status=400, code="UnableToModifyDuringSystemPOST", message="during POST")
    with pytest.raises(Busy):
        need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)


# ---------------------------------------------------------------- power and Tasks


def test_a_reset_that_the_bmc_answers_409_because_it_is_there_is_success(redfish: Seat) -> None:
    redfish.bmc.set(refuse_same_power=True)
    bmc = need(redfish.open(), Power)
    bmc.set_power(PowerAction.OFF)
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON


@pytest.mark.parametrize("status", [400, 409])
def test_a_refused_reset_of_a_machine_that_is_there_by_now_is_success(redfish: Seat, status: int) -> None:
    bmc = need(redfish.open(), Power)
    redfish.disturb("power", "delay", seconds=1.0)
    fired = redfish.disturb("power", "refuse", status=status, code="GeneralError", message="it is on already")

    def switch_on() -> None:
        deadline = time.monotonic() + 5
        while redfish.rack.fired(fired - 1) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        redfish.bmc.machine.set_power(PowerAction.ON)

    hand = threading.Thread(target=switch_on)
    hand.start()
    bmc.set_power(PowerAction.ON)
    hand.join(timeout=5)
    assert redfish.rack.fired(fired) == 1


def test_a_refused_reset_of_a_machine_that_is_not_there_is_an_error(redfish: Seat) -> None:
    redfish.disturb("power", "refuse", times=None, status=400, code="GeneralError", message="no")
    with pytest.raises(Refused):
        need(redfish.open(), Power).set_power(PowerAction.ON)


def test_a_power_action_answered_by_a_task_is_followed_to_its_end(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=0.5)
    bmc = need(redfish.open(), Power)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON


def test_a_task_that_fails_is_a_refusal(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=0.3, ends="exception")
    with pytest.raises(TaskFailed, match="task failed"):
        need(redfish.open(), Power).set_power(PowerAction.ON)


def test_a_task_that_is_purged_is_no_success_by_itself(redfish: Seat) -> None:
    redfish.disturb("boot", "task", times=None, seconds=0.0, ends="purged")
    need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)
    assert redfish.bmc.machine.override.device is BootDevice.PXE


def test_a_task_that_does_not_end_ends_at_the_deadline(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=60.0)
    bmc = need(redfish.open(Limits(1, 1, 2)), Power)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        bmc.set_power(PowerAction.ON)
    assert time.monotonic() - began < 4


def test_health_and_boot_mode_are_in_the_reading(redfish: Seat) -> None:
    redfish.bmc.set(health="Critical")
    reading = need(redfish.open(), Readings).reading()
    assert (reading.boot_mode, reading.health) == (BootMode.UEFI, "critical")
