"""Frozen, locked, half-dead and hiding drives, and what a killed agent left behind."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmetal_agent import wire
from bcmetal_agent.wire_tasks import EraseParams, Method
from bcmetal_drivers.emulated.disks import Kind
from erase_bench import MIB, Bench, left, untouched

AGENT = """
import pathlib, sys
from bcmetal_agent import wire
from bcmetal_agent.tasks.disks import Where
from bcmetal_agent.tasks.erase import erase
from bcmetal_agent.wire_tasks import EraseParams

class Doing:
    def progress(self, thousandths, message=None): pass
    def log(self, text): pass
    def check(self): pass

params, *folders = map(pathlib.Path, sys.argv[1:])
erase(wire.decode(EraseParams, params.read_bytes()), Doing(), Where(*folders))
"""
FROZEN = {"frozen": True, "frozen_at_boot": True}
FOREIGN = {"enabled": True, "locked": True, "password": "somebody else's"}


@pytest.fixture
def small_room(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 8 MiB: a loop device of more on it takes no writes past that."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", place], capture_output=True, timeout=10)
    if mounted.returncode:
        pytest.skip("needs to mount a tmpfs")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True, timeout=10)


def test_a_frozen_drive_says_so_and_is_left_as_it_is(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], security=FROZEN)
    plan = bench.planned(disk, ["ata-crypto", "ata-secure"])
    for phase in ("inspect", "erase"):
        outcome = bench.one(phase, plan)
        assert outcome.state == "frozen"
        assert "power-on" in (outcome.message or "")
    assert untouched(disk)


def test_a_frozen_drive_is_overwritten_where_the_plan_allows_it(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], security=FROZEN)
    outcome = bench.one("erase", bench.planned(disk, ["ata-secure", "overwrite"]))
    assert (outcome.state, outcome.method) == ("done", "overwrite")
    assert "froze" in (outcome.message or "")
    assert left(disk) == 0


def test_freezing_does_not_keep_a_drive_from_its_sanitize(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", security=FROZEN)
    assert bench.one("erase", bench.planned(disk, ["ata-secure"])).state == "done"
    assert left(disk) == 0


def test_a_drive_locked_by_somebody_else_is_locked(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", security=FOREIGN)
    plan = bench.planned(disk, ["ata-secure", "overwrite"])
    assert [bench.one(phase, plan).state for phase in ("inspect", "erase")] == ["locked", "locked"]
    assert bench.cabinet.state(disk).commands == []
    assert untouched(disk)


def test_a_security_erase_cut_by_the_power_is_gone_on_with(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[])
    plan = bench.planned(disk, ["ata-secure"])
    bench.one("plant", plan)
    # as a killed agent leaves it: its word is on the drive, the power goes
    bench.cabinet.change(disk, security={"enabled": True, "password": _the_word(bench)})
    bench.cabinet.power_cycle()
    assert bench.cabinet.state(disk).security.locked
    for phase in ("inspect", "plant", "erase"):
        assert bench.one(phase, plan).state == "done", phase
    assert not bench.cabinet.state(disk).security.enabled
    assert left(disk) == 0


def test_the_agent_may_be_killed_in_the_middle_of_a_security_erase(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], slow_s=2.0)
    plan = bench.planned(disk, ["ata-secure"])
    params = bench.folder / "params"
    params.write_bytes(wire.encode(EraseParams("erase", (plan,))))
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, params, *map(str, (bench.where.sys, bench.where.dev, bench.where.proc))]
    )
    ends_s = time.monotonic() + 20
    hdparm = ["-f", "--", f"hdparm --user-master u --security-erase-enhanced .*{bench.cabinet.dev}/{disk.name}"]
    while subprocess.run(["pgrep", *hdparm], capture_output=True).returncode and time.monotonic() < ends_s:
        time.sleep(0.05)
    agent.kill()
    agent.wait(10)
    assert untouched(disk)  # the drive is still at it, and answers nobody before it is through
    assert bench.one("plant", plan).state == "done"
    assert left(disk) == 0
    assert left(disk, bench.pattern) == 3
    assert bench.one("erase", plan).state == "done"
    assert bench.cabinet.state(disk).commands == ["erase-enhanced", "erase-enhanced"]


def _the_word(bench: Bench) -> str:
    """What the agent puts on a drive for its erase, as the program hears it."""
    other = bench.disk(Kind.ATA, "S2", sanitizes=[])
    script = bench.cabinet.programs / "hdparm"
    real = script.with_name("hdparm.real")
    shutil.copy(script, real)
    kept = bench.folder / "arguments"
    script.write_text(f'#!/bin/sh\necho "$@" >> {kept}\nexec {real} "$@"\n')
    bench.one("erase", bench.planned(other, ["ata-secure"]))
    words = [line.split()[3] for line in kept.read_text().splitlines() if "--security-set-pass" in line]
    shutil.copy(real, script)
    assert len(words) == 1
    return words[0]


@pytest.mark.parametrize("sense", ["70 00 05 00 00", "72 05 20 00", "70 00 00 00 00", "72 01 00 1d"])
def test_a_drive_that_takes_the_commands_and_does_nothing_is_not_believed(bench: Bench, sense: str) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], security={"deaf": sense})
    outcome = bench.one("erase", bench.planned(disk, ["ata-secure"]))
    assert (outcome.state, outcome.standard) == ("failed", None)
    assert untouched(disk)


def test_a_drive_with_its_password_after_the_erase_did_not_erase(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], security={"keeps": True})
    outcome = bench.one("erase", bench.planned(disk, ["ata-secure", "overwrite"]))
    assert (outcome.state, outcome.method) == ("failed", "ata-secure")
    assert not bench.cabinet.state(disk).security.enabled


@pytest.mark.parametrize(("kind", "method"), [(Kind.NVME, "nvme-crypto"), (Kind.ATA, "ata-crypto")])
def test_a_sanitize_that_never_began_failed(bench: Bench, kind: Kind, method: Method) -> None:
    disk = bench.disk(kind, "S1", ignores=True)
    outcome = bench.one("erase", bench.planned(disk, [method, "overwrite"]))
    assert (outcome.state, outcome.method, outcome.standard) == ("failed", method, "none")
    assert untouched(disk)


def test_sense_data_without_an_error_is_none(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[])
    script = bench.cabinet.programs / "hdparm"
    whole = script.read_text().replace("exec ", "")
    script.write_text(
        f"{whole}\ncode=$?\necho 'SG_IO: bad/missing sense data, sb[]:  70 00 01 00 00' >&2\nexit $code\n"
    )
    assert bench.one("erase", bench.planned(disk, ["ata-secure"])).state == "done"
    assert left(disk) == 0


def test_a_security_erase_that_breaks_off_leaves_no_password_behind(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[], dies=True)
    assert bench.one("erase", bench.planned(disk, ["ata-secure"])).state == "failed"
    assert not bench.cabinet.state(disk).security.enabled


@pytest.mark.parametrize(
    ("kind", "method"), [(Kind.NVME, "nvme-block"), (Kind.ATA, "ata-secure"), (Kind.SAS, "scsi-sanitize")]
)
def test_a_sanitize_that_is_under_way_is_waited_for(bench: Bench, kind: Kind, method: Method) -> None:
    disk = bench.disk(kind, "S1", running="block")
    plan = bench.planned(disk, [method])
    assert bench.one("plant", plan).state == "done"
    assert bench.cabinet.state(disk).running == ""
    assert left(disk) == 0
    assert left(disk, bench.pattern) == 3


def test_a_failed_sanitize_of_before_does_not_keep_the_next_from_beginning(bench: Bench) -> None:
    disks = [bench.disk(kind, f"S-{kind}", outcome="failed") for kind in (Kind.NVME, Kind.ATA, Kind.SAS)]
    plans = [bench.planned(disk, ["nvme-crypto", "ata-crypto", "scsi-sanitize"]) for disk in disks]
    assert [d.state for d in bench.run("erase", *plans).drives] == ["done"] * 3


def test_a_host_protected_area_is_told_and_not_left_to_an_overwrite(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", hidden_sectors=2048)
    outcome = bench.one("erase", bench.planned(disk, ["overwrite"]))
    assert outcome.state == "unsupported"
    assert "2048 sectors are hidden" in (outcome.message or "")
    assert untouched(disk)
    outcome = bench.one("erase", bench.planned(disk, ["ata-secure"]))
    assert outcome.state == "done"
    assert "2048 sectors are hidden" in (outcome.message or "")


def test_a_configuration_overlay_is_not_covered(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", overlaid_sectors=4096)
    outcome = bench.one("erase", bench.planned(disk, ["ata-crypto"]))
    assert outcome.state == "done"
    assert "sectors taken away by a device configuration overlay" in outcome.not_covered


def test_hidden_namespaces_go_with_a_sanitize_and_are_not_covered_by_a_format(bench: Bench) -> None:
    disk = bench.disk(Kind.NVME, "S1", hidden_namespaces=[7])
    outcome = bench.one("erase", bench.planned(disk, ["nvme-crypto"]))
    assert outcome.state == "done"
    assert "namespace 7, hidden" not in outcome.not_covered
    bench.cabinet.change(disk, sanitizes=[])
    outcome = bench.one("erase", bench.planned(disk, ["nvme-crypto"]))
    assert outcome.state == "done"
    assert "namespace 7, hidden" in outcome.not_covered
    assert "7 exist there and are hidden" in (outcome.message or "")
    for method in ("overwrite", "discard"):
        assert "namespace 7, hidden" in bench.one("erase", bench.planned(disk, [method])).not_covered


def test_a_disk_that_fails_in_mid_overwrite_failed_with_the_byte(bench: Bench, small_room: Path) -> None:
    node = bench.loop(16 * MIB, small_room)
    disk = bench.cabinet.add(Kind.VIRTIO, node, "S1")
    outcome = bench.one("erase", bench.planned(disk, ["overwrite"]))
    assert (outcome.state, outcome.method, outcome.standard) == ("failed", "overwrite", "none")
    assert "writing failed at byte 8" in (outcome.message or "")


def test_without_the_programs_the_host_does_what_it_can(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = bench.disk(Kind.NVME, "S1")
    monkeypatch.setenv("BCMETAL_AGENT_PATH", str(bench.folder))
    seen = bench.one("inspect", bench.planned(disk, ["overwrite"]))
    assert seen.offers == ("overwrite", "discard")
    assert bench.one("erase", bench.planned(disk, ["nvme-crypto", "overwrite"])).method == "overwrite"


@pytest.mark.parametrize("said", ["", "x" * 5000, "\\033[2J\\000\\377", "0040 3fff", "{}"])
def test_whatever_the_programs_print_the_drive_has_an_outcome(bench: Bench, said: str) -> None:
    disks = [bench.disk(kind, f"S-{kind}") for kind in (Kind.NVME, Kind.ATA, Kind.SAS)]
    for name in ("nvme", "hdparm", "sg_sanitize", "sg_requests", "sg_opcodes"):
        (bench.cabinet.programs / name).write_text(f"#!/bin/sh\nprintf '{said}'\n")
    plans = [bench.planned(disk, ["nvme-crypto", "ata-secure", "scsi-sanitize"]) for disk in disks]
    for outcome in bench.run("erase", *plans).drives:
        assert outcome.state in ("unsupported", "failed")
        assert (outcome.message or "").isprintable()
    assert all(untouched(disk) for disk in disks)


def test_no_password_of_a_drive_is_in_the_log(bench: Bench) -> None:
    disk = bench.disk(Kind.ATA, "S1", sanitizes=[])
    bench.one("erase", bench.planned(disk, ["ata-secure"]))
    assert _the_word(bench) not in bench.doing.text


def test_verify_reads_past_the_cache(bench: Bench) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1")
    plan = bench.planned(disk, ["overwrite"])
    bench.one("plant", plan)
    before = bench.one("verify", plan).samples
    backing = subprocess.run(
        ["losetup", "--noheadings", "--output", "BACK-FILE", disk.node], capture_output=True, text=True, check=True
    ).stdout.strip()
    with disk.node.open("rb") as held:  # while it is open its sectors stay in the cache
        held.read(4096)
        with Path(backing).open("r+b") as f:
            f.write(bytes(4096))
        assert before[0] == hashlib.sha256(bench.pattern).hexdigest()
        assert bench.one("verify", plan).samples[0] == "zero"
