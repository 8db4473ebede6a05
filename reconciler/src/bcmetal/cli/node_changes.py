"""`bcmetal node …` commands that change what is recorded of nodes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from bcmetal.cli.asking import Duration, ask_each, how_of, verb_options
from bcmetal.cli.node_options import PASSWORD_FILE, PEM_FILE, ROOT_DEVICE, given, labels_of, root_device_of, tls_of
from bcmetal.cli.session import Session, with_session
from bcmetal.cli.targets import resolve
from bcmetal.text import clean


@click.command(
    epilog="""\b
Examples:
  bcmetal node update r3u17 --name r3u18 --label owner=team-a
  bcmetal node update r3u17 --address redfish://10.20.3.18 --wait
  bcmetal node update r3u17 --fingerprint SHA256
  bcmetal node update r3u17 --root-device rotational=no --root-device max-gib=500
  bcmetal node update r3u17 --accept-identity --reason 'board swapped, ticket 4711'
"""
)
@verb_options
@click.option("--name")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="All labels anew.")
@click.option("--address", metavar="ADDRESS", help="The BMC's; checked before it replaces the old one.")
@click.option("--fingerprint", metavar="SHA256")
@click.option("--ca", type=PEM_FILE)
@click.option("--no-verify", is_flag=True)
@click.option("--system-id", metavar="ID")
@click.option("--credential", metavar="NAME", help="A credential of the configuration.")
@ROOT_DEVICE
@click.option("--boot-mac", metavar="MAC")
@click.option("--room")
@click.option("--rack")
@click.option("--unit")
@click.option("--asset-tag")
@click.option("--accept-identity", is_flag=True, help="The board or the BMC was swapped: take what is there now.")
@click.option("--reason", metavar="TEXT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_session
def update(
    session: Session,
    /,
    nodes: tuple[str, ...],
    name: str | None,
    labels: tuple[str, ...],
    address: str | None,
    fingerprint: str | None,
    ca: Path | None,
    no_verify: bool,
    system_id: str | None,
    credential: str | None,
    root_device: tuple[str, ...],
    boot_mac: str | None,
    room: str | None,
    rack: str | None,
    unit: str | None,
    asset_tag: str | None,
    accept_identity: bool,
    reason: str | None,
    yes: bool,
    **common: Any,
) -> None:
    """Change what is recorded of nodes. A new address or trust is pending until the BMC was proven with it."""
    if (name or address) and len(nodes) > 1:
        raise click.UsageError("--name and --address are for one node")
    bmc = given(
        address=address,
        tls=tls_of(fingerprint, ca, no_verify),
        systemId=system_id,
        credentialRef=credential,
    )
    body = given(
        name=name,
        labels=labels_of(labels),
        bmc=bmc or None,
        bootMac=boot_mac,
        rootDevice=root_device_of(root_device),
        location=given(room=room, rack=rack, unit=unit) or None,
        assetTag=asset_tag,
        acceptIdentity=True if accept_identity else None,
        reason=reason,
    )
    if not body:
        raise click.UsageError("nothing to change was given")
    if accept_identity:
        if not reason:
            raise click.UsageError("--accept-identity needs --reason: it says to others why")
        _show_what_is_accepted(session, nodes, yes)
    ask_each(session, "update", "update", nodes, how_of(common), lambda _: body)


def _show_what_is_accepted(session: Session, nodes: tuple[str, ...], yes: bool) -> None:
    """The old and the new identity, where a look at the BMC found another; whoever sits at a terminal is asked."""
    for node in resolve(session, nodes):
        view = session.client.call("metal", "get", {**session.where(), "nodeId": node})
        found = next((one for one in view.get("conditions", ()) if one.get("type") == "identity"), None)
        told = found.get("message") if found is not None else "no look at its BMC has found another machine so far"
        click.echo(clean(f"{view.get('name')}: {told}"), err=True)
    if not yes and sys.stdin.isatty():
        click.confirm("Accept what is there now, and revoke the old machine's certificates?", abort=True, err=True)


@click.command(
    epilog="""\b
Examples:
  bcmetal node credentials r3u17 --username bcmetal --wait
  bcmetal node credentials r3u17 --username bcmetal --password-file ./pw
"""
)
@verb_options
@click.option("--username", required=True, metavar="NAME")
@click.option("--password-file", type=PASSWORD_FILE, help="A file only you can read; - is standard input.")
@with_session
def credentials(
    session: Session, /, nodes: tuple[str, ...], username: str, password_file: Path | None, **common: Any
) -> None:
    """Give bcmetal the BMC's user name and password. They are pending until a login proved them; the old ones stay till then."""
    from bcmetal.cli.passwords import take_secret

    secret = take_secret(f"Password of {username} at the BMC", password_file, confirm=False)
    ask_each(
        session,
        "credentials",
        "setBmcCredentials",
        nodes,
        how_of(common),
        lambda _: {"username": username, "password": secret.get_secret_value()},
    )


@click.command(
    "rotate-credentials",
    epilog="""\b
Examples:
  bcmetal node rotate-credentials r3u17 --wait
  bcmetal node rotate-credentials 'r3u[01-40]' --wait --timeout 30m --json
""",
)
@verb_options
@with_session
def rotate_credentials(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """Give each BMC a new random password of its own. The old one is kept until the new one was proven by a login."""
    ask_each(session, "rotate-credentials", "rotateBmcCredentials", nodes, how_of(common), lambda _: {})


class Until(click.ParamType[str]):
    """`2h` from now, or an RFC 3339 time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            at = datetime.now(UTC) + timedelta(seconds=Duration().convert(value, param, ctx))
        if at.tzinfo is None:
            at = at.astimezone()
        return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_switch = click.argument("switch", type=click.Choice(["on", "off"]))
_until = click.option("--until", type=Until(), metavar="TIME", help="2h, or 2026-10-01T08:00+02:00.")


@click.command(
    epilog="""\b
Examples:
  bcmetal node maintenance on r3u17 --reason 'new DIMM' --until 4h
  bcmetal node maintenance on r3u17 --quiet --reason 'BMC firmware by hand'
  bcmetal node maintenance off r3u17
"""
)
@_switch
@verb_options
@click.option("--reason", metavar="TEXT")
@_until
@click.option("--quiet", is_flag=True, help="No contact with the BMC at all.")
@with_session
def maintenance(
    session: Session,
    /,
    switch: str,
    nodes: tuple[str, ...],
    reason: str | None,
    until: str | None,
    quiet: bool,
    **common: Any,
) -> None:
    """Hold new steps on nodes. Verbs are accepted and wait; abort works."""
    if switch == "on" and not reason:
        raise click.UsageError("--reason says to others why")
    body = {"on": switch == "on", "reason": reason, "until": until, "quiet": quiet or None}
    ask_each(session, "maintenance", "setMaintenance", nodes, how_of(common), lambda _: body, wait=False)


@click.command(
    epilog="""\b
Examples:
  bcmetal node protect on r3u17 --reason 'holds the only copy'
  bcmetal node protect off r3u17
"""
)
@_switch
@verb_options
@click.option("--reason", metavar="TEXT")
@_until
@with_session
def protect(
    session: Session,
    /,
    switch: str,
    nodes: tuple[str, ...],
    reason: str | None,
    until: str | None,
    **common: Any,
) -> None:
    """Refuse power and erasing verbs on nodes to everybody, until it is lifted."""
    if switch == "on" and not reason:
        raise click.UsageError("--reason says to others why")
    body = {"on": switch == "on", "reason": reason, "until": until}
    ask_each(session, "protect", "setProtected", nodes, how_of(common), lambda _: body, wait=False)
