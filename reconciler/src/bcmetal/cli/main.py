"""`bcmetal`: the top of the command line.

Exit codes: 0 done · 1 an operation failed or was refused by the state table · 2 wrong usage or input · 3 no daemon there ·
4 not allowed, or not found.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from bcmetal.cli.lazy import Entry, TopGroup
from bcmetal.cli.session import Session

_VERBS = {
    "inspect": Entry("bcmetal.cli.verbs:inspect", "Read what the machine is, through its BMC."),
    "commission": Entry("bcmetal.cli.verbs:commission", "Bring a machine to its profile and make it available."),
    "adopt": Entry("bcmetal.cli.verbs:adopt", "Take over a machine with the system that it runs; nothing is touched."),
    "deploy": Entry("bcmetal.cli.verbs:deploy", "Start an available machine from an image."),
    "rescue": Entry("bcmetal.cli.verbs:rescue", "Start a deployed machine from the pool's rescue ISO."),
    "service": Entry(
        "bcmetal.cli.service:service",
        "Firmware, BIOS settings, a restart of the BMC: works that leave the disks alone.",
    ),
    "unrescue": Entry("bcmetal.cli.verbs:unrescue", "End a rescue and start the machine's own system again."),
    "release": Entry("bcmetal.cli.verbs:release", "Take a machine back: erase, verify, power off."),
    "retire": Entry("bcmetal.cli.verbs:retire", "Take a machine out of service for good."),
    "abort": Entry("bcmetal.cli.verbs:abort", "End the operation that is under way."),
    "retry": Entry("bcmetal.cli.verbs:retry", "Do the failed operation again, with its own input."),
    "remove": Entry("bcmetal.cli.verbs:remove", "Forget a node; its history stays."),
    "refresh": Entry("bcmetal.cli.verbs:refresh", "Read the BMC again without changing any state."),
    "power": Entry("bcmetal.cli.verbs:power", "Switch power: on, off, soft-off, cycle, soft-restart and others."),
}
_LOOKING = {
    "doctor": Entry(
        "bcmetal.cli.doctor:doctor", "Look at a BMC before it is enrolled: what is there, what to type next."
    ),
    "why": Entry("bcmetal.cli.look:why", "What a node is doing, what it waits for, and what to type next."),
    "plan": Entry("bcmetal.cli.look:plan", "What a verb would do, without doing it."),
    "timeline": Entry("bcmetal.cli.look:timeline", "What was done to a node, step by step."),
    "inventory": Entry("bcmetal.cli.look:inventory", "What is in the machine."),
    "console": Entry("bcmetal.cli.console:console", "A machine's serial console in this terminal, or the ways to it."),
    "log": Entry("bcmetal.cli.log:log", "What the agent did on the machine, and what it logged."),
}
_NODES = {
    "node": Entry("bcmetal.cli.node:node", "Enrol, list, show and change nodes."),
    "bom": Entry("bcmetal.cli.bom:bom", "Bills of materials: what machines of one kind are made of."),
    "image": Entry("bcmetal.cli.images:image", "Images on the daemon's shelf: list, fetch ahead, make room."),
    "freeze": Entry("bcmetal.cli.site:freeze", "Hold every change on a site, a pool or a rack."),
    "erasure": Entry("bcmetal.cli.erasure:erasure", "What became of each drive; also of machines that are gone."),
    "audit": Entry("bcmetal.cli.site:audit", "Who did what, whence, and with what outcome."),
}
_JOINING = {
    "token": Entry("bcmetal.cli.tokens:token", "Join tokens: who has one may join its pool."),
    "request": Entry("bcmetal.cli.join_requests:request", "Machines that wait to be let in by a person."),
    "joined": Entry("bcmetal.cli.joined:joined", "Machines that joined; and how to put one out."),
}
_DAEMON = {
    "init": Entry("bcmetal.cli.init:init", "Write a configuration, keys and a client profile for this host."),
    "serve": Entry("bcmetal.cli.serve:serve", "Run the daemon; with --demo on an emulated rack."),
    "key": Entry("bcmetal.cli.local:key", "API keys, on the daemon's own host."),
    "vault": Entry(
        "bcmetal.cli.vault:vault", "The vault's recovery, and a BMC's password for root; on the daemon's own host."
    ),
    "credential": Entry(
        "bcmetal.cli.local:credential", "Sealed secrets that the configuration names, on the daemon's own host."
    ),
    "ca": Entry("bcmetal.cli.ca:ca", "The authority that signs nodes' certificates, on the daemon's own host."),
    "ramdisk": Entry("bcmetal.cli.ramdisk:ramdisk", "What machines boot: built from Debian's packages, without root."),
    "pxe": Entry("bcmetal.cli.pxe:pxe", "Network boot: a configuration for dnsmasq, or lines for the DHCP server."),
}


@click.group(
    cls=TopGroup,
    sections=(
        ("Move machines (each takes several NODEs: names, ids, 'r1u[01-20]', 'gpu-*')", _VERBS),
        ("Look", _LOOKING),
        ("Nodes and sites", _NODES),
        ("Machines that join", _JOINING),
        ("This host's daemon", _DAEMON),
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Try: bcmetal serve --demo, then in another terminal bcmetal why demo-01.",
)
@click.version_option(version("bcmetal"), prog_name="bcmetal")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BCMETAL_PROFILE",
    help="The client's profile (address, pinned certificate, key file); BCMETAL_PROFILE names it too.",
)
@click.option("--tenant", metavar="ID", help="The tenant; the profile's by default.")
@click.option("--pool", metavar="ID", help="The pool; the profile's by default.")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
@click.pass_context
def cli(ctx: click.Context, profile: Path | None, tenant: str | None, pool: str | None, as_json: bool) -> None:
    """Provision bare-metal machines through their BMCs.

    \b
    Exit codes: 0 done, 1 an operation failed or was refused, 2 wrong usage or input,
    3 no daemon there, 4 not allowed or not found.
    """
    ctx.obj = Session(profile_path=profile, tenant=tenant, pool=pool, as_json=as_json)


def main() -> None:
    """The console script."""
    cli(prog_name="bcmetal")


if __name__ == "__main__":
    main()
