"""Machines of qemu's behind BMCs of the emulated rack, driven as the daemon drives them; no daemon is there yet."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bcmetal.cli.ramdisk import default_cache
from bcmetal.clock import SystemClock
from bcmetal.join.ca import make_root, pem_of
from bcmetal.settings import Daemon, Network
from bcmetal_agent import boot_token
from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import Bmc, BootOnce, Identifies, Inventories, Power, VirtualMedia, need
from bcmetal_drivers.connection import Credential, Limits, Trust, TrustKind
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.registry import open_bmc
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState
from machine.console import BOOT_S
from machine.disks import Disk, DiskKind
from machine.rack.dhcp import ADVERTISEMENTS, Dhcp, network_boot, why_no_dhcp
from machine.rack.files import FileServer
from machine.rack.qemu_rack import QemuRack
from machine.rack.wire import DAEMON_6, DAEMON_BMC, MACHINES, Wire, why_no_wire
from machine.tiny_linux import READY, CannotBuild, TinyLinux
from machine.virtual_machine import why_no_machine
from machine_images import small_ramdisk
from machine_images import why_no_machine as why_no_images

WHY_NOT = why_no_machine() or why_no_images() or why_no_wire()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.timeout(300)]
needs_dhcp = pytest.mark.skipif(why_no_dhcp() is not None, reason=str(why_no_dhcp()))
DISKS = (  # the kernel for virtual machines knows no ATA
    Disk(DiskKind.NVME, "NVME0001"),
    Disk(DiskKind.SCSI, "SCSI0001", wwn="5000c500a1b2c3d5"),
    Disk(DiskKind.VIRTIO, "VIRT0001"),
)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as wire, wire.inside():
        yield wire


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyLinux:
    try:
        return TinyLinux.build(tmp_path_factory.mktemp("tiny"), default_cache() / "kernels")
    except CannotBuild as e:
        pytest.skip(str(e))


@pytest.fixture
def opened() -> Iterator[Callable[[EmulatedBmc], Bmc]]:
    with contextlib.ExitStack() as closing:

        def open_one(bmc: EmulatedBmc) -> Bmc:
            trust = Trust(TrustKind.FINGERPRINT, bmc.fingerprint) if bmc.fingerprint else Trust(TrustKind.NONE)
            line = open_bmc(parse(bmc.address), Credential(bmc.username, bmc.password), trust, Limits())
            closing.callback(line.close)
            return line

        yield open_one


def test_a_machine_starts_from_the_medium_that_its_bmc_was_given(
    tmp_path: Path, wire: Wire, tiny: TinyLinux, opened: Callable[[EmulatedBmc], Bmc]
) -> None:
    medium = tiny.iso(tmp_path, "medium", "console=ttyS0 quiet")
    with QemuRack(wire, tmp_path / "rack") as rack, FileServer(DAEMON_BMC, {"/m/1.iso": medium}) as files:
        bmc = rack.add_redfish("one", DISKS)
        line, console = opened(bmc), rack.vm("one").console
        need(line, VirtualMedia).insert(f"{files.url}/m/1.iso")
        assert [(one.path, one.client) for one in files.asked] == [("/m/1.iso", bmc.host)]
        need(line, BootOnce).boot_once(BootDevice.CD, BootMode.UEFI)
        need(line, Power).set_power(PowerAction.ON)
        said = console.wait_for(READY)
        assert need(line, Power).power_state() is PowerState.ON
        assert need(line, BootOnce).boot_override().device is BootDevice.NONE
        identity, inventory = need(line, Identifies).identity(), need(line, Inventories).inventory()
        assert f"uuid={identity.product_uuid}" in said
        assert f"serial={identity.serial}" in said
        assert f"mac={identity.macs[0]}" in said
        for drive in inventory.drives:
            assert drive.capacity_bytes is not None
            (seen,) = [words for words in _disks(said) if words[-1] == f"serial={drive.serial}"]
            assert int(seen[1]) * 512 == drive.capacity_bytes
            assert (drive.wwn or "") in " ".join(seen)
        assert len(inventory.drives) == len(DISKS)
        need(line, VirtualMedia).eject()
        assert not any("inserted" in drive for drive in rack.vm("one").ask("query-block") if drive["qdev"] == "cd")
        need(line, Power).set_power(PowerAction.OFF)
        assert need(line, Power).power_state() is PowerState.OFF
        assert rack.vm("one").pid is None


@needs_dhcp
def test_a_machine_without_virtual_media_asks_for_its_script_over_the_network(
    tmp_path: Path, wire: Wire, opened: Callable[[EmulatedBmc], Bmc]
) -> None:
    with contextlib.ExitStack() as running:
        rack = running.enter_context(QemuRack(wire, tmp_path / "rack"))
        bmc = rack.add_ipmi("two", DISKS[:1])
        script = f"/boot/ipxe/{bmc.machine.macs[0].replace(':', '-')}"
        files = running.enter_context(FileServer(wire.daemon, {script: "#!ipxe\necho SCRIPT-RUNS\nshell\n"}))
        network = Network(cidrs=(MACHINES,), media_url=files.url, agent_url=f"https://{wire.host}:8445", dhcp="static")
        running.enter_context(Dhcp(wire, tmp_path / "dhcp", network_boot(network, Daemon())))
        line = opened(bmc)
        need(line, BootOnce).boot_once(BootDevice.PXE, BootMode.UEFI)
        need(line, Power).set_power(PowerAction.ON)
        rack.vm("two").console.wait_for("SCRIPT-RUNS")
        assert files.asked[0].client.startswith("10.77.0.")
        need(line, Power).set_power(PowerAction.OFF)
        assert need(line, Power).power_state() is PowerState.OFF


@needs_dhcp
def test_a_ramdisk_calls_its_daemon_where_there_is_ipv6_alone(
    tmp_path: Path, opened: Callable[[EmulatedBmc], Bmc]
) -> None:
    """No DHCP: an address from router advertisements. The BMC's own network is another one, and of another version."""
    with contextlib.ExitStack() as running:
        wire = running.enter_context(Wire(ipv4=False))
        running.enter_context(wire.inside())
        door = running.enter_context(socket.create_server((DAEMON_6, 0), family=socket.AF_INET6))
        door.settimeout(BOOT_S)
        root = pem_of([make_root("test", SystemClock().now()).certificate])
        with wire.outside():
            built = small_ramdisk(tmp_path / "ramdisk", f"https://[{DAEMON_6}]:{door.getsockname()[1]}", root)
        medium = tmp_path / "medium.iso"
        shutil.copy(built.iso, medium)
        with medium.open("r+b") as file:
            file.seek(built.token_offset)
            file.write(boot_token.render(f"bcbt_{'0' * 26}.{secrets.token_urlsafe(32)}"))
        rack = running.enter_context(QemuRack(wire, tmp_path / "rack"))
        running.enter_context(Dhcp(wire, tmp_path / "dhcp", ADVERTISEMENTS))
        bmc = rack.add_redfish("one", DISKS[:1])
        files = running.enter_context(FileServer(DAEMON_BMC, {"/m/1.iso": medium}))
        line = opened(bmc)
        need(line, VirtualMedia).insert(f"{files.url}/m/1.iso")
        need(line, BootOnce).boot_once(BootDevice.CD)
        need(line, Power).set_power(PowerAction.ON)
        assert any(caller.startswith("fd77::") for caller in _callers(door))
        assert "10.77.0." not in rack.vm("one").console.text()


def _disks(said: str) -> list[list[str]]:
    return [line.removeprefix("disk=").split() for line in said.splitlines() if line.startswith("disk=")]


def _callers(door: socket.socket) -> Iterator[str]:
    """The first may come before its machine has more than a link-local address."""
    while True:
        caller, address = door.accept()
        caller.close()
        yield str(address[0])
