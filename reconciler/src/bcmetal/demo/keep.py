"""`bcmetal serve --demo`: an emulated site that stays, with every machine enrolled and inspected, until Ctrl-C."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import click

from bcmetal.client import ClientFault, default_places
from bcmetal.demo.journey import Journey, enroll, journeys_of, views_of
from bcmetal.demo.process import DaemonFault
from bcmetal.demo.site import Site, emulated_site
from bcmetal.states import State

REDFISH: Final = 12
IPMI: Final = 4
INSPECT_S: Final = 60.0


def keep(behaviours: Sequence[str] = ()) -> int:
    """The process's exit code. `behaviours`: what the BMCs do (`bcmetal_drivers.emulated.behaviours`)."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        with tempfile.TemporaryDirectory(prefix="bcmetal-demo-") as name:
            click.echo("starts an emulated rack and a daemon on loopback …", err=True)
            with emulated_site(Path(name), REDFISH, IPMI, behaviours) as site, _found_by_the_client(site):
                journeys = journeys_of(site)
                _enroll_all(site, journeys, stop)
                _tell(site, journeys)
                while not stop.wait(0.5):
                    if not site.daemon.alive():
                        click.echo(f"the daemon ended by itself:\n{site.daemon.last_words()}", err=True)
                        return 1
                click.echo("ends the daemon and the rack …", err=True)
    except (DaemonFault, ClientFault) as e:
        click.echo(f"bcmetal: {e}", err=True)
        return 1
    return 0


@contextlib.contextmanager
def _found_by_the_client(site: Site) -> Iterator[None]:
    """The demonstration's profile lies where `bcmetal` looks last, while it runs."""
    place = default_places()[-1]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)  # of a demonstration that was killed
    text = site.profile_file.read_text(encoding="utf-8")
    place.write_text(text.replace('"admin.key"', f'"{site.folder / "admin.key"}"'), encoding="utf-8")
    try:
        yield
    finally:
        place.unlink(missing_ok=True)


def _enroll_all(site: Site, journeys: Sequence[Journey], stop: threading.Event) -> None:
    deadline = time.monotonic() + INSPECT_S
    with site.client() as client:
        for journey in journeys:
            enroll(client, journey)
        while time.monotonic() < deadline and not stop.is_set():
            states = [view["state"] for view in views_of(client).values()]
            done = sum(state not in (State.ENROLLED, State.INSPECTING) for state in states)
            if done == len(journeys):
                return
            stop.wait(0.25)


def _tell(site: Site, journeys: Sequence[Journey]) -> None:
    own = next((place for place in default_places()[:-1] if place.exists()), None)
    names = [j.name for j in journeys]
    lines = [
        f"{len(journeys)} machines are enrolled and inspected: {names[0]} … {names[-1]}",
        "",
        f"configuration   {site.config}",
        f"admin key       {site.folder / 'admin.key'}",
        f"client profile  {site.profile_file}",
        f"daemon's log    {site.daemon.log}",
        "",
        "try, in another terminal:",
    ]
    if own is not None:
        lines.append(
            f"  export BCMETAL_PROFILE={shlex.quote(str(site.profile_file))}   # {own} would be used otherwise"
        )
    lines += [
        "  bcmetal node list",
        "  bcmetal commission 'demo-[01-08]' --wait",
        "  bcmetal deploy demo-01 --image demo --wait",
        "  bcmetal why demo-07",
        "  bcmetal timeline demo-01",
        "  bcmetal release demo-01 --wait",
        "  bcmetal service demo-02 --step reset-bmc --wait",
        "  bcmetal --pool demo-ipmi node list",
        "  bcmetal --pool demo-ipmi console demo-ipmi-01        # until ~.",
        "  bcmetal --pool demo-agents token create --ttl 1h     # prints the line by which a machine joins",
        "  bcmetal --pool demo-agents request list              # whether it waits for a person: request approve",
        "  bcmetal --pool demo-agents joined list",
        "",
        "Ctrl-C ends the daemon and the rack.",
    ]
    click.echo("\n".join(lines), err=True)
    sys.stderr.flush()
