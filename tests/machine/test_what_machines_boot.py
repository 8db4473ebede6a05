"""The ramdisk and the small system, as Debian's packages make them, on a machine with UEFI firmware and a software TPM."""

from __future__ import annotations

import secrets
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bcmetal.clock import SystemClock
from bcmetal.join.ca import make_root, pem_of
from bcmetal_agent import boot_token
from machine.disks import Disk, DiskKind
from machine.virtual_machine import MachineSpec, Source, VirtualMachine, why_no_machine
from machine_images import os_image, small_ramdisk
from machine_images import why_no_machine as why_no_images

NO_MACHINE = why_no_machine() or why_no_images()
pytestmark = [pytest.mark.skipif(NO_MACHINE is not None, reason=str(NO_MACHINE)), pytest.mark.timeout(900)]
DISK = "QM0001"
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


@pytest.fixture
def a_machine(tmp_path: Path) -> Iterator[Callable[..., VirtualMachine]]:
    made: list[VirtualMachine] = []

    def make(name: str, clock: str = "utc") -> VirtualMachine:
        disks = (Disk(DiskKind.NVME, DISK),)
        spec = MachineSpec(name, str(uuid.uuid4()), "S1", "52:54:00:00:00:01", disks, clock=clock)
        made.append(VirtualMachine(spec, tmp_path / name))
        return made[-1]

    yield make
    for machine in made:
        machine.power_off()


def test_the_ramdisk_takes_its_token_from_the_medium_and_leaves_the_disk_alone(
    tmp_path: Path, a_machine: Callable[..., VirtualMachine]
) -> None:
    root = pem_of([make_root("test", SystemClock().now()).certificate])
    built = small_ramdisk(tmp_path / "ramdisk", "https://10.0.2.100:8445", root)
    identity = "".join(secrets.choice(CROCKFORD) for _ in range(26))
    token = f"bcbt_{identity}.{secrets.token_urlsafe(32)}"
    medium = tmp_path / "medium.iso"
    shutil.copy(built.iso, medium)
    with medium.open("r+b") as file:
        file.seek(built.token_offset)
        file.write(boot_token.render(token))
    machine = a_machine("bare", clock="1970-01-02T00:00:00")
    disk = machine.disk_file(DISK)
    before = disk.stat().st_blocks
    machine.change_medium(medium)
    machine.power_on((Source.CD,))
    said = machine.console.wait_for("init done, starting the agent")
    assert "the boot token is from /dev/sr0" in said
    assert token not in said
    assert disk.stat().st_blocks == before


def test_the_small_system_runs_from_its_disk(tmp_path: Path, a_machine: Callable[..., VirtualMachine]) -> None:
    image = os_image(tmp_path)
    assert image.stat().st_size < 64 * 10**6
    machine = a_machine("deployed")
    with machine.disk_file(DISK).open("r+b") as disk, image.open("rb") as file:
        shutil.copyfileobj(file, disk, 1 << 20)
    machine.power_on((Source.DISK,))
    machine.console.wait_for("DEPLOYED")
