"""`python -m bcmetal_drivers.emulated`: the rack as a process of its own, until SIGTERM or SIGINT.

    --state ./rack --redfish 12 --ipmi 4              BMCs that are the same after a restart
    --machines 1000 --behaviours supermicro,flaky     a thousand of them from this process
    --behaviours help                                 what they can be made to do
    --tree some-bmc.tar.xz --behaviours flaky         a service tree that was recorded from a BMC, as a BMC; may be repeated

When all is up, one line of JSON on standard output says where: `bmcs` with the file of each one's password, `control` with its token's.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bcmetal_drivers.emulated import lacking

try:
    from bcmetal_drivers.emulated.behaviours import chosen, described, for_protocol
    from bcmetal_drivers.emulated.bmc import IPMI, REDFISH
    from bcmetal_drivers.emulated.control import Control, bmc_document, write_private
    from bcmetal_drivers.emulated.rack import Rack
    from bcmetal_drivers.emulated.recorded import NoRecording, RecordedTree
    from bcmetal_drivers.emulated.recorded_source import RecordedSource, machine_of
except ModuleNotFoundError as e:
    if (e.name or "").startswith("bcmetal_drivers"):
        raise
    sys.stderr.write(f"{lacking(e.name)}\n")
    sys.exit(2)

ENDING: Final = {signal.SIGINT, signal.SIGTERM}
UNNAMED: Final = re.compile(r"[^A-Za-z0-9_.-]+")
MANY: Final = 32  # from so many on they share their threads


def main() -> int:
    asked = _parser().parse_args()
    if "help" in asked.behaviours:
        sys.stdout.write(described())
        return 0
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # before any thread is there, so that only sigwait gets them
    try:
        return _serve(asked)
    except NoRecording as e:
        sys.stderr.write(f"--tree: {e}\n")
        return 1
    except OSError as e:
        sys.stderr.write(f"the rack cannot be served: {e}{_ways_out(e, asked.state)}\n")
        return 1


def _ways_out(e: OSError, state: Path | None) -> str:
    if "already in use" in str(e):
        return f"; does another rack serve {state}? End it first" if state else "; name another port with --control"
    return "; --state names a folder that you may write" if state else ""


def _serve(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    with ExitStack() as stack:
        folder = asked.state or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rack-")))
        redfish, ipmi = (12, 4) if asked.machines is None else (asked.machines, 0)
        redfish = redfish if asked.redfish is None else asked.redfish
        ipmi = ipmi if asked.ipmi is None else asked.ipmi
        lag = {} if asked.power_lag is None else {"power_lag_s": asked.power_lag}
        if asked.tree:
            rack = _recorded(asked.tree, asked.behaviours, folder, lag)
        else:
            rack = _rack(asked.state, asked.seed, redfish, ipmi, asked.behaviours, lag)
        control = Control(rack, folder, asked.control)
        _allow_files(len(rack.bmcs))
        with rack:
            control.start()
            try:
                sys.stdout.write(json.dumps(_where(rack, control, folder)) + "\n")
                sys.stdout.flush()
                took_s = time.monotonic() - began
                sys.stderr.write(f"{len(rack.bmcs)} BMCs after {took_s:.1f} s, {_resident_mb()} MB\n")
                signal.sigwait(ENDING)
            finally:
                control.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bcmetal_drivers.emulated", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--state", type=Path, help="folder that keeps the BMCs between two runs; none: they are new each time"
    )
    parser.add_argument("--machines", type=_count, metavar="N", help="how many Redfish BMCs, and no IPMI ones")
    parser.add_argument("--redfish", type=_count, metavar="N", help="how many Redfish BMCs (12)")
    parser.add_argument("--ipmi", type=_count, metavar="N", help="how many IPMI BMCs (4)")
    parser.add_argument(
        "--behaviours", type=_names, default=(), metavar="A,B", help="what they do, by name; `help` lists the names"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        action="append",
        metavar="PATH",
        help="serve this recorded service tree (folder or tar archive) in place of a rack; may be repeated",
    )
    parser.add_argument("--control", type=_port, default=0, metavar="PORT", help="of the control endpoint; 0: any")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other serial numbers and UUIDs (0)")
    parser.add_argument("--power-lag", type=_seconds, metavar="SECONDS", help="between a reset and its effect")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of machines: 0 or more")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 1 to 65535, or 0 for any")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds: 0 or more")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if "help" not in names:
        try:
            chosen(names)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from e
    return names


def _rack(
    state: Path | None, seed: int, redfish: int, ipmi: int, behaviours: Sequence[str], lag: Mapping[str, Any]
) -> Rack:
    rack = Rack(state, seed, shared=redfish > MANY)
    width = max(2, len(str(redfish)))
    for n in range(1, redfish + 1):
        rack.add_redfish(f"redfish-{n:0{width}d}", behaviours=for_protocol(behaviours, REDFISH), **lag)
    for n in range(1, ipmi + 1):
        rack.add_ipmi(f"ipmi-{n:02d}", behaviours=for_protocol(behaviours, IPMI), **lag)
    return rack


def _recorded(trees: Sequence[Path], behaviours: Sequence[str], folder: Path, lag: Mapping[str, Any]) -> Rack:
    """A BMC for each recording, named after its file. `folder` keeps their certificates. Raises NoRecording."""
    rack = Rack(certificates=folder)
    for n, path in enumerate(trees, 1):
        tree = RecordedTree.read(path)
        machine = machine_of(tree, rack.clock)
        name = f"{n:02d}-{UNNAMED.sub('-', path.name.partition('.tar')[0])}"[:60]
        source = RecordedSource(tree, machine)
        rack.add_redfish(name, behaviours=for_protocol(behaviours, REDFISH), machine=machine, source=source, **lag)
    return rack


def _allow_files(bmcs: int) -> None:
    """A listening socket for each, and a few lines."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + 4 * bmcs
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20


def _where(rack: Rack, control: Control, folder: Path) -> dict[str, object]:
    bmcs = []
    for bmc in rack.bmcs.values():
        path = folder / f"{bmc.name}.password"
        write_private(path, bmc.password.get_secret_value())
        bmcs.append({**bmc_document(bmc), "password_file": str(path)})
    return {"bmcs": bmcs, "control": {"url": control.url, "token_file": str(control.token_file)}}


if __name__ == "__main__":
    sys.exit(main())
