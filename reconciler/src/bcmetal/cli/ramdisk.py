"""`bcmetal ramdisk …`: what machines boot, made on any x86-64 host with apt and a network; no root, no daemon."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.local import config_option, config_path
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
      sudo bcmetal ramdisk build                 # on the daemon's host
      bcmetal ca trust-bundle --out roots.pem    # for another host:
      bcmetal ramdisk build --agent-url https://10.20.0.1:8445 --ca roots.pem --site fra1 -o ramdisk
    """


@click.command(
    "build",
    epilog="""\b
Examples:
  sudo bcmetal ramdisk build                     # on the daemon's host: everything from its configuration
  sudo bcmetal ramdisk build --firmware server
  bcmetal ramdisk build --agent-url https://10.20.0.1:8445 --ca roots.pem --site fra1 -o ramdisk
""",
)
@click.option(
    "--agent-url",
    metavar="URL",
    help="https://HOST:PORT of the agent's listener, as machines see it; the configured network's agent_url by default.",
)
@click.option(
    "--ca",
    "ca_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The roots that the agent believes, PEM: bcmetal ca trust-bundle; this host's by default.",
)
@click.option("--site", metavar="NAME", help="The site's name; that of the configuration by default.")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the files go, in place of an earlier build's; the configured ramdisk_folder by default.",
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
@config_option
@_json
@with_session
def ramdisk_build(
    session: Session,
    agent_url: str | None,
    ca_file: Path | None,
    site: str | None,
    out: Path | None,
    kernel: str,
    tools: str,
    firmware: tuple[str, ...],
    console: tuple[str, ...],
    cache: Path | None,
    apt_sources: Path | None,
    refresh: bool,
    offline: bool,
    config: Path | None,
) -> None:
    """Make what the machines of a site boot: bcmetal.iso (virtual media), bcmetal.efi (UKI), vmlinuz and initrd (iPXE), ramdisk.json.

    The address and the roots of the site are in the image; it holds no secret, and one image serves every machine. On the daemon's host
    its configuration says what is not given here, and the daemon boots the new ramdisk from the next start on.
    """
    from bcmetal.ramdisk.apt import Apt
    from bcmetal.ramdisk.base import Contents
    from bcmetal.ramdisk.build import Site, build, command_line
    from bcmetal.ramdisk.contents import Kernel, Tools
    from bcmetal.ramdisk.faults import BuildFailed

    if refresh and offline:
        raise click.UsageError("--refresh and --offline exclude each other")
    place = cache or default_cache()
    wanted = _wanted(agent_url, ca_file, site, out, config)
    try:
        whom, out = Site(wanted.agent_url, wanted.ca_pem, wanted.site), wanted.out
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    agent_url: str
    ca_pem: str
    site: str
    out: Path


def _wanted(
    agent_url: str | None, ca_file: Path | None, site: str | None, out: Path | None, config: Path | None
) -> _Wanted:
    """What was given, and the rest as the daemon's host has it. Raises UsageError that names what neither says."""
    try:
        given = None if ca_file is None else ca_file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise click.UsageError(f"--ca {ca_file}: {error.strerror}") from None
    if agent_url is not None and given is not None and site is not None and out is not None:
        return _Wanted(agent_url, given, site, out)
    from bcmetal.errors import BcmetalError
    from bcmetal.install.ca import trust_bundle
    from bcmetal.settings import load

    path = config_path(config)
    try:
        settings = load(path)
        pem = trust_bundle(path) if given is None else given
    except BcmetalError as error:
        raise click.UsageError(
            f"give --agent-url, --ca, --site and --out, or run this on the daemon's host, as who may read {path}: {error}"
        ) from None
    if not pem:
        raise click.UsageError("there is no certificate authority yet: `bcmetal ca init`")
    urls = [network.agent_url for network in settings.networks.values() if network.agent_url]
    if agent_url is None and len(set(urls)) != 1:
        found = (
            f"the configuration has {', '.join(urls)}" if urls else "no network of the configuration has an agent_url"
        )
        raise click.UsageError(f"--agent-url is needed: {found}")
    if site is None and len(settings.sites) != 1:
        raise click.UsageError(f"--site is needed: the configuration has {', '.join(sorted(settings.sites))}")
    return _Wanted(
        agent_url or str(urls[0]), pem, site or next(iter(settings.sites)), out or settings.daemon.ramdisk_folder
    )


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
