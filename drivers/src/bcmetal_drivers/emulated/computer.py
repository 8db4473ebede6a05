"""Routes to the system itself: sushy-tools' document made truthful, and the boot override with Once, which it ignores."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated import light, manager_routes
from bcmetal_drivers.emulated.application import ask
from bcmetal_drivers.emulated.board import OPTIONS
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.emulated.systems import BOOT_TARGETS, MANAGER, MODES, RESETS
from bcmetal_drivers.resources import BootDevice, PowerState

WRITABLE: Final = {"Boot", "AssetTag", "IndicatorLED", "LocationIndicatorActive"}
SYSTEM: Final = r"/Systems/([^/]+)"
DESCRIBED: Final = {
    BootDevice.DISK: ("Linux", "HD(1,GPT,3F2504E0-4F89-11D3-9A0C-0305E82C3301,0x800,0x100000)"),
    BootDevice.PXE: (
        "PXE Device 1: Integrated NIC 1 Port 1",
        "PciRoot(0x0)/Pci(0x1C,0x0)/MAC({mac},0x1)/IPv4(0.0.0.0)",
    ),
    BootDevice.CD: ("Virtual Optical Drive", "PciRoot(0x0)/Pci(0x14,0x0)/USB(0xD,0x0)/USB(0x0,0x0)/CDROM(0x1)"),
}


def show_root(inside: Interior, call: Call) -> Answer:
    answer = ask(inside.drivers, call.request)
    first = next(iter(inside.machines.values()))
    answer.doc |= {
        "RedfishVersion": "1.15.0",
        "UUID": str(first.uuid),
        "Vendor": inside.maker.vendor,
        "Product": inside.maker.product,
        "AccountService": link(f"{ROOT}/AccountService"),
        "Tasks": link(f"{ROOT}/TaskService"),
        "UpdateService": link(f"{ROOT}/UpdateService"),
        "EventService": link(f"{ROOT}/EventService"),
    }
    for absent in ("Registries", "CertificateService", "@Redfish.Copyright"):
        answer.doc.pop(absent, None)
    if inside.quirks.bios_registry:
        answer.doc["Registries"] = link(f"{ROOT}/Registries")
    if inside.quirks.session_service:
        answer.doc["SessionService"] = link(f"{ROOT}/SessionService")
        answer.doc["Links"] = {"Sessions": link(f"{ROOT}/SessionService/Sessions")}
    return answer


def show_manager(inside: Interior, call: Call) -> Answer:
    answer, path = ask(inside.drivers, call.request), f"{ROOT}/Managers/{MANAGER}"
    first = next(iter(inside.machines.values()))
    answer.doc |= {
        "UUID": str(first.uuid),
        "Model": inside.maker.bmc_model,
        "Manufacturer": inside.maker.manufacturer,
        "FirmwareVersion": inside.firmware["BMC"],
        "Description": f"{inside.maker.vendor} BMC",
        "EthernetInterfaces": link(f"{path}/EthernetInterfaces"),
        "NetworkProtocol": link(f"{path}/NetworkProtocol"),
        **manager_routes.shown(inside),
    }
    answer.doc.pop("VirtualMedia", None)
    if inside.quirks.media_at in ("managers", "both"):
        answer.doc["VirtualMedia"] = link(f"{path}/VirtualMedia")
    return answer


def show_system(inside: Interior, call: Call, system: str) -> Answer:
    machine = inside.machine(system)
    answer, quirks, hardware = ask(inside.drivers, call.request), inside.quirks, machine.hardware
    answer.doc |= {
        "UUID": str(hardware.uuid),
        "Name": "System",
        "SystemType": "Physical",
        "HostName": "",
        "AssetTag": machine.asset_tag,
        "Manufacturer": hardware.manufacturer,
        "Model": hardware.model,
        "SerialNumber": hardware.serial,
        "SKU": hardware.sku,
        "PartNumber": hardware.part_number,
        "BiosVersion": inside.firmware["BIOS"],
        "Status": {"State": "Enabled", "Health": machine.health, "HealthRollup": machine.health},
        "Boot": _boot(machine, quirks),
        "Processors": link(f"{ROOT}/Systems/{system}/Processors"),
        "TrustedModules": [{"InterfaceType": "TPM2_0", "FirmwareVersion": "7.2.2.0", "Status": {"State": "Enabled"}}],
    }
    for others in ("@Redfish.Copyright", "Bios", "IndicatorLED"):
        answer.doc.pop(others, None)
    answer.doc |= light.shown(machine, quirks)
    if quirks.bios:
        answer.doc["Bios"] = link(f"{ROOT}/Systems/{system}/Bios")
    answer.doc["ProcessorSummary"]["Model"] = hardware.cpu_model
    reset = answer.doc["Actions"]["#ComputerSystem.Reset"]
    reset["ResetType@Redfish.AllowableValues"] = [word for word in RESETS if word not in quirks.without_resets]
    if quirks.media_at == "managers":
        answer.doc.pop("VirtualMedia", None)
    if quirks.boot_progress is not None:
        on = machine.power is PowerState.ON
        answer.doc["BootProgress"] = {"LastState": quirks.boot_progress if on else "None"}
    if quirks.empty_when_off and machine.power is PowerState.OFF:
        answer.doc |= {"ProcessorSummary": {"Count": 0}, "MemorySummary": {"TotalSystemMemoryGiB": 0}}
    if quirks.boot_settings or quirks.boot_order == "settings":
        answer.doc["@Redfish.Settings"] = {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{ROOT}/Systems/{system}/{quirks.settings_name}"),
        }
    return answer


def change_system(inside: Interior, call: Call, system: str) -> Answer:
    if inside.quirks.boot_settings and "Boot" in call.request.json():
        raise Refusal(400, "PropertyNotWritable", "The property Boot is written to the Settings resource.")
    return _change(inside, call, system)


def show_settings(inside: Interior, call: Call, system: str, name: str) -> Answer:
    machine = inside.machine(system)
    _has_settings(inside, system, name)
    boot = _boot(machine, inside.quirks) if inside.quirks.boot_settings else {}
    if inside.quirks.boot_order == "settings":
        boot["BootOrder"] = list(machine.board.order_pending or machine.board.boot_order)
    return resource(f"{ROOT}/Systems/{system}/{name}", "ComputerSystem.v1_20_0", "Settings", Boot=boot)


def change_settings(inside: Interior, call: Call, system: str, name: str) -> Answer:
    """Where it is for the boot order alone, that waits for the next boot."""
    _has_settings(inside, system, name)
    if inside.quirks.boot_settings:
        return _change(inside, call, system)
    machine, boot = inside.machine(system), call.request.json().get("Boot")
    if not isinstance(boot, dict) or boot.keys() != {"BootOrder"}:
        raise Refusal(400, "PropertyUnknown", "Boot.BootOrder, and nothing else, is written here.")
    machine.board.order_pending = _ordered(boot["BootOrder"])
    return Answer(204)


def list_boot_options(inside: Interior, call: Call, system: str) -> Answer:
    path = f"{ROOT}/Systems/{system}/BootOptions"
    inside.machine(system)
    return collection(path, "BootOption", [f"{path}/{name}" for name in OPTIONS])


def show_boot_option(inside: Interior, call: Call, system: str, name: str) -> Answer:
    mac = inside.machine(system).macs[0].replace(":", "").upper()
    path = f"{ROOT}/Systems/{system}/BootOptions/{name}"
    if name not in OPTIONS:
        raise not_found(path)
    title, device_path = DESCRIBED[OPTIONS[name]]
    return resource(
        path,
        "BootOption.v1_0_6",
        "Boot Option",
        BootOptionReference=name,
        DisplayName=title,
        UefiDevicePath=device_path.format(mac=mac),
        BootOptionEnabled=True,
    )


def _ordered(wanted: object) -> list[str]:
    if not isinstance(wanted, list) or sorted(map(str, wanted)) != sorted(OPTIONS):
        raise Refusal(400, "PropertyValueNotInList", "BootOrder names each boot option once.")
    return [str(name) for name in wanted]


def _has_settings(inside: Interior, system: str, name: str) -> None:
    there = inside.quirks.boot_settings or inside.quirks.boot_order == "settings"
    if not there or name != inside.quirks.settings_name:
        raise Refusal(404, "ResourceMissingAtURI", f"The system {system} has no resource {name}.")


def _change(inside: Interior, call: Call, system: str) -> Answer:
    """All of it or nothing."""
    machine, wanted = inside.machine(system), call.request.json()
    unknown = wanted.keys() - WRITABLE
    if unknown or not wanted:
        raise Refusal(400, "PropertyUnknown", f"Cannot be written: {', '.join(sorted(unknown)) or 'nothing'}.")
    if "Boot" in wanted:
        _arm(machine, inside.quirks, wanted["Boot"])
    if "AssetTag" in wanted:
        machine.asset_tag = str(wanted["AssetTag"])
    light.change(machine, inside.quirks, wanted)
    return Answer(204)


def _targets(quirks: Quirks) -> dict[str, BootDevice]:
    """The words of this BMC. Where the virtual CD is UsbCd, Cd is the drive that nobody has any more: it falls through to the disk."""
    words = dict(BOOT_TARGETS)
    if quirks.cd_name == "absent":
        del words["Cd"]
    elif quirks.cd_name != "Cd":
        words |= {"Cd": BootDevice.DISK, quirks.cd_name: BootDevice.CD}
    return {**words, quirks.other_cd: BootDevice.DISK} if quirks.other_cd else words


def _boot(machine: Machine, quirks: Quirks) -> dict[str, Any]:
    armed, targets = machine.override, _targets(quirks)
    words = {device: word for word, device in reversed(targets.items())}
    if armed.device is BootDevice.DISK:
        words[BootDevice.DISK] = "Hdd"
    if armed.device is BootDevice.CD:
        words[BootDevice.CD] = "Cd" if quirks.cd_name == "absent" else quirks.cd_name
    lasting = "Once" if armed.once else "Continuous"
    boot: dict[str, Any] = {
        "BootSourceOverrideEnabled": "Disabled" if armed.device is BootDevice.NONE else lasting,
        "BootSourceOverrideTarget": words[armed.device],
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(targets),
        "BootSourceOverrideEnabled@Redfish.AllowableValues": _enabled(quirks),
    }
    if quirks.boot_order != "none":
        boot["BootOrder"] = list(machine.board.boot_order)
        boot["BootOptions"] = link(f"{ROOT}/Systems/{machine.hardware.system_id}/BootOptions")
    if quirks.mode_shown:
        boot["BootSourceOverrideMode"] = next(word for word, mode in MODES.items() if mode is machine.boot_mode)
        boot["BootSourceOverrideMode@Redfish.AllowableValues"] = list(MODES)
    return boot


def _enabled(quirks: Quirks) -> list[str]:
    return ["Disabled", "Once", "Continuous"] if quirks.continuous else ["Disabled", "Once"]


def _arm(machine: Machine, quirks: Quirks, boot: object) -> None:
    """What is not given stays; a target alone is armed as Once."""
    if not isinstance(boot, dict):
        raise Refusal(400, "PropertyValueTypeError", "Boot is no object.")
    if "BootOrder" in boot and quirks.boot_order == "system":
        machine.board.boot_order = _ordered(boot["BootOrder"])
        boot = {name: value for name, value in boot.items() if name != "BootOrder"}
    targets, modes = _targets(quirks), MODES if quirks.mode_shown else {}
    if (
        MODES.get(boot.get("BootSourceOverrideMode", ""), machine.boot_mode) is not machine.boot_mode
        and not quirks.mode_writable
    ):
        raise Refusal(400, "PropertyNotWritable", "The boot mode is changed in the BIOS settings.")
    allowed = {
        "BootSourceOverrideTarget": list(targets),
        "BootSourceOverrideEnabled": _enabled(quirks),
        "BootSourceOverrideMode": list(modes),
    }
    for name, value in boot.items():
        if name not in allowed:
            raise Refusal(400, "PropertyUnknown", f"The property {name} is not writable here.")
        if value not in allowed[name]:
            raise Refusal(400, "PropertyValueNotInList", f"The value {value!r} of {name} is not acceptable.")
    now = machine.override
    target, enabled, mode = (boot.get(name) for name in allowed)
    device = targets[target] if target else now.device
    if enabled == "Disabled":
        device = BootDevice.NONE
    once = enabled == "Once" if enabled else (True if now.device is BootDevice.NONE else now.once)
    if quirks.boot_change_halts and machine.system_present:
        machine.jam()
    if target or enabled:
        machine.arm(device, once, modes[mode] if mode else None)
    elif mode:
        machine.boot_mode = modes[mode]


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"", show_root),
    ("GET", rf"/Managers/{MANAGER}", show_manager),
    ("GET", SYSTEM, show_system),
    ("PATCH", SYSTEM, change_system),
    ("GET", rf"{SYSTEM}/(Settings|SD)", show_settings),
    ("PATCH", rf"{SYSTEM}/(Settings|SD)", change_settings),
    ("GET", rf"{SYSTEM}/BootOptions", list_boot_options),
    ("GET", rf"{SYSTEM}/BootOptions/(Boot\d{{4}})", show_boot_option),
)
