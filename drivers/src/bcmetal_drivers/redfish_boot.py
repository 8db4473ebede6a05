"""Boot over Redfish: the one-time override, the boot mode, secure boot. Everything is read back.

The override is written to the Settings resource where the system has one that holds `Boot`, else to the system. Fewest keys first, since
some makers refuse more; then all three, since others reset what is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers import redfish_oem_boot
from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_boot_mode import by_bios_setting
from bcmetal_drivers.redfish_boot_order import kinds, put_first
from bcmetal_drivers.redfish_document import Doc, as_spelled, dig, link, text
from bcmetal_drivers.redfish_maker import quirks_for
from bcmetal_drivers.redfish_settings import settings_after, settings_of
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import refusal
from bcmetal_drivers.resources import BootDevice, BootMode, BootOverride

TARGET, ENABLED, MODE = "BootSourceOverrideTarget", "BootSourceOverrideEnabled", "BootSourceOverrideMode"
NEXT, BOOT_NEXT = "UefiBootNext", "BootNext"
ALLOWED: Final = f"{TARGET}@Redfish.AllowableValues"
SUPPORTED: Final = "BootSourceOverrideSupported"  # the same before Redfish 1.0
WORDS: Final[Mapping[BootDevice, tuple[str, ...]]] = {
    BootDevice.PXE: ("Pxe",),
    BootDevice.DISK: ("Hdd",),
    BootDevice.CD: ("Cd", "UsbCd"),
    BootDevice.BIOS_SETUP: ("BiosSetup",),
}
DEVICES: Final = {word.lower(): device for device, words in WORDS.items() for word in words}
MODE_WORDS: Final = {BootMode.UEFI: "UEFI", BootMode.LEGACY: "Legacy"}
MODES: Final = {word.lower(): mode for mode, word in MODE_WORDS.items()}


def mode_of(system: Doc) -> BootMode | None:
    """The mode of the boot override, which makers use for the mode of the system."""
    return MODES.get((text(system, "Boot", MODE) or "").lower())


def override_of(doc: Doc) -> BootOverride:
    enabled = (text(doc, "Boot", ENABLED) or "Disabled").lower()
    target = (text(doc, "Boot", TARGET) or "None").lower()
    mode = mode_of(doc)
    if enabled == "disabled" or target == "none":
        return BootOverride(BootDevice.NONE, once=enabled != "continuous", mode=mode)
    return BootOverride(DEVICES.get(target, BootDevice.OTHER), once=enabled == "once", mode=mode)


def boot_override(tree: Tree) -> BootOverride:
    """What waits in the Settings resource, since that is for the next boot; where nothing does, what the system shows."""
    system = tree.system()
    pending = _settings(tree, system)
    if pending is not None:
        waits = _told(tree, pending[1])
        if waits.device is not BootDevice.NONE:
            return waits
    shown = _told(tree, system)
    if shown.device is BootDevice.NONE:
        if pending is not None:
            return waits
        own = redfish_oem_boot.armed(tree)
        if own is not None:
            return BootOverride(own, once=True, mode=mode_of(system))
    return shown


def boot_once(tree: Tree, device: BootDevice, mode: BootMode | None) -> None:
    if device is BootDevice.NONE:
        clear(tree)
        return
    own = redfish_oem_boot.of(tree, device)
    if own is None:
        redfish_oem_boot.disarm(tree)
        _arm(tree, device, mode, "Once")
        return
    if boot_override(tree).device not in (BootDevice.NONE, device):
        clear(tree)
    if mode is not None and mode_of(tree.system()) not in (None, mode):
        set_boot_mode(tree, mode)
    redfish_oem_boot.arm(tree, own)


def boot_always(tree: Tree, device: BootDevice, mode: BootMode | None) -> None:
    """A lasting override; where the BMC knows none, the boot order. Raises Unsupported where it has neither."""
    if device is BootDevice.NONE:
        clear(tree)
        return
    boot = tree.system().get("Boot")
    if _knows_continuous(boot):
        try:
            _arm(tree, device, mode, "Continuous")
        except sushy.exceptions.BadRequestError as error:
            if not isinstance(refusal(error.answer), Refused):
                raise
        except (NotAsAsked, Unsupported):
            if not isinstance(dig(boot, "BootOrder"), list):
                raise
        else:
            return
    if mode is not None:
        set_boot_mode(tree, mode)
    put_first(tree, device)


def lasts(system: Doc) -> bool:
    """Whether a lasting boot device can be set, by the system's document."""
    boot = system.get("Boot")
    return isinstance(boot, dict) and (_knows_continuous(boot) or isinstance(boot.get("BootOrder"), list))


def _knows_continuous(boot: Any) -> bool:
    """One that names no values may."""
    named = dig(boot, f"{ENABLED}@Redfish.AllowableValues")
    if isinstance(named, list) and named:
        return as_spelled("Continuous", filter(_is_word, named)) is not None
    return dig(boot, ENABLED) is not None


def _arm(tree: Tree, device: BootDevice, mode: BootMode | None, how: str) -> None:
    system = tree.system()
    path, doc = _settings(tree, system) or (tree.system_path(), system)
    targets = _targets(tree, device, how, doc, system)
    told = dig(doc, "Boot")
    if not (isinstance(told, dict) and MODE in told) and mode_of(system) is None:
        ladder = [{**target, ENABLED: how} for target in targets]
        _write(tree, path, ladder, lambda shown: shown.device is device and shown.once is (how == "Once"))
        return  # a BMC that knows no mode is told none
    ladder = []
    for target in targets:
        few = {**target, ENABLED: how}
        if mode is not None and mode_of(system) is not mode:
            few[MODE] = MODE_WORDS[mode]
        every = {**few, MODE: MODE_WORDS[mode or mode_of(system) or BootMode.UEFI]}
        ladder += [every, few] if quirks_for(tree).all_boot_keys else [few, every]
    once = how == "Once"
    _write(
        tree, path, ladder, lambda shown: shown.device is device and shown.once is once and mode in (None, shown.mode)
    )


def clear(tree: Tree) -> None:
    if boot_override(tree).device is BootDevice.NONE:
        return
    redfish_oem_boot.disarm(tree)
    if boot_override(tree).device is BootDevice.NONE:
        return
    off = {ENABLED: "Disabled"}
    pending = _settings(tree, tree.system())
    # Either may hold one that the other does not show.
    for path in (pending[0] if pending else None, tree.system_path()):
        if path is not None and _shown(tree, path).device is not BootDevice.NONE:
            mode = _shown(tree, path).mode
            none = {**off, TARGET: "None"}
            every = [{**none, MODE: MODE_WORDS[mode]}] if mode is not None else []  # some demand all three
            _write(tree, path, [off, none, *every], lambda shown: shown.device is BootDevice.NONE)


def set_boot_mode(tree: Tree, mode: BootMode) -> None:
    """By the override's own mode; where the BMC refuses that, by the BIOS setting, and then from the next boot on."""
    system = tree.system()
    if mode_of(system) is mode:
        return
    if mode_of(system) is None:
        raise Unsupported(f"{tree.address}: the BMC does not show a boot mode")
    path, _ = _settings(tree, system) or (tree.system_path(), system)
    try:
        _write(tree, path, [{MODE: MODE_WORDS[mode]}], lambda shown: shown.mode is mode)
    except sushy.exceptions.BadRequestError as error:
        if not isinstance(refusal(error.answer), Refused) or not by_bios_setting(tree, mode):
            raise


def _write(tree: Tree, path: str, ladder: list[dict[str, str]], right: Callable[[BootOverride], bool]) -> None:
    """Down the ladder until the BMC shows what was asked. Raises NotAsAsked, or what the BMC refused last."""
    refused: Exception | None = None
    for keys in dict.fromkeys(tuple(sorted(keys.items())) for keys in ladder):
        try:
            tree.patch(path, {"Boot": dict(keys)})
        except sushy.exceptions.HTTPError as error:
            if not _may_be_the_form(error):
                raise
            if error.status_code >= 500 and right(_shown(tree, path)):
                return
            settings = settings_after(tree, path, error.answer)
            if settings is not None:
                _write(tree, settings, ladder, right)
                return
            refused = error
            continue
        except MaybeSent:
            if not right(_shown(tree, path)):
                raise
            return
        if right(_shown(tree, path)):
            return
        refused = None
    if refused is not None:
        raise refused
    shown = _shown(tree, path)
    raise NotAsAsked(
        f"{tree.door.origin}{path}: acknowledged, and it shows boot override {shown.device.value}, "
        f"{'once' if shown.once else 'lasting'}, mode {shown.mode.value if shown.mode else 'not said'}"
    )


def _may_be_the_form(error: Any) -> bool:
    """Whether another payload may be taken where this one was not. Some firmware falls over keys that it does not expect, with a 500."""
    if error.status_code == 500:
        return True
    return error.status_code in (400, 405, 422) and isinstance(refusal(error.answer), Refused | Unsupported)


def _shown(tree: Tree, path: str) -> BootOverride:
    return _told(tree, tree.get(path))


def _told(tree: Tree, doc: Doc) -> BootOverride:
    """With the device that the next boot's option starts, where the override names that in the place of a device."""
    shown = override_of(doc)
    if shown.device is BootDevice.OTHER and (text(doc, "Boot", TARGET) or "").lower() == NEXT.lower():
        found = kinds(tree, tree.system()).get(text(doc, "Boot", BOOT_NEXT) or "")
        return replace(shown, device=found or BootDevice.OTHER)
    return shown


def _settings(tree: Tree, system: Doc) -> tuple[str, dict[str, Any]] | None:
    """The Settings resource, where it is there and holds the override: Lenovo's XCC keeps only the boot order there."""
    found = settings_of(tree, tree.system_path(), system)
    return found if found is not None and any(dig(found[1], "Boot", key) for key in (TARGET, ENABLED)) else None


def _is_word(said: object) -> bool:
    return isinstance(said, str)


def _targets(tree: Tree, device: BootDevice, how: str, *docs: Doc) -> tuple[dict[str, str], ...]:
    """What names the device; where the BMC has no word for it, but for the next boot's option, the first option that starts it."""
    try:
        return tuple({TARGET: word} for word in _words(tree, device, *docs))
    except Unsupported:
        listed = (dig(doc, "Boot", ALLOWED) for doc in docs)
        words = [one for found in listed if isinstance(found, list) for one in found if _is_word(one)]
        spelled = as_spelled(NEXT, words)
        option = next((ref for ref, kind in kinds(tree, docs[-1]).items() if kind is device), None)
        if how != "Once" or spelled is None or option is None:
            raise
        return ({TARGET: spelled, BOOT_NEXT: option},)


def _words(tree: Tree, device: BootDevice, *docs: Doc) -> tuple[str, ...]:
    """What to call this device: the BMC's word for it, or where it lists none what it may be called, one after the other."""
    listed = (dig(doc, "Boot", name) for doc in docs for name in (ALLOWED, SUPPORTED))
    allowed = next((list(filter(_is_word, found)) for found in listed if isinstance(found, list) and found), None)
    words = quirks_for(tree).virtual_cd if device is BootDevice.CD else WORDS.get(device, ())
    if allowed is None and words:
        return tuple(words)
    for word in words:
        if (spelled := as_spelled(word, allowed or ())) is not None:
            return (spelled,)
    raise Unsupported(f"{tree.address}: the BMC cannot boot once from {device.value}")


# ---------------------------------------------------------------- secure boot


def secure_boot_of(doc: Doc | None) -> bool | None:
    """The setting, not what the last boot had, where the SecureBoot resource shows both; None where it shows neither."""
    enabled = dig(doc, "SecureBootEnable")
    if isinstance(enabled, bool):
        return enabled
    return {"Enabled": True, "Disabled": False}.get(text(doc, "SecureBootCurrentBoot") or "")


def secure_boot(tree: Tree) -> bool | None:
    return secure_boot_of(tree.find(link(tree.system(), "SecureBoot")))


def set_secure_boot(tree: Tree, on: bool) -> None:
    """In force from the next boot on; what is read back is the setting."""
    path = link(tree.system(), "SecureBoot")
    doc = tree.find(path)
    if path is None or doc is None:
        raise Unsupported(f"{tree.address}: the BMC has no secure boot setting")
    if secure_boot_of(doc) is on:
        return
    try:
        tree.patch(path, {"SecureBootEnable": on})
    except MaybeSent:
        if secure_boot_of(tree.get(path)) is not on:
            raise
        return
    if secure_boot_of(tree.get(path)) is not on:
        raise NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and secure boot is as it was")
