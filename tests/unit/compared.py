"""One machine, seen by its BMC and from inside, for the tests of comparing."""

from __future__ import annotations

from bcmetal_agent.wire import Identifiers
from bcmetal_agent.wire_inventory import Board, Cpu, Dimm, Disk, Firmware, Gpu, Nic, Tpm
from bcmetal_agent.wire_inventory import Inventory as AgentInventory
from bcmetal_drivers.resources import BmcInfo, BootMode, Drive, Identity
from bcmetal_drivers.resources import Inventory as BmcInventory

GIB = 2**30
UUID = "4c4c4544-0042-3510-8054-b4c04f4d5a33"

AGENT = AgentInventory(
    identifiers=Identifiers(UUID, "7XK2M93", ("3c:ec:ef:00:11:20", "3c:ec:ef:00:11:21"), ()),
    board=Board("Dell Inc.", "PowerEdge R760", "7XK2M93", chassis_serial="7XK2M93", board_serial="CNFCP0039C00A1"),
    firmware=Firmware("Dell Inc.", "2.16.1", "03/12/2024", "uefi", True),
    cpus=tuple(Cpu(n, "Intel(R) Xeon(R) Platinum 8480+", "Intel", 56, 112, 3800) for n in range(2)),
    memory_bytes=503 * GIB,
    dimms=tuple(Dimm(f"A{n}", 64 * GIB, "DDR5", 4800, "Samsung", "M321", f"80CE02{n:04X}") for n in range(8)),
    disks=(
        Disk("nvme0n1", 480103981056, "S64GNE0R1", "eui.3634473052100001", "SAMSUNG MZ1L2480HCHQ-00A07", "GDC5302Q", "nvme", False, health="ok"),
        *(
            Disk(f"nvme{n}n1", 3840755982336, f"S64GNE0R{n}", f"eui.363447305210000{n}", "SAMSUNG MZQL23T8HCLS-00A07", "GDC5302Q", "nvme", False, health="ok")
            for n in range(2, 5)
        ),
    ),
    nics=tuple(
        Nic(f"ens1f{n}np{n}", f"3c:ec:ef:00:11:2{n}", f"3c:ec:ef:00:11:2{n}", "mlx5_core", pci=f"0000:17:00.{n}", model="ConnectX-6 Lx", speed_mbps=25000, carrier=True)
        for n in range(2)
    ),
    gpus=tuple(Gpu(f"0000:{n}b:00.0", "NVIDIA", "H100 SXM5 80GB", memory_bytes=80 * GIB) for n in range(1, 9)),
    tpm=Tpm("2.0", "NTC", "7.2.3.0"),
)  # fmt: skip

BMC = BmcInventory(
    identity=Identity("/redfish/v1/Systems/1", UUID.upper(), "7xk2m93", "0A1B", "Dell Inc.", "PowerEdge R760"),
    bmc=BmcInfo("Dell Inc.", "iDRAC9", "7.10"),
    cpus=tuple({"id": f"CPU.{n}", "model": "Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz", "cores": 56, "threads": 112} for n in range(2)),
    memory_bytes=512 * GIB,
    dimms=tuple({"id": f"DIMM.A{n}", "capacityBytes": 64 * GIB, "serial": f"0x80ce02{n:04x}"} for n in range(8)),
    nics=tuple({"id": f"NIC.{n}", "mac": f"3C-EC-EF-00-11-2{n}"} for n in range(2)),
    drives=tuple(
        Drive(f" s64gne0r{n}", "MZQL23T8HCLS-00A07" if n > 1 else "SAMSUNG MZ1L2480HCHQ-00A07", 3840 * 10**9 if n > 1 else 479_559_942_144, "nvme", health="OK")
        for n in range(1, 5)
    ),
    gpus=tuple({"id": f"Video.{n}"} for n in range(8)),
    tpm={"type": "TPM2_0", "state": "Enabled"},
    firmware={"BIOS": "2.16.1", "Integrated Dell Remote Access Controller": "7.10"},
    boot_mode=BootMode.UEFI,
    secure_boot=True,
    sections={},
)  # fmt: skip
