"""python -m bcmetal_drivers.emulated.disks STATES PROGRAM [ARGUMENT …]: one of the programs, on the drives whose states are there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bcmetal_drivers.emulated.disks import ata, nvme, scsi

PROGRAMS = {
    "nvme": nvme.nvme,
    "hdparm": ata.hdparm,
    "sg_sanitize": scsi.sg_sanitize,
    "sg_requests": scsi.sg_requests,
    "sg_opcodes": scsi.sg_opcodes,
}


def main(arguments: list[str]) -> int:
    states, program, *rest = arguments
    answer = PROGRAMS[program](Path(states), rest)
    sys.stdout.buffer.write(answer.out)
    sys.stdout.flush()
    os.write(2, answer.err)
    return answer.code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
