"""Routes to storage: controllers, and drives that can be erased.

How a client sees whether a drive holds data: `Links.Volumes` lists the volume that it is part of, or one of its own when it was
written, and nothing for an erased one; the member is absent where the BMC does not tell. While an erase runs, `Operations` names it,
its progress and its Task.
"""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated import volumes
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, accepted, collection, link, resource
from bcmetal_drivers.emulated.machine import EmulatedDrive, Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.volumes import HEALTHY, STORAGE, drive_path, of_controller, storage_path

SYSTEM: Final = r"/Systems/([^/]+)"


def list_storage(inside: Interior, call: Call, system: str) -> Answer:
    inside.machine(system)
    members = [storage_path(system, str(n + 1)) for n in range(inside.quirks.controllers)]
    return collection(f"{ROOT}/Systems/{system}/Storage", "Storage", members)


def show_storage(inside: Interior, call: Call, system: str, controller: str) -> Answer:
    machine, path = inside.machine(system), storage_path(system, controller)
    serials = of_controller(inside, machine, system, controller)
    if inside.quirks.misses_a_drive:
        serials = [serial for serial in serials if serial != list(machine.drives)[-1]]
    drives = [link(f"{path}/Drives/{serial}") for serial in serials]
    inner = {"MemberId": "0", "Name": "RAID controller", "SupportedRAIDTypes": list(inside.quirks.raid_kinds)}
    return resource(
        path,
        "Storage.v1_15_0",
        "Storage controller",
        **{"Drives": drives, "Drives@odata.count": len(drives), "Volumes": link(f"{path}/Volumes"), "Status": HEALTHY},
        StorageControllers=[inner],
    )


def show_drive(inside: Interior, call: Call, system: str, controller: str, serial: str) -> Answer:
    machine, path = inside.machine(system), drive_path(system, controller, serial)
    drive = _drive(inside, machine, system, controller, serial)
    more: dict[str, Any] = {}
    if inside.quirks.volumes_shown:
        holding = [link(found) for found in volumes.on_drive(machine, system, controller, serial)]
        more["Links"] = {"Volumes": holding, "Volumes@odata.count": len(holding)}
    if inside.quirks.erase:
        more["Actions"] = _erase_action(inside, path)
    task = inside.tasks.running_on(path)
    if task is not None:
        percent = inside.tasks.percent(task)
        operation = {"OperationName": "Sanitize", "PercentageComplete": percent, "AssociatedTask": link(task.path)}
        more["Operations"] = [operation]
    if drive.wwn:
        more["Identifiers"] = [{"DurableNameFormat": "NAA", "DurableName": drive.wwn}]
    return resource(
        path,
        "Drive.v1_18_0",
        f"Drive {serial}",
        SerialNumber=drive.serial,
        Model=drive.model,
        Manufacturer=drive.manufacturer,
        MediaType=drive.media,
        Protocol=drive.protocol,
        CapacityBytes=drive.capacity_bytes,
        Status=HEALTHY,
        **more,
    )


def _erase_action(inside: Interior, path: str) -> dict[str, Any]:
    target: dict[str, Any] = {"target": f"{path}/Actions/Drive.SecureErase"}
    if inside.quirks.erase_kinds:
        target |= {"SanitizationType@Redfish.AllowableValues": list(inside.quirks.erase_kinds)}
    return {"Oem": {"#ContosoDrive.Sanitize": target}} if inside.quirks.erase_oem else {"#Drive.SecureErase": target}


def erase_drive(inside: Interior, call: Call, system: str, controller: str, serial: str) -> Answer:
    """A Task at whose end the data is gone, or is said to be."""
    machine, path = inside.machine(system), drive_path(system, controller, serial)
    _drive(inside, machine, system, controller, serial)
    if not inside.quirks.erase:
        raise Refusal(400, "ActionNotSupported", "The action Drive.SecureErase is not supported by the resource.")
    if inside.tasks.running_on(path) is not None:
        raise Refusal(409, "ResourceInUse", "The drive is being erased already.")
    if volumes.holding(machine, serial) is not None:
        raise Refusal(409, "PropertyValueConflict", "The drive is part of a volume.")
    kinds, kind = inside.quirks.erase_kinds, call.request.json().get("SanitizationType")
    if kinds and kind not in kinds:
        raise Refusal(400, "ActionParameterMissing", "The action SecureErase requires SanitizationType.")
    lie = inside.quirks.erase_lie
    rule = call.rule("says_erased")
    if rule is not None and rule.fire():
        lie = rule.rule.lie

    def effect() -> bool:
        machine.erase(serial, really=lie is None, visibly=lie != "visible")
        return True

    deferred = call.rule("task")
    if deferred is not None and deferred.fire():
        seconds, ends = deferred.rule.seconds, deferred.rule.ends
    else:
        seconds, ends = inside.quirks.erase_s, "completed"
    return accepted(inside.tasks, inside.tasks.start(f"Erase of {serial}", seconds, effect, ends, path))


def _drive(inside: Interior, machine: Machine, system: str, controller: str, serial: str) -> EmulatedDrive:
    if serial not in of_controller(inside, machine, system, controller):
        raise not_found(drive_path(system, controller, serial))
    return machine.drives[serial]


ERASE: Final = rf"{STORAGE}/Drives/([^/]+)/Actions/Drive\.SecureErase"
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", rf"{SYSTEM}/Storage", list_storage),
    ("GET", STORAGE, show_storage),
    ("GET", rf"{STORAGE}/Drives/([^/]+)", show_drive),
    ("POST", ERASE, erase_drive),
)
