"""`bcmetal ramdisk …`: what machines boot, made on any x86-64 host with apt and a network; no root, no daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.session import Exit, Session, say_fault, with_session
from bcmetal.text import clean

if TYPE_CHECKING:
    from bcmetal.ramdisk.build import Built
    from bcmetal.ramdisk.faults import BuildFailed

_COMMANDS = {
    "build": Entry("bcmetal.cli.ramdisk:ramdisk_build", "Make the ramdisk of a site: ISO, UKI, kernel and initrd."),
    "show": Entry("bcmetal.cli.ramdisk:ramdisk_show", "Say what a folder's ramdisk is, and compare its files."),
}
_json = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def ramdisk() -> None:
    """The ramdisk that machines boot: Debian's kernel and tools, and the agent. Building it needs no root and no daemon.

    Every verb that does something on the machine itself boots it: the agent in it says hello to the daemon and does what that asks.

    \b
    Examples:
      bcmetal ca trust-bundle --out roots.pem
      bcmetal ramdisk build --agent-url https://10.20.0.1:8445 --ca roots.pem --site fra1 -o ramdisk
      bcmetal ramdisk show ramdisk
    """


@click.command(
    "build",
    epilog="""\b
Examples:
  bcmetal ramdisk build --agent-url https://10.20.0.1:8445 --ca roots.pem --site fra1 -o ramdisk
  bcmetal ramdisk build … --firmware server
  bcmetal ramdisk build … --firmware firmware-bnx2x --firmware free
""",
)
@click.option(
    "--agent-url", required=True, metavar="URL", help="https://HOST:PORT of the agent's listener, as machines see it."
)
@click.option(
    "--ca",
    "ca_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The roots that the agent believes, PEM: bcmetal ca trust-bundle.",
)
@click.option("--site", required=True, metavar="NAME", help="The site's name, as in the daemon's configuration.")
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the files go; those of an earlier build are replaced.",
)
@click.option(
    "--kernel",
    type=click.Choice(["full", "cloud"]),
    default="full",
    show_default=True,
    help="cloud: small, for virtual machines only.",
)
@click.option(
    "--tools",
    type=click.Choice(["full", "minimal"]),
    default="full",
    show_default=True,
    help="minimal: enough to inspect, erase, write and rescue; no hardware tests.",
)
@click.option(
    "--firmware",
    multiple=True,
    metavar="NAME",
    help="Firmware for the drivers: free, server (non-free-firmware), or a package. Repeat for more.",
)
@click.option(
    "--console",
    multiple=True,
    metavar="TTY",
    help="Serial consoles besides the screen, such as ttyS1,115200; ttyS0,115200 by default. Repeat for more.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Packages and finished parts: ~/.cache/bcmetal/ramdisk by default.",
)
@click.option(
    "--apt-sources",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A sources.list of Debian 12 or newer; this host's by default.",
)
@click.option("--refresh", is_flag=True, help="Look for newer packages now; once a day by default.")
@click.option("--offline", is_flag=True, help="From the cache alone.")
@_json
@with_session
def ramdisk_build(
    session: Session,
    agent_url: str,
    ca_file: Path,
    site: str,
    out: Path,
    kernel: str,
    tools: str,
    firmware: tuple[str, ...],
    console: tuple[str, ...],
    cache: Path | None,
    apt_sources: Path | None,
    refresh: bool,
    offline: bool,
) -> None:
    """Make what the machines of a site boot: bcmetal.iso (virtual media), bcmetal.efi (UKI), vmlinuz and initrd (iPXE), ramdisk.json.

    The address and the roots of the site are in the image; it holds no secret, and one image serves every machine.
    """
    from bcmetal.ramdisk.apt import Apt
    from bcmetal.ramdisk.base import Contents
    from bcmetal.ramdisk.build import Site, build, command_line
    from bcmetal.ramdisk.contents import Kernel, Tools
    from bcmetal.ramdisk.faults import BuildFailed

    if refresh and offline:
        raise click.UsageError("--refresh and --offline exclude each other")
    place = cache or default_cache()
    try:
        whom = Site(agent_url, ca_file.read_text(encoding="utf-8", errors="replace"), site)
        apt = Apt(place / "apt", _say, sources=apt_sources, offline=offline)
        apt.refresh(anew=refresh)
        contents = Contents(Kernel(kernel), Tools(tools), firmware)
        line = command_line(console or ("ttyS0,115200",))
        built = build(whom, contents, out, cache=place, apt=apt, say=_say, command_line=line)
        apt.prune()
    except BuildFailed as error:
        _fails(session, error)
    except OSError as error:
        say_fault(session, "RAMDISK", f"{error.filename or 'a file'}: {error.strerror}")
        sys.exit(Exit.FAILED)
    else:
        _tell(session, built)


@click.command(
    "show",
    epilog="""\b
Examples:
  bcmetal ramdisk show ramdisk
""",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@_json
@with_session
def ramdisk_show(session: Session, folder: Path) -> None:
    """Say what a folder's ramdisk is made of; each file is compared with its checksum."""
    from bcmetal.ramdisk.build import opened, verify
    from bcmetal.ramdisk.faults import BuildFailed

    try:
        built = opened(folder)
        verify(built)
    except BuildFailed as error:
        _fails(session, error)
    else:
        _tell(session, built)


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bcmetal" / "ramdisk"


def _tell(session: Session, built: Built) -> None:
    doc = built.manifest
    if session.as_json:
        session.answer({**doc, "folder": str(built.folder)})
        return
    kind = f"kernel {doc['kernelVersion']} ({doc['kernel']}), tools {doc['tools']}"
    firmware = f", firmware {' '.join(doc['firmware'])}" if doc["firmware"] else ""
    click.echo(f"ramdisk of {doc['site']} for {doc['agentUrl']}: agent {doc['agentVersion']}, {kind}{firmware}")
    for name, facts in doc["files"].items():
        click.echo(f"  {built.folder / name}  {facts['size'] / 1e6:.1f} MB  sha256:{facts['sha256']}")


def _fails(session: Session, error: BuildFailed) -> None:
    say_fault(session, "RAMDISK", f"{error}{f' ({error.hint})' if session.as_json and error.hint else ''}")
    if error.hint and not session.as_json:
        click.echo(clean(f"  {error.hint}"), err=True)
    sys.exit(Exit.FAILED)


def _say(what: str) -> None:
    click.echo(f"bcmetal: {what}", err=True)
