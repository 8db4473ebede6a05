"""`bcmetal pxe …`: how machines without virtual media find the daemon, on the daemon's own host; it needs no running daemon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.local import config_option, config_path, on_this_host
from bcmetal.cli.session import Exit
from bcmetal.text import clean

if TYPE_CHECKING:
    from bcmetal.boot.dnsmasq import Address
    from bcmetal.settings import Network, Settings

F = TypeVar("F", bound=Callable[..., Any])

_COMMANDS = {
    "dnsmasq": Entry("bcmetal.cli.pxe:pxe_dnsmasq", "Write dnsmasq's configuration for a provisioning network."),
    "dhcp-snippet": Entry("bcmetal.cli.pxe:pxe_snippet", "Write what the DHCP server that is there already needs."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def pxe() -> None:
    """Network boot, for machines whose BMC has no virtual media. The network must be the site's alone: whatever is on it may read the wire.

    A provisioning network is one of [networks] with an agent_url; its `dhcp` says who gives out addresses.

    \b
    Examples:
      bcmetal pxe dnsmasq provisioning --interface eno2 -o /etc/dnsmasq.d/bcmetal.conf
      bcmetal pxe dhcp-snippet provisioning --for kea
    """


class AddressType(click.ParamType[Any]):
    """An IPv4 or IPv6 address."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, IPv4Address | IPv6Address):
            return value
        try:
            return ip_address(str(value))
        except ValueError:
            self.fail(f"{value!r} is no IP address", param, ctx)


class RangeType(click.ParamType[Any]):
    """FIRST-LAST, both addresses of one family."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Address, Address]:
        if isinstance(value, tuple):
            return value
        first, _, last = str(value).partition("-")
        try:
            pair = ip_address(first), ip_address(last)
        except ValueError:
            self.fail(f"{value!r} is not FIRST-LAST", param, ctx)
        if pair[0].version != pair[1].version:
            self.fail(f"{value!r} has addresses of two families", param, ctx)
        return pair


def _shared_options(fn: F) -> F:
    for option in (
        click.option(
            "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Standard output by default."
        ),
        click.option(
            "--bios-program",
            default="undionly.kpxe",
            show_default=True,
            help="iPXE for legacy BIOS, in the TFTP folder.",
        ),
        click.option(
            "--efi-program",
            default="ipxe.efi",
            show_default=True,
            help="iPXE for UEFI; snponly.efi where iPXE has no driver for the network card.",
        ),
        click.option(
            "--address",
            "addresses",
            type=AddressType(),
            multiple=True,
            metavar="ADDR",
            help="The daemon's own in that network, one of each family; the host of agent_url by default.",
        ),
        config_option,
    ):
        fn = option(fn)
    return fn


@click.command(
    "dnsmasq",
    epilog="""\b
Examples:
  bcmetal pxe dnsmasq provisioning --interface eno2 -o /etc/dnsmasq.d/bcmetal.conf
  bcmetal pxe dnsmasq --range 10.30.4.0-10.30.7.254 --router 10.30.0.1
""",
)
@click.argument("network", required=False, metavar="[NETWORK]")
@click.option("--interface", metavar="NAME", help="Where it listens; by default on every interface but lo.")
@click.option(
    "--range",
    "ranges",
    type=RangeType(),
    multiple=True,
    metavar="FIRST-LAST",
    help='Given out under dhcp = "static"; by default the upper half of each cidr, of IPv6 4096 addresses.',
)
@click.option("--router", "routers", type=AddressType(), multiple=True, metavar="ADDR", help="IPv4; none by default.")
@click.option(
    "--tftp-root", default="/usr/lib/ipxe", show_default=True, metavar="DIR", help="Where iPXE's programs are."
)
@_shared_options
@on_this_host
def pxe_dnsmasq(
    network: str | None,
    interface: str | None,
    ranges: tuple[tuple[Address, Address], ...],
    routers: tuple[Address, ...],
    tftp_root: str,
    addresses: tuple[Address, ...],
    efi_program: str,
    bios_program: str,
    out: Path | None,
    config: Path | None,
) -> None:
    """Write dnsmasq's configuration for NETWORK; the only provisioning network by default.

    Debian's package ipxe has the programs, dnsmasq-base the server: `dnsmasq --conf-file=FILE --test` checks it.
    """
    from bcmetal.boot.dnsmasq import CannotServe, Serving, dnsmasq_config

    settings, found = _network(config, network)
    four = tuple(one for one in routers if isinstance(one, IPv4Address))
    if len(four) != len(routers):
        raise click.UsageError("--router takes IPv4 addresses: IPv6 routers advertise themselves")
    try:
        serving = Serving(interface, addresses, ranges, four, tftp_root, efi_program, bios_program)
        text = dnsmasq_config(found, settings.daemon, serving)
    except CannotServe as error:
        _fails(error)
    _write(text, out)


@click.command(
    "dhcp-snippet",
    epilog="""\b
Examples:
  bcmetal pxe dhcp-snippet provisioning --for isc
  bcmetal pxe dhcp-snippet --for kea -o bcmetal-classes.json
""",
)
@click.argument("network", required=False, metavar="[NETWORK]")
@click.option("--for", "kind", type=click.Choice(["isc", "kea"]), required=True, help="ISC's dhcpd, or Kea.")
@_shared_options
@on_this_host
def pxe_snippet(
    network: str | None,
    kind: Literal["isc", "kea"],
    addresses: tuple[Address, ...],
    efi_program: str,
    bios_program: str,
    out: Path | None,
    config: Path | None,
) -> None:
    """Write what a DHCP server that is there already needs, so that machines of NETWORK boot iPXE and find the daemon.

    The programs are loaded by TFTP from the daemon's address: `bcmetal pxe dnsmasq` writes a server's configuration for that, too.
    """
    from bcmetal.boot.dnsmasq import CannotServe, Serving, snippet

    settings, found = _network(config, network)
    try:
        serving = Serving(addresses=addresses, efi_program=efi_program, bios_program=bios_program)
        text = snippet(kind, found, settings.daemon, serving)
    except CannotServe as error:
        _fails(error)
    _write(text, out)


def _network(config: Path | None, name: str | None) -> tuple[Settings, Network]:
    from bcmetal.settings import load

    settings = load(config_path(config))
    if name is not None:
        if name not in settings.networks:
            raise click.UsageError(f"the configuration has no [networks.{clean(name)}]")
        return settings, settings.networks[name]
    found = [one for one in settings.networks.values() if one.agent_url is not None]
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise click.UsageError(f"name the network: those with an agent_url are: {names}")
    return settings, found[0]


def _write(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    out.write_text(text, encoding="ascii")
    click.echo(f"wrote {out}", err=True)


def _fails(error: ValueError) -> NoReturn:
    click.echo(f"bcmetal: {clean(str(error))}", err=True)
    sys.exit(Exit.USAGE)
