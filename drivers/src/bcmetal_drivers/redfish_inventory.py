"""The inventory by Redfish, section by section: what one section lacks never costs the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import sushy.exceptions

from bcmetal_drivers import redfish_bios
from bcmetal_drivers import redfish_identity as parts
from bcmetal_drivers.capabilities import BmcInfo, Identity, Inventory
from bcmetal_drivers.door import STUMBLES, translated
from bcmetal_drivers.errors import (
    DriverError,
    LockedOut,
    PasswordChangeRequired,
    RejectedCredentials,
    Unreachable,
    UntrustedCertificate,
)
from bcmetal_drivers.redfish_boot import mode_of, secure_boot_of
from bcmetal_drivers.redfish_drives import drives
from bcmetal_drivers.redfish_power import RESET
from bcmetal_drivers.redfish_tree import Doc, Tree, action_target, dig, link

T = TypeVar("T")
NO_SECTION_HELPS: Final = (RejectedCredentials, PasswordChangeRequired, UntrustedCertificate, LockedOut, Unreachable)


@dataclass(slots=True)
class Sections:
    """Reads each section with its own status: `ok`, `absent`, or what was wrong."""

    tree: Tree
    status: dict[str, str] = field(default_factory=dict)

    def read(self, name: str, fn: Callable[[], T]) -> T | None:
        """None when it could not be read."""
        try:
            found = fn()
        except NO_SECTION_HELPS:
            raise
        except DriverError as error:
            self.status[name] = str(error)
        except sushy.exceptions.HTTPError as error:
            ours = translated(error)
            if isinstance(ours, NO_SECTION_HELPS):
                raise ours from error
            self.status[name] = str(ours)
        except STUMBLES as error:
            self.status[name] = f"the answer is not what the standard says ({type(error).__name__})"
        else:
            self.status[name] = "ok" if found not in (None, (), [], {}, ((), ())) else "absent"
            return found
        return None


def inventory(tree: Tree) -> Inventory:
    """Raises only what makes every section vain; a slow BMC's inventory ends with the sections that came in time."""
    system = tree.system()
    sections = Sections(tree)
    nics = sections.read("nics", lambda: tuple(parts.nics(tree, system))) or ()
    found_drives = sections.read("drives", lambda: drives(tree)) or ()
    bmc = sections.read("bmc", lambda: parts.bmc_info(tree)) or BmcInfo(certificate_fp=tree.door.certificate_fp)
    secure = sections.read("secureBoot", lambda: secure_boot_of(tree.find(link(system, "SecureBoot"))))
    cpus, gpus = sections.read("processors", lambda: parts.cpus_and_gpus(tree, system)) or ((), ())
    dimms = sections.read("memory", lambda: tuple(parts.dimms(tree, system))) or ()
    firmware = sections.read("firmware", lambda: parts.firmware(tree)) or {}
    processors = sections.status.pop("processors")
    for name, found in (("cpus", cpus), ("gpus", gpus)):
        sections.status[name] = processors if found or processors != "ok" else "absent"
    tpm = sections.read("tpm", lambda: parts.tpm_of(system))
    identity = sections.read("identity", lambda: parts.identity_of(tree, system, nics))
    memory = parts.memory_bytes(system) or sum(int(str(dimm["capacityBytes"])) for dimm in dimms) or None
    return Inventory(
        identity=identity or Identity(system_path=tree.system_path()),
        bmc=bmc,
        cpus=cpus,
        memory_bytes=memory,
        dimms=dimms,
        nics=nics,
        drives=found_drives,
        gpus=gpus,
        tpm=tpm,
        firmware=firmware,
        boot_mode=mode_of(system),
        secure_boot=secure,
        capabilities=_offered(tree, system, any(drive.erasable for drive in found_drives)),
        sections=sections.status,
    )


def _offered(tree: Tree, system: Doc, erases: bool) -> tuple[str, ...]:
    """The Protocols that this model really offers, by what its documents hold."""
    has = {
        "Power": action_target(system, RESET) is not None,
        "Readings": True,
        "BootOnce": isinstance(dig(system, "Boot"), dict),
        "BootModes": mode_of(system) is not None,
        "SecureBoot": link(system, "SecureBoot") is not None,
        "VirtualMedia": _has_media(tree, system),
        "Inventories": True,
        "Identifies": True,
        "Accounts": link(tree.root(), "AccountService") is not None,
        "DriveErase": erases,
        "Baseline": True,
        "Bios": redfish_bios.offered(system),
    }
    return tuple(name for name, there in has.items() if there)


def _has_media(tree: Tree, system: Doc) -> bool:
    if link(system, "VirtualMedia"):
        return True
    try:
        return any(link(tree.find(path), "VirtualMedia") for path in parts.managed_by(system))
    except (DriverError, sushy.exceptions.HTTPError):
        return False
