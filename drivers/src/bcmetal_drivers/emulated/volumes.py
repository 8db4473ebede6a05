"""RAID volumes: made and deleted by a Task, at once or at the machine's next boot.

What the drives hold is not touched by either: a deleted volume is out of sight, and its data is there until the drives are erased
(`EmulatedDrive.holds_data`). A drive that was written and is part of no volume shows a volume of its own, of the type RawDevice.
"""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.board import RaidVolume
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, accepted, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.tasks import AT_BOOT, COMPLETED, Tasks

HEALTHY: Final = {"State": "Enabled", "Health": "OK"}
APPLY_TIME: Final = "@Redfish.OperationApplyTime"
OLD: Final = {"NonRedundant": "RAID0", "Mirrored": "RAID1", "StripedWithParity": "RAID5", "SpannedMirrors": "RAID10"}
LOST: Final = {"RAID0": 0, "RAID5": 1, "RAID6": 2}  # drives' worth of parity
FEWEST: Final = {"RAID0": 1, "RAID1": 2, "RAID5": 3, "RAID6": 4, "RAID10": 4}


def storage_path(system: str, controller: str) -> str:
    return f"{ROOT}/Systems/{system}/Storage/Storage.{controller}"


def drive_path(system: str, controller: str, serial: str) -> str:
    return f"{storage_path(system, controller)}/Drives/{serial}"


def of_controller(inside: Interior, machine: Machine, system: str, controller: str) -> list[str]:
    """The serials of its drives, which the controllers share out in turn. Raises Refusal where there is no such controller."""
    count, n = inside.quirks.controllers, int(controller)
    if not 1 <= n <= count:
        raise not_found(storage_path(system, controller))
    return [serial for at, serial in enumerate(machine.drives) if at % count == n - 1]


def holding(machine: Machine, serial: str) -> str | None:
    """The id of the volume that the drive is part of."""
    return next((name for name, volume in machine.board.volumes.items() if serial in volume.drives), None)


def on_drive(machine: Machine, system: str, controller: str, serial: str) -> list[str]:
    """The paths of the volumes that a client sees on it."""
    path, name = f"{storage_path(system, controller)}/Volumes", holding(machine, serial)
    if name is not None:
        return [f"{path}/{name}"]
    return [] if machine.drives[serial].says_erased else [f"{path}/{serial}"]


def boot(tasks: Tasks, machine: Machine, at: float) -> None:
    """A boot's share: the machine's lock is held."""
    waiting, machine.board.volumes_waiting = machine.board.volumes_waiting, []
    for volume in waiting:
        _put(machine, volume)
    for controller in range(1, 10):
        tasks.end_at_boot(f"{storage_path(machine.hardware.system_id, str(controller))}/Volumes")


# ---------------------------------------------------------------- routes


def list_volumes(inside: Interior, call: Call, system: str, controller: str) -> Answer:
    machine, path = inside.machine(system), f"{storage_path(system, controller)}/Volumes"
    machine.settle()
    found: list[str] = []
    for serial in of_controller(inside, machine, system, controller) if inside.quirks.volumes_shown else ():
        found += on_drive(machine, system, controller, serial)
    answer = collection(path, "Volume", list(dict.fromkeys(found)))
    if inside.quirks.volume_times:
        answer.doc["@Redfish.OperationApplyTimeSupport"] = {"SupportedValues": list(inside.quirks.volume_times)}
    if inside.quirks.volume_capabilities:
        of = {"CapabilitiesObject": link(f"{path}/Capabilities"), "UseCase": "VolumeCreation"}
        answer.doc["@Redfish.CollectionCapabilities"] = {"Capabilities": [of]}
    return answer


def show_capabilities(inside: Interior, call: Call, system: str, controller: str) -> Answer:
    path = f"{storage_path(system, controller)}/Volumes/Capabilities"
    if not inside.quirks.volume_capabilities:
        raise not_found(path)
    return resource(
        path,
        "Volume.v1_9_0",
        "Capabilities",
        **{
            "RAIDType@Redfish.RequiredOnCreate": True,
            "RAIDType@Redfish.AllowableValues": list(inside.quirks.raid_kinds),
            "DisplayName@Redfish.OptionalOnCreate": True,
            "CapacityBytes@Redfish.OptionalOnCreate": True,
            "Links": {"Drives@Redfish.RequiredOnCreate": True},
        },
    )


def show_volume(inside: Interior, call: Call, system: str, controller: str, name: str) -> Answer:
    machine, path = inside.machine(system), f"{storage_path(system, controller)}/Volumes/{name}"
    machine.settle()
    serials, volume = of_controller(inside, machine, system, controller), machine.board.volumes.get(name)
    if volume is not None and set(volume.drives) <= set(serials):
        kind: dict[str, Any] = {"RAIDType": volume.raid}
        if inside.quirks.volume_form == "type":
            kind = {"VolumeType": next(word for word, raid in OLD.items() if raid == volume.raid)}
        drives = [link(drive_path(system, controller, serial)) for serial in volume.drives]
        return resource(
            path,
            "Volume.v1_9_0",
            volume.name,
            CapacityBytes=volume.capacity_bytes,
            Links={"Drives": drives},
            Status=HEALTHY,
            **kind,
        )
    if name not in serials or holding(machine, name) is not None or machine.drives[name].says_erased:
        raise not_found(path)
    return resource(
        path,
        "Volume.v1_9_0",
        f"Volume on {name}",
        RAIDType="RAID0",
        VolumeType="RawDevice",
        CapacityBytes=machine.drives[name].capacity_bytes,
        Links={"Drives": [link(drive_path(system, controller, name))]},
        Status=HEALTHY,
    )


def create_volume(inside: Interior, call: Call, system: str, controller: str) -> Answer:
    machine, wanted = inside.machine(system), call.request.json()
    serials, quirks = of_controller(inside, machine, system, controller), inside.quirks
    raid, drives, at_boot = _asked(inside, wanted)
    chosen = [path.rpartition("/")[2] for path in drives]
    if raid not in quirks.raid_kinds or len(chosen) < FEWEST[raid]:
        raise Refusal(400, "PropertyValueNotInList", f"{raid} cannot be made of {len(chosen)} drives.")
    for path, serial in zip(drives, chosen, strict=True):
        if serial not in serials or path != drive_path(system, controller, serial):
            raise Refusal(400, "PropertyValueNotInList", f"{path} is no drive of this controller.")
        if holding(machine, serial) is not None:
            raise Refusal(400, "PropertyValueConflict", f"{path} is part of another volume.")
    named = wanted.get("DisplayName" if quirks.volume_capabilities else "Name")
    numbers = [int(name.rpartition(".")[2]) for name in machine.board.volumes]
    name = f"Volume.{max(numbers, default=0) + 1}"
    size = wanted.get("CapacityBytes") or _capacity(raid, [machine.drives[serial].capacity_bytes for serial in chosen])
    volume = RaidVolume(name, str(named or name), raid, int(size), chosen)
    return _soon(inside, call, machine, f"{storage_path(system, controller)}/Volumes", volume, at_boot)


def delete_volume(inside: Interior, call: Call, system: str, controller: str, name: str) -> Answer:
    machine, path = inside.machine(system), f"{storage_path(system, controller)}/Volumes"
    at_boot = _time(inside, call.request.json()) == "OnReset"
    if name not in machine.board.volumes:
        raise not_found(f"{path}/{name}")
    return _soon(inside, call, machine, path, RaidVolume(name, "", "", 0, []), at_boot)


def _soon(inside: Interior, call: Call, machine: Machine, path: str, volume: RaidVolume, at_boot: bool) -> Answer:
    """One without drives is one that is to go."""
    if at_boot:
        machine.board.volumes_waiting.append(volume)
        return accepted(inside.tasks, inside.tasks.start("Volumes", AT_BOOT, lambda: True, about=path))

    def put() -> bool:
        with machine.lock:
            _put(machine, volume)
        return True

    deferred = call.rule("task")
    if deferred is not None and deferred.fire():
        task = inside.tasks.start("Volumes", deferred.rule.seconds, put, deferred.rule.ends, path)
    elif inside.quirks.volume_task:
        task = inside.tasks.start("Volumes", inside.quirks.volume_s, put, COMPLETED, path)
    else:
        put()
        return Answer(201, {}, {"Location": f"{path}/{volume.id}"}) if volume.drives else Answer(204)
    return accepted(inside.tasks, task)


def _put(machine: Machine, volume: RaidVolume) -> None:
    """The lock is held."""
    gone = machine.board.volumes.pop(volume.id, None)
    if volume.drives:
        machine.board.volumes[volume.id] = volume
    elif gone is not None:
        machine.forget(gone.drives)


def _asked(inside: Interior, wanted: dict[str, Any]) -> tuple[str, list[str], bool]:
    """The RAID type, the drives' paths, and whether it is for the next boot."""
    old = inside.quirks.volume_form == "type"
    allowed = {"RAIDType", "VolumeType", "Links", "Drives", "Name", "CapacityBytes", APPLY_TIME}
    allowed ^= {"RAIDType", "Links"} if old else {"VolumeType", "Drives"}
    if inside.quirks.volume_capabilities:
        allowed ^= {"Name", "DisplayName"}
    unknown = wanted.keys() - allowed
    if unknown:
        raise Refusal(
            400, "PropertyUnknown", f"The property {sorted(unknown)[0]} is not in the list of valid properties."
        )
    links = wanted.get("Links")
    listed = wanted.get("Drives") if old else links.get("Drives") if isinstance(links, dict) else None
    raid = OLD.get(str(wanted.get("VolumeType"))) if old else wanted.get("RAIDType")
    if not isinstance(listed, list) or raid not in FEWEST:
        raise Refusal(400, "PropertyMissing", "The RAID type and Drives are required.")
    drives = [str(item.get("@odata.id")) if isinstance(item, dict) else "" for item in listed]
    return str(raid), drives, _time(inside, wanted) == "OnReset"


def _time(inside: Interior, wanted: dict[str, Any]) -> str | None:
    time, offered = wanted.get(APPLY_TIME), inside.quirks.volume_times
    if time is None and inside.quirks.volume_time_demanded:
        raise Refusal(400, "PropertyMissing", f"The property {APPLY_TIME} is required.")
    if time is not None and time not in (offered or ("Immediate", "OnReset")):
        raise Refusal(400, "PropertyValueNotInList", f"The value {time!r} of {APPLY_TIME} is not acceptable.")
    return str(time) if time is not None else None


def _capacity(raid: str, sizes: list[int]) -> int:
    if raid == "RAID0":
        return sum(sizes)
    if raid in LOST:
        return (len(sizes) - LOST[raid]) * min(sizes)
    return min(sizes) * (len(sizes) // 2 if raid == "RAID10" else 1)


STORAGE: Final = r"/Systems/([^/]+)/Storage/Storage\.(\d)"
OWN_TASKS: Final = STORAGE + r"/Volumes(?:/[^/]+)?"  # paths whose Tasks are begun here
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", rf"{STORAGE}/Volumes", list_volumes),
    ("POST", rf"{STORAGE}/Volumes", create_volume),
    ("GET", rf"{STORAGE}/Volumes/Capabilities", show_capabilities),
    ("GET", rf"{STORAGE}/Volumes/([^/]+)", show_volume),
    ("DELETE", rf"{STORAGE}/Volumes/([^/]+)", delete_volume),
)
