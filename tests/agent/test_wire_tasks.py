"""What the daemon and the ramdisk's agent tell each other: every message there and back, and nothing that is not of its shape."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from bcmetal_agent import wire, wire_inventory, wire_tasks
from bcmetal_agent.wire import BadMessage, Identifiers
from bcmetal_agent.wire_tasks import (
    DiskRef,
    DriveOutcome,
    EraseDrive,
    EraseParams,
    EraseResult,
    Hello,
    Report,
    RescueParams,
    Task,
    TestParams,
    WriteConfigDriveParams,
    WriteImageParams,
    statement,
)

DISK = DiskRef("S4FT0001", 480 * 10**9, model="MZ7", wwn="0x5002538f00000001")
WHO = Identifiers("4c4c4544-0035-3010-8053-b7c04f4a3233", "7FXK0S2", ("52:54:00:12:34:56",))
INVENTORY = wire_inventory.Inventory(
    WHO,
    cpus=(wire_inventory.Cpu(0, "Xeon", cores=8, threads=16, flags=("aes",)),),
    disks=(wire_inventory.Disk("nvme0n1", 10**12, serial="N1", rotational=False, health_detail={"media": 0}),),
    nics=(wire_inventory.Nic("eth0", carrier=True, neighbour=wire_inventory.Neighbour("leaf1", vlans=(7, 8))),),
    notes={"gpus": "no tool"},
)
MESSAGES: tuple[Any, ...] = (
    Hello("a" * 44, WHO, "0.1.0", "1970-01-01T00:00:12Z"),
    wire_tasks.Welcome("as_1", "2026-01-01T00:00:00Z"),
    wire_tasks.Next(),
    wire_tasks.Idle(5),
    wire_tasks.Heard(False),
    Report("at_1", "failed", 999, error_code="disk-missing", error_message="no such disk", log="…", log_offset=7),
    TestParams("memory", 60, {"errors": 0}),
    wire_tasks.TestResult("it was not run: no GPU", None, {"gpus": []}),
    EraseParams("plant", (EraseDrive(DISK, ("nvme-crypto", "overwrite"), "cGF0", (0, 4096)),)),
    EraseResult((DriveOutcome("S4FT0001", "frozen", message="frozen by the firmware", samples=("zero",)),), ("sdz",)),
    WriteImageParams(DISK, "0" * 64, 12, "zstd"),
    wire_tasks.WroteImage("sda", 1, 2, "0" * 64, "0" * 64, 3),
    WriteConfigDriveParams(DISK, "aXNv", "0" * 64, grow=False),
    wire_tasks.WroteConfigDrive(3, 2**30, True),
    wire_tasks.SetBootParams(DISK),
    wire_tasks.SetBoot("0003"),
    wire_tasks.RescueReady(("10.0.0.4", "fd00::4"), 22, "rescue", ("ssh-ed25519 AAAA",), ("SHA256:x",)),
    INVENTORY,
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_comes_back_as_it_was(message: Any) -> None:
    assert wire.decode(type(message), wire.encode(message)) == message
    assert wire.read_doc(type(message), json.loads(json.dumps(wire.to_doc(message)))) == message


def test_every_kind_of_task_has_its_params() -> None:
    kinds = {kind for kind in wire_tasks.PARAMS if wire.read_doc(Task, {"taskId": "t", "kind": kind, "params": {}})}
    assert kinds == set(wire_tasks.PARAMS)
    with pytest.raises(BadMessage, match=r"kind: must be one of inventory"):
        wire.read_doc(Task, {"taskId": "t", "kind": "shell", "params": {"command": "id"}})


@pytest.mark.parametrize(
    ("kind", "doc", "path"),
    [
        (EraseParams, {"phase": "format", "drives": []}, "phase"),
        (EraseParams, {"phase": "erase", "drives": [{}]}, r"drives\[0\].disk"),
        (WriteConfigDriveParams, {"disk": wire.to_doc(DISK), "iso": "", "sha256": "", "grow": 1}, "grow"),
        (DiskRef, {"serial": "S", "sizeBytes": -1}, "sizeBytes"),
        (DiskRef, {"serial": "S", "sizeBytes": True}, "sizeBytes"),
        (Report, {"taskId": "t", "state": "done", "result": [1]}, "result"),
        (Report, {"taskId": "t", "state": "done", "result": {"a": [{"b": "\ud800"}]}}, "result"),
        (wire_tasks.Next, {"since": 1}, "since"),
    ],
)
def test_what_is_not_of_its_shape_is_named(kind: type[Any], doc: dict[str, Any], path: str) -> None:
    with pytest.raises(BadMessage, match=path):
        wire.read_doc(kind, doc)


def test_a_report_has_a_bound_of_its_own() -> None:
    raw = wire.encode(Report("t", "running", log="x" * wire_tasks.LOG_CHUNK))
    assert wire.decode(Report, raw, wire_tasks.REPORT_LIMIT).log == "x" * wire_tasks.LOG_CHUNK
    with pytest.raises(BadMessage, match="larger than"):
        wire.decode(Report, raw)


def test_secrets_of_a_task_are_not_shown() -> None:
    word = secrets.token_urlsafe(24)
    shown = [
        repr(RescueParams((word,), word)),
        repr(WriteConfigDriveParams(DISK, word, "0" * 64)),
        repr(Task("t", "rescue", wire.to_doc(RescueParams((word,), word)))),
    ]
    assert not any(word in text for text in shown)


def test_a_signature_is_for_one_call_alone() -> None:
    said = ("POST", wire_tasks.REPORT_PATH, "as_1", 4, b"{}")
    others = [
        ("GET", *said[1:]),
        ("POST", wire_tasks.NEXT_PATH, *said[2:]),
        (*said[:2], "as_2", *said[3:]),
        (*said[:3], 5, said[4]),
        (*said[:4], b"{ }"),
    ]
    assert len({statement(*said), *(statement(*one) for one in others)}) == 6
