"""Disks that behave, and misbehave, like real ones where qemu has none: sanitize, security erase, hidden areas, lies.

    cabinet = Cabinet(folder)
    disk = cabinet.add(Kind.ATA, node, "S1", lies=True)     # node: a block device, for example a loop device
    cabinet.sys, cabinet.dev, cabinet.proc                  # what the kernel would show of them
    cabinet.programs                                        # folder to put first on PATH: nvme, hdparm, sg_sanitize, sg_requests, sg_opcodes
    cabinet.power_cycle()                                   # locked and frozen as after a boot; a sanitize goes on
    cabinet.state(disk.name)["commands"]                    # what reached the drive and would destroy something

The programs take the options that bcmetal's agent gives them, print what the real ones print, and work on the block device. Each
drive's state is a JSON file (`state.Drive`); a look at a running sanitize moves it on by one step.
"""

from bcmetal_drivers.emulated.disks.cabinet import Cabinet, FakeDisk, Kind
from bcmetal_drivers.emulated.disks.state import Drive

__all__ = ["Cabinet", "Drive", "FakeDisk", "Kind"]
