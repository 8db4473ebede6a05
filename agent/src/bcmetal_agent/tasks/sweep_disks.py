"""The test `disk-read`: every disk is read, all at the same time, past the cache, for the test's time. Nothing is written.

Reading spreads over the whole disk from the start on, so that a test too short for all of it still saw every region.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bcmetal_agent.tasks.check_disks import own_disks
from bcmetal_agent.tasks.disks import BlockDevice, opened
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.wire_tasks import TestResult

CHUNK: Final = 4 * 2**20
STRIP: Final = 16 * CHUNK  # read in one go, so that a rotating disk does not only seek
PASSES: Final = 16
SLOW_S: Final = 2.0  # a disk that retries inside takes seconds
ERRORS_LIMIT: Final = 64  # then nothing more has to be known of that disk
HUNG_S: Final = 60.0  # after the time is up: a read that still has not come back


@dataclass(slots=True)
class Sweep:
    """How one disk is doing. Written by its own thread alone."""

    device: BlockDevice
    read_bytes: int = 0
    busy_s: float = 0.0
    slowest_s: float = 0.0
    slow_reads: int = 0
    error_offsets: list[int] = field(default_factory=list)
    failed: str | None = None
    ended: bool = False

    @property
    def label(self) -> str:
        return f"{self.device.name} ({self.device.serial})"

    @property
    def mbps(self) -> float:
        return round(self.read_bytes / 1e6 / self.busy_s, 1) if self.busy_s else 0.0

    @property
    def covered_percent(self) -> float:
        return round(100 * self.read_bytes / self.device.size_bytes, 1)


def strips(size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of all strips of the disk, each once: first every sixteenth, then those in the middle between, and so on."""
    for n in range(PASSES):
        first = int(f"{n:04b}"[::-1], 2)
        for offset in range(first * STRIP, size, PASSES * STRIP):
            yield offset, min(STRIP, size - offset)


def read_all(trial: Trial) -> TestResult:
    there = own_disks(trial)
    if not there:
        return TestResult("the machine has no disk of its own")
    stop = threading.Event()
    sweeps = [Sweep(one) for one in there]
    until = trial.started + trial.duration_s
    threads = [
        threading.Thread(target=read_disk, args=(one, until, stop), name=f"read-{one.device.name}", daemon=True)
        for one in sweeps
    ]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and time.monotonic() < until + HUNG_S:
            trial.doing.check()
            done = sum(one.covered_percent if not one.ended else 100.0 for one in sweeps) / len(sweeps)
            elapsed = 100 * (time.monotonic() - trial.started) / max(trial.duration_s, 1)
            trial.doing.progress(min(int(max(done, elapsed) * 10), 990), f"reading {len(sweeps)} disks")
            threads[0].join(0.5) if threads[0].is_alive() else stop.wait(0.5)
    finally:
        stop.set()
    return judged(trial, sweeps)


def read_disk(sweep: Sweep, until: float, stop: threading.Event) -> None:
    """Read one disk, strip by strip, until it is done, the time is up or somebody stops it. What went wrong stands in the sweep."""
    try:
        with opened(sweep.device, os.O_RDONLY | os.O_DIRECT) as fd, mmap.mmap(-1, CHUNK) as room:
            for offset, length in strips(sweep.device.size_bytes):
                for at in range(offset, offset + length, CHUNK):
                    if stop.is_set() or time.monotonic() >= until or len(sweep.error_offsets) >= ERRORS_LIMIT:
                        return
                    _read(sweep, fd, room, at, min(CHUNK, offset + length - at))
    except (TaskFailed, OSError) as error:
        sweep.failed = str(error)
    finally:
        sweep.ended = True


def _read(sweep: Sweep, fd: int, room: mmap.mmap, at: int, length: int) -> None:
    began = time.monotonic()
    with memoryview(room) as whole, whole[:length] as part:
        try:
            got = os.preadv(fd, [part], at)
        except OSError:
            got = 0
    took = time.monotonic() - began
    sweep.busy_s += took
    sweep.slowest_s = max(sweep.slowest_s, took)
    sweep.slow_reads += took > SLOW_S
    sweep.read_bytes += got
    if got < length:
        sweep.error_offsets.append(at + got)


def judged(trial: Trial, sweeps: list[Sweep]) -> TestResult:
    wrong, figures = [], {}
    for one in sweeps:
        errors = len(one.error_offsets)
        if not one.ended:
            wrong.append(f"{one.label}: a read did not come back within {HUNG_S:.0f} s after the test's time")
        if one.failed is not None:
            wrong.append(f"{one.label}: {one.failed}")
        wrong += trial.over("read_errors", errors, f"{one.label} read errors")
        wrong += trial.over("slow_reads", one.slow_reads, f"{one.label} slow reads")
        wrong += trial.under("floor_mbps", one.mbps, f"{one.label} MB/s")
        wrong += trial.under("covered_percent", one.covered_percent, f"{one.label} percent read")
        figures[one.device.serial or one.device.name] = {
            "read_bytes": one.read_bytes,
            "covered_percent": one.covered_percent,
            "mbps": one.mbps,
            "slowest_ms": round(one.slowest_s * 1000),
            "slow_reads": one.slow_reads,
            "errors": errors,
            "error_offsets": one.error_offsets[:16],
        }
        trial.log(
            f"{one.label}: {one.read_bytes} bytes ({one.covered_percent} %) at {one.mbps} MB/s, {errors} errors"
            f"{' at ' + ', '.join(map(str, one.error_offsets[:16])) if errors else ''}, "
            f"slowest read {one.slowest_s * 1000:.0f} ms"
        )
    least = min(one.covered_percent for one in sweeps)
    told = f"{len(sweeps)} disks read without an error, at least {least:g} % of each"
    return TestResult("; ".join(wrong) or told, not wrong, figures)
