"""`bcmetal node …`: enrol, list, show and change nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bcmetal.cli.asking import Duration, asked_operation, waited_for
from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import PASSWORD_FILE, PEM_FILE, ROOT_DEVICE, given, labels_of, root_device_of, tls_of
from bcmetal.cli.outcome import Outcome, finish
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.targets import every_node, expand
from bcmetal_drivers.schemes import families

_COMMANDS = {
    "enroll": Entry("bcmetal.cli.node:enroll", "Enrol a machine by its BMC's address."),
    "list": Entry("bcmetal.cli.node:list_nodes", "List nodes, filtered by state, label, text, condition."),
    "show": Entry("bcmetal.cli.look:show", "Show all that is known of a node."),
    "update": Entry("bcmetal.cli.node_changes:update", "Change name, labels, location, address or trust."),
    "credentials": Entry("bcmetal.cli.node_changes:credentials", "Give bcmetal the BMC's new user name and password."),
    "rotate-credentials": Entry("bcmetal.cli.node_changes:rotate_credentials", "Give BMCs new random passwords."),
    "sensors": Entry("bcmetal.cli.node_bmc:sensors", "What the BMC measures: temperatures, fans, volts, watts."),
    "events": Entry("bcmetal.cli.node_bmc:events", "The newest entries of the BMC's event log."),
    "clear-events": Entry("bcmetal.cli.node_bmc:clear_events", "Clear BMCs' event logs."),
    "identify": Entry("bcmetal.cli.node_bmc:identify", "Switch the light by which a machine is found in its rack."),
    "reset-bmc": Entry("bcmetal.cli.node_bmc:reset_bmc", "Restart BMCs; the machines go on."),
    "maintenance": Entry("bcmetal.cli.node_changes:maintenance", "Hold new steps on a node, or let them go on."),
    "protect": Entry("bcmetal.cli.node_changes:protect", "Refuse power and erasing verbs to everybody."),
    "power": Entry("bcmetal.cli.verbs:power", "Switch power: on, off, soft-off, cycle, soft-restart and others."),
    "remove": Entry("bcmetal.cli.verbs:remove", "Forget a node; its history stays."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def node() -> None:
    """Enrol, list, show and change nodes.

    \b
    Examples:
      bcmetal node enroll redfish://10.20.3.17 --name r3u17 --credential fleet --wait
      bcmetal node list --state deploy-failed
      bcmetal node show r3u17
    """


@click.command(
    epilog="""\b
Examples:
  bcmetal node enroll 10.20.3.17 --name r3u17 --credential fleet --wait
  bcmetal node enroll redfish://10.20.3.17/redfish/v1/Systems/1 --fingerprint SHA256 --username root
  bcmetal node enroll ipmi://[fd00:20::17] --username admin --password-file ./pw --no-inspect
"""
)
@click.argument("address")
@click.option("--name", metavar="NAME", help="Lower-case letters, digits and hyphens; unique in its pool.")
@click.option("--driver", type=click.Choice(families()), help="Ask for this protocol, instead of probing.")
@click.option("--credential", metavar="NAME", help="A credential of the configuration.")
@click.option("--username", metavar="NAME", help="The BMC's user; the password is prompted for.")
@click.option("--password-file", type=PASSWORD_FILE, help="A file only you can read; - is standard input.")
@click.option("--fingerprint", metavar="SHA256", help="Trust the BMC's certificate by its fingerprint.")
@click.option("--ca", type=PEM_FILE, help="Trust the BMC's certificate by this CA (PEM).")
@click.option("--no-verify", is_flag=True, help="Do not check the BMC's certificate, where its network permits that.")
@click.option("--system-id", metavar="ID", help="Which system, when the BMC has several.")
@ROOT_DEVICE
@click.option("--boot-mac", metavar="MAC", help="The interface that the machine boots from.")
@click.option("--room")
@click.option("--rack")
@click.option("--unit")
@click.option("--asset-tag")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE")
@click.option("--no-inspect", is_flag=True, help="Only enrol; otherwise an inspect follows.")
@click.option("--wait", is_flag=True, help="Wait for that inspect.")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="TIME", help="With --wait.")
@click.option("--idempotency-key", metavar="KEY")
@shared_options
@with_session
def enroll(
    session: Session,
    /,
    address: str,
    name: str | None,
    driver: str | None,
    credential: str | None,
    username: str | None,
    password_file: Path | None,
    fingerprint: str | None,
    ca: Path | None,
    no_verify: bool,
    system_id: str | None,
    root_device: tuple[str, ...],
    boot_mac: str | None,
    room: str | None,
    rack: str | None,
    unit: str | None,
    asset_tag: str | None,
    labels: tuple[str, ...],
    no_inspect: bool,
    wait: bool,
    timeout_s: float | None,
    idempotency_key: str | None,
) -> None:
    """Enrol a machine by its BMC's ADDRESS: redfish://HOST[:PORT][/redfish/v1/Systems/ID], ipmi://HOST[:PORT], or a bare HOST to probe."""
    if credential and (username or password_file):
        raise click.UsageError("--credential names both user and password: give it alone")
    if password_file and not username:
        raise click.UsageError("--password-file needs --username")
    bmc = given(
        address=address,
        driver=driver,
        credentialRef=credential,
        username=username,
        tls=tls_of(fingerprint, ca, no_verify),
        systemId=system_id,
    )
    if username:
        from bcmetal.cli.passwords import take_secret

        bmc["password"] = take_secret(
            f"Password of {username} at the BMC", password_file, confirm=False
        ).get_secret_value()
    body = given(
        name=name,
        bmc=bmc,
        bootMac=boot_mac,
        rootDevice=root_device_of(root_device),
        location=given(room=room, rack=rack, unit=unit) or None,
        assetTag=asset_tag,
        labels=labels_of(labels),
        inspect=False if no_inspect else None,
        idempotencyKey=idempotency_key,
    )
    view = session.client.mutate("metal", "enroll", {**session.where(), **body})
    label = str(view.get("name") or view["nodeId"])
    outcomes = [Outcome(label, "accepted", view, operation_id=asked_operation(view))]
    if wait:
        outcomes = waited_for(session, "enroll", outcomes, timeout_s)
    code = finish(session, "enroll", outcomes)
    if code:
        sys.exit(code)


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal node list
  bcmetal node list --state deployed --label rack=r3
  bcmetal node list --query 7XK2M13
  bcmetal node list --needs-attention --json
""",
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--state", metavar="STATE")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE")
@click.option("--query", metavar="TEXT", help="Serial, MAC, address or name.")
@click.option("--condition", metavar="TYPE", help="Nodes on which this condition is not ok.")
@click.option("--needs-attention", is_flag=True)
@click.option("--all-pools", is_flag=True, help="Every pool of the tenant.")
@shared_options
@with_session
def list_nodes(
    session: Session,
    /,
    names: tuple[str, ...],
    state: str | None,
    labels: tuple[str, ...],
    query: str | None,
    condition: str | None,
    needs_attention: bool,
    all_pools: bool,
) -> None:
    """List nodes. NAMEs may be ranges and patterns."""
    from fnmatch import fnmatchcase

    from bcmetal.cli.tables import node_table, print_table

    wanted = given(
        state=state,
        labels=labels_of(labels),
        query=query,
        condition=condition,
        needsAttention=True if needs_attention else None,
    )
    views = list(every_node(session, wanted, all_pools=all_pools))
    if names:
        patterns = [p for name in names for p in expand(name)]
        views = [v for v in views if any(fnmatchcase(str(v["name"]), p) or v["nodeId"] == p for p in patterns)]
    if session.as_json:
        session.answer({"nodes": views})
    elif views:
        print_table(node_table(views))
    else:
        click.echo("no nodes", err=True)
