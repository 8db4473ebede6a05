"""Boot mode, secure boot and its keys, BIOS settings: written, taken by a start of the machine where they need one, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bcmetal.decisions import Again, Done, Failed
from bcmetal.settings_profiles import CommissionProfile
from bcmetal.store import conditions
from bcmetal.store.values import SetSighting
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.restarting import let_a_boot_apply, started_s, stop, under_way
from bcmetal_drivers.capabilities import Bios, BootModes, SecureBoot, SecureBootKeys, need, offers
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import BiosState, BiosValue, BootMode, KeyReset, SecureBootMode

ASKS: Final = 3
NOT_OFFERED: Final = "not-offered"
JUDGED_AFTER_S: Final = 60.0  # what the boot before this one refused may be shown until then


def not_offered(m: Machine, profile: CommissionProfile, what: str, error: Unsupported) -> Outcome:
    """The profile wants it, and the BMC has no way to it: it fails, or goes on and says so, as the profile has it."""
    if profile.unsupported == "fail":
        raise error
    known = [*(m.memo.get("not_offered") or ()), what]
    m.remember(not_offered=list(dict.fromkeys(known)))
    text = f"the profile wants what this BMC does not offer: {', '.join(dict.fromkeys(known))}"
    m.condition("hardware", "warning", NOT_OFFERED, text)
    return Done()


async def is_offered(m: Machine) -> None:
    """Nothing that was wanted was missing this time: an earlier run may have said so."""
    known = await m.doors.store.read(conditions.list, m.node.node_id)
    if not m.memo.get("not_offered") and any(one.reason == NOT_OFFERED for one in known):
        m.condition("hardware", "ok")


# ---------------------------------------------------------------- boot mode, secure boot


async def set_the_boot_mode(m: Machine) -> Outcome:
    """UEFI or legacy, as the profile says; a BMC that does not tell its boot mode is left alone."""
    profile = m.asked.commission_profile
    if profile is None or profile.boot_mode is None or not offers(m.bmc, BootModes):
        return Done()
    want = BootMode(profile.boot_mode)
    try:
        mode = await m.look(need(m.bmc, BootModes).boot_mode)
    except Unsupported:
        return Done()
    if not under_way(m, "boot_mode") and (mode is None or mode is want):
        m.note(SetSighting(boot_mode=mode))
        return Done()
    if not m.memo.get("boot_mode_asked"):
        m.remember(boot_mode_asked=1)
        await m.act(need(m.bmc, BootModes).set_boot_mode, want)
        return Again("looks whether the boot mode is set", 0.0)

    async def applied() -> bool:
        return mode in (None, want)

    return await let_a_boot_apply(m, "boot_mode", applied, f"boot mode {want}", code="boot-mode")


async def set_secure_boot(m: Machine) -> Outcome:
    """On or off, where the profile says so; a profile that is silent leaves it as it is. In force from the machine's next start on."""
    profile = m.asked.commission_profile
    if profile is None or profile.secure_boot is None:
        return Done()
    try:
        if await m.look(need(m.bmc, SecureBoot).secure_boot) is profile.secure_boot:
            return Done()
        asked = int(m.memo.get("secure_boot_asked", 0))
        if asked >= ASKS:
            return Failed("boot-mode", f"asked {asked} times for secure boot {profile.secure_boot}, and it is not so")
        m.remember(secure_boot_asked=asked + 1)
        await m.act(need(m.bmc, SecureBoot).set_secure_boot, profile.secure_boot)
    except Unsupported as error:
        return not_offered(m, profile, "secure boot", error)
    return Again("looks whether secure boot is as the profile says", 0.0)


async def reset_the_keys(m: Machine) -> Outcome:
    """UEFI's keys back to the maker's, where the profile says so: whose keys are there now, no BMC tells. Twice is the same as once."""
    profile = m.asked.commission_profile
    if profile is None or profile.secure_boot_keys is None:
        return Done()
    if not m.memo.get("keys_reset"):
        try:
            await m.act(need(m.bmc, SecureBootKeys).reset_secure_boot_keys, KeyReset(profile.secure_boot_keys))
        except Unsupported as error:
            return not_offered(m, profile, "a reset of the secure boot keys", error)
        m.remember(keys_reset=True)
        return Again("starts the machine, for its firmware to take the keys", 0.0)

    async def applied() -> bool:
        mode = await m.look(need(m.bmc, SecureBootKeys).secure_boot_mode)
        return mode is not SecureBootMode.SETUP and (started_s(m, "keys") or 0.0) >= _settles_s(mode)

    return await let_a_boot_apply(m, "keys", applied, "the maker's keys", code="boot-mode")


def _settles_s(mode: SecureBootMode | None) -> float:
    """A BMC that shows the mode has read it from the firmware; of one that does not, the boot is given a minute."""
    return JUDGED_AFTER_S if mode is None else 0.0


# ---------------------------------------------------------------- BIOS settings


async def set_the_bios(m: Machine) -> Outcome:
    """The profile's BIOS settings: pending → a start of the machine → applied, or refused by name."""
    profile = m.asked.commission_profile
    if profile is None or not profile.bios:
        return Done()
    try:
        return await bring_bios_settings(m, profile.bios)
    except Unsupported as error:
        return not_offered(m, profile, "BIOS settings", error)


async def bring_bios_settings(m: Machine, wanted: Mapping[str, BiosValue]) -> Outcome:
    state = await m.look(need(m.bmc, Bios).bios)
    wrong = {name: value for name, value in wanted.items() if not same(state.attributes.get(name), value)}
    waited = started_s(m, "bios")
    if not wrong and not under_way(m, "bios"):
        return Done()
    if not under_way(m, "bios") and not m.memo.get("bios_written"):
        await m.act(need(m.bmc, Bios).set_bios, wrong)
        m.remember(bios_written=True)
        return Again("starts the machine, for its firmware to take the BIOS settings", 0.0)
    refused = _refused(state, wrong) if waited is not None and waited >= JUDGED_AFTER_S else {}
    if refused:
        ended = await stop(m, "bios")
        if not isinstance(ended, Done):
            return ended
        m.remember(bios_written=None)
        told = "; ".join(f"{name or 'a setting'}: {why}" for name, why in sorted(refused.items()))
        return Failed("bios-rejected", f"the machine's firmware did not take these BIOS settings: {told}")

    async def applied() -> bool:
        return not wrong

    outcome = await let_a_boot_apply(m, "bios", applied, "the BIOS settings", code="bios-rejected")
    if isinstance(outcome, Done):
        m.remember(bios_written=None)
    return outcome


def _refused(state: BiosState, wrong: Mapping[str, BiosValue]) -> dict[str, str]:
    """What the boot had before it and did not take: named by the firmware, and waiting no more."""
    named = {name: why for name, why in state.rejected.items() if name in wrong and name not in state.pending}
    if named or not wrong or any(name in state.pending for name in wrong):
        return named
    return {"": state.rejected[""]} if "" in state.rejected else {}


def same(one: BiosValue, other: BiosValue) -> bool:
    """`3` and `"3"`, `True` and `"true"`: makers differ in how they type a setting."""
    return one == other or str(one).strip().lower() == str(other).strip().lower()
