"""The ramdisk where all is missing: a medium without a token, no DHCP, no DNS. Each is said on the console, and once it is there it goes on."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.ramdisk_door import Door, a_token
from bcmetal.join import ca
from bcmetal_agent import boot_token
from machine.disks import Disk, DiskKind
from machine.rack.dhcp import Dhcp
from machine.rack.wire import BRIDGE, DAEMON_4, Wire, why_no_wire
from machine.virtual_machine import MachineSpec, Source, VirtualMachine, why_no_machine
from machine_images import small_ramdisk
from machine_images import why_no_machine as why_no_images

NO = why_no_machine() or why_no_images() or why_no_wire() or (None if shutil.which("dnsmasq") else "no dnsmasq")
pytestmark = [pytest.mark.skipif(NO is not None, reason=str(NO)), pytest.mark.timeout(400)]
DISK = "QM0001"
NAME = "daemon.test"
LEASES = (
    f"interface={BRIDGE}\nexcept-interface=lo\nbind-dynamic\nport=0\ndhcp-range=10.77.0.100,10.77.0.110,1h\n"
    f"dhcp-option=option:dns-server,{DAEMON_4}\n"
)
NAMES = f"interface={BRIDGE}\nexcept-interface=lo\nbind-dynamic\naddress=/{NAME}/{DAEMON_4}\n"


@contextmanager
def a_machine(folder: Path, wire: Wire) -> Iterator[VirtualMachine]:
    spec = MachineSpec(
        "bare",
        str(uuid.uuid4()),
        "S1",
        "52:54:00:00:00:01",
        (Disk(DiskKind.NVME, DISK),),
        tap=wire.tap(),
        namespace=str(wire.path),
        tpm=False,
        clock="1970-01-02T00:00:00",
    )
    machine = VirtualMachine(spec, folder)
    try:
        yield machine
    finally:
        machine.power_off()


def test_what_is_missing_is_said_and_waited_for(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    door = Door(tmp_path / "door", a_token())
    door.listens_at = DAEMON_4
    door.use_certificate(ca.IssuerKind.SERVER, (NAME,))
    with Wire() as wire, wire.inside(), door, a_machine(tmp_path / "machine", wire) as machine:
        with wire.outside():
            built = small_ramdisk(tmp_path / "ramdisk", f"https://{NAME}:{door.port}", door.root_pem)
        right = tmp_path / "right.iso"
        shutil.copy(built.iso, right)
        with right.open("r+b") as medium:
            medium.seek(built.token_offset)
            medium.write(boot_token.render(door.token))
        disk = machine.disk_file(DISK)
        before = disk.read_bytes()

        machine.change_medium(built.iso)  # the template, which is for no machine
        machine.power_on((Source.CD,))
        machine.console.wait_for("there is no boot token that can be used")
        machine.console.wait_for("neither a DHCP server nor an IPv6 router answers")
        machine.change_medium(right)
        with Dhcp(wire, tmp_path / "leases", LEASES):
            machine.console.wait_for("(does DNS answer?)")
            assert door.hellos == []
            with Dhcp(wire, tmp_path / "names", NAMES):
                door.wait_for(lambda: bool(door.hellos), 90)
                machine.console.wait_for("has heard this machine")
        assert door.hellos[0].identifiers.serial == "S1"
        assert disk.read_bytes() == before
        assert door.token.partition(".")[2] not in machine.console.text()
