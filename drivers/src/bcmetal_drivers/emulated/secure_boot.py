"""Secure boot and its key databases: what is asked for is so from the machine's next boot on."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.application import ask
from bcmetal_drivers.emulated.board import DATABASES, FACTORY, NO_KEYS
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found

RESETS: Final = {
    "ResetAllKeysToDefault": dict.fromkeys(DATABASES, FACTORY),
    "DeleteAllKeys": dict.fromkeys(DATABASES, NO_KEYS),
    "DeletePK": {"PK": NO_KEYS},
}
OF_ONE: Final = {"ResetAllKeysToDefault": FACTORY, "DeleteAllKeys": NO_KEYS}
ALLOWED: Final = "ResetKeysType@Redfish.AllowableValues"


def show_secure_boot(inside: Interior, call: Call, system: str) -> Answer:
    machine, answer, path = inside.machine(system), ask(inside.drivers, call.request), _path(system)
    answer.doc["SecureBootCurrentBoot"] = "Enabled" if machine.secure_boot_in_force else "Disabled"
    answer.doc["SecureBootMode"] = "SetupMode" if machine.board.keys["PK"] == NO_KEYS else "UserMode"
    answer.doc["Actions"] = {}
    answer.doc.pop("SecureBootDatabases", None)
    if inside.quirks.secure_boot_keys == "resource":
        target = f"{path}/Actions/SecureBoot.ResetKeys"
        answer.doc["Actions"] = {"#SecureBoot.ResetKeys": {"target": target, ALLOWED: list(RESETS)}}
    elif inside.quirks.secure_boot_keys == "databases":
        answer.doc["SecureBootDatabases"] = link(f"{path}/SecureBootDatabases")
    return answer


def change_secure_boot(inside: Interior, call: Call, system: str) -> Answer:
    inside.machine(system)
    if not isinstance(call.request.json().get("SecureBootEnable"), bool):
        raise Refusal(400, "PropertyValueTypeError", "SecureBootEnable is no boolean.")
    return ask(inside.drivers, call.request)


def reset_keys(inside: Interior, call: Call, system: str) -> Answer:
    if inside.quirks.secure_boot_keys != "resource":
        raise not_found(call.request.path)
    return _reset(inside.machine(system), RESETS, call.request.json())


def list_databases(inside: Interior, call: Call, system: str) -> Answer:
    _has_databases(inside, call)
    path = f"{_path(system)}/SecureBootDatabases"
    names = [*DATABASES, *(f"{name}Default" for name in DATABASES)]
    return collection(path, "SecureBootDatabase", [f"{path}/{name}" for name in names])


def show_database(inside: Interior, call: Call, system: str, name: str) -> Answer:
    """The maker's own keys (PKDefault, …) cannot be reset."""
    _has_databases(inside, call)
    path = f"{_path(system)}/SecureBootDatabases/{name}"
    actions: dict[str, Any] = {}
    if name in DATABASES:
        target = f"{path}/Actions/SecureBootDatabase.ResetKeys"
        actions = {"#SecureBootDatabase.ResetKeys": {"target": target, ALLOWED: list(OF_ONE)}}
    elif name.removesuffix("Default") not in DATABASES:
        raise not_found(path)
    return resource(path, "SecureBootDatabase.v1_0_3", name, DatabaseId=name, Actions=actions)


def reset_database(inside: Interior, call: Call, system: str, name: str) -> Answer:
    _has_databases(inside, call)
    if name not in DATABASES:
        raise not_found(call.request.path)
    return _reset(inside.machine(system), {word: {name: keys} for word, keys in OF_ONE.items()}, call.request.json())


def _reset(machine: Machine, offered: dict[str, dict[str, str]], wanted: dict[str, Any]) -> Answer:
    kind = wanted.get("ResetKeysType")
    if kind not in offered:
        raise Refusal(400, "ActionParameterValueNotInList", f"The value {kind!r} of ResetKeysType is not acceptable.")
    with machine.lock:
        machine.board.keys_pending.update(offered[kind])
    return Answer(204)


def _has_databases(inside: Interior, call: Call) -> None:
    if inside.quirks.secure_boot_keys != "databases":
        raise not_found(call.request.path)


def _path(system: str) -> str:
    return f"{ROOT}/Systems/{system}/SecureBoot"


SECURE_BOOT: Final = r"/Systems/([^/]+)/SecureBoot"
DATABASE: Final = rf"{SECURE_BOOT}/SecureBootDatabases/([^/]+)"
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", SECURE_BOOT, show_secure_boot),
    ("PATCH", SECURE_BOOT, change_secure_boot),
    ("POST", rf"{SECURE_BOOT}/Actions/SecureBoot\.ResetKeys", reset_keys),
    ("GET", rf"{SECURE_BOOT}/SecureBootDatabases", list_databases),
    ("GET", DATABASE, show_database),
    ("POST", rf"{DATABASE}/Actions/SecureBootDatabase\.ResetKeys", reset_database),
)
