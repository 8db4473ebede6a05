"""What this model really offers: names of the capabilities' Protocols, by what its documents hold. A hint for people: a method may still refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bcmetal_drivers import (
    redfish_bios,
    redfish_events,
    redfish_firmware,
    redfish_indicator,
    redfish_secure_boot,
    redfish_volumes,
)
from bcmetal_drivers.redfish_boot import lasts, mode_of
from bcmetal_drivers.redfish_chassis import Look
from bcmetal_drivers.redfish_document import Doc, action_target, dig, link
from bcmetal_drivers.redfish_power import RESET

SENSED: Final = ("Sensors", "Thermal", "Power", "ThermalSubsystem", "EnvironmentMetrics", "PowerSubsystem")
CONSOLES: Final = ("SerialConsole", "CommandShell")


def capabilities(look: Look, erases: bool) -> tuple[str, ...]:
    """Asks for little beside what an inventory has read; what cannot be read offers nothing. In the order of `capabilities.py`."""
    root, system = look.tree.root(), look.system
    managers = [doc for path in look.tree.manager_paths() if (doc := look.reading.lenient(path)) is not None]
    chassis = [doc for _, doc in look.chassis]
    update = look.reading.lenient(link(root, "UpdateService"))
    secure = look.reading.lenient(link(system, "SecureBoot"))
    has = {
        "Power": action_target(system, RESET) is not None,
        "Readings": True,
        "BootOnce": isinstance(dig(system, "Boot"), dict),
        "BootModes": mode_of(system) is not None,
        "SecureBoot": link(system, "SecureBoot") is not None,
        "VirtualMedia": _any([system, *managers], "VirtualMedia"),
        "Inventories": True,
        "Identifies": True,
        "Accounts": link(root, "AccountService") is not None,
        "DriveErase": erases,
        "Baseline": True,
        "BootAlways": lasts(system),
        "SecureBootKeys": redfish_secure_boot.offered(secure),
        "Jobs": link(root, "Tasks") is not None or link(root, "TaskService") is not None,
        "Bios": redfish_bios.offered(system),
        "Firmware": link(update, "FirmwareInventory") is not None or redfish_firmware.offered(update),
        "Volumes": any(redfish_volumes.offered(doc) for _, doc in look.reading.documents(link(system, "Storage"))),
        "Sensors": any(_any(chassis, name) for name in SENSED),
        "EventLog": _any([system, *managers], "LogServices"),
        "Indicator": any(redfish_indicator.offered(doc) for doc in (system, *chassis)),
        "AccountControl": link(root, "AccountService") is not None,
        "BmcReset": any(action_target(doc, "#Manager.Reset") is not None for doc in managers),
        "BmcClock": any(dig(doc, "DateTime") is not None for doc in managers),
        "BmcNetwork": _any(managers, "EthernetInterfaces"),
        "Console": any(dig(doc, name) for doc in (system, *managers) for name in CONSOLES),
        "Events": _any([system, *managers], "LogServices") or redfish_events.offered(look.tree),
        "HostWays": _any(managers, "HostInterfaces"),
        "NetworkWays": _any(managers, "NetworkProtocol"),
        "Remembers": True,
    }
    return tuple(name for name, there in has.items() if there)


def _any(docs: Sequence[Doc], name: str) -> bool:
    return any(link(doc, name) is not None for doc in docs)
