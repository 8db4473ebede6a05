"""What every way to erase keeps to, whatever the drive: over fakes of NVMe, ATA and SCSI drives, and over plain loop devices."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from bcmetal_agent.wire_tasks import Method
from bcmetal_drivers.emulated.disks import Kind
from erase_bench import Bench, left, untouched

PURGE, CLEAR, NONE = "NIST SP 800-88r2 purge", "NIST SP 800-88r2 clear", "none"


@dataclass(frozen=True)
class Case:
    kind: Kind
    method: Method
    standard: str
    command: str | None = None
    drive: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.method} {self.command or ''}"


BY_THE_DRIVE = [
    Case(Kind.NVME, "nvme-crypto", PURGE, "sanitize crypto"),
    Case(Kind.NVME, "nvme-crypto", PURGE, "format 1 ses 2", {"sanitizes": []}),
    Case(Kind.NVME, "nvme-block", PURGE, "sanitize block"),
    Case(Kind.NVME, "nvme-block", CLEAR, "format 1 ses 1", {"sanitizes": ["crypto"]}),
    Case(Kind.NVME, "nvme-overwrite", PURGE, "sanitize overwrite"),
    Case(Kind.ATA, "ata-crypto", PURGE, "sanitize crypto"),
    Case(Kind.ATA, "ata-secure", PURGE, "sanitize block"),
    Case(Kind.ATA, "ata-secure", PURGE, "sanitize overwrite", {"sanitizes": ["overwrite"]}),
    Case(Kind.ATA, "ata-secure", CLEAR, "erase-enhanced", {"sanitizes": []}),
    Case(Kind.ATA, "ata-secure", CLEAR, "erase", {"sanitizes": [], "security": {"enhanced": False}}),
    Case(Kind.SAS, "scsi-sanitize", PURGE, "sanitize crypto"),
    Case(Kind.SAS, "scsi-sanitize", PURGE, "sanitize block", {"sanitizes": ["block", "overwrite"]}),
    Case(Kind.SAS, "scsi-sanitize", PURGE, "sanitize overwrite", {"sanitizes": ["overwrite"]}),
]
BY_THE_HOST = [
    Case(Kind.VIRTIO, "overwrite", CLEAR),
    Case(Kind.ATA, "overwrite", CLEAR, drive={"rotational": True}),
    Case(Kind.SAS, "overwrite", CLEAR),
    Case(Kind.VIRTIO, "discard", NONE),
    Case(Kind.NVME, "discard", NONE),
]
# one of each program and of each command that behaves in a way of its own
ONE_OF_EACH = [BY_THE_DRIVE[n] for n in (0, 1, 5, 8, 10)]


@pytest.mark.parametrize("case", BY_THE_DRIVE + BY_THE_HOST, ids=str)
def test_what_was_planted_is_gone_after_the_power_cycle(bench: Bench, case: Case) -> None:
    disk = bench.disk(case.kind, "S1", **case.drive)
    plan = bench.planned(disk, [case.method])
    seen = bench.one("inspect", plan)
    assert (seen.state, case.method in seen.offers) == ("done", True)
    assert untouched(disk)

    assert bench.one("plant", plan).state == "done"
    assert left(disk, bench.pattern) == 3
    planted = hashlib.sha256(bench.pattern).hexdigest()
    assert bench.one("verify", plan).samples == (planted,) * 3

    erased = bench.one("erase", plan)
    assert (erased.state, erased.method, erased.standard) == ("done", case.method, case.standard), erased
    assert bench.cabinet.state(disk).commands == ([case.command] if case.command else [])
    assert erased.drive_log
    assert erased.started_at
    assert erased.ended_at
    assert erased.started_at < erased.ended_at
    bench.cabinet.power_cycle()

    verified = bench.one("verify", plan)
    assert verified.state == "done"
    assert len(verified.samples) == 3
    assert planted not in verified.samples
    assert left(disk) == left(disk, bench.pattern) == 0
    assert bench.doing.thousandths[-1] == 1000


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_an_erase_that_claims_success_and_does_nothing_shows_in_the_samples(bench: Bench, case: Case) -> None:
    disk = bench.disk(case.kind, "S1", lies=True, **case.drive)
    plan = bench.planned(disk, [case.method])
    bench.one("plant", plan)
    assert bench.one("erase", plan).state == "done"
    planted = hashlib.sha256(bench.pattern).hexdigest()
    assert bench.one("verify", plan).samples == (planted,) * 3


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_drive_that_dies_half_way_failed_and_nothing_else_is_tried(bench: Bench, case: Case) -> None:
    disk = bench.disk(case.kind, "S1", dies=True, **case.drive)
    outcome = bench.one("erase", bench.planned(disk, [case.method, "overwrite"]))
    assert (outcome.state, outcome.method, outcome.standard) == ("failed", case.method, "none")
    assert outcome.message
    assert bench.cabinet.state(disk).commands == [case.command]
    assert 0 < left(disk) < disk.size_bytes // 512


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_where_the_drive_refuses_the_next_method_of_the_plan_is_taken(bench: Bench, case: Case) -> None:
    disk = bench.disk(case.kind, "S1", refuses=True, **case.drive)
    outcome = bench.one("erase", bench.planned(disk, [case.method, "overwrite"]))
    assert (outcome.state, outcome.method, outcome.standard) == ("done", "overwrite", CLEAR), outcome
    assert "refused" in (outcome.message or "") or "takes no password" in (outcome.message or "")
    assert left(disk) == 0


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_where_the_drive_refuses_all_of_the_plan_nothing_was_done(bench: Bench, case: Case) -> None:
    disk = bench.disk(case.kind, "S1", refuses=True, **case.drive)
    outcome = bench.one("erase", bench.planned(disk, [case.method]))
    assert outcome.state == "failed"
    assert outcome.standard is None
    assert untouched(disk)
