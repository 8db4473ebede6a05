"""How large the ramdisk is, and how long a machine takes from its start to its agent's call: python benchmarks/ramdisk_start.py [--json] [--full].

A virtual machine with UEFI and a software TPM starts it by Redfish virtual media, for one deep inspect after another (root, qemu, the
tests' own network). Seconds are by the daemon's clock, from the step that powered the machine on to the agent's hello, and of the whole inspect.
Without KVM the processor is emulated: real machines are faster at everything but POST. `--full` also builds the ramdisk for real
hardware, with all tools, and tells its size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bcmetal.ramdisk.apt import Apt
from bcmetal.ramdisk.base import Contents
from bcmetal.ramdisk.build import Site, build, command_line, opened
from bcmetal.ramdisk.contents import Kernel, Tools
from machine.disks import MIB, Disk, DiskKind
from machine.rack.site import QemuSite, qemu_site
from machine_images import os_image

MIB_BYTES = 2**20


def sizes(folder: Path) -> dict[str, float]:
    """MiB of each file."""
    built = opened(folder)
    return {name: round(facts["size"] / MIB_BYTES, 1) for name, facts in built.manifest["files"].items()}


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def one_start(site: QemuSite) -> tuple[float, float]:
    """Seconds from power-on to hello, and of the inspect as a whole."""
    done = site.run("inspect", "one", "--deep", "--wait", "--timeout", "15m", "--json")
    if done.code != 0:
        raise SystemExit(f"{done.err}\n{site.told('one')}")
    operation = site.run("timeline", "one", "--limit", "1", "--json").doc["results"][0]["operations"][0]
    ended: dict[str, float] = {}
    for step in operation["steps"]:
        if step["outcome"] == "done":
            ended[step["step"]] = moment(step["endedAt"])
    whole = moment(operation["endedAt"]) - moment(operation["createdAt"])
    return ended["wait_for_the_agent"] - ended["start_the_ramdisk"], whole


def spread(values: Sequence[float]) -> dict[str, float]:
    found = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--full", action="store_true", help="also build the ramdisk for real hardware")
    parser.add_argument("--starts", type=int, default=5, help="so many starts (%(default)s)")
    options = parser.parse_args()
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bcmetal-bench-") as name:
        folder = Path(name)
        with qemu_site(folder / "site", os_image(folder / "image")) as site:
            told["mib"] = {"cloud kernel, minimal tools and the tests'": sizes(folder / "site" / "ramdisk")}
            bmc = site.rack.add_redfish("one", (Disk(DiskKind.NVME, "NVME0001", 256 * MIB),))
            enrolled = site.enroll(bmc, "--no-inspect")
            if enrolled.code != 0:
                raise SystemExit(enrolled.err)
            starts = [one_start(site) for _ in range(options.starts)]
            if options.full:
                told["mib"]["full kernel, all tools"] = _full(folder / "full", site.folder)
        told["seconds to the agent's call"] = spread([call for call, _ in starts])
        told["seconds of a deep inspect"] = spread([whole for _, whole in starts])
    if options.json:
        sys.stdout.write(json.dumps(told) + "\n")
        return
    for what, files in told.pop("mib").items():
        print(f"{what}: {', '.join(f'{name} {size} MiB' for name, size in files.items())}")
    for what, found in told.items():
        print(f"{what}: {found['min']} / {found['median']} / {found['max']} (min / median / max of {options.starts})")


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _full(out: Path, site: Path) -> dict[str, float]:
    from bcmetal.cli.ramdisk import default_cache
    from bcmetal.install.ca import trust_bundle

    apt = Apt(default_cache() / "apt", _say)
    apt.refresh()
    whom = Site("https://192.0.2.1:8445", trust_bundle(site / "bcmetal.toml"), "bench")
    contents = Contents(Kernel.FULL, Tools.FULL)
    build(whom, contents, out, cache=default_cache(), apt=apt, say=_say, command_line=command_line())
    return sizes(out)


if __name__ == "__main__":
    main()
