"""`bcmetal service`: named works on machines that keep their disks as they are."""

from __future__ import annotations

from typing import Any, Final

import click

from bcmetal.cli.asking import ask_each, how_of, verb_options
from bcmetal.cli.session import Session, with_session

STEPS: Final = {
    "power-cycle": "powerCycle",
    "boot-mode": "bootMode",
    "secure-boot": "secureBoot",
    "secure-boot-keys": "secureBootKeys",
    "firmware": "firmware",
    "bios": "bios",
    "host-ways": "hostWays",
    "reset-bmc": "resetBmc",
}


@click.command(
    epilog="""\b
Examples:
  bcmetal service r3u17 --step firmware --step bios --wait
  bcmetal service 'r3u[01-20]' --step reset-bmc --wait
  bcmetal service r3u17 --step firmware --profile standard --force --wait --timeout 2h
"""
)
@verb_options
@click.option(
    "--step",
    "steps",
    type=click.Choice(list(STEPS)),
    multiple=True,
    required=True,
    help="In this order; several times.",
)
@click.option(
    "--profile", "profile_name", metavar="NAME", help="A commission profile; else the one it was commissioned by."
)
@click.option("--force", is_flag=True, help="Switch off a system that does not shut down when it is asked to.")
@with_session
def service(
    session: Session,
    /,
    nodes: tuple[str, ...],
    steps: tuple[str, ...],
    profile_name: str | None,
    force: bool,
    **common: Any,
) -> None:
    """Do named works on deployed or available machines, by the values of a commission profile. Their disks stay as they are.

    A machine is shut down for them where they need it, and brought up again as it was.
    """
    body = {
        "steps": [STEPS[step] for step in dict.fromkeys(steps)],
        "profile": profile_name,
        "force": force or None,
    }
    ask_each(session, "service", "service", nodes, how_of(common), lambda _: body)
