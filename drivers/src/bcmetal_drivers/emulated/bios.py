"""BIOS settings: what is written waits for the machine's next boot, which takes it, or says in Messages why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bcmetal_drivers.emulated.board import DEFAULTS, READ_ONLY, VALUES
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, accepted, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.emulated.tasks import AT_BOOT, Tasks
from bcmetal_drivers.resources import BiosValue, BootMode

REGISTRY: Final = "BiosAttributeRegistry.v1_0_0"
REGISTRIES: Final = f"{ROOT}/Registries"
APPLY_TIME: Final = "@Redfish.SettingsApplyTime"
BOOT_MODES: Final = {"Uefi": BootMode.UEFI, "Bios": BootMode.LEGACY}

TPM: Final = "Tpm2Hierarchy"  # of machines that a test gives this setting


def boot(quirks: Quirks, tasks: Tasks, machine: Machine, at: float) -> None:
    """A boot's share: the machine's lock is held."""
    board = machine.board
    tasks.end_at_boot(_path(machine.hardware.system_id))
    board.post_began = at
    wanted = {**(DEFAULTS if board.bios_reset else {}), **board.bios_pending}
    if not wanted and not board.bios_reset:
        return
    board.bios_pending, board.bios_reset = {}, False
    if quirks.bios_lie == "lost":
        return
    taken = {name: value for name, value in wanted.items() if name not in quirks.bios_rejects}
    board.bios.update(taken)
    if taken.get(TPM) == "Clear":
        board.tpm_clears += 1
        board.bios[TPM] = "Enabled"
    board.bios_messages = [_rejected(name, wanted[name]) for name in wanted if name not in taken] or [_applied()]
    if "BootMode" in taken:
        machine.switch_mode(BOOT_MODES[str(taken["BootMode"])])


def _applied() -> dict[str, Any]:
    return {"MessageId": "Base.1.18.Success", "Message": "The settings were applied.", "MessageSeverity": "OK"}


def _rejected(name: str, value: BiosValue) -> dict[str, Any]:
    return {
        "MessageId": "Base.1.18.SettingsObjectInvalid",
        "Message": f"The value {value!r} of {name} depends on another setting.",
        "MessageArgs": [name],
        "RelatedProperties": [f"#/Attributes/{name}"],
        "MessageSeverity": "Warning",
    }


# ---------------------------------------------------------------- routes


def show_bios(inside: Interior, call: Call, system: str) -> Answer:
    machine, quirks, path = _ready(inside, system), inside.quirks, _path(system)
    more: dict[str, Any] = {}
    if quirks.bios_registry:
        more["AttributeRegistry"] = REGISTRY
    if quirks.bios_settings_linked:
        more["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{path}/{quirks.bios_settings_at}"),
            "Messages": machine.board.bios_messages,
        }
        if quirks.bios_apply_time != "ignored":
            more["@Redfish.Settings"]["SupportedApplyTimes"] = ["OnReset"]
    reset = {"#Bios.ResetBios": {"target": f"{path}/Actions/Bios.ResetBios"}}
    return resource(path, "Bios.v1_2_1", "BIOS", Attributes=dict(machine.board.bios), Actions=reset, **more)


def show_settings(inside: Interior, call: Call, system: str, name: str) -> Answer:
    machine, quirks = _ready(inside, system), inside.quirks
    _named(inside, system, name)
    more: dict[str, Any] = {}
    if quirks.bios_settings != "none":
        whole = machine.board.bios if quirks.bios_settings == "all" else {}
        reset = DEFAULTS if machine.board.bios_reset else {}
        more["Attributes"] = {**whole, **reset, **machine.board.bios_pending}
    return resource(f"{_path(system)}/{name}", "Bios.v1_2_1", "Pending BIOS settings", **more)


def change_settings(inside: Interior, call: Call, system: str, name: str) -> Answer:
    """All of it or nothing."""
    machine, quirks, wanted = _ready(inside, system), inside.quirks, call.request.json()
    _named(inside, system, name)
    timed, attributes = APPLY_TIME in wanted, wanted.get("Attributes")
    if timed and quirks.bios_apply_time == "refused":
        raise Refusal(400, "PropertyUnknown", f"The property {APPLY_TIME} is not in the list of valid properties.")
    if not isinstance(attributes, dict) or not attributes or wanted.keys() - {"Attributes", APPLY_TIME}:
        raise Refusal(400, "PropertyMissing", "Attributes, and nothing else, is written here.")
    _check(attributes, machine.board.bios)
    if not timed and quirks.bios_apply_time == "demanded":
        return Answer(200, {})  # kept by nobody: there is no job for it
    with machine.lock:
        machine.board.bios_pending.update(attributes)
    if quirks.bios_job:
        return accepted(inside.tasks, inside.tasks.start("BIOS settings", AT_BOOT, lambda: True, about=_path(system)))
    return Answer(204)


def _check(attributes: Mapping[str, Any], known: Mapping[str, BiosValue]) -> None:
    for name, value in attributes.items():
        if name not in known:
            raise Refusal(400, "PropertyUnknown", f"The property {name} is not in the list of valid properties.")
        if name in READ_ONLY:
            raise Refusal(400, "PropertyNotWritable", f"The property {name} is read only.")
        if type(value) is not type(known[name]):
            raise Refusal(400, "PropertyValueTypeError", f"The value of {name} is of a different type.")
        if name in VALUES and value not in VALUES[name]:
            raise Refusal(400, "PropertyValueNotInList", f"The value {value!r} of {name} is not acceptable.")


def reset_bios(inside: Interior, call: Call, system: str) -> Answer:
    """A POST without a body is refused, as several makers do."""
    machine = _ready(inside, system)
    if not call.request.body:
        raise Refusal(415, "UnsupportedMediaType", "The request has no body.")
    with machine.lock:
        machine.board.bios_reset, machine.board.bios_pending = True, {}
    return Answer(204)


def list_registries(inside: Interior, call: Call) -> Answer:
    if not inside.quirks.bios_registry:
        raise not_found(REGISTRIES)
    return collection(REGISTRIES, "MessageRegistryFile", [f"{REGISTRIES}/{REGISTRY}"])


def show_registry_file(inside: Interior, call: Call) -> Answer:
    location = [{"Language": "en", "Uri": f"{REGISTRIES}/{REGISTRY}.json"}]
    return resource(
        f"{REGISTRIES}/{REGISTRY}",
        "MessageRegistryFile.v1_1_5",
        "BIOS attributes",
        Registry=REGISTRY,
        Location=location,
    )


def show_registry(inside: Interior, call: Call) -> Answer:
    entries = [
        {
            "AttributeName": name,
            "ReadOnly": name in READ_ONLY,
            "Type": "Enumeration" if name in VALUES else {int: "Integer", bool: "Boolean"}.get(type(value), "String"),
            "DefaultValue": value,
            **({"Value": [{"ValueName": word} for word in VALUES[name]]} if name in VALUES else {}),
        }
        for name, value in DEFAULTS.items()
    ]
    return Answer(
        200,
        {
            "@odata.id": f"{REGISTRIES}/{REGISTRY}.json",
            "@odata.type": "#AttributeRegistry.v1_3_8.AttributeRegistry",
            "Id": REGISTRY,
            "RegistryEntries": {"Attributes": entries},
        },
    )


def _ready(inside: Interior, system: str) -> Machine:
    """While the machine is in POST the settings cannot be had."""
    machine = inside.machine(system)
    if not inside.quirks.bios:
        raise not_found(_path(system))
    machine.settle()
    began = machine.board.post_began
    if began is not None and inside.tasks.now() < began + inside.quirks.bios_post_s:
        raise Refusal(500, "InternalError", "The request failed due to an internal service error.")
    return machine


def _path(system: str) -> str:
    return f"{ROOT}/Systems/{system}/Bios"


def _named(inside: Interior, system: str, name: str) -> None:
    if name != inside.quirks.bios_settings_at:
        raise not_found(f"{_path(system)}/{name}")


BIOS: Final = r"/Systems/([^/]+)/Bios"
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", BIOS, show_bios),
    ("GET", rf"{BIOS}/(Settings|SD|Pending)", show_settings),
    ("PATCH", rf"{BIOS}/(Settings|SD|Pending)", change_settings),
    ("POST", rf"{BIOS}/Actions/Bios\.ResetBios", reset_bios),
    ("GET", r"/Registries", list_registries),
    ("GET", rf"/Registries/{REGISTRY}", show_registry_file),
    ("GET", rf"/Registries/{REGISTRY}\.json", show_registry),
)
