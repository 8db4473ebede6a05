"""The main promise, with nothing faked inside: a bare machine with a BMC becomes a system that joined its pool, and is taken back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc
from machine.disks import MIB, Disk, DiskKind, holds
from machine.rack.dhcp import why_no_dhcp
from machine.rack.site import IMAGE, QemuSite, qemu_site
from machine.rack.wire import why_no_wire
from machine.virtual_machine import why_no_machine
from machine_images import os_image
from machine_images import why_no_machine as why_no_images

WHY_NOT = why_no_machine() or why_no_images() or why_no_wire() or why_no_dhcp()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.timeout(1800)]
LIMIT: Final = "15m"
SYSTEM_DISK: Final = Disk(DiskKind.NVME, "NVME0001", 256 * MIB)
DATA_DISK: Final = Disk(DiskKind.SCSI, "SCSI0001", 64 * MIB, wwn="5000c500a1b2c3d5")
SECRET: Final = b"a tenant's data, which nobody may find again " * 12


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return os_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def site(tmp_path: Path, image: Path) -> Iterator[QemuSite]:
    with qemu_site(tmp_path / "site", image) as site:
        yield site


@pytest.mark.parametrize("kind", ["redfish", "ipmi"])
def test_a_machine_goes_through_its_whole_life(site: QemuSite, tmp_path: Path, kind: str) -> None:
    disks = (SYSTEM_DISK, DATA_DISK)
    bmc = site.rack.add_redfish("one", disks) if kind == "redfish" else site.rack.add_ipmi("one", disks)
    for disk in disks:
        _scatter(site, disk, SECRET)
    enrolled(site, bmc)
    inspected_deep(site)
    commissioned(site, disks)
    deployed(site)
    rescued(site, tmp_path)
    unrescued(site)
    released(site, disks)
    retired(site)


def enrolled(site: QemuSite, bmc: EmulatedBmc) -> None:
    done = site.enroll(
        bmc, "--root-device", f"serial={SYSTEM_DISK.serial}", "--boot-mac", bmc.machine.macs[0], "--wait"
    )
    assert done.code == 0, (done.err, site.told("one"))


def inspected_deep(site: QemuSite) -> None:
    """The two views agree: the BMC says of the machine what it is."""
    asked(site, "inspect", "one", "--deep")
    (seen,) = site.run("inventory", "one", "--json").doc["results"]
    assert {disk["serial"] for disk in seen["deep"]["doc"]["disks"]} >= {SYSTEM_DISK.serial, DATA_DISK.serial}
    assert not [one for one in site.view("one")["conditions"] if one["type"] == "hardware"]


def commissioned(site: QemuSite, disks: tuple[Disk, ...]) -> None:
    serial = site.rack.vm("one").spec.serial
    asked(site, "commission", "one", "--confirm-erase", serial)
    assert site.view("one")["state"] == "available"
    _nothing_is_left(site, disks)


def deployed(site: QemuSite) -> None:
    asked(site, "deploy", "one", "--image", IMAGE)
    view = site.view("one")
    assert (view["state"], view["agent"]["joined"]) == ("deployed", True), site.told("one")
    site.rack.vm("one").console.wait_for("JOINED")


def rescued(site: QemuSite, folder: Path) -> None:
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=30)
    asked(site, "rescue", "one", "--ssh-key", f"{key}.pub", "--expires-after", "2h")
    told = site.view("one")["rescue"]
    known = folder / "known_hosts"
    known.write_text("".join(f"{address} {line}\n" for address in told["addresses"] for line in told["hostKeys"]))
    said = subprocess.run(
        ["ssh", "-i", str(key), "-p", str(told["port"]), "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes",
         "-o", "StrictHostKeyChecking=yes", f"{told['user']}@{told['addresses'][0]}", "cat /proc/mounts; id"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert said.returncode == 0, (said.stderr, site.told("one"))
    assert "uid=" in said.stdout
    assert not [line for line in said.stdout.splitlines() if line.startswith(("/dev/nvme", "/dev/sd"))]


def unrescued(site: QemuSite) -> None:
    at = site.rack.vm("one").console.here()
    asked(site, "unrescue", "one")
    site.rack.vm("one").console.wait_for("DEPLOYED", since=at)
    assert site.view("one")["state"] == "deployed"


def released(site: QemuSite, disks: tuple[Disk, ...]) -> None:
    _scatter(site, DATA_DISK, SECRET)
    asked(site, "release", "one")
    assert site.view("one")["state"] == "available"
    _nothing_is_left(site, disks)
    records = site.run("erasure", "list", "--node", "one", "--json").doc["records"]
    assert {record["serial"] for record in records} == {disk.serial for disk in disks}


def retired(site: QemuSite) -> None:
    asked(site, "retire", "one", "--keep-credentials")
    assert site.view("one")["state"] == "retired"
    assert not site.rack.vm("one").is_on()


def asked(site: QemuSite, *words: str) -> Mapping[str, Any]:
    """A verb, waited for; its answer."""
    done = site.run(*words, "--wait", "--timeout", LIMIT, "--json")
    assert done.code == 0, (words, done.out, done.err, site.told("one"))
    return done.doc


def _scatter(site: QemuSite, disk: Disk, secret: bytes) -> None:
    path = site.rack.vm("one").disk_file(disk.serial)
    with path.open("r+b") as file:
        for at in range(0, disk.size_bytes - len(secret), 4 * MIB):
            file.seek(at + 12_345)
            file.write(secret)


def _nothing_is_left(site: QemuSite, disks: tuple[Disk, ...]) -> None:
    for disk in disks:
        assert not holds(site.rack.vm("one").disk_file(disk.serial), SECRET[:45]), disk.serial
