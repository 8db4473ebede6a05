"""A new random password for a BMC's account, such that at every moment a password that works is stored.

1. Made by the BMC's rules, and sealed in a slot of its own before it is sent: nobody else logs in at this BMC from then on.
2. Sent once, under an intent. Whether it was sent is never guessed after a crash, nor after a lost answer: it is looked for.
3. Proven by a login. It takes the old one's place in the transaction that says so.
4. Where the login fails, the old one is tried. Works the old one, the BMC did not do it: sent again when the answer was lost, and a
   failure when it was acknowledged. Works neither, the first 16 bytes of the new one are tried, which is what some firmware keeps of it.
   Works none, all are kept.

Every node behind the BMC shares the password: one of them changes it, the others find that it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import SecretStr

from bcmetal.decisions import Again, Done, Failed
from bcmetal.login_budget import LoginBudget
from bcmetal.passwords import SHORT, NoSuchPassword, Rules, ladder, make_password
from bcmetal.store import leases, logins, meta
from bcmetal.store.logins import LEFT, ROTATING
from bcmetal.store.values import BmcRow, MoveSealed, SetBmc
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import AccountControl, Accounts, Bmc, Readings, need, offers
from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import (
    Malformed,
    MaybeSent,
    NotAsAsked,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    Unsupported,
)
from bcmetal_drivers.quirks import quirks_of
from bcmetal_drivers.resources import Account, AccountPolicy
from bcmetal_drivers.schemes import IPMI

SENDS: Final = 6
TURN_S: Final = 120.0
TURN_POLL_S: Final = 5.0
RESEND_S: Final = 2.0
LATE_S: Final = 15.0  # AMI and others answer first and change afterwards
ONLY_OLD, ONLY_NEW = "old", "new"


async def rotate_the_password(m: Machine) -> Outcome:
    """Give the BMC a new random password of its own."""
    bmc = m.node.bmc
    if bmc is None:
        return Failed("bmc-bad-address", "the node has no BMC")
    refused = await not_recoverable(m)
    if refused is not None:
        return refused
    if await m.doors.store.read(logins.rotated_since, bmc.bmc_id, m.operation.created_at):
        return Done()
    return await in_turn(m, bmc, _go_on)


async def in_turn(m: Machine, bmc: BmcRow, change: Callable[[Machine, BmcRow], Awaitable[Outcome]]) -> Outcome:
    """One beat of a change of passwords, while no other node behind this BMC changes any."""
    turn, operation_id = f"rotate:{bmc.bmc_id}", m.operation.operation_id
    if not await m.doors.store.write(leases.take, turn, operation_id, TURN_S):
        return Again("another node behind the same BMC changes its password", TURN_POLL_S)
    m.line.rotates = True
    outcome = await change(m, bmc)
    if not isinstance(outcome, Again):
        await m.doors.store.write(leases.take, turn, operation_id, 0.0)  # the next one's turn
    return outcome


async def _go_on(m: Machine, bmc: BmcRow) -> Outcome:
    if f"{ROTATING}.password" not in m.secrets:
        return await _make_one(m, bmc)
    new = Credential(m.secret(f"{ROTATING}.username").get_secret_value(), m.secret(f"{ROTATING}.password"))
    slot = m.memo.get("rotate_slot")
    if slot is None or m.memo.get("rotate_try") or await m.begun(_name(m)):
        return await _find_out(m, bmc, new)
    return await _send(m, bmc, new, str(slot) or None)


async def not_recoverable(m: Machine) -> Failed | None:
    """Why no BMC gets a password that only the vault knows: nobody proved that the vault's key can be had back."""
    if await m.doors.store.read(meta.get, meta.RECOVERY) == m.doors.vault.key_id:
        return None
    return Failed(
        "recovery-not-exercised",
        "a random password would be lost with the vault's key, whose recovery was never exercised",
    )


def _name(m: Machine) -> str:
    """Of the intent: each sending has its own."""
    return f"rotate-{_sends(m)}"


async def _make_one(m: Machine, bmc: BmcRow) -> Outcome:
    try:
        found = await m.look(need(m.bmc, Accounts).accounts)
    except RejectedCredentials:
        if f"{LEFT}.password" not in m.secrets:
            raise
        m.note(MoveSealed(bmc.bmc_id, accept=True, slot=LEFT, to=ROTATING))
        return Again("the stored password is refused; one that an earlier rotation left is tried", 0.0)
    except PasswordChangeRequired:
        found = None  # nothing but our own account can be written, which the BMC names
    own = m.line.credential
    slot = "" if found is None else _own(found, own.username).slot
    rung = int(m.memo.get("rotate_rung", 0))
    password = await a_password(m, bmc, own.username, rung)
    m.note(*m.line.sealed_as(ROTATING, Credential(own.username, password)))
    m.remember(rotate_slot=slot, rotate_rung=rung)
    return Again("a new password is made and sealed; it is sent next", 0.0)


async def a_password(m: Machine, bmc: BmcRow, username: str, rung: int = 0) -> SecretStr:
    """A new one by the BMC's rules; `rung`: how often it refused one. Raises Refused where there is none."""
    rungs = ladder(rules_of(await account_policy(m), bmc))
    try:
        return make_password(rungs[min(rung, len(rungs) - 1)], username, m.doors.entropy)
    except NoSuchPassword as error:
        raise Refused(f"no password can be made for this BMC: {error}") from error


def _own(found: tuple[Account, ...], username: str) -> Account:
    """Our account, by whose slot it is changed. Raises Refused where that is not one account."""
    named = [one for one in found if one.username == username]
    usable = [one for one in named if one.enabled] or named
    if len(usable) != 1:
        how = "lists no account" if not usable else f"lists {len(usable)} accounts"
        raise Refused(f"the BMC {how} of the name that we log in with: set the account with `bcmetal node credentials`")
    return usable[0]


async def account_policy(m: Machine) -> AccountPolicy:
    if not offers(m.bmc, AccountControl):
        return AccountPolicy()
    try:
        return await m.look(need(m.bmc, AccountControl).account_policy)
    except (Unsupported, Refused, Malformed, PasswordChangeRequired):
        return AccountPolicy()


def rules_of(policy: AccountPolicy, bmc: BmcRow) -> Rules:
    """What the BMC says of itself, and what is known of its maker."""
    known = quirks_of(bmc.maker, bmc.model, bmc.firmware).password
    longest = min(policy.password_longest or known.longest, known.longest)
    return Rules(longest, max(policy.password_shortest or 0, known.shortest), known.marks)


async def _send(m: Machine, bmc: BmcRow, new: Credential, slot: str | None) -> Outcome:
    try:
        sent = await m.change_password_once(_name(m), new, slot)
    except (Refused, Unsupported) as refusal:
        return await _refused(m, bmc, refusal)
    except NotAsAsked as lie:
        m.remember(rotate_try=ONLY_OLD, rotate_denied=str(lie))
        return Again("the BMC acknowledged the new password and does not take it; the old one is tried", 0.0)
    except MaybeSent as lost:
        if isinstance(lost.__cause__, RejectedCredentials):
            m.remember(rotate_try=ONLY_OLD)
        return Again("the answer was lost; which password is in force is found out by a login", 0.0)
    if sent is not None:
        return Again("it is not known whether the new password was sent; it is found out by a login", 0.0)
    return await _find_out(m, bmc, new)


async def _refused(m: Machine, bmc: BmcRow, refusal: Refused | Unsupported) -> Outcome:
    """A refusal is believed once the old password is seen to work: a BMC may refuse what it did."""
    try:
        if await logs_in(m, m.line.credential):
            if isinstance(refusal, Unsupported):
                raise refusal
            return _another(m, bmc, refusal)
    except LoginBudget:
        pass  # nothing was proven: the new one is kept, and tried
    m.remember(rotate_try=ONLY_NEW)
    return Again(f"the BMC refused the new password, and the old one does not work any more: {refusal}", 1.0)


def _another(m: Machine, bmc: BmcRow, refusal: Refused) -> Outcome:
    """The BMC does not like this password; perhaps another."""
    rung, rungs = int(m.memo.get("rotate_rung", 0)), len(ladder(Rules()))
    m.note(MoveSealed(bmc.bmc_id, accept=False, slot=ROTATING))
    if rung + 1 >= rungs:
        _forget(m)
        return Failed("bmc-refused", f"the BMC takes none of the passwords that were made for it: {refusal}")
    m.remember(rotate_rung=rung + 1, rotate_sends=_sends(m) + 1)
    return Again(f"the BMC refuses this password, another is made: {refusal}", RESEND_S)


async def _find_out(m: Machine, bmc: BmcRow, new: Credential) -> Outcome:
    """Which of the two is in force. One that was refused already is not tried again so soon."""
    old, which = m.line.credential, m.memo.get("rotate_try")
    try:
        for one in {ONLY_OLD: (old,), ONLY_NEW: (new,)}.get(str(which), (new, old)):
            if await logs_in(m, one):
                return _take(m, bmc, new) if one is new else _not_in_force(m, bmc, new)
    except LoginBudget as budget:
        return Again(f"waits before the next login: {budget}", budget.retry_after_s or 60.0)
    return _neither(m, bmc, new, late=which == ONLY_OLD)


def _neither(m: Machine, bmc: BmcRow, new: Credential, *, late: bool) -> Outcome:
    length = len(new.password.get_secret_value())
    if late:
        m.remember(rotate_try=ONLY_NEW)
        return Again("the old password is refused by now: the BMC took the new one late", 1.0)
    if length > SHORT:
        m.note(
            MoveSealed(bmc.bmc_id, accept=True, slot=ROTATING, to=LEFT),
            *m.line.sealed_as(ROTATING, Credential(new.username, SecretStr(new.password.get_secret_value()[:SHORT]))),
        )
        m.remember(rotate_try=ONLY_NEW, rotate_cut=True)
        return Again(
            f"neither the old nor the new password is taken: perhaps it kept {SHORT} bytes of the new one", 1.0
        )
    m.note(MoveSealed(bmc.bmc_id, accept=not m.memo.get("rotate_cut"), slot=ROTATING, to=LEFT))
    why = "the BMC takes neither the old nor the new password; both are kept"
    m.condition("credentials", "error", "rejected", why)
    m.tell("security.bmc-credentials.rejected", pending=True)
    _forget(m)
    return Failed("bmc-credentials-rejected", why)


def _take(m: Machine, bmc: BmcRow, new: Credential) -> Outcome:
    m.note(
        MoveSealed(bmc.bmc_id, accept=True, slot=ROTATING),
        MoveSealed(bmc.bmc_id, accept=False, slot=LEFT),
        SetBmc(
            {"cred_verified_at": m.now, "proven_at": m.now, **({} if m.line.of_one_machine else {"cred_ref": None})}
        ),
    )
    m.condition("credentials", "ok")
    m.tell("security.bmc-credentials.rotated", username=new.username, slot=m.memo.get("rotate_slot"))
    _forget(m)
    return Done()


def _not_in_force(m: Machine, bmc: BmcRow, new: Credential) -> Outcome:
    """The old one works: nothing is lost."""
    denied, length = m.memo.get("rotate_denied"), len(new.password.get_secret_value())
    if m.memo.get("rotate_slot") is None:  # another operation made it, and is no more
        m.note(MoveSealed(bmc.bmc_id, accept=False, slot=ROTATING))
        return Again("a password that an earlier rotation made is not in force; a new one is made", 0.0)
    if denied and not m.memo.get("rotate_looked"):
        m.remember(rotate_looked=True)
        return Again("the BMC acknowledged the new password and still takes the old one; looks once more", LATE_S)
    if denied and length > SHORT and bmc.scheme == IPMI:  # firmware that takes 20 bytes and keeps 16
        m.note(MoveSealed(bmc.bmc_id, accept=False, slot=ROTATING))
        m.remember(rotate_denied=None, rotate_try=None, rotate_looked=None, rotate_rung=1, rotate_sends=_sends(m) + 1)
        return Again(f"a password of {length} bytes does not work there; one of {SHORT} is made", RESEND_S)
    if denied or _sends(m) >= SENDS:
        m.note(MoveSealed(bmc.bmc_id, accept=True, slot=ROTATING, to=LEFT))
        _forget(m)
        why = f"the old password is still the one in force. {denied or 'Each answer to the change was lost'}"
        return Failed("bmc-not-as-asked", why)
    m.remember(rotate_try=None, rotate_sends=_sends(m) + 1)
    return Again("the BMC did not get the new password; it is sent again", RESEND_S)


def _sends(m: Machine) -> int:
    return int(m.memo.get("rotate_sends", 1))


def _forget(m: Machine) -> None:
    m.remember(**dict.fromkeys(name for name in m.memo if name.startswith("rotate_")))


async def logs_in(m: Machine, credential: Credential) -> bool:
    """Whether the BMC takes it, by a login of its own."""

    def look(there: Bmc) -> None:
        need(there, Readings).reading()

    try:
        await m.line.trial(m.address, credential, m.trust, look)
    except RejectedCredentials:
        return False
    except PasswordChangeRequired:
        return True
    return True
