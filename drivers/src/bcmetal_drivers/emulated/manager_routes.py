"""Routes to the manager itself: its clock, its restart, and the ways that its host has into it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.systems import MANAGER

PATH: Final = f"{ROOT}/Managers/{MANAGER}"
INTERFACES: Final = f"{PATH}/HostInterfaces"
RESETS: Final = ("GracefulRestart", "ForceRestart")


def shown(inside: Interior) -> dict[str, Any]:
    """For the manager's document."""
    types = [word for word in RESETS if word not in inside.quirks.without_bmc_resets]
    reset = {"target": f"{PATH}/Actions/Manager.Reset", "ResetType@Redfish.AllowableValues": types}
    found: dict[str, Any] = {
        "Actions": {"#Manager.Reset": reset},
        "LogServices": link(f"{PATH}/LogServices"),
        "HostInterfaces": link(INTERFACES),
        "SerialConsole": {"ServiceEnabled": True, "ConnectTypesSupported": ["SSH", "IPMI"], "MaxConcurrentSessions": 2},
        "GraphicalConsole": {"ServiceEnabled": True, "ConnectTypesSupported": ["KVMIP"], "MaxConcurrentSessions": 4},
    }
    if inside.quirks.oem_kcs:
        found["Oem"] = {"Lenovo": {"KCSEnabled": inside.upkeep.kcs}}
    return found


def change_manager(inside: Interior, call: Call) -> Answer:
    """All of it or nothing."""
    wanted = call.request.json()
    unknown = wanted.keys() - {"DateTime", "DateTimeLocalOffset", "Oem"}
    if unknown or not wanted:
        raise Refusal(400, "PropertyNotWritable", f"Cannot be written: {', '.join(sorted(unknown)) or 'nothing'}.")
    if "Oem" in wanted:
        kcs = wanted["Oem"].get("Lenovo", {}).get("KCSEnabled") if inside.quirks.oem_kcs else None
        if not isinstance(kcs, bool):
            raise Refusal(400, "PropertyUnknown", "There is no such setting.")
        inside.upkeep.kcs = kcs
    if "DateTime" in wanted:
        inside.quirks.clock_skew_s = (_time(inside, wanted["DateTime"]) - datetime.now(UTC)).total_seconds()
    return Answer(204)


def _time(inside: Interior, written: object) -> datetime:
    if not inside.quirks.clock_set:
        raise Refusal(400, "PropertyNotWritable", "The clock follows NTP.")
    try:
        at = datetime.fromisoformat(written if isinstance(written, str) else "")
    except ValueError:
        raise Refusal(400, "PropertyValueFormatError", f"{written!r} is no time.") from None
    if at.tzinfo is None:
        raise Refusal(400, "PropertyValueFormatError", "A time needs its offset.")
    return at


def reset_manager(inside: Interior, call: Call) -> Answer:
    """All sessions are lost, for `bmc_reset_s` nothing is answered, and then it sees what it missed."""
    asked = call.request.json().get("ResetType", RESETS[0])
    if asked not in RESETS or asked in inside.quirks.without_bmc_resets:
        raise Refusal(400, "ActionParameterNotSupported", f"ResetType {asked} is not supported.")
    inside.upkeep.resets += 1
    inside.quirks.misses_a_drive = False
    inside.restart(inside.quirks.bmc_reset_s, 0)
    return Answer(204)


def list_interfaces(inside: Interior, call: Call) -> Answer:
    return collection(INTERFACES, "HostInterface", [f"{INTERFACES}/1"])


def show_interface(inside: Interior, call: Call, name: str) -> Answer:
    if name != "1":
        raise not_found(f"{INTERFACES}/{name}")
    return resource(
        f"{INTERFACES}/1",
        "HostInterface.v1_3_0",
        "Host Interface",
        HostInterfaceType="NetworkHostInterface",
        InterfaceEnabled=inside.upkeep.interface,
        ExternallyAccessible=False,
        CredentialBootstrapping={
            "Enabled": inside.upkeep.bootstrap,
            "EnableAfterReset": inside.upkeep.bootstrap,
            "RoleId": "Administrator",
        },
    )


def change_interface(inside: Interior, call: Call, name: str) -> Answer:
    """All of it or nothing."""
    show_interface(inside, call, name)
    wanted = call.request.json()
    given = {"InterfaceEnabled": wanted.get("InterfaceEnabled", inside.upkeep.interface)}
    bootstrap = wanted.get("CredentialBootstrapping", {})
    given["Enabled"] = bootstrap.get("Enabled", inside.upkeep.bootstrap) if isinstance(bootstrap, dict) else None
    unknown = wanted.keys() - {"InterfaceEnabled", "CredentialBootstrapping"}
    if unknown or not wanted or not all(isinstance(value, bool) for value in given.values()):
        raise Refusal(400, "PropertyNotWritable", "Only InterfaceEnabled and CredentialBootstrapping can be written.")
    inside.upkeep.interface, inside.upkeep.bootstrap = given["InterfaceEnabled"], given["Enabled"]
    return show_interface(inside, call, name)


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("PATCH", rf"/Managers/{MANAGER}", change_manager),
    ("POST", rf"/Managers/{MANAGER}/Actions/Manager\.Reset", reset_manager),
    ("GET", rf"/Managers/{MANAGER}/HostInterfaces", list_interfaces),
    ("GET", rf"/Managers/{MANAGER}/HostInterfaces/([^/]+)", show_interface),
    ("PATCH", rf"/Managers/{MANAGER}/HostInterfaces/([^/]+)", change_interface),
)
