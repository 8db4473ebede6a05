"""Nothing is done to a disk that is not the plan's, and nothing to one that other machines may see."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from bcmetal_agent.tasks.doing import Stopped
from bcmetal_agent.wire_tasks import EraseDrive
from bcmetal_drivers.emulated.disks import Kind
from erase_bench import MIB, Bench, left, untouched


def test_each_drive_has_an_outcome_of_its_own_and_the_others_are_left_alone(bench: Bench) -> None:
    nvme = bench.disk(Kind.NVME, "GOOD-1")
    dying = bench.disk(Kind.ATA, "DYING", dies=True)
    sas = bench.disk(Kind.SAS, "GOOD-2")
    foreign = bench.disk(Kind.SAS, "NOT-IN-THE-PLAN")
    stick = bench.disk(Kind.USB, "BMC", vendor="AMI", model="Virtual HDisk0")
    gone = EraseDrive(dataclasses.replace(bench.planned(nvme, []).disk, serial="GONE"), ("overwrite",), "", ())
    result = bench.run(
        "erase",
        bench.planned(nvme, ["nvme-crypto"]),
        bench.planned(dying, ["ata-secure"]),
        gone,
        bench.planned(sas, ["scsi-sanitize"]),
    )
    assert [(d.serial, d.state) for d in result.drives] == [
        ("GOOD-1", "done"),
        ("DYING", "failed"),
        ("GONE", "missing"),
        ("GOOD-2", "done"),
    ]
    assert result.unplanned == ("NOT-IN-THE-PLAN",)
    assert untouched(foreign)
    assert untouched(stick)
    assert left(nvme) == left(sas) == 0


@pytest.mark.parametrize("phase", ["plant", "erase"])
@pytest.mark.parametrize(
    ("kind", "settings", "state"),
    [
        (Kind.FC, {}, "shared"),
        (Kind.ISCSI, {}, "shared"),
        (Kind.NVME_TCP, {}, "shared"),
        (Kind.SAS, {"read_only": True}, "read-only"),
        (Kind.USB, {"vendor": "AMI", "model": "Virtual Floppy0"}, "missing"),
    ],
)
def test_such_a_disk_is_never_written_to(
    bench: Bench, phase: str, kind: Kind, settings: dict[str, Any], state: str
) -> None:
    disk = bench.disk(kind, "S1", **settings)
    assert bench.one(phase, bench.planned(disk, ["nvme-crypto", "scsi-sanitize", "overwrite"])).state == state
    assert untouched(disk)
    assert bench.cabinet.state(disk).commands == []


@pytest.mark.parametrize("wwn", [None, "5000c500deadbeef"])
def test_two_disks_that_say_they_are_the_same_are_both_left_alone(bench: Bench, wwn: str | None) -> None:
    twins = [bench.disk(Kind.SAS, "TWIN", wwn=wwn), bench.disk(Kind.SAS, "TWIN", wwn=wwn)]
    plan = bench.planned(twins[0], ["overwrite"], wwn=wwn)
    assert bench.one("erase", plan).state == "ambiguous"
    assert all(untouched(twin) for twin in twins)


def test_a_second_disk_with_the_wwn_of_the_plans_leaves_both_alone(bench: Bench) -> None:
    disks = [bench.disk(Kind.SAS, serial, wwn="5000c500deadbeef") for serial in ("ONE", "TWO")]
    assert bench.one("erase", bench.planned(disks[0], ["overwrite"])).state == "ambiguous"
    assert all(untouched(disk) for disk in disks)


@pytest.mark.parametrize("field", ["serial", "size_bytes", "model", "wwn"])
def test_every_field_of_the_plan_has_to_agree(bench: Bench, field: str) -> None:
    disk = bench.disk(Kind.SAS, "S1")
    other = {"serial": "S2", "size_bytes": disk.size_bytes + 4096, "model": "OTHER 1", "wwn": "5000c500ffffffff"}[field]
    outcome = bench.one("erase", bench.planned(disk, ["overwrite"], **{field: other}))
    assert outcome.state == "missing"
    assert untouched(disk)


def test_a_disk_that_the_plan_names_twice_is_erased_once(bench: Bench) -> None:
    disk = bench.disk(Kind.SAS, "S1")
    first = bench.planned(disk, ["scsi-sanitize"])
    second = bench.planned(disk, ["scsi-sanitize"], wwn=None)
    assert [d.state for d in bench.run("erase", first, second).drives] == ["done", "ambiguous"]
    assert bench.cabinet.state(disk).commands == ["sanitize crypto"]


def test_a_mounted_disk_is_in_use(bench: Bench) -> None:
    disk = bench.disk(Kind.SAS, "S1")
    bench.cabinet.mount(disk, "/mnt")
    outcome = bench.one("erase", bench.planned(disk, ["scsi-sanitize", "overwrite"]))
    assert (outcome.state, outcome.message) == ("in-use", f"{disk.name} (S1) is in use: mounted at /mnt")
    assert untouched(disk)


def test_a_disk_that_something_holds_open_for_itself_is_in_use(bench: Bench) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1")
    held = os.open(disk.node, os.O_RDWR | os.O_EXCL)  # as md, dm and mounts in another namespace do
    try:
        assert bench.one("erase", bench.planned(disk, ["overwrite"])).state == "in-use"
    finally:
        os.close(held)
    assert untouched(disk)


def test_a_disk_that_goes_away_before_the_command_is_missing(bench: Bench) -> None:
    disk = bench.disk(Kind.SAS, "S1")
    bench.doing.on_log = lambda line: bench.cabinet.unplug(disk) if "erasing: " in line else None
    assert bench.one("erase", bench.planned(disk, ["scsi-sanitize"])).state == "missing"
    assert bench.cabinet.state(disk).commands == []
    assert untouched(disk)


def test_a_disk_that_comes_back_under_another_name_is_looked_at_by_another_task(bench: Bench) -> None:
    disk = bench.disk(Kind.SAS, "S1")

    def replug(line: str) -> None:
        if "erasing: " in line:
            (bench.cabinet.sys / "block" / disk.name).rename(bench.cabinet.sys / "block/sdz")
            (bench.cabinet.dev / disk.name).rename(bench.cabinet.dev / "sdz")

    bench.doing.on_log = replug
    outcome = bench.one("erase", bench.planned(disk, ["overwrite"]))
    assert (outcome.state, outcome.message) == (
        "missing",
        f"overwritten with zeros by the host: {disk.name} went away, and came back as sdz",
    )
    assert untouched(disk)


def test_another_disk_behind_the_same_node_is_not_taken_for_the_first(bench: Bench) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1")
    other = bench.loop()

    def swap(line: str) -> None:
        if "erasing: " in line:
            (bench.cabinet.dev / disk.name).unlink()
            (bench.cabinet.dev / disk.name).symlink_to(other)

    bench.doing.on_log = swap
    assert bench.one("erase", bench.planned(disk, ["overwrite"])).state == "missing"
    assert untouched(disk)


@pytest.mark.parametrize("settings", [{"format_is_all": True}, {"formats": False}])
def test_a_namespace_beside_it_that_is_not_in_the_plan_is_spared(bench: Bench, settings: dict[str, bool]) -> None:
    disk = bench.disk(Kind.NVME, "S1", **settings)
    beside = bench.cabinet.add_namespace(disk, bench.loop(8 * MIB))
    outcome = bench.one("erase", bench.planned(disk, ["nvme-crypto", "nvme-block", "nvme-overwrite"]))
    assert outcome.state == "unsupported"
    assert beside.name in (outcome.message or "")
    assert bench.cabinet.state(disk).commands == []
    assert untouched(disk)


def test_a_neighbour_and_hidden_namespaces_are_both_told(bench: Bench) -> None:
    disk = bench.disk(Kind.NVME, "S1", format_is_all=True, hidden_namespaces=[7])
    beside = bench.cabinet.add_namespace(disk, bench.loop(8 * MIB))
    message = bench.one("inspect", bench.planned(disk, ["nvme-crypto", "overwrite"])).message or ""
    assert f"shares its controller with {beside.name}" in message
    assert "namespaces 7 exist there and are hidden" in message


def test_one_namespace_of_two_is_formatted_alone(bench: Bench) -> None:
    disk = bench.disk(Kind.NVME, "S1")
    beside = bench.cabinet.add_namespace(disk, bench.loop(8 * MIB))
    outcome = bench.one("erase", bench.planned(disk, ["nvme-crypto"]))
    assert (outcome.state, bench.cabinet.state(disk).commands) == ("done", ["format 1 ses 2"])
    assert left(disk) == 0
    result = bench.run("erase", bench.planned(disk, ["nvme-crypto"]), bench.planned(beside, ["nvme-crypto"]))
    assert [d.state for d in result.drives] == ["done", "done"]
    assert bench.cabinet.state(disk).commands[1:] == ["sanitize crypto", "sanitize crypto"]


def test_a_stop_ends_an_overwrite_where_it_is(bench: Bench, tmp_path: Path) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1", 64 * MIB)
    bench.doing.stop_at = 300
    with pytest.raises(Stopped):
        bench.run("erase", bench.planned(disk, ["overwrite"]))
    assert 0 < left(disk) < disk.size_bytes // 512


@pytest.mark.parametrize("sector", [-4096, 100, 4 * MIB, 2**62])
def test_a_sector_that_is_none_of_the_disk_is_refused(bench: Bench, sector: int) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1")
    plan = dataclasses.replace(bench.planned(disk, ["overwrite"]), sectors=(0, sector))
    assert [bench.one(phase, plan).state for phase in ("plant", "erase", "verify")] == ["failed"] * 3
    assert untouched(disk)


@pytest.mark.parametrize("pattern", ["", "AAAA", "not base64"])
def test_a_pattern_that_is_no_sector_is_not_planted(bench: Bench, pattern: str) -> None:
    disk = bench.disk(Kind.VIRTIO, "S1")
    plan = dataclasses.replace(bench.planned(disk, ["overwrite"]), pattern=pattern)
    assert bench.one("plant", plan).state == "failed"
    assert untouched(disk)


def test_an_empty_plan_touches_nothing_and_tells_what_is_there(bench: Bench) -> None:
    disk = bench.disk(Kind.NVME, "S1")
    result = bench.run("erase")
    assert (result.drives, result.unplanned) == ((), ("S1",))
    assert untouched(disk)
