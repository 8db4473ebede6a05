"""The BMC as its tenant left it: compared with what it was like when the machine was commissioned, and mended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from bcmetal.comparing.baselines import AT_A_BOOT, AT_ONCE, Change, Mend, Ours, changes
from bcmetal.decisions import Again, Done, Failed
from bcmetal.states import Disks
from bcmetal.store import baselines, inventories
from bcmetal.store.values import SetNode
from bcmetal.text import clean
from bcmetal.workflows.bios import same
from bcmetal.workflows.firmware import BROUGHT, NOW, bring_baseline
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.restarting import let_a_boot_apply
from bcmetal_drivers.capabilities import (
    AccountControl,
    Accounts,
    Baseline,
    BaselineMends,
    Bios,
    BootModes,
    SecureBoot,
    SecureBootKeys,
    TpmClear,
    need,
    offers,
)
from bcmetal_drivers.connection import TrustKind
from bcmetal_drivers.errors import DriverError, RejectedCredentials, Transient, Unsupported
from bcmetal_drivers.resources import BiosValue, BootMode, KeyReset

TRIES: Final = 2
SESSIONS_END_S: Final = 5.0
MEND_PATIENCE_S: Final = 900.0
SHOWN: Final = 1000
MUST_BE_KNOWN: Final = ("accounts", "network", "firmware")  # of a baseline, or it says too little to be believed
TPM: Final = "the TPM"  # among what waits for a boot


async def found_changed(m: Machine) -> tuple[tuple[Change, ...], Mapping[str, Any]] | None:
    """What differs now, and the baseline. None: there is nothing to compare."""
    before = await m.doors.store.read(baselines.latest, m.node.node_id)
    if before is None or not offers(m.bmc, Baseline):
        return None
    after = dict(await m.look(need(m.bmc, Baseline).baseline))
    return changes(before, after, _ours(m)), before


def _ours(m: Machine) -> Ours:
    checked = m.trust.kind is not TrustKind.NONE
    erased = m.node.facts.disks is Disks.CLEAN
    return Ours(m.line.credential.username, checked, erased, dict(m.memo.get(BROUGHT) or {}))


async def mend_the_bmc(m: Machine) -> Outcome:
    """Accounts, directories, subscriptions, protocols, the boot order: put back, each looked at again."""
    found = await found_changed(m)
    if found is None:
        return Done()
    outcome = await _mend(m, [change for change in found[0] if change.mend in AT_ONCE], {})
    return await _end_the_sessions(m) if isinstance(outcome, Done) else outcome


async def _end_the_sessions(m: Machine) -> Outcome:
    """After the accounts: a session may outlive the one that it was opened with. What stays is looked at twice."""
    looks = int(m.memo.get("session_looks", 0))
    if not offers(m.bmc, BaselineMends) or looks >= TRIES:
        return Done()
    left: tuple[str, ...] = ()
    try:
        left = await m.act(need(m.bmc, BaselineMends).end_other_sessions)
        known = {one.username for one in await m.look(need(m.bmc, Accounts).accounts)} if left else set()
    except Unsupported:
        known = set(left)
    strange = sorted({clean(name)[:64] for name in left if name and name not in known})
    m.remember(session_looks=looks + 1 if strange else TRIES, sessions_left=strange)
    return Again("looks whether sessions of others are gone", SESSIONS_END_S) if strange and not looks else Done()


async def mend_the_firmware(m: Machine) -> Outcome:
    """What has an image in the machine's firmware baseline is brought back to it; the rest is named by the comparison."""
    profile = m.asked.commissioned_by
    if profile is None or profile.firmware is None:
        return Done()
    names: frozenset[str] = frozenset()
    if not m.memo.get(NOW):
        found = await found_changed(m)
        if found is None:
            return Done()
        names = frozenset(change.name for change in found[0] if change.mend is Mend.FIRMWARE)
        if not names:
            return Done()
    try:
        return await bring_baseline(m, profile.firmware, names, compared_only=False)
    except Unsupported:
        return Done()


async def mend_by_a_boot(m: Machine) -> Outcome:
    """BIOS settings, boot mode, secure boot and its keys: written, and taken by one start of the machine, which clears the TPM as well."""
    if not m.memo.get("mend_boots"):
        found, before = await found_changed(m) or ((), {})
        left = [change for change in found if change.mend in AT_A_BOOT and _may(m, change)]
        outcome = await _mend(m, left, before)
        if not isinstance(outcome, Done):
            return outcome
        await _stage_the_tpm(m)  # last: what waits from here on is ours
        if not m.memo.get("mend_staged"):
            return Done()
        m.remember(mend_boots=True)

    async def applied() -> bool:
        return await _are_back(m, set(m.memo.get("mend_staged") or ()))

    outcome = await let_a_boot_apply(m, "mend", applied, "its settings back", MEND_PATIENCE_S)
    if isinstance(outcome, Failed) and TPM in (m.memo.get("mend_staged") or ()):
        _tpm_not_cleared(m, "it was asked to, and does not show that it did")
    if isinstance(outcome, Done | Failed):
        m.remember(mend_staged=None, mend_boots=None, mend_bios=None)
        return Done()  # what is not as it was is named by the comparison that follows
    return outcome


async def _are_back(m: Machine, staged: Collection[str]) -> bool:
    """The few that are cheap to look at first: a whole baseline is hundreds of reads at some BMCs."""
    if TPM in staged and await m.look(need(m.bmc, TpmClear).tpm_clear_waits):
        return False
    wanted: Mapping[str, BiosValue] = m.memo.get("mend_bios") or {}
    if wanted:
        attributes = (await m.look(need(m.bmc, Bios).bios)).attributes
        if not all(same(attributes.get(name), value) for name, value in wanted.items()):
            return False
    found, _ = await found_changed(m) or ((), {})
    return not any(change.why in staged for change in found)


async def _stage_the_tpm(m: Machine) -> None:
    """What the tenant sealed there is nobody's; where the firmware offers no way, the machine is told to have it still."""
    profile = m.asked.release_profile
    if profile is None or not profile.clear_tpm or m.memo.get("tpm_asked"):
        return
    try:
        await m.act(need(m.bmc, TpmClear).clear_tpm)
    except Unsupported:
        row = await m.doors.store.read(inventories.latest, m.node.node_id)
        if row is not None and row.doc.get("tpm"):
            _tpm_not_cleared(m, "it offers no way to")
    else:
        m.remember(mend_staged=[*(m.memo.get("mend_staged") or ()), TPM])
    m.remember(tpm_asked=True)


def _tpm_not_cleared(m: Machine, why: str) -> None:
    text = f"the machine's firmware did not clear its TPM, which holds what the last tenant left there: {why}"
    m.condition("hardware", "warning", "tpm-not-cleared", text)


def _may(m: Machine, change: Change) -> bool:
    """Keys are reset only where the profile says whose they are: there is no other way back."""
    if change.mend is not Mend.SECURE_BOOT_KEYS:
        return True
    profile = m.asked.commissioned_by
    return profile is not None and profile.secure_boot_keys == "factory"


async def _mend(m: Machine, wanted: Sequence[Change], before: Mapping[str, Any]) -> Outcome:
    """Each at most twice; what the BMC will not have is left to be named. Done: there is nothing left to try."""
    tried: dict[str, int] = dict(m.memo.get("mends") or {})
    staged = m.memo.get("mend_staged") or ()
    todo = [change for change in wanted if tried.get(change.why, 0) < TRIES and change.why not in staged]
    if not todo:
        return Done()
    for change in todo:
        tried[change.why] = tried.get(change.why, 0) + 1
    m.remember(mends=tried)
    settings = [change for change in todo if change.mend is Mend.BIOS]
    if settings:
        await _write_the_bios(m, settings, before)
    for change in todo:
        if change.mend is not Mend.BIOS:
            await _try(m, change)
    return Again("looks at the BMC again", 0.0)


async def _write_the_bios(m: Machine, settings: Sequence[Change], before: Mapping[str, Any]) -> None:
    """In one write; where the BMC refuses that, one after another, for it refuses all for one of them."""
    known = before.get("bios") or {}
    wanted = {change.name: known.get(change.name) if change.to is None else change.to for change in settings}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    alone = [{name: value} for name, value in wanted.items()] if len(wanted) > 1 else []
    for batch in (wanted, *alone):
        try:
            await m.act(need(m.bmc, Bios).set_bios, batch)
        except (Transient, RejectedCredentials):
            raise
        except DriverError as error:
            if batch is not wanted or not alone:
                _not_put_back(m, [change for change in settings if change.name in batch], error)
            continue
        m.remember(mend_bios={**(m.memo.get("mend_bios") or {}), **batch})
        _staged(m, [change for change in settings if change.name in batch])
        if batch is wanted:
            return


def _staged(m: Machine, taken: Sequence[Change]) -> None:
    """The next boot brings them."""
    m.remember(mend_staged=[*(m.memo.get("mend_staged") or ()), *(change.why for change in taken)])
    for change in taken:
        m.tell("metal.bmc.mended", what=change.why)


def _not_put_back(m: Machine, refused: Sequence[Change], error: DriverError) -> None:
    why_not = {change.why: str(error)[:200] for change in refused}
    m.remember(not_mended={**(m.memo.get("not_mended") or {}), **why_not})


async def _try(m: Machine, change: Change) -> None:
    try:
        await _put_back(m, change)
    except (Transient, RejectedCredentials):
        raise
    except DriverError as error:
        _not_put_back(m, [change], error)
    else:
        if change.mend in AT_A_BOOT:
            _staged(m, [change])
        else:
            m.tell("metal.bmc.mended", what=change.why)


async def _put_back(m: Machine, change: Change) -> None:
    bmc = m.bmc
    match change.mend:
        case Mend.DELETE_ACCOUNT:
            await m.act(need(bmc, AccountControl).delete_account, change.name)
        case Mend.ENABLE_ACCOUNT:
            await m.act(need(bmc, AccountControl).enable_account, change.name, bool(change.to))
        case Mend.DIRECTORY:
            on, addresses = change.to
            await m.act(need(bmc, BaselineMends).set_directory, change.name, on, addresses)
        case Mend.SUBSCRIPTION:
            await m.act(need(bmc, BaselineMends).remove_subscription, change.name)
        case Mend.SERVICE:
            await m.act(need(bmc, BaselineMends).set_service, change.name, bool(change.to))
        case Mend.BOOT_ORDER:
            await m.act(need(bmc, BaselineMends).set_boot_order, tuple(map(str, change.to)))
        case Mend.BOOT_MODE:
            await m.act(need(bmc, BootModes).set_boot_mode, BootMode(change.to))
        case Mend.SECURE_BOOT:
            await m.act(need(bmc, SecureBoot).set_secure_boot, bool(change.to))
        case Mend.SECURE_BOOT_KEYS:
            await m.act(need(bmc, SecureBootKeys).reset_secure_boot_keys, KeyReset.FACTORY)


async def compare_the_baseline(m: Machine) -> Outcome:
    """Compare the BMC with its baseline; what cannot be explained fails, and each difference is named."""
    found = await found_changed(m)
    if found is None:
        return _not_compared(m, "the BMC has no baseline: it was never commissioned here")
    why_not: Mapping[str, str] = m.memo.get("not_mended") or {}
    told = [f"{one.why} ({why_not[one.why]})" if one.why in why_not else one.why for one in found[0]]
    told += [
        f"a session of {name!r}, an account that is not there, stays open" for name in m.memo.get("sessions_left") or ()
    ]
    if told:
        return Failed("baseline-changed", "; ".join(told)[:SHOWN])
    if m.address.scheme == "ipmi":
        return _not_compared(m, "IPMI shows a BMC's accounts and network alone: its firmware may be anybody's")
    unknown = [name for name in MUST_BE_KNOWN if found[1].get(name) is None]
    if unknown:
        return _not_compared(m, f"when it was commissioned it did not tell its {' and '.join(unknown)}")
    m.condition("bmc-trust", "ok")
    return Done()


def _not_compared(m: Machine, why: str) -> Outcome:
    """A BMC that root on the host had to itself, and that nobody can look into: the pool says whether its machine is used again."""
    m.condition("bmc-trust", "warning", "unverified", f"its BMC is not believed: {why}")
    if m.pool.unverified_bmc == "hold":
        m.remember(hold_unverified=True)
    return Done()


def hold_what_is_unverified(m: Machine) -> None:
    """With the end of the release: nobody's machine again before a person has looked at it."""
    if m.memo.get("hold_unverified"):
        reason = "its BMC could not be verified when its tenant left: look at it, then lift the protection"
        m.note(SetNode({"protected": True, "protected_reason": reason, "protected_until": None}))
