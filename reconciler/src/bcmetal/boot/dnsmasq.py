"""How machines of a provisioning network find the daemon: a configuration for dnsmasq, or lines for a DHCP server that is there already.

Two stages: the firmware's own PXE loads iPXE by TFTP, and iPXE, known by its user class, is sent on to `/boot/ipxe/<mac>` (`boot.pxe`).
By the network's `dhcp`: `static`, dnsmasq gives out addresses; `proxy`, it only adds where to boot to what another server gives out
(IPv4; IPv6 has no such thing); `existing`, it serves TFTP alone, and the other server gets `snippet`.

Pure text. Whatever stands in it is a number, an address, or matched a pattern: no value ends a line or begins another option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from bcmetal.settings import Daemon, Network

Address = IPv4Address | IPv6Address
Cidr = IPv4Network | IPv6Network

MAC_OF_IPXE: Final = "${netX/mac:hexhyp}"  # iPXE puts the MAC of the card that it booted from, as aa-bb-…
LEASE: Final = "1h"
_PROGRAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_FOLDER: Final = re.compile(r"/[A-Za-z0-9._/-]{0,200}")
_EFI: Final = (7, 9)  # RFC 4578, as firmware uses it: "EFI byte code" and x86-64, both are x86-64 UEFI
_BIOS: Final = 0


class CannotServe(ValueError):
    """What is asked for does not fit the network; the text says what to name instead."""


@dataclass(frozen=True, slots=True)
class Serving:
    """`addresses`: the daemon's own on that network, one of each family; where there is none, the host of the network's `agent_url`.

    `ranges`: first and last addresses for `static`. The programs lie in `tftp_root`, which is on dnsmasq's host.
    """

    interface: str | None = None
    addresses: tuple[Address, ...] = ()
    ranges: tuple[tuple[Address, Address], ...] = ()
    routers: tuple[IPv4Address, ...] = ()
    tftp_root: str = "/usr/lib/ipxe"
    efi_program: str = "ipxe.efi"
    bios_program: str = "undionly.kpxe"

    def __post_init__(self) -> None:
        for name, text, pattern in (
            ("interface", self.interface, _INTERFACE),
            ("TFTP folder", self.tftp_root, _FOLDER),
            ("EFI program", self.efi_program, _PROGRAM),
            ("BIOS program", self.bios_program, _PROGRAM),
        ):
            if text is not None and not pattern.fullmatch(text):
                raise CannotServe(f"no {name}: {text!r}")


def script_url(network: Network, daemon: Daemon, serving: Serving, version: Literal[4, 6]) -> str:
    """What iPXE is sent on to, for machines that speak this version of IP. Raises CannotServe."""
    given = network.media_url
    if given is not None and _version(urlsplit(given).hostname or "") in (None, version):
        return f"{given}/boot/ipxe/{MAC_OF_IPXE}"
    host = urlsplit(network.agent_url or "").hostname or ""
    if _version(host) is not None or any(one.version == version for one in serving.addresses):
        host = _bracketed(_address(network, serving, version))
    port = daemon.media_listen.rpartition(":")[2]
    return f"http://{host}:{port}/boot/ipxe/{MAC_OF_IPXE}"


def dnsmasq_config(network: Network, daemon: Daemon, serving: Serving) -> str:
    """dnsmasq's configuration for this network. Raises CannotServe."""
    cidrs = _cidrs(network)
    lines = [
        f"# Network boot for the network {network.name}, written by `bcmetal pxe dnsmasq`: dhcp = {network.dhcp!r}.",
        "port=0",  # no DNS
        *([f"interface={serving.interface}"] if serving.interface else []),
        "except-interface=lo",
        "bind-dynamic",
        "enable-tftp",
        f"tftp-root={serving.tftp_root}",
    ]
    if network.dhcp == "existing":
        lines.append("# TFTP alone: the network's own DHCP server gets what `bcmetal pxe dhcp-snippet` writes.")
        return _text(lines)
    lines += [
        "log-dhcp",
        "dhcp-userclass=set:ipxe,iPXE",
        *(f"dhcp-match=set:efi,option:client-arch,{arch}" for arch in _EFI),
        f"dhcp-match=set:bios,option:client-arch,{_BIOS}",
    ]
    four = [cidr for cidr in cidrs if cidr.version == 4]
    six = [cidr for cidr in cidrs if cidr.version == 6]
    if network.dhcp == "proxy":
        if not four:
            raise CannotServe("a DHCP proxy is for IPv4 alone, and the network has no IPv4 range: see dhcp-snippet")
        url = script_url(network, daemon, serving, 4)
        lines += [f"dhcp-range={cidr.network_address},proxy,{cidr.netmask}" for cidr in four]
        lines += [
            f'pxe-service=tag:!ipxe,x86PC,"bcmetal",{serving.bios_program}',
            *(f'pxe-service=tag:!ipxe,{arch},"bcmetal",{serving.efi_program}' for arch in ("BC_EFI", "X86-64_EFI")),
            f"dhcp-boot=tag:ipxe,{url}",
        ]
        if six:
            lines.append("# IPv6 has no DHCP proxy: the network's own DHCPv6 server gets a snippet for that.")
        return _text(lines)
    lines.append("dhcp-authoritative")
    if four:
        lines += _static_four(four, network, daemon, serving)
    if six:
        lines += _static_six(six, network, daemon, serving)
    return _text(lines)


def _static_four(cidrs: Sequence[Cidr], network: Network, daemon: Daemon, serving: Serving) -> list[str]:
    lines = [f"dhcp-range={a},{b},{cidr.netmask},{LEASE}" for cidr in cidrs for a, b in _ranges(cidr, cidrs, serving)]
    routers = ",".join(str(one) for one in serving.routers)
    return [
        *lines,
        f"dhcp-option=option:router{',' + routers if routers else ''}",  # empty: none, and not dnsmasq's own host
        f"dhcp-boot=tag:!ipxe,tag:bios,{serving.bios_program}",
        f"dhcp-boot=tag:!ipxe,tag:efi,{serving.efi_program}",
        f"dhcp-boot=tag:ipxe,{script_url(network, daemon, serving, 4)}",
    ]


def _static_six(cidrs: Sequence[Cidr], network: Network, daemon: Daemon, serving: Serving) -> list[str]:
    """Stateful for the firmware and iPXE; the ramdisk configures itself from the router advertisements, so those say that it may."""
    lines = []
    for cidr in cidrs:
        for first, last in _ranges(cidr, cidrs, serving):
            mode = "slaac," if cidr.prefixlen <= 64 else ""
            lines.append(f"dhcp-range={first},{last},{mode}{max(cidr.prefixlen, 64)},{LEASE}")
    tftp = f"tftp://{_bracketed(_address(network, serving, 6))}/{serving.efi_program}"
    return [
        *lines,
        "enable-ra",
        "ra-param=*,60,0",  # no default route by way of this host
        *(f"dhcp-match=set:efi6,option6:61,{arch >> 8:02x}:{arch & 255:02x}" for arch in _EFI),
        f"dhcp-option=tag:!ipxe,tag:efi6,option6:bootfile-url,{tftp}",
        f"dhcp-option=tag:ipxe,option6:bootfile-url,{script_url(network, daemon, serving, 6)}",
    ]


def snippet(kind: Literal["isc", "kea"], network: Network, daemon: Daemon, serving: Serving) -> str:
    """Lines for a DHCP server that is there already: ISC's dhcpd, or Kea's client classes; for each version of IP that the network has.

    Raises CannotServe.
    """
    versions = sorted({cidr.version for cidr in _cidrs(network)})
    parts = []
    for version in versions:
        version_is: Literal[4, 6] = 4 if version == 4 else 6
        url = script_url(network, daemon, serving, version_is)
        tftp = _address(network, serving, version_is)
        parts.append((_isc if kind == "isc" else _kea)(version_is, url, tftp, serving))
    return "\n".join(parts)


def _isc(version: Literal[4, 6], url: str, tftp: Address, serving: Serving) -> str:
    if version == 6:
        return _text(
            [
                "# dhcpd6.conf, where the provisioning network's subnet6 stands",
                "option dhcp6.user-class code 15 = string;",
                "option dhcp6.bootfile-url code 59 = string;",
                "option dhcp6.client-arch-type code 61 = array of unsigned integer 16;",
                'if exists dhcp6.user-class and substring(option dhcp6.user-class, 2, 4) = "iPXE" {',
                f'    option dhcp6.bootfile-url "{url}";',
                "} else {",
                f'    option dhcp6.bootfile-url "tftp://{_bracketed(tftp)}/{serving.efi_program}";',
                "}",
            ]
        )
    efi = " or ".join(f"option bcmetal-arch = {arch >> 8:02x}:{arch & 255:02x}" for arch in _EFI)
    return _text(
        [
            "# dhcpd.conf, where the provisioning network's subnet stands",
            "option bcmetal-arch code 93 = unsigned integer 16;",
            f"next-server {tftp};",
            'if exists user-class and option user-class = "iPXE" {',
            f'    filename "{url}";',
            f"}} elsif {efi} {{",
            f'    filename "{serving.efi_program}";',
            "} else {",
            f'    filename "{serving.bios_program}";',
            "}",
        ]
    )


def _kea(version: Literal[4, 6], url: str, tftp: Address, serving: Serving) -> str:
    """Classes, each of which excludes the ones before: a machine is in exactly one."""
    classes: list[dict[str, object]]
    if version == 6:
        ipxe = "substring(option[15].hex,2,4) == 'iPXE'"
        load = f"tftp://{_bracketed(tftp)}/{serving.efi_program}"
        classes = [
            {"name": "bcmetal-ipxe", "test": ipxe, "option-data": [{"name": "bootfile-url", "data": url}]},
            {
                "name": "bcmetal-efi",
                "test": f"not ({ipxe}) and ({_kea_arch(61)})",
                "option-data": [{"name": "bootfile-url", "data": load}],
            },
        ]
        return '// Dhcp6: add to its "client-classes"\n' + json.dumps({"client-classes": classes}, indent=2) + "\n"
    ipxe = "substring(option[77].hex,0,4) == 'iPXE'"
    classes = [
        {"name": "bcmetal-ipxe", "test": ipxe, "boot-file-name": url},
        {
            "name": "bcmetal-efi",
            "test": f"not ({ipxe}) and ({_kea_arch(93)})",
            "next-server": str(tftp),
            "boot-file-name": serving.efi_program,
        },
        {
            "name": "bcmetal-bios",
            "test": f"not ({ipxe}) and option[93].hex == 0x{_BIOS:04x}",
            "next-server": str(tftp),
            "boot-file-name": serving.bios_program,
        },
    ]
    return '// Dhcp4: add to its "client-classes"\n' + json.dumps({"client-classes": classes}, indent=2) + "\n"


def _kea_arch(option: int) -> str:
    return " or ".join(f"option[{option}].hex == 0x{arch:04x}" for arch in _EFI)


# ---------------------------------------------------------------- addresses


def _cidrs(network: Network) -> tuple[Cidr, ...]:
    if network.agent_url is None:
        raise CannotServe(f"no machine boots in the network {network.name}: it has no agent_url")
    if not network.cidrs:
        raise CannotServe(
            f"the network {network.name} lists no cidrs: say in [networks.{network.name}] of the configuration where its machines are"
        )
    return network.parsed()


def _address(network: Network, serving: Serving, version: Literal[4, 6]) -> Address:
    """The daemon's own on the network: of `serving`, or of the agent's address."""
    for one in serving.addresses:
        if one.version == version:
            return one
    host = urlsplit(network.agent_url or "").hostname or ""
    if _version(host) == version:
        return ip_address(host)
    raise CannotServe(
        f"which IPv{version} address does this host have in the network {network.name}? Name it by --address"
    )


def _ranges(cidr: Cidr, cidrs: Sequence[Cidr], serving: Serving) -> list[tuple[Address, Address]]:
    """Those that were given inside this CIDR; where none was given, its upper half, of IPv6 4096 addresses."""
    given = [pair for pair in serving.ranges if pair[0].version == cidr.version]
    for first, last in given:
        if int(first) > int(last) or not any(first in one and last in one for one in cidrs):
            raise CannotServe(f"the range {first}-{last} is not inside one of the network's cidrs")
    if given:
        return [pair for pair in given if pair[0] in cidr]
    if cidr.version == 6:
        if not 64 <= cidr.prefixlen <= 112:
            raise CannotServe(f"which addresses of {cidr} are given out? Name them by --range FIRST-LAST")
        return [(cidr[0x1000], cidr[0x1FFF])]
    if cidr.prefixlen > 29:
        raise CannotServe(f"{cidr} is too small to guess a range in: name it by --range FIRST-LAST")
    return [(cidr[cidr.num_addresses // 2], cidr[-2])]


def _version(host: str) -> int | None:
    try:
        return ip_address(host).version
    except ValueError:
        return None


def _bracketed(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
