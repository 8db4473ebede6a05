"""What a machine's BMC tells and does beside its way: sensors, its event log, the light, its own restart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from bcmetal.cli.asking import How, ask, ask_each, how_of, verb_options, waited_for
from bcmetal.cli.outcome import finish
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import print_table, table_of
from bcmetal.text import ago, clean

READ_S = 300.0

node_argument = click.argument("node")
last_option = click.option("--last", is_flag=True, help="Do not ask the BMC: as it was read last.")


def read_and_show(
    session: Session,
    node: str,
    how: tuple[str, str, str],
    body: Mapping[str, Any],
    show: Callable[[Any], None],
    last: bool,
) -> None:
    """`how`: the words for it, the method that asks the BMC, the method that answers what it said."""
    words, asks, answers = how
    if not last:
        waits = How(wait=True, timeout_s=READ_S, idempotency_key=None, if_generation=None)
        asked = ask(session, asks, node, waits, body, alone=True)
        ended = waited_for(session, asks, [asked], READ_S)
        if any(one.what != "done" for one in ended):
            sys.exit(finish(session, words, ended) or 1)
    answer = session.client.call("metal", answers, {**session.where(), "nodeId": node})
    if session.as_json:
        session.answer(answer)
        return
    if answer["takenAt"] is None:
        click.echo(clean(f"{words} of {node} were never read: leave out --last"))
        return
    click.echo(clean(f"{answer['node']['name']}, {ago(answer['takenAt'])}:"))
    show(answer)


@click.command(
    epilog="""\b
Examples:
  bcmetal node sensors r3u17
  bcmetal --json node sensors r3u17 --last | jq '.sensors[] | select(.health != "ok")'
"""
)
@node_argument
@last_option
@shared_options
@with_session
def sensors(session: Session, /, node: str, last: bool) -> None:
    """Read what NODE's BMC measures now."""
    read_and_show(session, node, ("sensors", "readSensors", "sensors"), {}, _show_sensors, last)


def _show_sensors(answer: Mapping[str, Any]) -> None:
    rows = (
        (one["name"], one["kind"], _value(one), one["health"], _limits(one["thresholds"])) for one in answer["sensors"]
    )
    print_table(table_of(("sensor", "kind", "value", "health", "limits"), rows))
    unread = sum(bool(one.get("unread")) for one in answer["sensors"])
    if unread:
        click.echo(f"{unread} of {len(answer['sensors'])} were not read: the BMC has so many, or leaves them to others")
    if answer["powerDrawW"] is not None:
        click.echo(f"draws {answer['powerDrawW']:g} W")


def _value(one: Mapping[str, Any]) -> str | None:
    if one["value"] is None:
        return None
    units = {"Cel": "°C", "{rev}/min": "rpm"}
    unit = one["unit"] or ""
    return f"{one['value']:g} {units.get(unit, unit)}".strip()


def _limits(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in thresholds.items())


@click.command(
    epilog="""\b
Examples:
  bcmetal node events r3u17
  bcmetal node events r3u17 --limit 20
  bcmetal --json node events r3u17 --last
"""
)
@node_argument
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="The newest so many.")
@last_option
@shared_options
@with_session
def events(session: Session, /, node: str, limit: int, last: bool) -> None:
    """Read the newest entries of the event log of NODE's BMC, oldest first."""
    read_and_show(session, node, ("events", "readEventLog", "eventLog"), {"limit": limit}, _show_events, last)


def _show_events(answer: Mapping[str, Any]) -> None:
    entries: Sequence[Mapping[str, Any]] = answer["entries"]
    if not entries:
        click.echo("the log is empty")
        return
    rows = ((one["at"], one["severity"], one["sensor"], one["message"]) for one in entries)
    print_table(table_of(("when, by the BMC's clock", "severity", "sensor", "what"), rows))


@click.command(
    "clear-events",
    epilog="""\b
Examples:
  bcmetal node clear-events r3u17 --wait
""",
)
@verb_options
@with_session
def clear_events(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """Clear the event logs of the machines' BMCs. What `bcmetal node events` read before stays here."""
    ask_each(session, "clear-events", "clearEventLog", nodes, how_of(common), lambda _: {})


@click.command(
    epilog="""\b
Examples:
  bcmetal node identify r3u17
  bcmetal node identify r3u17 --off
"""
)
@verb_options
@click.option("--off", is_flag=True, help="Switch it off again.")
@with_session
def identify(session: Session, /, nodes: tuple[str, ...], off: bool, **common: Any) -> None:
    """Switch the light by which a machine is found in its rack."""
    ask_each(session, "identify", "identify", nodes, how_of(common), lambda _: {"on": not off})


@click.command(
    "reset-bmc",
    epilog="""\b
Examples:
  bcmetal node reset-bmc r3u17 --wait
  bcmetal node reset-bmc r3u17 --hard --wait
""",
)
@verb_options
@click.option("--hard", is_flag=True, help="At once, whatever the BMC is doing.")
@with_session
def reset_bmc(session: Session, /, nodes: tuple[str, ...], hard: bool, **common: Any) -> None:
    """Restart BMCs, and see that they stay back. The machines go on."""
    ask_each(session, "reset-bmc", "resetBmc", nodes, how_of(common), lambda _: {"hard": hard or None})
