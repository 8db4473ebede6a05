"""How a disk is attached, from where sysfs puts it: its bus, and whether other machines may reach it too.

A disk counts as shared when it is reached over a fabric (FC, iSCSI, SRP, NVMe-oF) or over more than one path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disk_identity import Identity, text_of
from bcmetal_agent.tasks.look_files import names

# Over USB alone, for hypervisors call their real disks virtual too. AMI and MegaRAC: "Virtual HDisk0", iDRAC: "Virtual Floppy", "LCDRIVE",
# "OEMDRV", "SECUPD"; iLO: "Virtual USB Key"; Cisco: "Virtual FDD"; OpenBMC and XCC: the gadget driver's "File-Stor Gadget".
_VIRTUAL: Final = re.compile(
    r"virtual|\bvcd\b|\bvfdd?\b|lcdrive|oemdrv|secupd|file-stor gadget|openbmc|\bbmc\b|idrac|\bilo\b", re.I
)
_FABRIC_DRIVERS: Final = {
    "ib_srp": "scsi", "iscsi_tcp": "iscsi", "ib_iser": "iscsi", "bnx2i": "iscsi", "be2iscsi": "iscsi",
    "qla4xxx": "iscsi", "qla2xxx": "fc", "lpfc": "fc", "bfa": "fc", "fnic": "fc", "bnx2fc": "fc", "fcoe": "fc",
    "qedf": "fc", "qedi": "iscsi", "zfcp": "fc",
}  # fmt: skip
_RAID_DRIVERS: Final = {"megaraid_sas", "aacraid", "smartpqi", "hpsa", "mpi3mr", "mpt3sas", "mpt2sas", "arcmsr"}


@dataclass(frozen=True, slots=True)
class Attachment:
    """As the fields of `disks.BlockDevice`."""

    transport: str | None
    shared: bool = False
    virtual_medium: bool = False
    raid_volume: bool = False


def attachment(block: Path, sys: Path, said: Identity) -> Attachment:
    """`block`: the disk's folder in sysfs, `sys`: sysfs itself."""
    if block.name.startswith("nvme"):
        return _of_nvme(block)
    parts = Path(os.path.realpath(block / "device")).parts
    host = next((part for part in parts if re.fullmatch(r"host\d+", part)), None)
    driver = text_of(sys / "class/scsi_host" / host / "proc_name") if host else None
    fabric = _fabric(parts, sys, host, driver)
    if fabric is not None:
        return Attachment(fabric, shared=True)
    if any(re.fullmatch(r"usb\d+", part) for part in parts):
        label = f"{said.vendor or ''} {said.model or ''}"
        return Attachment("usb", virtual_medium=_VIRTUAL.search(label) is not None)
    if block.name.startswith("mmcblk"):
        return Attachment("mmc")
    if said.ata:
        return Attachment("ata")
    if any(part.startswith("end_device-") for part in parts):
        return Attachment("sas")
    if block.name.startswith("sd"):
        return Attachment("scsi", raid_volume=driver in _RAID_DRIVERS)
    return Attachment("virtio" if any(part.startswith("virtio") for part in parts) else None)


def nvme_controllers(block: Path) -> list[Path]:
    """Their folders: the one that the disk hangs at, or those of the subsystem that it hangs at (native multipath)."""
    behind = Path(os.path.realpath(block / "device"))
    if re.fullmatch(r"nvme\d+", behind.name):
        return [behind]
    return [behind / name for name in names(behind) if re.fullmatch(r"nvme\d+", name)]


def _of_nvme(block: Path) -> Attachment:
    there = [controller for controller in nvme_controllers(block) if (controller / "transport").exists()]
    transports = {text_of(controller / "transport") or "unknown" for controller in there}
    fabric = not transports <= {"pcie", "apple-nvme"}
    return Attachment("nvme-of" if fabric else "nvme", shared=fabric or len(there) != 1)


def _fabric(parts: tuple[str, ...], sys: Path, host: str | None, driver: str | None) -> str | None:
    if any(part.startswith("rport-") for part in parts) or (host and (sys / "class/fc_host" / host).exists()):
        return "fc"
    session = any(re.fullmatch(r"session\d+", part) for part in parts)
    if session or (host and (sys / "class/iscsi_host" / host).exists()):
        return "iscsi"
    return _FABRIC_DRIVERS.get(driver or "")
