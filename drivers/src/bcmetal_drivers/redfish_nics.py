"""The host's NICs, from every place that lists them: EthernetInterfaces, and the functions and ports of NetworkAdapters; else the boot options.

One entry for each MAC. The line between host and BMC is left out, and so are locally administered addresses (they change), WWNs,
InfiniBand GUIDs and zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_document import Doc, dig, key, link, links, number, text
from bcmetal_drivers.redfish_parts import Part, count, first, is_absent, order, part, said
from bcmetal_drivers.redfish_reading import Reading

_MAC: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_BARE: Final = re.compile(r"[0-9a-f]{12}")
_IN_A_PATH: Final = re.compile(r"\bMAC\(([0-9a-f]{12})0*[,)]", re.IGNORECASE)
_NOBODY: Final = ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff")
UP: Final = {"up": "up", "linkup": "up", "down": "down", "linkdown": "down", "nolink": "down"}
ADDRESSES: Final = 16  # that a port may have
TOLD: Final = {"manufacturer", "model", "partNumber", "serial", "firmware", "ports", "macs"}  # by which a card is one


def mac_of(value: str | None) -> str | None:
    """Lower case with colons; None for a WWN, an InfiniBand GUID, zeros, a group address, and anything else that names no NIC."""
    if value is None:
        return None
    mac = value.lower().replace("-", ":")
    bare = mac.replace(".", "") if mac.count(".") == 2 else mac
    if _BARE.fullmatch(bare):
        mac = ":".join(bare[n : n + 2] for n in range(0, 12, 2))
    if not _MAC.fullmatch(mac) or mac in _NOBODY or int(mac[:2], 16) & 1:
        return None
    return mac


def _own_mac(doc: Any) -> str | None:
    """The address that the NIC came with; None where the one that is told is locally administered, or none."""
    for name in ("PermanentMACAddress", "MACAddress"):
        mac = _address(doc, name)
        if mac is not None:
            return None if _is_local(mac) else mac
    return None


def _address(doc: Any, name: str) -> str | None:
    return mac_of(text({"value": first(dig(doc, name))}, "value"))


def _is_local(mac: str) -> bool:
    return bool(int(mac[:2], 16) & 2)


class Nics:
    """`adapters` are the cards, those without a MAC too; `nics` their addresses."""

    def __init__(self) -> None:
        self._by_mac: dict[str, dict[str, object]] = {}
        self._adapters: dict[str, dict[str, object]] = {}

    @property
    def nics(self) -> tuple[Part, ...]:
        return tuple(sorted(self._by_mac.values(), key=_place_in_order))

    @property
    def adapters(self) -> tuple[Part, ...]:
        return tuple(sorted(self._adapters.values(), key=_place_in_order))

    # ------------------------------------------------------------ reading

    def read(self, look: Look) -> None:
        """What came before an error stays."""
        failed = len(look.reading.failed)
        listed = list(look.reading.documents(link(look.system, "EthernetInterfaces")))
        own = [(path, doc) for path, doc in listed if not _is_to_the_bmc(path, doc)]
        for path, doc in own:
            mac = _own_mac(doc)
            if mac is not None:
                self._add(mac, _interface(path, doc))
        for path, adapter in self._cards(look):
            self._card(look.reading, path, adapter)
        if not self._by_mac:
            self._virtual(own)
        # a list that cannot be read now is not an empty one
        if not self._by_mac and len(look.reading.failed) == failed:
            self._started_from(look)

    def _virtual(self, interfaces: Iterable[tuple[str, Doc]]) -> None:
        """A machine whose addresses are all locally administered, and told as permanent, is a virtual one (52:54:… of libvirt)."""
        for path, doc in interfaces:
            mac = _address(doc, "PermanentMACAddress")
            if mac is not None:
                self._add(mac, _interface(path, doc))

    def _started_from(self, look: Look) -> None:
        """Where nothing lists a NIC (OpenBMC), those that the firmware can start from, by its boot options' device paths (UEFI 2.10, 10.3.4)."""
        for path, option in look.reading.documents(link(look.system, "Boot", "BootOptions")):
            device = text(option, "UefiDevicePath", limit=1024) or ""
            match = _IN_A_PATH.search(device)
            mac = mac_of(match[1]) if match and "usb(" not in device.lower() else None
            if mac is not None and not _is_local(mac):
                self._add(mac, {"name": said(option, "DisplayName"), "path": path})

    def _cards(self, look: Look) -> Iterator[tuple[str, Doc]]:
        """The adapters of the system's chassis, then those that its NetworkInterfaces name, each once.

        A NetworkInterface that names no adapter has the functions and ports itself.
        """
        seen: set[str] = set()
        reading = look.reading
        for _, chassis in look.chassis:
            for path, doc in reading.documents(link(chassis, "NetworkAdapters")):
                if key(path) not in seen:
                    seen.add(key(path))
                    yield path, doc
        for path, interface in reading.documents(link(look.system, "NetworkInterfaces")):
            named = link(interface, "Links", "NetworkAdapter") or path
            if key(named) not in seen:
                seen.add(key(named))
                card = reading.lenient(named)
                yield (named, card) if card is not None else (path, interface)

    def _card(self, reading: Reading, path: str, adapter: Doc) -> None:
        if is_absent(adapter):
            return
        found: list[str] = []
        ports: dict[str, str] = {}  # a port's path to the MAC behind it
        for at, function in reading.documents(link(adapter, "NetworkDeviceFunctions")):
            ethernet = dig(function, "Ethernet")
            mac = _own_mac(ethernet if isinstance(ethernet, dict) else function)
            if mac is None or _is_to_the_bmc(at, function):
                continue
            found.append(mac)
            kind = (said(function, "NetDevFuncType") or "").lower()
            self._add(mac, part(function, at, type=kind if kind in ("ethernet", "infiniband") else None))
            ports |= {key(port): mac for port in _ports_of(function)}
        count_of_ports = count(first(dig(adapter, "Controllers")), "ControllerCapabilities", "NetworkPortCount")
        if not found or any("linkStatus" not in self._by_mac[mac] for mac in found):
            listed = self._read_ports(reading, adapter)
            count_of_ports = len(listed) or count_of_ports
            if not found:
                found = self._of_ports(listed)
            else:
                self._link(listed, found, ports)
        for mac in found:
            self._add(mac, {"adapter": text(adapter, "Id"), "adapterModel": said(adapter, "Model")})
        packages = [said(one, "FirmwarePackageVersion") for one in _listed(adapter, "Controllers")]
        card = part(adapter, path, ports=count_of_ports, macs=tuple(dict.fromkeys(found)) or None)
        card.setdefault("firmware", next((one for one in packages if one), None))
        if TOLD & {name for name, value in card.items() if value is not None}:
            self._adapters[key(path)] = {name: value for name, value in card.items() if value is not None}

    def _read_ports(self, reading: Reading, adapter: Doc) -> list[tuple[str, Doc]]:
        for place in ("Ports", "NetworkPorts"):
            listed: list[tuple[str, Doc]] = list(reading.documents(link(adapter, place)))
            if listed:
                return listed
        return []

    def _of_ports(self, ports: list[tuple[str, Doc]]) -> list[str]:
        """The addresses of a card whose functions tell none. A DPU's ports have others than the host's functions, which come first."""
        found = []
        for at, port in ports:
            for mac in _addresses(port):
                found.append(mac)
                self._add(mac, part(port, at) | _link_of(port) | {"port": text(port, "Id")})
        return found

    def _link(self, ports: list[tuple[str, Doc]], macs: list[str], behind: dict[str, str]) -> None:
        """Link and speed of the functions' addresses: by the port that a function names, by the port's addresses, or as the only ones."""
        for at, port in ports:
            own = [mac for mac in _addresses(port) if mac in macs]
            if key(at) in behind:
                own.append(behind[key(at)])
            if not own and len(ports) == 1 == len(macs):
                own = macs
            for mac in own:
                self._add(mac, _link_of(port) | {"port": text(port, "Id")})

    def _add(self, mac: str, told: Part) -> None:
        """What was told first stays."""
        nic = self._by_mac.setdefault(mac, {"mac": mac})
        for name, value in told.items():
            if value is not None:
                nic.setdefault(name, value)


def _place_in_order(found: Part) -> tuple[Any, ...]:
    return order(str(found.get("path") or ""))


def _interface(path: str, doc: Doc) -> Part:
    return part(doc, path) | _link_of(doc)


def _link_of(doc: Doc) -> dict[str, object]:
    word = text(doc, "LinkStatus") or (text(doc, "LinkState") if text(doc, "LinkState") in ("Up", "Down") else None)
    gbps = number(doc, "CurrentSpeedGbps")
    speed = count(doc, "SpeedMbps") or count(doc, "CurrentLinkSpeedMbps")
    if speed is None and gbps is not None and 0 < gbps < 1e6:
        speed = int(gbps * 1000)
    told = {"linkStatus": UP.get(word.lower(), word.lower()) if word else None, "speedMbps": speed}
    return {name: value for name, value in told.items() if value is not None}


def _addresses(port: Doc) -> Iterator[str]:
    for listed in (dig(port, "AssociatedNetworkAddresses"), dig(port, "Ethernet", "AssociatedMACAddresses")):
        for one in (listed if isinstance(listed, list) else [])[:ADDRESSES]:
            mac = mac_of(one) if isinstance(one, str) else None
            if mac is not None and not _is_local(mac):
                yield mac


def _ports_of(function: Doc) -> Iterator[str]:
    """The port that a function uses, in the words of several versions of the standard."""
    for keys in (
        ("Links", "PhysicalNetworkPortAssignment"),
        ("Links", "PhysicalPortAssignment"),
        ("PhysicalPortAssignment",),
    ):
        found = link(function, *keys)
        if found:
            yield found
    assignable = links(function, "AssignablePhysicalNetworkPorts") or links(function, "AssignablePhysicalPorts")
    if len(assignable) == 1:
        yield assignable[0]


def _is_to_the_bmc(path: str, doc: Doc) -> bool:
    if (
        "tomanager" in path.lower()
        or text(doc, "InterfaceEnabled") == "ToManager"
        or link(doc, "Links", "HostInterface")
    ):
        return True
    words = f"{text(doc, 'Id')} {text(doc, 'Name')} {text(doc, 'Description')}".lower()
    return "tomanager" in words or "host interface" in words or "usb" in re.split(r"[^a-z0-9]+", words)


def _listed(doc: Doc, name: str) -> list[Any]:
    found = dig(doc, name)
    return found[:ADDRESSES] if isinstance(found, list) else []
