"""A recorded tree behind a rack's BMC: its documents as they were recorded, a machine of the rack behind what acts.

    tree = RecordedTree.read(Path("some-bmc.tar.xz"))
    machine = machine_of(tree, rack.clock)
    rack.add_redfish("r1", machine=machine, source=RecordedSource(tree, machine), behaviours=("flaky",))

Login, sessions, Tasks, rules and overlays are the rack's. Power, the boot override, virtual media, BIOS settings at a boot, a drive's
secure erase, an account's password and the manager's reset act; other PATCHes stay in the tree; what else is asked for is refused with
501, never acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

from pydantic import SecretStr
from sushy_tools.error import FishyError

from bcmetal_drivers.emulated import services
from bcmetal_drivers.emulated.interior import ROOT, Call, Interior, accepted, link
from bcmetal_drivers.emulated.machine import CD, EmulatedDrive, Hardware, Machine, WrongState
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request, not_found
from bcmetal_drivers.emulated.recorded import NoRecording, RecordedTree, dig, key
from bcmetal_drivers.emulated.source import compiled, routed
from bcmetal_drivers.emulated.systems import BOOT_TARGETS, MODES, POWER_WORDS, RESETS
from bcmetal_drivers.resources import BootDevice

ERASE_S: Final = 30.0
RESTART_S: Final = 60.0  # of the BMC
SETTINGS: Final = ("@Redfish.Settings", "SettingsObject", "@odata.id")
TPM_CLEAR: Final = "Clear"
DELL_FIRST: Final = "ServerBoot.1.FirstBootDevice"  # for one boot, whatever ServerBoot.1.BootOnce says
RACKS_OWN: Final = compiled(row for row in services.ROUTES if row[1].startswith(("/SessionService", "/TaskService")))
TARGETS: Final = {**BOOT_TARGETS, "UsbCd": BootDevice.CD}  # other words are refused: nothing could be booted by them
INSERTS: Final = ("virtualmedia.insertmedia",)
EJECTS: Final = ("virtualmedia.ejectmedia", "smcvirtualmedia.ejectmedia")


def machine_of(tree: RecordedTree, clock: Callable[[], float]) -> Machine:
    """The recording's first system as a machine that is off, its drives clean. Raises NoRecording where the tree has no system."""
    path = _first_system(tree)
    doc = _mapping(tree.document(path))
    memory = dig(doc, "MemorySummary", "TotalSystemMemoryGiB")
    hardware = Hardware(
        name=_text(doc, "HostName") or path.rpartition("/")[2],
        system_id=path.rpartition("/")[2],
        uuid=_uuid(_text(doc, "UUID")),
        serial=_text(doc, "SerialNumber"),
        board_serial="",
        sku=_text(doc, "SKU"),
        part_number=_text(doc, "PartNumber"),
        manufacturer=_text(doc, "Manufacturer"),
        model=_text(doc, "Model"),
        macs=tuple(_macs(tree, path)),
        memory_gib=int(memory) if isinstance(memory, int | float) else 0,
    )
    drives = {}
    for drive in _of_type(tree, "Drive"):
        serial, size = _text(drive, "SerialNumber"), drive.get("CapacityBytes")
        if serial:
            media = _text(drive, "MediaType") or "SSD"
            drives[serial] = EmulatedDrive(
                serial, _text(drive, "Model"), size if isinstance(size, int) else 0, media, ""
            )
    return Machine(hardware, drives, clock)


class RecordedSource:
    """The documents of one BMC with one system. `tree` takes what is written; the caller gives a copy of its own."""

    def __init__(self, tree: RecordedTree, machine: Machine) -> None:
        self.tree = tree
        self._system = key(_first_system(tree))
        self._bios = _key(dig(tree.document(self._system), "Bios", "@odata.id"))
        self._bios_settings = _key(dig(tree.document(self._bios), *SETTINGS))
        self._bios_pending: dict[str, Any] = {}
        self._dell_boot = ""  # where the first boot device is written, once it was
        machine.at_boot.append(self._at_boot)
        self._slot: str | None = None  # path of the one that holds the medium: the machine has one virtual CD

    def answer(self, inside: Interior, call: Call) -> Answer:
        request = call.request
        racks = routed(RACKS_OWN, inside, call)
        if racks is not None:
            return racks
        if request.reads:
            return self._read(inside, request)
        if request.method == "PATCH":
            return self._patch(inside, request)
        path, _, action = key(request.path).partition("/actions/")
        doc = self.tree.document(path) if action else None
        if request.method != "POST" or not isinstance(doc, dict):
            raise Refusal(405, "OperationNotAllowed", f"{request.method} is not allowed here.")
        return self._act(inside, request, path, doc, action.rpartition("/")[2])

    # ------------------------------------------------------------ reads

    def _read(self, inside: Interior, request: Request) -> Answer:
        path = key(request.path)
        paged = f"{path}?{unquote(request.query).lower()}"
        doc = self.tree.document(paged if request.query and paged in self.tree else path)
        if doc is None:
            raise not_found(request.path)
        if isinstance(doc, bytes):
            return Answer(200, None, body=doc)
        return Answer(200, doc | self._live(inside, path, doc))

    def _live(self, inside: Interior, path: str, doc: Mapping[str, Any]) -> dict[str, Any]:
        """What the machine knows better than the recording."""
        machine = _machine(inside)
        if path == key(ROOT):
            return {
                "SessionService": link(f"{ROOT}/SessionService"),
                "Links": {**_mapping(doc.get("Links")), "Sessions": link(services.SESSIONS)},
                "Tasks": link(f"{ROOT}/TaskService"),
                "ProtocolFeaturesSupported": None,  # no $expand, and no other query
            }
        if path == self._system:
            return {"PowerState": POWER_WORDS[machine.power], "Boot": _boot(machine, _mapping(doc.get("Boot")))}
        if path == self._bios_settings:
            return {"Attributes": {**_mapping(doc.get("Attributes")), **self._bios_pending}}
        if _is(doc, "Chassis") and isinstance(doc.get("PowerState"), str):
            return {"PowerState": POWER_WORDS[machine.power]}
        if _is(doc, "VirtualMedia"):
            medium = machine.medium(CD) if path == self._slot else None
            url = medium.url if medium else None
            return {
                "Image": url,
                "ImageName": url.rpartition("/")[2] if url else None,
                "Inserted": medium is not None,
                "ConnectedVia": "URI" if medium else "NotConnected",
            }
        return {}

    # ------------------------------------------------------------ writes

    def _patch(self, inside: Interior, request: Request) -> Answer:
        path, wanted = key(request.path), request.json()
        doc = self.tree.document(path)
        if not isinstance(doc, dict):
            raise not_found(request.path)
        if _is(doc, "VirtualMedia") and "Image" in wanted:
            if wanted["Image"] is None or not wanted.get("Inserted", True):
                self._eject(inside, path)
            else:
                self._insert(inside, path, doc, wanted["Image"])
            return Answer(204)
        if path == self._bios_settings and "Attributes" in wanted:
            self._bios_pending |= self._known_to_bios(wanted.pop("Attributes"))
            wanted.pop("@Redfish.SettingsApplyTime", None)
        if path in (self._system, self._system_settings()) and "Boot" in wanted:
            _arm(_machine(inside), _mapping(_mapping(self.tree.document(self._system)).get("Boot")), wanted.pop("Boot"))
        if "Password" in wanted:  # which is kept nowhere else
            _change_password(inside, doc, wanted.pop("Password"))
        if wanted:
            self.tree.write(path, wanted)
        if DELL_FIRST in _mapping(wanted.get("Attributes")):
            self._dell_boot = path
            cd = dig(self.tree.document(path), "Attributes", DELL_FIRST) == "VCD-DVD"
            _machine(inside).arm(BootDevice.CD if cd else BootDevice.NONE, once=True)
        return self._read(inside, request)

    def _act(self, inside: Interior, request: Request, path: str, doc: Mapping[str, Any], action: str) -> Answer:
        asked, machine = request.json(), _machine(inside)
        if action == "computersystem.reset":
            _reset(machine, doc, asked.get("ResetType"))
        elif action == "manager.reset":
            inside.restart(RESTART_S, 0)
        elif action in INSERTS and _is(doc, "VirtualMedia"):
            if _machine(inside).medium(CD) is not None:
                raise Refusal(400, "ResourceInUse", "A virtual CD is connected already.")
            self._insert(inside, path, doc, asked.get("Image"))
        elif action in EJECTS and _is(doc, "VirtualMedia"):
            self._eject(inside, path)
        elif action == "drive.secureerase":
            task = inside.tasks.start("SecureErase", ERASE_S, lambda: self._erased(machine, path, doc))
            return accepted(inside.tasks, task)
        else:
            raise Refusal(501, "ActionNotSupported", f"A recorded tree does not act out {action}.")
        return Answer(204)

    def _system_settings(self) -> str:
        return _key(dig(self.tree.document(self._system), *SETTINGS))

    def _known_to_bios(self, attributes: object) -> dict[str, Any]:
        known = _mapping(_mapping(self.tree.document(self._bios)).get("Attributes"))
        unknown = sorted(_mapping(attributes).keys() - known.keys())
        if unknown or not isinstance(attributes, dict):
            raise Refusal(400, "PropertyUnknown", f"Cannot be written: {', '.join(unknown) or 'no object'}.")
        return attributes

    def _at_boot(self, at: float) -> None:
        """What waits is taken; a TPM that is to be cleared is, and the setting goes back to what it was. The machine's lock is held."""
        taken = {name: value for name, value in self._bios_pending.items() if value != TPM_CLEAR}
        self._bios_pending = {}
        for path in (self._bios, self._bios_settings):
            if _mapping(_mapping(self.tree.document(path)).get("Attributes")):  # some show only what waits
                self.tree.write(path, {"Attributes": taken})
        if self._dell_boot:
            self.tree.write(self._dell_boot, {"Attributes": {DELL_FIRST: "Normal"}})

    def _insert(self, inside: Interior, path: str, doc: Mapping[str, Any], image: object) -> None:
        kinds = doc.get("MediaTypes")
        if not isinstance(image, str) or not image:
            raise Refusal(400, "ActionParameterMissing", "Image is required.")
        if not isinstance(kinds, list) or not {"CD", "DVD"} & {*kinds}:
            raise Refusal(400, "PropertyValueNotInList", "This slot takes no CD.")
        if self._slot not in (None, path):
            raise Refusal(400, "ResourceInUse", "A virtual CD is connected already.")
        try:
            inside.drivers.vmedia.insert_image(_machine(inside).hardware.system_id, CD, image)
        except FishyError as error:
            raise Refusal(error.code, "GeneralError", str(error)) from error
        self._slot = path

    def _eject(self, inside: Interior, path: str) -> None:
        if path == self._slot:
            _machine(inside).eject(CD)
            self._slot = None

    def _erased(self, machine: Machine, path: str, doc: Mapping[str, Any]) -> bool:
        """The volumes on a drive go with its data."""
        machine.erase(_text(doc, "SerialNumber"))
        self.tree.write(path, {"Links": {"Volumes": [], "Volumes@odata.count": 0}})
        return True


def _change_password(inside: Interior, doc: Mapping[str, Any], password: object) -> None:
    account = inside.accounts.named(_text(doc, "UserName"))
    if account is None or not isinstance(password, str):
        raise Refusal(501, "ActionNotSupported", "A recorded tree has one account that can log in.")
    account.password = SecretStr(password)
    inside.password_changed(account.username, account.password)


# ---------------------------------------------------------------- power and boot


def _reset(machine: Machine, doc: Mapping[str, Any], asked: object) -> None:
    offered = dig(doc, "Actions", "#ComputerSystem.Reset", "ResetType@Redfish.AllowableValues")
    action = RESETS.get(asked) if isinstance(asked, str) else None
    if action is None or (isinstance(offered, list) and asked not in offered):
        raise Refusal(400, "ActionParameterNotSupported", f"ResetType {asked} is not supported.")
    try:
        machine.set_power(action)
    except WrongState as error:
        raise Refusal(409, "ResourceInStandby", str(error)) from error


def _boot(machine: Machine, recorded: Mapping[str, Any]) -> dict[str, Any]:
    armed = machine.override
    words = [word for word, device in TARGETS.items() if device is armed.device and word in _targets(recorded)]
    return {
        **recorded,
        "BootSourceOverrideEnabled": "Disabled" if armed.device is BootDevice.NONE else "Once" if armed.once else "Continuous",
        "BootSourceOverrideTarget": words[0] if words else "None",
        "BootSourceOverrideMode": next(word for word, mode in MODES.items() if mode is machine.boot_mode),
    }  # fmt: skip


def _arm(machine: Machine, recorded: Mapping[str, Any], boot: object) -> None:
    if not isinstance(boot, dict):
        raise Refusal(400, "PropertyValueTypeError", "Boot is no object.")
    offered = recorded.get("BootSourceOverrideEnabled@Redfish.AllowableValues", ["Disabled", "Once", "Continuous"])
    allowed = {
        "BootSourceOverrideTarget": [word for word in TARGETS if word in _targets(recorded)],
        "BootSourceOverrideEnabled": offered,
        "BootSourceOverrideMode": list(MODES),
    }
    for name, value in boot.items():
        if name not in allowed:
            raise Refusal(400, "PropertyUnknown", f"A recorded tree does not act out {name}.")
        if value not in allowed[name]:
            raise Refusal(400, "PropertyValueNotInList", f"The value {value!r} of {name} is not acceptable.")
    target, enabled, mode = (boot.get(name) for name in allowed)
    now = machine.override
    device = TARGETS[target] if target else now.device
    machine.arm(BootDevice.NONE if enabled == "Disabled" else device, enabled != "Continuous", MODES.get(mode or ""))


def _targets(recorded: Mapping[str, Any]) -> list[object]:
    offered = recorded.get("BootSourceOverrideTarget@Redfish.AllowableValues")
    return offered if isinstance(offered, list) else [*BOOT_TARGETS]


# ---------------------------------------------------------------- the tree


def _machine(inside: Interior) -> Machine:
    return next(iter(inside.machines.values()))


def _first_system(tree: RecordedTree) -> str:
    members = _mapping(tree.document(f"{ROOT}/Systems")).get("Members")
    first = dig(members[0], "@odata.id") if isinstance(members, list) and members else None
    if not isinstance(first, str) or not isinstance(tree.document(first), dict):
        raise NoRecording("there is no system in it")
    return first.rstrip("/")


def _macs(tree: RecordedTree, system: str) -> Iterator[str]:
    under = f"{key(system)}/ethernetinterfaces/"
    for path in tree:
        doc = _mapping(tree.document(path)) if path.startswith(under) else {}
        mac = _text(doc, "PermanentMACAddress") or _text(doc, "MACAddress")
        if mac:
            yield mac.lower()


def _of_type(tree: RecordedTree, kind: str) -> Iterator[Mapping[str, Any]]:
    return (doc for path in tree if _is(doc := _mapping(tree.document(path)), kind))


def _is(doc: Mapping[str, Any], kind: str) -> bool:
    return str(doc.get("@odata.type", "")).startswith(f"#{kind}.")


def _key(path: object) -> str:
    """ "" where there is none; no document has that path."""
    return key(path) if isinstance(path, str) else ""


def _uuid(text: str) -> UUID:
    """Zeros where the recording has none."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(doc: Mapping[str, Any], name: str) -> str:
    value = doc.get(name)
    return value if isinstance(value, str) else ""
