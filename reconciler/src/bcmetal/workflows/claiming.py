"""A BMC with the password of its label: the line of the list is found without spending it, and an account of ours takes the label's place.

1. find_the_label        one line of the list is this BMC's, by its MAC or serial; sealed for this BMC, and for no other
2. renew_an_expired_one  a BMC that wants another password before anything else gets a random one
3. claim_the_bmc         where the credential says `on_enroll`: our account is made and proven, the label's is switched off, and read back

Each looks first. Our password is sealed before it is sent, and the label's is kept until ours was proven.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bcmetal.decisions import Again, Done, Failed, PoolMode
from bcmetal.errors import InvalidInput
from bcmetal.manifests import Label, find_labels, read_manifest
from bcmetal.passwords import Rules, ladder
from bcmetal.settings import NamedCredential
from bcmetal.store import meta
from bcmetal.store.logins import LABEL, ROTATING
from bcmetal.store.values import BmcRow, MoveSealed, SetBmc
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.rotating import a_password, in_turn, logs_in, not_recoverable, rotate_the_password
from bcmetal_drivers.capabilities import AccountControl, Accounts, Readings, need
from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import MaybeSent, PasswordChangeRequired, Refused, Unsupported
from bcmetal_drivers.resources import Account

ROLE: Final = "Administrator"
RUNGS: Final = len(ladder(Rules()))


def _listed(m: Machine) -> tuple[BmcRow, NamedCredential] | None:
    bmc = m.node.bmc
    found = m.settings.credentials.get(bmc.cred_ref or "") if bmc is not None else None
    return (bmc, found) if bmc is not None and found is not None and found.of_one_machine else None


async def find_the_label(m: Machine) -> Outcome:
    """One line of the list is this BMC's. No password is spent to find it."""
    listed = _listed(m)
    if listed is None or "current.password" in m.secrets:
        return Done()
    bmc, credential = listed
    if bmc.network not in credential.networks:
        return Failed("credential-not-for-here", f"credential {credential.name} is not for the network of this BMC")
    hints = await _hints(m, bmc)
    try:
        found = await asyncio.to_thread(_found, credential, hints)
    except InvalidInput as error:
        return Failed("credential-not-for-here", str(error))
    if len(found) != 1:
        how = "no line of the list is" if not found else f"{len(found)} lines of the list are"
        help_ = "say its MAC or serial with `bcmetal node update NODE --label bmc-mac=… ` or `--label serial=…`"
        return Failed("label-not-found", f"{how} of this BMC, by all that it tells without a login: {help_}")
    if not await m.doors.store.write(meta.hold, f"label:{credential.name}:{found[0].key}", bmc.bmc_id):
        return Failed("label-not-found", f"line {found[0].line} of the list was spent on another BMC")
    m.note(*m.line.sealed_as("current", Credential(found[0].username, found[0].password)))
    m.remember(label_line=found[0].line, label_serial=found[0].serial)
    return Done()


def compare_the_label(m: Machine) -> None:
    """What found the line is nobody's proof; now the machine has said its serials. Makers print that of the machine or of its board."""
    serial, line = m.memo.get("label_serial"), m.memo.get("label_line")
    known = {one.value_norm: one.raw for one in m.node.identifiers if one.kind in ("serial", "sku") and one.usable}
    if serial and known and serial not in known:
        said = ", ".join(known.values())
        why = f"line {line} of the list of labels, whose password its BMC took, is of serial {serial}; the machine says {said}"
        m.condition("identity", "warning", "label-of-another", why)


def _found(credential: NamedCredential, hints: Sequence[str]) -> Sequence[Label]:
    """Tens of thousands of lines, each looked for in hundreds of texts: not for the event loop."""
    return find_labels(read_manifest(credential.manifest), hints) if credential.manifest is not None else ()


async def _hints(m: Machine, bmc: BmcRow) -> Sequence[str]:
    """A person's word alone, where there is one; else the address, and what the BMC says of itself."""
    said = [m.node.labels[key] for key in ("bmc-mac", "serial") if key in m.node.labels]
    if said:
        return said
    return (bmc.host, *await m.line.introduction(m.address, m.trust))


async def renew_an_expired_one(m: Machine) -> Outcome:
    """A password that is good for nothing but another one is changed at once."""
    if not m.memo.get("expired"):
        try:
            await m.look(need(m.bmc, Readings).reading)
        except PasswordChangeRequired:
            m.remember(expired=True)
            return Again("the BMC wants another password before anything else; it gets one", 0.0)
        return Done()
    return await rotate_the_password(m)


async def claim_the_bmc(m: Machine) -> Outcome:
    """Make our account, prove it, switch the label's off."""
    compare_the_label(m)
    listed = _listed(m)
    if listed is None or not _ours(m) or m.pool.mode is PoolMode.OBSERVE:
        return Done()
    refused = await not_recoverable(m)
    if refused is not None:
        return refused
    return await in_turn(m, listed[0], _claim)


async def _claim(m: Machine, bmc: BmcRow) -> Outcome:
    own, ours = m.line.credential, _ours(m)
    if f"{ROTATING}.password" in m.secrets:
        return await _make_the_account(m, bmc)
    if own.username == ours:
        return await _end_the_label(m, bmc) if f"{LABEL}.password" in m.secrets else await _only_ours(m, bmc)
    password = await a_password(m, bmc, ours, int(m.memo.get("claim_rung", 0)))
    m.note(*m.line.sealed_as(ROTATING, Credential(ours, password)))
    return Again("the password of our account is made and sealed; the account is made next", 0.0)


def _ours(m: Machine) -> str:
    """The user name of the account that is to be made; "" where none is."""
    listed = _listed(m)
    ours = m.settings.credentials.get(listed[1].claims or "") if listed is not None else None
    return (ours.username or "") if ours is not None else ""


async def _only_ours(m: Machine, bmc: BmcRow) -> Outcome:
    """The label's account has the name of ours: it gets a password of its own, and nothing is switched off."""
    outcome = await rotate_the_password(m)
    if isinstance(outcome, Done):
        m.note(SetBmc({"cred_ref": None}))
    return outcome


async def _make_the_account(m: Machine, bmc: BmcRow) -> Outcome:
    new = Credential(m.secret(f"{ROTATING}.username").get_secret_value(), m.secret(f"{ROTATING}.password"))
    there = _named(await m.look(need(m.bmc, Accounts).accounts), new.username)
    try:
        if there is None:
            await m.act(need(m.bmc, AccountControl).create_account, new.username, new.password, ROLE)
        else:  # left by a crash, or by somebody: ours from now on
            await m.act(need(m.bmc, Accounts).set_password, new.username, new.password, there.slot)
            if not there.enabled:
                await m.act(need(m.bmc, AccountControl).enable_account, there.slot, True)
    except MaybeSent:
        return Again("the answer was lost; whether our account was made is looked for", 1.0)
    except (Refused, Unsupported) as error:
        rung = int(m.memo.get("claim_rung", 0)) + 1
        m.note(MoveSealed(bmc.bmc_id, accept=False, slot=ROTATING))
        m.remember(claim_rung=rung)
        if rung >= RUNGS or isinstance(error, Unsupported):
            return Failed(error.code, f"no account of ours can be made at this BMC: {error}")
        return Again(f"the BMC refuses our account, perhaps for its password; another is made: {error}", 1.0)
    if not await logs_in(m, new):
        m.note(MoveSealed(bmc.bmc_id, accept=False, slot=ROTATING))
        return Failed("bmc-not-as-asked", "the BMC made our account, and does not let it in")
    m.note(
        MoveSealed(bmc.bmc_id, accept=True, slot="current", to=LABEL),
        MoveSealed(bmc.bmc_id, accept=True, slot=ROTATING),
        SetBmc({"cred_verified_at": m.now, "proven_at": m.now}),
    )
    m.tell("security.bmc-credentials.changed", claimed=True, username=new.username)
    return Again("our account is proven; the label's is switched off next", 0.0)


async def _end_the_label(m: Machine, bmc: BmcRow) -> Outcome:
    """Off, else gone, else with a password that nobody knows; and the label's password is seen to be refused."""
    label = Credential(m.secret(f"{LABEL}.username").get_secret_value(), m.secret(f"{LABEL}.password"))
    control = need(m.bmc, AccountControl)
    theirs = _named(await m.look(need(m.bmc, Accounts).accounts), label.username)
    if theirs is not None and theirs.enabled:
        done = m.memo.get("label_tried", 0)
        unknown = await a_password(m, bmc, label.username)
        ways = (
            (control.enable_account, (theirs.slot, False)),
            (control.delete_account, (theirs.slot,)),
            (need(m.bmc, Accounts).set_password, (label.username, unknown, theirs.slot)),
        )
        if done < len(ways):
            m.remember(label_tried=done + 1)
            fn, args = ways[done]
            try:
                await m.act(fn, *args)
            except (Refused, Unsupported, MaybeSent) as error:
                return Again(f"the label's account stays as it is: {error}; another way is tried", 1.0)
            if done < len(ways) - 1:
                return Again("looks whether the label's account is off", 0.0)
        if await logs_in(m, label):
            return Failed("bmc-not-as-asked", "the account of the label can neither be switched off nor changed")
    m.note(MoveSealed(bmc.bmc_id, accept=False, slot=LABEL), SetBmc({"cred_ref": None}))
    m.remember(label_tried=None)
    return Done()


def _named(found: Sequence[Account], username: str) -> Account | None:
    return next((one for one in found if one.username == username), None)


def with_label(steps: Sequence[Step], after_finding: Step, after_knowing: Step) -> tuple[Step, ...]:
    """The steps of an inspect with those that the label of a BMC needs."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if step is after_finding:
            found += [find_the_label, renew_an_expired_one]
        if step is after_knowing:
            found.append(claim_the_bmc)
    return tuple(found)
