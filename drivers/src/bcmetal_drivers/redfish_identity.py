"""Who the machine and its BMC are, by Redfish. Values are raw: what they are worth is for the reader to say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bcmetal_drivers.capabilities import BmcInfo, Identity
from bcmetal_drivers.redfish_maker import maker_of
from bcmetal_drivers.redfish_tree import Doc, Tree, dig, link, links, number, text

_MAC: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_BARE: Final = re.compile(r"[0-9a-f]{12}")


def identity(tree: Tree) -> Identity:
    system = tree.system()
    return identity_of(tree, system, tuple(nics(tree, system)))


def identity_of(tree: Tree, system: Doc, found: tuple[Mapping[str, object], ...]) -> Identity:
    return Identity(
        system_path=tree.system_path(),
        product_uuid=text(system, "UUID"),
        serial=text(system, "SerialNumber"),
        sku=text(system, "SKU"),
        manufacturer=text(system, "Manufacturer"),
        model=text(system, "Model"),
        hostname=text(system, "HostName"),
        asset_tag=text(system, "AssetTag"),
        macs=tuple(dict.fromkeys(str(nic["mac"]) for nic in found)),
    )


def bmc_info(tree: Tree) -> BmcInfo:
    paths = tree.manager_paths()
    doc = tree.find(paths[0]) if paths else None
    return BmcInfo(
        maker=maker_of(tree.root(), doc),
        model=text(doc, "Model") or text(tree.root(), "Product"),
        firmware=text(doc, "FirmwareVersion"),
        certificate_fp=tree.door.certificate_fp,
        clock=text(doc, "DateTime"),
    )


def mac_of(value: str | None) -> str | None:
    """Lower case with colons; None for a WWN, an InfiniBand GUID, zeros, a group address, and anything else that names no NIC."""
    if value is None:
        return None
    mac = value.lower().replace("-", ":")
    if _BARE.fullmatch(mac):
        mac = ":".join(mac[n : n + 2] for n in range(0, 12, 2))
    if not _MAC.fullmatch(mac) or mac in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff") or int(mac[:2], 16) & 1:
        return None
    return mac


def nics(tree: Tree, system: Doc) -> Iterator[Mapping[str, object]]:
    """The host's NICs, each MAC once, from every place that lists them: EthernetInterfaces, then the chassis' NetworkAdapters.

    The NIC between host and BMC is left out, and so are locally administered addresses (they change).
    """
    seen: set[str] = set()
    for path, doc in tree.documents(link(system, "EthernetInterfaces")):
        if "tomanager" in path.lower() or text(doc, "InterfaceEnabled") == "ToManager" or _is_host_usb(doc):
            continue
        mac = mac_of(text(doc, "PermanentMACAddress")) or mac_of(text(doc, "MACAddress"))
        if mac and mac not in seen and not int(mac[:2], 16) & 2:
            seen.add(mac)
            yield _nic(path, doc, mac)
    for path, function in _functions(tree, system):
        ethernet = dig(function, "Ethernet")
        mac = mac_of(text(ethernet, "PermanentMACAddress")) or mac_of(text(ethernet, "MACAddress"))
        if mac and mac not in seen and not int(mac[:2], 16) & 2:
            seen.add(mac)
            yield _nic(path, function, mac)


def _is_host_usb(doc: Doc) -> bool:
    words = f"{text(doc, 'Id')} {text(doc, 'Name')} {text(doc, 'Description')}".lower()
    return "tomanager" in words or "host interface" in words or "usb" in words.split()


def _functions(tree: Tree, system: Doc) -> Iterator[tuple[str, Doc]]:
    for _, doc in tree.documents(link(system, "NetworkInterfaces")):
        functions = link(doc, "NetworkDeviceFunctions") or link(
            tree.find(link(doc, "Links", "NetworkAdapter")), "NetworkDeviceFunctions"
        )
        yield from tree.documents(functions)


def _nic(path: str, doc: Doc, mac: str) -> Mapping[str, object]:
    speed = number(doc, "SpeedMbps")
    found: dict[str, Any] = {
        "id": text(doc, "Id"),
        "mac": mac,
        "name": text(doc, "Name"),
        "linkStatus": text(doc, "LinkStatus"),
        "speedMbps": int(speed) if speed else None,
        "path": path,
    }
    return {key: value for key, value in found.items() if value is not None}


Parts = tuple[Mapping[str, object], ...]


def cpus_and_gpus(tree: Tree, system: Doc) -> tuple[Parts, Parts]:
    cpus: list[Mapping[str, object]] = []
    gpus: list[Mapping[str, object]] = []
    for _, doc in tree.documents(link(system, "Processors")):
        if text(doc, "Status", "State") == "Absent":
            continue
        (gpus if text(doc, "ProcessorType") in ("GPU", "Accelerator") else cpus).append(_processor(doc))
    return tuple(cpus), tuple(gpus)


def _processor(doc: Doc) -> Mapping[str, object]:
    cores, threads = number(doc, "TotalCores"), number(doc, "TotalThreads")
    found: dict[str, Any] = {
        "id": text(doc, "Id"),
        "model": text(doc, "Model"),
        "manufacturer": text(doc, "Manufacturer"),
        "cores": int(cores) if cores else None,
        "threads": int(threads) if threads else None,
        "serial": text(doc, "SerialNumber"),
        "health": text(doc, "Status", "Health"),
    }
    return {key: value for key, value in found.items() if value is not None}


def dimms(tree: Tree, system: Doc) -> Iterator[Mapping[str, object]]:
    for _, doc in tree.documents(link(system, "Memory")):
        mib = number(doc, "CapacityMiB")
        if text(doc, "Status", "State") == "Absent" or not mib:
            continue
        found: dict[str, Any] = {
            "id": text(doc, "Id"),
            "capacityBytes": int(mib) * 1024 * 1024,
            "type": text(doc, "MemoryDeviceType"),
            "speedMhz": number(doc, "OperatingSpeedMhz"),
            "manufacturer": text(doc, "Manufacturer"),
            "partNumber": text(doc, "PartNumber"),
            "serial": text(doc, "SerialNumber"),
            "health": text(doc, "Status", "Health"),
        }
        yield {key: value for key, value in found.items() if value is not None}


def memory_bytes(system: Doc) -> int | None:
    gib = number(system, "MemorySummary", "TotalSystemMemoryGiB")
    return int(gib * 1024**3) if gib else None


def tpm_of(system: Doc) -> Mapping[str, object] | None:
    modules = dig(system, "TrustedModules")
    for module in modules if isinstance(modules, list) else []:
        kind = text(module, "InterfaceType")
        if kind:
            state, firmware = text(module, "Status", "State"), text(module, "FirmwareVersion")
            return {"type": kind} | ({"state": state} if state else {}) | ({"firmware": firmware} if firmware else {})
    return None


def firmware(tree: Tree) -> Mapping[str, str]:
    """Component to version. Two components of one name are told apart by their ids."""
    service = tree.find(link(tree.root(), "UpdateService"))
    found: dict[str, str] = {}
    for path, doc in tree.documents(link(service, "FirmwareInventory")):
        version = text(doc, "Version")
        if version:
            name = text(doc, "Name") or path.rpartition("/")[2]
            found[f"{name} ({text(doc, 'Id')})" if name in found else name] = version
    return found


def managed_by(system: Doc) -> tuple[str, ...]:
    return links(system, "Links", "ManagedBy")
