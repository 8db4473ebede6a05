"""Firmware: what is there, updates that the BMC fetches or is sent, and the ways in which an update is not one."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bcmetal_drivers.capabilities import Firmware, Jobs, need, offers
from bcmetal_drivers.connection import Limits
from bcmetal_drivers.emulated.firmware import INVENTORY, image
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.errors import Busy, DriverError, MaybeSent, Refused, Unsupported
from bcmetal_drivers.resources import JobState
from bcmetal_drivers.steady import steadily
from bcmetal_drivers.wire import CutShort
from driver_bench import LIMITS, Bench, Seat, ended
from rack_client import dialling

BIOS, BMC, NIC = (f"{INVENTORY}/{part}" for part in ("BIOS", "BMC", "NIC.1"))
UPDATE = r"/UpdateService/(Actions/|upload$|push$)"


class Shelf(http.server.ThreadingHTTPServer):
    """Serves what `files` holds, and counts it."""

    files: dict[str, bytes]
    fetched: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Serves(http.server.BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        body = self.server.files.get(self.path)
        self.server.fetched.append(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with Shelf(("127.0.0.1", 0), _Serves) as server:
        server.files = {"/nic.bin": image("NIC.1", "23.1.0"), "/bios.bin": image("BIOS", "2.15.0")}
        server.fetched = []
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=5)


def versions(bmc: Firmware) -> dict[str, str]:
    return {component.ref: component.version for component in bmc.firmware()}


def an_image(folder: Path, component: str = "NIC.1", version: str = "23.1.0") -> Path:
    path = folder / "image.bin"
    path.write_bytes(image(component, version, 300_000))
    return path


# ---------------------------------------------------------------- every driver


def test_an_update_that_the_bmc_fetches_is_followed_and_changes_the_version(seat: Seat, shelf: Shelf) -> None:
    opened = seat.open()
    if not offers(opened, Firmware):
        pytest.skip("this driver has no firmware updates")
    bmc = need(opened, Firmware)
    component = next(found for found in bmc.firmware() if found.ref == NIC)
    assert (component.name, component.updateable, component.state) == ("NIC.1", True, "enabled")
    seat.bmc.set(update_s=1.0)  # longer than the reading that follows takes on a busy host
    job = bmc.update_firmware(f"{shelf.url}/nic.bin", (NIC,))
    assert job.state is JobState.RUNNING
    assert versions(bmc)[NIC] == component.version
    assert ended(seat.open(), job).state is JobState.DONE
    assert versions(bmc)[NIC] == "23.1.0"
    assert shelf.fetched == ["/nic.bin"]


@pytest.mark.parametrize("form", ["multipart", "push"])
def test_an_image_that_is_sent_changes_the_version(redfish: Seat, tmp_path: Path, form: str) -> None:
    redfish.bmc.set(update_forms=(form,))
    bmc = need(redfish.open(), Firmware)
    job = bmc.push_firmware(an_image(tmp_path), (NIC,))
    assert ended(bmc, job).state is JobState.DONE
    assert versions(bmc)[NIC] == "23.1.0"
    assert ended(bmc, bmc.push_firmware(an_image(tmp_path, version="23.2.0"), (BIOS,))).state is JobState.FAILED
    assert versions(bmc)[NIC] == "23.1.0"


def test_a_bios_is_another_one_after_the_next_boot(redfish: Seat, shelf: Shelf) -> None:
    bmc = need(redfish.open(), Firmware)
    before = versions(bmc)[BIOS]
    assert ended(bmc, bmc.update_firmware(f"{shelf.url}/bios.bin")).state is JobState.DONE
    assert versions(bmc)[BIOS] == before
    redfish.boot()
    assert versions(bmc)[BIOS] == "2.15.0"


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize("protocol", ["demanded", "refused", "bare"])
def test_each_form_of_simple_update_is_found_and_remembered(redfish: Seat, shelf: Shelf, protocol: str) -> None:
    redfish.bmc.set(update_protocol=protocol)
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.update_firmware(f"{shelf.url}/nic.bin", (NIC,))).state is JobState.DONE
    asked = redfish.rack.requests(redfish.bmc)["POST"]
    bmc.update_firmware(f"{shelf.url}/nic.bin", (NIC,))
    assert redfish.rack.requests(redfish.bmc)["POST"] == asked + 1
    assert versions(bmc)[NIC] == "23.1.0"


def test_a_multipart_push_that_must_say_when_is_told(redfish: Seat, tmp_path: Path) -> None:
    redfish.bmc.set(update_time_demanded=True)
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.push_firmware(an_image(tmp_path))).state is JobState.DONE


WAYS: tuple[tuple[str, dict[str, object]], ...] = (
    ("ami", {"update_forms": ("multipart",), "push_oem_demanded": True}),
    ("staged", {"update_forms": ("simple", "push"), "push_form": "staged"}),
    ("staged-oem", {"update_forms": ("push",), "push_form": "staged", "install_by": "oem"}),
)


@pytest.mark.parametrize("quirks", [quirks for _, quirks in WAYS], ids=[name for name, _ in WAYS])
def test_an_image_is_sent_in_the_way_that_the_service_claims(
    redfish: Seat, tmp_path: Path, quirks: dict[str, object]
) -> None:
    redfish.bmc.set(**quirks)
    bmc = need(redfish.open(), Firmware)
    path = tmp_path / "image.bin"
    path.write_bytes(image("BMC", "9.9.1", 100_000))
    assert ended(bmc, bmc.push_firmware(path, (BMC,))).state is JobState.DONE
    assert versions(bmc)[BMC] == "9.9.1"
    assert not any("Available" in ref for ref in versions(bmc))


def test_a_staged_image_whose_answer_is_lost_is_staged_again_and_nothing_is_installed_twice(
    redfish: Seat, tmp_path: Path
) -> None:
    redfish.bmc.set(update_forms=("simple", "push"), push_form="staged")
    redfish.rack.rule(Rule(action="drop_after", method="POST", path="/FirmwareInventory$", times=1))
    bmc = need(redfish.open(), Firmware)
    with pytest.raises(Busy):
        bmc.push_firmware(an_image(tmp_path))
    assert ended(bmc, bmc.push_firmware(an_image(tmp_path))).state is JobState.DONE
    assert [path.rpartition("/")[2] for _, path in redfish.effects()] == [
        "FirmwareInventory",
        "FirmwareInventory",
        "UpdateService.SimpleUpdate",
    ]


def test_hpes_form_carries_the_sessions_token_and_the_service_tells_how_it_goes(tmp_path: Path) -> None:
    bench = Bench("hpe", lambda rack: rack.add_redfish("ilo", behaviours=("push-by-form",), update_s=0.3), {})
    with Rack() as rack, ExitStack() as closing:
        seat = Seat(bench, rack, bench.add(rack), closing)
        rack.start()
        bmc = need(seat.open(), Firmware)
        job = bmc.push_firmware(an_image(tmp_path))
        assert (job.state, job.message) == (JobState.RUNNING, "Updating")
        with pytest.raises(Busy):
            bmc.push_firmware(an_image(tmp_path))
        assert ended(bmc, job).state is JobState.UNKNOWN  # which the version decides
        assert versions(bmc)[NIC] == "23.1.0"


def test_hpes_form_carries_the_token_of_the_session_that_it_is_sent_in(tmp_path: Path) -> None:
    """The BMC forgets the session when the form arrives, as one does that restarted: the next one's token stands in what is sent again."""
    bench = Bench("hpe", lambda rack: rack.add_redfish("ilo", behaviours=("push-by-form",), update_s=0.3), {})
    with Rack() as rack, ExitStack() as closing:
        seat = Seat(bench, rack, bench.add(rack), closing)
        rack.start()
        bmc = need(seat.open(), Firmware)
        assert versions(bmc)[NIC] != "23.1.0"
        rack.rule(Rule(action="expire_sessions", method="POST", path="/uploadFile$", times=1))
        job = bmc.push_firmware(an_image(tmp_path))
        assert (job.state, job.message) == (JobState.RUNNING, "Updating")
        ended(bmc, job)
        assert versions(bmc)[NIC] == "23.1.0"


def test_hpes_form_that_was_taken_is_no_error_where_the_service_cannot_tell_how_it_goes(tmp_path: Path) -> None:
    bench = Bench("hpe", lambda rack: rack.add_redfish("ilo", behaviours=("push-by-form",), update_s=0.3), {})
    with Rack() as rack, ExitStack() as closing:
        seat = Seat(bench, rack, bench.add(rack), closing)
        rack.start()
        bmc = need(seat.open(), Firmware)
        failing: list[int] = []

        def fails_from_here(_: float) -> None:
            if not failing:
                failing.append(
                    rack.rule(Rule(action="refuse", method="GET", path="/UpdateService$", times=2, status=503))
                )

        job = bmc.push_firmware(an_image(tmp_path), (), fails_from_here)
        assert job.state is JobState.RUNNING
        assert rack.fired(failing[0]) > 0
        ended(bmc, job)
        assert versions(bmc)[NIC] == "23.1.0"
        assert [path.rpartition("/")[2] for _, path in seat.effects()] == ["uploadFile"]


def test_targets_that_cannot_be_given_back_are_no_error_of_a_push_that_was_taken(redfish: Seat, tmp_path: Path) -> None:
    redfish.bmc.set(update_forms=("push",), update_s=0.1)
    failing: list[int] = []

    def fails_from_here(_: float) -> None:
        if not failing:
            failing.append(redfish.rack.rule(Rule(action="refuse", method="PATCH", path="/UpdateService$", status=500)))

    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.push_firmware(an_image(tmp_path), (NIC,), fails_from_here)).state is JobState.DONE
    assert redfish.rack.fired(failing[0]) > 0


@pytest.mark.parametrize("hands_off", [False, True])
def test_who_ends_a_push_because_another_has_the_machine_writes_nothing_more(
    redfish: Seat, tmp_path: Path, hands_off: bool
) -> None:
    redfish.bmc.set(update_forms=("push",))
    bmc = need(redfish.open(), Firmware)

    def ends(_: float) -> None:
        raise CutShort(hands_off=hands_off)

    with pytest.raises(CutShort):
        bmc.push_firmware(an_image(tmp_path), (NIC,), ends)
    assert redfish.rack.requests(redfish.bmc)["PATCH"] == (1 if hands_off else 2)


def test_the_targets_of_a_plain_push_are_reserved_and_given_back(redfish: Seat, tmp_path: Path) -> None:
    redfish.bmc.set(update_forms=("push",))
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.push_firmware(an_image(tmp_path), (BIOS,))).state is JobState.FAILED
    assert (
        ended(bmc, bmc.push_firmware(an_image(tmp_path))).state is JobState.DONE
    )  # what was left there is not its target
    with dialling(redfish.bmc) as other:
        other.ask("PATCH", "/redfish/v1/UpdateService", {"HttpPushUriTargetsBusy": True})
        with pytest.raises(Busy, match="another push"):
            bmc.push_firmware(an_image(tmp_path), (NIC,))


def test_a_push_has_longer_than_a_call_for_as_long_as_it_goes_on(redfish: Seat, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(image("NIC.1", "23.1.0", 24 << 20))
    redfish.bmc.set(push_bytes_s=12 << 20)
    bmc = need(redfish.open(Limits(connect_s=1, read_s=0.9, total_s=1)), Firmware)
    told: list[float] = []
    began = time.monotonic()
    assert ended(bmc, bmc.push_firmware(path, (NIC,), told.append)).state is JobState.DONE
    assert time.monotonic() - began > 1.5
    assert told == sorted(told)
    assert 0.9 < told[-1] < 1.0


class Enough(Exception):
    pass


@pytest.mark.parametrize("way", ["push", "multipart"])
def test_a_push_that_stalls_or_is_ended_is_not_begun(redfish: Seat, tmp_path: Path, way: str) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(image("NIC.1", "23.1.0", 24 << 20))
    redfish.bmc.set(update_forms=(way,))
    bmc = need(redfish.open(Limits(connect_s=1, read_s=0.3, total_s=2)), Firmware)

    def enough(part: float) -> None:
        if part > 0.5:
            raise Enough

    with pytest.raises(Enough):
        bmc.push_firmware(path, (), enough)
    redfish.bmc.set(push_bytes_s=64 << 10)
    with pytest.raises(Busy, match="stopped taking"):
        bmc.push_firmware(path)
    assert versions(bmc)[NIC] != "23.1.0"


def test_a_protocol_that_the_bmc_does_not_speak_is_not_tried(redfish: Seat) -> None:
    with pytest.raises(Unsupported, match="NFS"):
        need(redfish.open(), Firmware).update_firmware("nfs://127.0.0.1/nic.bin")
    assert redfish.effects() == []


def test_an_image_that_is_too_large_or_not_there_is_not_sent(redfish: Seat, tmp_path: Path) -> None:
    redfish.bmc.set(update_largest=1000)
    bmc = need(redfish.open(), Firmware)
    for path in (an_image(tmp_path), tmp_path / "absent.bin"):
        with pytest.raises(Refused):
            bmc.push_firmware(path)
    assert redfish.effects() == []


def test_a_model_that_takes_no_firmware_says_so(redfish: Seat, tmp_path: Path) -> None:
    redfish.bmc.set(update_forms=())
    bmc = need(redfish.open(), Firmware)
    with pytest.raises(Unsupported):
        bmc.update_firmware("http://127.0.0.1:9/nic.bin")
    with pytest.raises(Unsupported):
        bmc.push_firmware(an_image(tmp_path))


# ---------------------------------------------------------------- lies, losses


@pytest.mark.parametrize("damage", ["absent", "damaged"])
def test_an_image_that_did_not_arrive_whole_fails_with_the_reason(redfish: Seat, shelf: Shelf, damage: str) -> None:
    shelf.files["/damaged.bin"] = image("NIC.1", "23.1.0")[:-1]
    bmc = need(redfish.open(), Firmware)
    job = ended(bmc, bmc.update_firmware(f"{shelf.url}/{damage}.bin"))
    assert job.state is JobState.FAILED
    assert "image" in job.message
    assert versions(bmc)[NIC] != "23.1.0"


def test_an_update_that_completes_and_changes_nothing_is_seen_by_its_version(redfish: Seat, shelf: Shelf) -> None:
    redfish.bmc.set(update_lie="unchanged")
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.update_firmware(f"{shelf.url}/nic.bin")).state is JobState.DONE
    assert versions(bmc)[NIC] != "23.1.0"


ENDS: tuple[tuple[str, JobState], ...] = (
    ("errors", JobState.FAILED),
    ("exception", JobState.FAILED),
    ("purged", JobState.UNKNOWN),
)


@pytest.mark.parametrize(("ends", "state"), ENDS)
def test_a_task_that_ends_otherwise_than_well_is_no_success(
    redfish: Seat, shelf: Shelf, ends: str, state: JobState
) -> None:
    redfish.rack.rule(Rule(action="task", method="POST", path=UPDATE, seconds=0.1, ends=ends))
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.update_firmware(f"{shelf.url}/nic.bin")).state is state
    assert (versions(bmc)[NIC] == "23.1.0") is (ends == "purged")


def test_a_task_that_cannot_be_found_at_first_is_not_gone(redfish: Seat, shelf: Shelf) -> None:
    late = redfish.rack.rule(
        Rule(action="refuse", method="GET", path=r"/Tasks/\d+$", times=3, status=404, message="No.")
    )
    bmc = need(redfish.open(), Firmware)
    assert ended(bmc, bmc.update_firmware(f"{shelf.url}/nic.bin")).state is JobState.DONE
    assert redfish.rack.fired(late) == 3


@pytest.mark.parametrize("way", ["fetched", "sent", "lost"])
@pytest.mark.parametrize(("status", "times"), [(503, 2), (429, 1), (403, 1), (405, 1), (501, 1)])
def test_an_update_that_was_taken_is_followed_whatever_the_first_look_at_its_task_is_answered(
    redfish: Seat, shelf: Shelf, tmp_path: Path, way: str, status: int, times: int
) -> None:
    redfish.bmc.set(update_s=0.1)
    failing = redfish.rack.rule(
        Rule(action="refuse", method="GET", path=r"/Tasks/\d+$", times=times, status=status, message="No.")
    )
    if way == "lost":
        redfish.rack.rule(Rule(action="drop_after", method="POST", path=UPDATE, times=1))
    bmc = need(redfish.open(), Firmware)
    job = bmc.push_firmware(an_image(tmp_path)) if way == "sent" else bmc.update_firmware(f"{shelf.url}/nic.bin")
    assert redfish.rack.fired(failing) == times
    assert job.ref
    assert ended(bmc, job).state is JobState.DONE
    assert len(redfish.effects()) == 1
    assert versions(bmc)[NIC] == "23.1.0"


def test_an_update_whose_task_is_not_named_is_found_among_the_tasks(
    redfish: Seat, shelf: Shelf, tmp_path: Path
) -> None:
    redfish.bmc.set(update_task_named=False, update_s=0.1)
    bmc = need(redfish.open(), Firmware)
    job = bmc.update_firmware(f"{shelf.url}/nic.bin")
    assert job.state is JobState.RUNNING
    assert ended(bmc, job).state is JobState.DONE


@pytest.mark.parametrize("way", ["fetched", "sent"])
def test_a_lost_answer_to_an_update_is_looked_for_and_not_repeated(
    redfish: Seat, shelf: Shelf, tmp_path: Path, way: str
) -> None:
    redfish.bmc.set(update_s=0.1)
    redfish.rack.rule(Rule(action="drop_after", method="POST", path=UPDATE, times=1))
    bmc = need(redfish.open(), Firmware)
    job = bmc.update_firmware(f"{shelf.url}/nic.bin") if way == "fetched" else bmc.push_firmware(an_image(tmp_path))
    assert ended(bmc, job).state is JobState.DONE
    assert len(redfish.effects()) == 1


def test_an_update_that_never_arrived_is_maybe_sent(redfish: Seat, shelf: Shelf) -> None:
    redfish.rack.rule(Rule(action="drop_before", method="POST", path=UPDATE, times=1))
    with pytest.raises(MaybeSent):
        need(redfish.open(), Firmware).update_firmware(f"{shelf.url}/nic.bin")


# ---------------------------------------------------------------- the BMC restarts


def test_a_bmc_that_restarts_and_flaps_after_its_update_is_believed_after_reads_in_a_row(
    redfish: Seat, shelf: Shelf
) -> None:
    redfish.bmc.set(update_restart_s=0.3, update_flaps=3)
    shelf.files["/bmc.bin"] = image("BMC", "2.0.0")
    redfish.rack.rule(Rule(action="task", method="POST", path=UPDATE, seconds=0.1, ends="purged", times=1))
    bmc = need(redfish.open(Limits(connect_s=1, read_s=1, total_s=3)), Firmware)
    job = bmc.update_firmware(f"{shelf.url}/bmc.bin", (BMC,))
    failures, deadline = 0, time.monotonic() + 10
    found: Any = None
    while found is None and time.monotonic() < deadline:
        try:
            found = steadily(lambda: versions(bmc), 3, 0.05)
            found = found if found[BMC] == "2.0.0" else None
        except DriverError:
            failures += 1
            time.sleep(0.05)
    assert found is not None
    assert failures > 0
    assert need(bmc, Jobs).job(job.ref).state is JobState.UNKNOWN


def test_reads_that_differ_are_not_steady() -> None:
    answers = iter([1, 1, 2])
    with pytest.raises(Busy):
        steadily(lambda: next(answers), 3, 0.0)
    assert steadily(lambda: 7, 3, 0.0) == 7


def test_an_observed_bmc_gets_no_firmware(redfish: Seat, tmp_path: Path) -> None:
    bmc = need(redfish.open(Limits(LIMITS.connect_s, LIMITS.read_s, LIMITS.total_s, write_allowed=False)), Firmware)
    with pytest.raises(Refused):
        bmc.push_firmware(an_image(tmp_path))
    assert redfish.effects() == []
