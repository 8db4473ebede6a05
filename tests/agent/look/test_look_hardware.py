"""The hardware tests: what makes a machine fail, what only could not be run, and that disks are read and never written."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

from agent.look.recorded import Told, a_machine, a_program, write
from bcmetal_agent import wire
from bcmetal_agent.tasks import check_clock, check_gpus, hardware_tests, sweep_disks
from bcmetal_agent.tasks.disks import BlockDevice
from bcmetal_agent.tasks.doing import Stopped, TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import Machine
from bcmetal_agent.wire_tasks import TestParams, TestResult
from bcmetal_agent.wire_tests import MARKS

Name = Literal["cpu", "memory", "smart", "disk-read", "disk-speed", "network", "gpu", "clock"]
MIB = 2**20


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs that the ramdisk has."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("BCMETAL_AGENT_PATH", str(folder))
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return a_machine(tmp_path / "machine")


def run(machine: Machine, name: Name, duration_s: int = 1, told: Told | None = None, **limits: Any) -> TestResult:
    found = hardware_tests.on(machine, TestParams(name, duration_s, limits), told or Told())
    assert wire.decode(TestResult, wire.encode(found)) == found
    return found


# ---------------------------------------------------------------- CPU and memory


def test_a_cpu_that_computes_rightly_passes_and_its_log_is_kept(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "stress-ng", 'echo "stress-ng: metrc: [7] cpu  6943  2.00" >&2; echo "$@"')
    told = Told()
    found = run(machine, "cpu", 2, told)
    assert found.passed is True
    assert found.figures["bogo_ops"] == 6943
    assert "--cpu 0 --cpu-method all --verify --oomable --metrics-brief --timeout 2s" in told.text
    assert "passed: all cores for 2 s" in told.text


def test_a_cpu_that_computes_wrongly_fails_with_what_was_said(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "stress-ng", 'echo "stress-ng: fail:  [9] cpu: matrix multiplication failed" >&2; exit 2')
    found = run(machine, "cpu")
    assert found.passed is False
    assert "matrix multiplication failed" in found.summary


@pytest.mark.parametrize("name", ["cpu", "memory"])
def test_errors_that_the_hardware_counted_meanwhile_fail_the_test(
    bin_folder: Path, machine: Machine, name: Name
) -> None:
    mc = machine.path("sys/devices/system/edac/mc/mc0")
    write(mc, "ce_count", "7")
    write(mc, "ue_count", "0")
    a_program(bin_folder, "stress-ng", f"echo 9 > {mc}/ce_count")
    found = run(machine, name)
    assert found.passed is False
    assert "the hardware corrected or reported: 2, at most 0 allowed" in found.summary
    write(mc, "ce_count", "7")
    assert run(machine, name, corrected_errors=2).passed is True
    a_program(bin_folder, "stress-ng", f"echo 1 > {mc}/ue_count")
    assert "1 uncorrected errors" in run(machine, name, corrected_errors=99).summary


def test_machine_checks_pcie_errors_and_heat_count_too(bin_folder: Path, machine: Machine) -> None:
    aer = write(machine.root, "sys/bus/pci/devices/0000:3b:00.0/aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 0")
    hot = write(machine.root, "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3")
    checks = write(machine.root, "proc/interrupts", " MCE:   0   0   Machine check exceptions")
    write(machine.root, "sys/class/hwmon/hwmon1/name", "coretemp")
    write(machine.root, "sys/class/hwmon/hwmon1/temp1_input", "97000")
    script = f"echo 'TOTAL_ERR_FATAL 2' > {aer}; echo 8 > {hot}; echo ' MCE: 1 0 Machine check exceptions' > {checks}"
    a_program(bin_folder, "stress-ng", f"{script}; /bin/sleep 1.3")
    found = run(machine, "cpu", 2, throttled=0, max_celsius=90)
    assert found.passed is False
    assert found.summary == (
        "2 uncorrected errors and 1 machine checks; cores slowed by heat: 5, at most 0 allowed; "
        "degrees Celsius: 97, at most 90 allowed"
    )


def test_memory_is_tested_over_the_asked_share_of_what_is_free(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "stress-ng", 'echo "$@"')
    told = Told()
    found = run(machine, "memory", 1, told, share_percent=50)
    assert found.passed is True
    assert found.figures["bytes"] == 40_000_000 * 1024
    assert "--vm-bytes 40960000000 " in told.text
    write(machine.root, "proc/meminfo", "MemAvailable: 100000 kB")
    assert run(machine, "memory").passed is None


def test_without_the_program_a_test_says_so_and_judges_nothing(bin_folder: Path, machine: Machine) -> None:
    for name in ("cpu", "memory", "smart", "disk-speed", "gpu"):
        found = run(machine, name)
        assert found.passed is None, name
        assert "no program" in found.summary


# ---------------------------------------------------------------- disks


def smartctl(folder: Path, **log: object) -> None:
    doc = {"smart_status": {"passed": True}, "nvme_smart_health_information_log": {"critical_warning": 0, **log}}
    a_program(folder, "smartctl", f"echo '{json.dumps(doc)}'")


def test_disks_that_are_well_pass_and_their_figures_are_told(bin_folder: Path, machine: Machine) -> None:
    smartctl(bin_folder, percentage_used=12, media_errors=0)
    found = run(machine, "smart")
    assert (found.passed, found.summary) == (True, "1 of 1 disks are well")
    assert found.figures["S64GNE0R1"]["percent_used"] == 12


@pytest.mark.parametrize(
    ("log", "limits", "told"),
    [
        ({"percentage_used": 95}, {}, "percent used: 95, at most 90 allowed"),
        ({"media_errors": 1}, {}, "media errors: 1, at most 0 allowed"),
        ({"critical_warning": 8}, {}, "critical warning 0x08: read-only"),
        ({"percentage_used": 60}, {"percent_used": 50}, "percent used: 60, at most 50 allowed"),
    ],
)
def test_a_disk_past_a_pass_mark_fails(
    bin_folder: Path, machine: Machine, log: dict[str, int], limits: dict[str, Any], told: str
) -> None:
    smartctl(bin_folder, **log)
    found = run(machine, "smart", **limits)
    assert found.passed is False
    assert found.summary == f"nvme0n1 (S64GNE0R1): {told}"


def test_a_disk_that_is_too_slow_fails(bin_folder: Path, machine: Machine) -> None:
    job = {"error": 0, "read": {"bw_bytes": 250_400_000, "iops": 61234.5}}
    a_program(
        bin_folder,
        "fio",
        f"""echo "fio: a warning"; echo '{json.dumps({"jobs": [job]})}'; echo "$@" >> {bin_folder}/asked""",
    )
    assert run(machine, "disk-speed", 4, floor_mbps=200, floor_iops=60000).passed is True
    assert "--readonly" in (bin_folder / "asked").read_text()
    found = run(machine, "disk-speed", 4, floor_mbps=500)
    assert (found.passed, found.summary) == (False, "nvme0n1 (S64GNE0R1) MB/s: 250.4, at least 500 wanted")
    a_program(bin_folder, "fio", "echo nonsense")
    assert "fio's answer is not what it should be" in run(machine, "disk-speed").summary


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[BlockDevice, Path]]:
    """A real block device of 96 MiB, and the file behind it."""
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    file = tmp_path / "disk"
    file.write_bytes(os.urandom(MIB) * 96)
    made = subprocess.run(["losetup", "--find", "--show", file], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr}")
    path = Path(made.stdout.strip())
    try:
        number = os.stat(path).st_rdev
        device = BlockDevice(path, path.name, f"{os.major(number)}:{os.minor(number)}", 96 * MIB, "LOOP-1")
        yield device, file
    finally:
        subprocess.run(["losetup", "--detach", path], check=True)


def sweep(device: BlockDevice, seconds: float = 60.0) -> sweep_disks.Sweep:
    found = sweep_disks.Sweep(device)
    sweep_disks.read_disk(found, time.monotonic() + seconds, threading.Event())
    return found


def test_a_disk_is_read_whole_and_stays_as_it_was(loop: tuple[BlockDevice, Path]) -> None:
    device, file = loop
    before = file.read_bytes()
    found = sweep(device)
    assert (found.failed, found.ended, found.error_offsets) == (None, True, [])
    assert found.covered_percent == 100
    assert file.read_bytes() == before


def test_what_a_disk_cannot_give_is_an_error_at_its_place(loop: tuple[BlockDevice, Path]) -> None:
    device, file = loop
    os.truncate(file, 88 * MIB)  # the kernel answers EIO beyond it
    found = sweep(device)
    assert found.error_offsets == [88 * MIB, 92 * MIB]
    trial = Trial("disk-read", 1, Told())
    result = sweep_disks.judged(trial, [found])
    assert result.passed is False
    assert "read errors: 2, at most 0 allowed" in result.summary
    assert result.figures["LOOP-1"]["error_offsets"] == [88 * MIB, 92 * MIB]


def test_a_disk_that_is_another_by_now_is_not_read(loop: tuple[BlockDevice, Path]) -> None:
    device, _ = loop
    found = sweep(BlockDevice(device.path, device.name, "259:99", device.size_bytes, "X"))
    assert found.read_bytes == 0
    assert found.failed is not None


def test_the_time_is_kept_and_the_whole_breadth_is_seen_early() -> None:
    size = 10**12 + 512
    strips = list(sweep_disks.strips(size))
    assert sum(length for _, length in strips) == size
    assert len({offset for offset, _ in strips}) == len(strips)
    early = sorted(offset for offset, _ in strips[: len(strips) // 16])
    gaps = [b - a for a, b in pairwise(early)]
    assert max(gaps) <= 16 * sweep_disks.STRIP
    assert early[-1] > size - 33 * sweep_disks.STRIP


# ---------------------------------------------------------------- network, GPUs, clock


def test_links_that_are_up_and_without_errors_pass(machine: Machine) -> None:
    found = run(machine, "network", 0)
    assert (found.passed, found.summary) == (True, "1 of 2 links are up (ens1f0np0 25000 Mbit/s)")
    assert "links that are up: 1, at least 2 wanted" in run(machine, "network", 0, links=2).summary
    assert "Mbit/s: 25000, at least 100000 wanted" in run(machine, "network", 0, floor_mbps=100_000).summary


def test_errors_and_flaps_during_the_test_fail_it(machine: Machine) -> None:
    card = machine.path("sys/class/net/ens1f0np0")

    class Meanwhile(Told):
        def check(self) -> None:
            write(card, "statistics/rx_crc_errors", "4")
            write(card, "carrier_changes", "5")

    found = run(machine, "network", 1, Meanwhile())
    assert found.passed is False
    assert found.summary == "errors of the links: 4, at most 0 allowed; changes of a carrier: 3, at most 0 allowed"
    assert run(machine, "network", 0).passed is True


def test_a_machine_without_cards_has_no_links_to_test(tmp_path: Path) -> None:
    assert run(Machine(tmp_path), "network").passed is None


QUERY = "00000000:3B:00.0, 41, {ecc}, No, {width}, 16"


def test_gpus_answer_their_makers_tool_without_errors(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "nvidia-smi", f"echo '{QUERY.format(ecc=0, width=16)}'")
    found = run(machine, "gpu", count=1)
    assert found.passed is True
    assert "dcgmi is not in the ramdisk" in found.summary
    assert "GPUs on the bus: 1, at least 8 wanted" in run(machine, "gpu", count=8).summary


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (QUERY.format(ecc=3, width=16), "0000:3b:00.0 uncorrected errors: 3, at most 0 allowed"),
        (QUERY.format(ecc=0, width=8), "0000:3b:00.0 has 8 of 16 PCIe lanes"),
        ("No devices were found", "0000:3b:00.0 is on the bus and does not answer nvidia-smi"),
    ],
)
def test_a_gpu_that_is_not_well_fails(bin_folder: Path, machine: Machine, said: str, told: str) -> None:
    a_program(bin_folder, "nvidia-smi", f"echo '{said}'")
    assert run(machine, "gpu").summary == told


def test_dcgms_verdict_is_heard(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "nvidia-smi", f"echo '{QUERY.format(ecc=0, width=16)}'")
    tests = [
        {"name": "Memory", "results": [{"status": "Pass"}, {"status": "Fail"}]},
        {"name": "PCIe", "results": [{"status": "Pass"}]},
    ]
    doc = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    a_program(bin_folder, "dcgmi", f"echo '{json.dumps(doc)}'; exit 226")
    assert run(machine, "gpu").summary == "dcgmi: Memory failed"
    assert list(check_gpus.failures("[" * 4000)) == []


def test_a_machine_without_gpus_fails_only_where_some_are_wanted(tmp_path: Path) -> None:
    assert run(Machine(tmp_path), "gpu").passed is None
    assert run(Machine(tmp_path), "gpu", count=8).passed is False


def a_clock(machine: Machine, ahead_s: float, done: threading.Event, rate: float = 1.0) -> threading.Thread:
    """A hardware clock that ticks."""
    began = time.time()
    file = machine.path("sys/class/rtc/rtc0/since_epoch")
    file.parent.mkdir(parents=True)

    def tick() -> None:
        while not done.wait(0.02):
            new = file.with_name("new")
            new.write_text(f"{int(began + ahead_s + (time.time() - began) * rate)}\n")
            new.replace(file)

    thread = threading.Thread(target=tick)
    thread.start()
    return thread


@pytest.mark.parametrize(("ahead_s", "passed"), [(0, True), (40, False), (7203, False)])
def test_the_hardware_clock_is_held_to_the_daemons(machine: Machine, ahead_s: int, passed: bool) -> None:
    done = threading.Event()
    thread = a_clock(machine, ahead_s, done)
    try:
        found = run(machine, "clock", 1, server_time=datetime.now(UTC).isoformat())
    finally:
        done.set()
        thread.join()
    assert found.passed is passed, found
    assert abs(found.figures["skew_s"] - ahead_s) < 2
    assert ("local time" in found.summary) is (ahead_s == 7203)


@pytest.mark.parametrize(("rate", "passed"), [(1.0, True), (2.5, False)])
def test_a_hardware_clock_that_runs_away_fails(machine: Machine, rate: float, passed: bool) -> None:
    done = threading.Event()
    thread = a_clock(machine, 0, done, rate)
    try:  # all but two seconds of the minute are over; so short, the test's own clock is seen that unsteady
        found = check_clock.clock(Trial("clock", 60, Told(), machine, {"drift_ppm": 700_000}, time.monotonic() - 58))
    finally:
        done.set()
        thread.join()
    assert found.passed is passed, found
    assert found.figures["drift_unsure_ppm"] > 0


def test_a_clock_that_stands_still_fails_and_none_is_none(machine: Machine) -> None:
    assert run(machine, "clock").passed is None
    write(machine.root, "sys/class/rtc/rtc0/since_epoch", "1000")
    assert "stands still" in run(machine, "clock").summary


# ---------------------------------------------------------------- all of them


def test_a_pass_mark_that_nobody_would_judge_by_is_refused(machine: Machine) -> None:
    for limits, told in (
        ({"floor": 3}, "knows no floor"),
        ({"links": "2"}, "is no number"),
        ({"links": True}, "no number"),
    ):
        with pytest.raises(TaskFailed, match=told) as caught:
            run(machine, "network", **limits)
        assert caught.value.code == "bad-limits"
    write(machine.root, "sys/class/rtc/rtc0/since_epoch", "1000")
    with pytest.raises(TaskFailed, match="no time"):
        run(machine, "clock", server_time="yesterday")


def test_every_test_has_its_marks() -> None:
    assert set(hardware_tests.TESTS) == set(MARKS)


def test_a_test_stops_when_nobody_waits_any_more(bin_folder: Path, machine: Machine) -> None:
    a_program(bin_folder, "stress-ng", "exec /bin/sleep 60")
    began = time.monotonic()
    with pytest.raises(Stopped):
        run(machine, "cpu", 60, Told(stop_after=2))
    with pytest.raises(Stopped):
        run(machine, "network", 60, Told(stop_after=2))
    assert time.monotonic() - began < 20
