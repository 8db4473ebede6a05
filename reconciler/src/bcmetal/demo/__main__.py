"""`python -m bcmetal.demo`: sixteen machines through their whole life, while two BMCs misbehave; judged by the rack's oracle."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bcmetal.client import ClientFault
from bcmetal.demo.faults import plant
from bcmetal.demo.journey import journeys_of, travel
from bcmetal.demo.judge import complaints
from bcmetal.demo.process import DaemonFault
from bcmetal.demo.screen import Screen
from bcmetal.demo.site import emulated_site

DEADLINE_S: Final = 115.0


def run(redfish: int, ipmi: int) -> int:
    screen = Screen(f"{redfish} Redfish and {ipmi} IPMI machines")
    with tempfile.TemporaryDirectory(prefix="bcmetal-demo-") as name:
        screen.say("starts an emulated rack and one daemon on loopback")
        began = time.monotonic()
        with emulated_site(Path(name), redfish, ipmi) as site:
            faults = plant(site.rack)
            for fault in faults:
                screen.say(f"{fault.bmc} {fault.what}")
            journeys = journeys_of(site)
            with site.client() as client, screen:
                travel(client, journeys, screen.show, began + DEADLINE_S)
            site.daemon.stop()
            wrong = complaints(site, journeys, faults)
            fired = [f"{fault.bmc} {fault.what}: {site.rack.fired(fault.rule_id)} times" for fault in faults]
            if wrong:
                screen.say(f"the daemon's last words:\n{site.daemon.last_words()}")
    screen.close(journeys)
    for line in fired:
        screen.say(line)
    for complaint in wrong:
        screen.say(f"WRONG  {complaint}")
    if not wrong:
        screen.say(
            f"all {len(journeys)} machines ended where they should, by the rack's own word; every fault came to bear"
        )
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bcmetal.demo", description=__doc__)
    parser.add_argument(
        "--redfish", type=int, default=12, metavar="N", help="Redfish machines, at least 7 (default 12)"
    )
    parser.add_argument("--ipmi", type=int, default=4, metavar="N", help="IPMI machines (default 4)")
    args = parser.parse_args()
    if args.redfish < 7 or args.ipmi < 0:
        parser.error("at least seven Redfish machines: the third and the seventh misbehave")
    try:
        sys.exit(run(args.redfish, args.ipmi))
    except (DaemonFault, ClientFault) as e:
        print(f"demo: {e}", file=sys.stderr)  # noqa: T201 - the reason must reach the terminal
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
