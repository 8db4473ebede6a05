"""`python -m bcmetal_drivers.emulated --state DIR`: the rack as a process of its own, until SIGTERM or SIGINT.

When all is up, one line of JSON on standard output says where: `bmcs` with the file of each one's password, `control` with its token's.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from bcmetal_drivers.emulated import recorded_process
from bcmetal_drivers.emulated.control import Control, bmc_document, write_private
from bcmetal_drivers.emulated.rack import Rack


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bcmetal_drivers.emulated", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--state", type=Path, help="folder that keeps the BMCs between two runs; needed without --tree")
    parser.add_argument(
        "--tree",
        type=Path,
        action="append",
        metavar="PATH",
        help="serve this recorded service tree (folder or tar archive) in place of a rack; may be repeated",
    )
    parser.add_argument("--redfish", type=int, default=12, help="how many Redfish BMCs")
    parser.add_argument("--ipmi", type=int, default=4, help="how many IPMI BMCs")
    parser.add_argument("--control", type=int, default=0, metavar="PORT", help="of the control endpoint; 0: any")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--power-lag", type=float, default=0.0, metavar="SECONDS")
    asked = parser.parse_args()
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # before any thread is there, so that only sigwait gets them
    if asked.tree:
        return recorded_process.serve(asked.tree, asked.state)
    if asked.state is None:
        parser.error("--state is needed, or --tree")
    rack = Rack(asked.state, asked.seed)
    for n in range(1, asked.redfish + 1):
        rack.add_redfish(f"redfish-{n:02d}", power_lag_s=asked.power_lag)
    for n in range(1, asked.ipmi + 1):
        rack.add_ipmi(f"ipmi-{n:02d}", power_lag_s=asked.power_lag)
    control = Control(rack, asked.state, asked.control)
    with rack:
        control.start()
        try:
            sys.stdout.write(json.dumps(_where(rack, control, asked.state)) + "\n")
            sys.stdout.flush()
            signal.sigwait(ending)
        finally:
            control.stop()
    return 0


def _where(rack: Rack, control: Control, folder: Path) -> dict[str, object]:
    bmcs = []
    for bmc in rack.bmcs.values():
        path = folder / f"{bmc.name}.password"
        write_private(path, bmc.password.get_secret_value())
        bmcs.append({**bmc_document(bmc), "password_file": str(path)})
    return {"bmcs": bmcs, "control": {"url": control.url, "token_file": str(control.token_file)}}


if __name__ == "__main__":
    sys.exit(main())
