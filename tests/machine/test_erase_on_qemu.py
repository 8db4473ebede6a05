"""Erasing on a machine: the ramdisk's kernel, tools and agent, on NVMe, ATA and SCSI disks of qemu, with a power cycle before they are read back.

qemu's disks know Format NVM, TRIM and UNMAP, and neither sanitize nor security erase: those are on fakes (tests/agent/erase).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from bcmetal.boot.cpio import newc
from bcmetal.clock import SystemClock
from bcmetal.join.ca import make_root, pem_of
from bcmetal_agent import wire
from bcmetal_agent.wire_tasks import DiskRef, DriveOutcome, EraseDrive, EraseParams, EraseResult, Method
from machine.console import Console
from machine.disks import holds, plant
from machine.virtual_machine import kvm
from machine_images import small_ramdisk, why_no_machine

NO_MACHINE = why_no_machine()
pytestmark = [pytest.mark.skipif(NO_MACHINE is not None, reason=str(NO_MACHINE)), pytest.mark.timeout(600)]
MIB: Final = 1 << 20
SIZE: Final = 32 * MIB
NEEDLE: Final = b"written by a tenant, all over the disk "
SCRIPT: Final = """#!/bin/busybox sh
exec python3 /erase-test.py </dev/null >/dev/ttyS0 2>&1
"""
# in place of the agent's loop: the task itself, once for each phase that is asked for
PROGRAM: Final = """
import os, pathlib
from bcmetal_agent import wire
from bcmetal_agent.tasks.erase import erase
from bcmetal_agent.wire_tasks import EraseParams

class Doing:
    def progress(self, thousandths, message=None): pass
    def log(self, text): print("LOG " + text, end="", flush=True)
    def check(self): pass

words = dict(word.partition("=")[::2] for word in pathlib.Path("/proc/cmdline").read_text().split())
for phase in words["erase.phases"].split(","):
    params = wire.decode(EraseParams, pathlib.Path("/erase-" + phase + ".json").read_bytes(), 2**20)
    print("RESULT " + phase + " " + wire.encode(erase(params, Doing())).decode(), flush=True)
print("ALL-DONE", flush=True)
os.system("busybox poweroff -f")
"""


@dataclass(frozen=True)
class MachineDisk:
    serial: str
    wwn: str | None
    model: str | None
    devices: tuple[str, ...]
    methods: tuple[Method, ...]

    def plan(self, pattern: bytes) -> EraseDrive:
        ref = DiskRef(self.serial, SIZE, self.model, self.wwn)
        return EraseDrive(ref, self.methods, base64.b64encode(pattern).decode(), (0, 7 * MIB, SIZE - 4096))


NVME = MachineDisk(
    "NVME-1", None, "QEMU NVMe Ctrl", ("nvme,drive={n},serial=NVME-1",), ("nvme-crypto", "nvme-block", "overwrite")
)
ATA = MachineDisk(
    "ATA-1", "5000c50000000a01", "BENCHDISK 2000 OF A LONG NAME", (
        "ide-hd,bus=ide.0,drive={n},serial=ATA-1,model=BENCHDISK 2000 OF A LONG NAME,wwn=0x5000c50000000a01,rotation_rate=7200",
    ), ("ata-crypto", "ata-secure", "overwrite"),
)  # fmt: skip
SCSI = MachineDisk(
    "SCSI-1", "5000c50000000b01", "BENCHDISK", (
        "scsi-hd,bus=scsi.0,scsi-id=1,drive={n},serial=SCSI-1,vendor=QEMU,product=BENCHDISK,wwn=0x5000c50000000b01",
    ), ("scsi-sanitize", "discard"),
)  # fmt: skip
OTHER = MachineDisk(
    "SCSI-2", None, None, ("scsi-hd,bus=scsi.0,scsi-id=2,drive={n},serial=SCSI-2,vendor=QEMU,product=BENCHDISK",), ()
)
VIRTIO = MachineDisk("VIRTIO-1", None, None, ("virtio-blk-pci,drive={n},serial=VIRTIO-1",), ("overwrite",))
DISKS: Final = (NVME, ATA, SCSI, VIRTIO, OTHER)
PLANNED: Final = (NVME, ATA, SCSI, VIRTIO)


def test_disks_of_every_kind_are_erased_and_another_is_left_alone(tmp_path: Path) -> None:
    pattern = os.urandom(4096)
    files = {disk.serial: tmp_path / disk.serial for disk in DISKS}
    for file in files.values():
        with file.open("wb") as f:
            f.truncate(SIZE)
        plant(file, NEEDLE, MIB)
    before = hashlib.sha256(files["SCSI-2"].read_bytes()).hexdigest()
    kernel, initrd = _ramdisk(tmp_path, pattern)

    said = _boot(tmp_path, kernel, initrd, files, ["inspect", "plant", "erase"])
    inspected, planted, erased = (_result(said, phase) for phase in ("inspect", "plant", "erase"))
    assert inspected.unplanned == erased.unplanned == ("SCSI-2",)
    assert [(d.state, d.message) for d in inspected.drives] == [("done", None)] * 4
    assert [d.state for d in planted.drives] == ["done"] * 4, planted
    assert "nvme-block" in _of(inspected, NVME).offers
    assert {"overwrite", "discard"} <= set(_of(inspected, SCSI).offers)
    assert [(d.serial, d.state, d.method) for d in erased.drives] == [
        ("NVME-1", "done", "nvme-block"),
        ("ATA-1", "done", "overwrite"),
        ("SCSI-1", "done", "discard"),
        ("VIRTIO-1", "done", "overwrite"),
    ]
    clear = "NIST SP 800-88r2 clear"
    assert [d.standard for d in erased.drives] == [clear, clear, "none", clear]

    verified = _result(_boot(tmp_path, kernel, initrd, files, ["verify"]), "verify")
    assert [d.samples for d in verified.drives] == [("zero",) * 3] * 4
    for disk in PLANNED:
        assert not holds(files[disk.serial], NEEDLE), disk.serial
        assert not holds(files[disk.serial], pattern[:512]), disk.serial
    assert hashlib.sha256(files["SCSI-2"].read_bytes()).hexdigest() == before


def _ramdisk(folder: Path, pattern: bytes) -> tuple[Path, Path]:
    """The product's, with the script of this test in place of the agent's loop."""
    root = pem_of([make_root("test", SystemClock().now()).certificate])
    built = small_ramdisk(folder / "ramdisk", "https://10.0.2.100:8445", root)
    drives = tuple(disk.plan(pattern) for disk in PLANNED)
    more = {"/erase-test.py": PROGRAM.encode()}
    for phase in ("inspect", "plant", "erase", "verify"):
        more[f"/erase-{phase}.json"] = wire.encode(EraseParams(phase, drives))
    initrd = folder / "initrd"
    script = newc({"/usr/lib/bcmetal/agent-loop": SCRIPT.encode()}, mode=0o755)
    initrd.write_bytes(built.initrd.read_bytes() + newc(more) + script)
    return built.vmlinuz, initrd


def _boot(folder: Path, kernel: Path, initrd: Path, files: dict[str, Path], phases: Sequence[str]) -> str:
    """One boot, from power-on until it switches itself off: what was said on the serial port."""
    console = Console(folder / f"console-{phases[-1]}")
    disks: list[str] = []
    for n, disk in enumerate(DISKS):
        disks += ["-drive", f"if=none,id=d{n},format=raw,file={files[disk.serial]},discard=unmap,cache=writeback"]
        disks += [part for device in disk.devices for part in ("-device", device.format(n=f"d{n}"))]
    qemu = subprocess.Popen(
        [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "768",
            "-machine", "pc", "-accel", "kvm" if kvm() else "tcg", "-cpu", "max", "-smp", "2",
            "-kernel", kernel, "-initrd", initrd,
            "-append", f"console=ttyS0,115200 quiet loglevel=4 panic=5 erase.phases={','.join(phases)}",
            "-serial", f"file:{console.path}", "-device", "virtio-scsi-pci,id=scsi", *disks,
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    with qemu:
        try:
            said = console.wait_for("ALL-DONE")
            qemu.wait(30)
        finally:
            qemu.kill()
    return said


def _result(said: str, phase: str) -> EraseResult:
    found = re.search(rf"RESULT {phase} (\{{.*\}})", said)
    assert found is not None, said[-3000:]
    return wire.decode(EraseResult, found[1].encode(), 2**20)


def _of(result: EraseResult, disk: MachineDisk) -> DriveOutcome:
    return next(outcome for outcome in result.drives if outcome.serial == disk.serial)
