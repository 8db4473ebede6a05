"""What a step gets: the machine, seen through the doors that a step may use.

A step looks (`look`), acts at most once (`act`, or `act_once` where the act cannot be observed), and notes what it found (`note`); the
notes are written in the transaction that settles the step. `act` checks whatever may hold a mutating act just before it, once the BMC is
free for it: a lost claim, an abort, a freeze, maintenance, observe mode, and that the lease lasts longer than the call may take.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from pydantic import SecretStr

from bcmetal.boot.shelf import Shelf
from bcmetal.decisions import SECOND, Again, Back, Done, Failed, Micros, PoolMode
from bcmetal.errors import Stale
from bcmetal.settings import Image, Network, Pool, Settings
from bcmetal.store import claims, intents, rack_slots
from bcmetal.store.ids import new_id
from bcmetal.store.values import (
    Claim,
    Emit,
    Fact,
    Holds,
    Intent,
    NodeRow,
    OperationRow,
    PutSealed,
    SetCondition,
    SetMemo,
    Store,
    Work,
)
from bcmetal.vault import Vault
from bcmetal.workflows.asked import Asked, asked_of
from bcmetal_drivers.capabilities import Bmc
from bcmetal_drivers.connection import BmcAddress, Credential, Trust, TrustKind
from bcmetal_drivers.errors import BadAddress, Busy, LockedOut, Refused, RejectedCredentials, Unsupported
from bcmetal_drivers.wire import CutShort

P = ParamSpec("P")
T = TypeVar("T")
TOO_LATE_WHY = "it waited too long for its turn at the BMC to start within its lease; it is tried again"
NOT_BEGUN = "not-begun"
# What a BMC answers when it did not do what it was asked. Elsewhere an act may have had its effect.
UNCHANGED = (Busy, CutShort, LockedOut, Refused, RejectedCredentials, Unsupported)
LONGER = "longer_s"  # in the memo: what → seconds
Outcome = Done | Again | Back | Failed
Step = Callable[["Machine"], Awaitable[Outcome]]


def longer_s(memo: Mapping[str, Any]) -> int:
    """What the steps so far asked for beside the verb's own time budget, in seconds."""
    return sum(int(seconds) for seconds in (memo.get(LONGER) or {}).values())


class Clock(Protocol):
    """The one door to time. `now` is microseconds since the epoch, `monotonic_s` never steps back."""

    def now(self) -> Micros: ...
    def monotonic_s(self) -> float: ...


class Lease(Protocol):
    """The engine's hold on the node."""

    claim: Claim

    def left_s(self) -> float:
        """Seconds left on the lease by the monotonic clock."""
        ...

    async def renew(self) -> None:
        """Raises Stale when the claim is no longer ours."""
        ...


class Start(Protocol):
    """What a mutating call asks before it starts, once it has waited for every call before it."""

    async def ready(self) -> None:
        """Raises when it must not start."""
        ...

    def in_time(self) -> bool:
        """Whether the lease still lasts the whole call; asked by the thread that makes it, as the last thing before."""
        ...


class Line(Protocol):
    """The node's BMC: one call at a time, in a thread. Opening sends nothing: the driver logs in at its first call.

    `rotates`: this step is part of changing the BMC's password, during which everybody else waits.
    """

    rotates: bool

    @property
    def bmc(self) -> Bmc: ...
    @property
    def deadline_s(self) -> float:
        """The longest that one call may take."""
        ...

    async def call(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One call of a method of `bmc`, its rejected and accepted logins counted."""
        ...

    async def write(self, start: Start, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """One call that changes something. Raises whatever `start` raises, and TooLate when it did not start."""
        ...

    async def trial(
        self,
        address: BmcAddress,
        credential: Credential,
        trust: Trust,
        fn: Callable[[Bmc], T],
        *,
        person: bool = False,
    ) -> T:
        """One call on a driver of its own, with other settings than the stored ones, closed afterwards.

        `person`: somebody just gave these credentials.
        """
        ...

    async def change_password(self, start: Start, new: Credential, slot: str | None) -> None:
        """Set the password of the account in that slot; every session at the BMC is ended before and after it. Raises as `write`."""
        ...

    async def probe(self, host: str, port: int | None, trust: Trust) -> BmcAddress:
        """Which service answers there; sends no credential."""
        ...

    @property
    def credential(self) -> Credential:
        """The BMC's present credential: its own, or the named one that it refers to."""
        ...

    @property
    def of_one_machine(self) -> bool:
        """Whether its credential is a line of a list of labels: sealed once it was found, and good for no other machine."""
        ...

    def named(self, credential: str) -> Credential:
        """A credential of the configuration; only for networks that it lists. Raises VaultError, and a Permanent when there is none."""
        ...

    def sealed_as(self, slot: str, credential: Credential) -> Sequence[PutSealed]:
        """A credential of this BMC, sealed for that slot."""
        ...

    def sealed_for(self, host: str, trust_kind: str, trust_value: str) -> Sequence[PutSealed]:
        """The BMC's own secrets, sealed anew for this address and pin; none where it uses a named credential."""
        ...

    async def introduction(self, address: BmcAddress, trust: Trust) -> tuple[str, ...]:
        """What the BMC says of itself to everybody; sends no credential."""
        ...

    async def fingerprint(self, host: str, port: int) -> str:
        """The SHA-256 of the certificate that is shown there; sends nothing."""
        ...


class HeldBack(Exception):
    """A mutating act must not start now. `paused`: by maintenance or a freeze, so that the budget stands still.

    `code`: it will not start later either, and this is the `lastError.code` that says why.
    """

    def __init__(self, why: str, *, paused: bool = False, code: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.paused = paused
        self.code = code


class TooLate(Exception):
    """A mutating call waited so long that its lease no longer lasts it; it was not made."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """An act that cannot be observed was begun by an earlier run, and nobody knows whether it had its effect."""

    name: str


@dataclass(frozen=True, slots=True)
class Doors:
    """What every machine of a daemon shares. `entropy(n)`: n bytes of the system's randomness."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    settings: Callable[[], Settings]
    shelf: Shelf
    vault: Vault


@dataclass
class Machine:
    """One node under a claim, for one step of one operation."""

    doors: Doors
    work: Work
    operation: OperationRow
    pool: Pool
    lease: Lease
    line: Line
    secrets: Mapping[str, SecretStr]  # the operation's own and the BMC's, opened
    facts: list[Fact] = field(default_factory=list)
    touched: bool = False

    def __post_init__(self) -> None:
        self.touched = self.operation.touched
        self._memo: dict[str, Any] = dict(self.operation.memo)

    # -------------------------------------------------------- what it is

    @property
    def node(self) -> NodeRow:
        return self.work.node

    @property
    def settings(self) -> Settings:
        return self.doors.settings()

    @property
    def input(self) -> Mapping[str, Any]:
        return self.operation.input

    @property
    def asked(self) -> Asked:
        return asked_of(self.node, self.input, self.pool, self.settings)

    @property
    def now(self) -> Micros:
        return self.doors.clock.now()

    @property
    def network(self) -> Network | None:
        return self.settings.networks.get(self.node.bmc.network) if self.node.bmc else None

    @property
    def address(self) -> BmcAddress:
        """The BMC's address with this node's system; raises BadAddress when the node has no BMC that was reached."""
        bmc = self.node.bmc
        if bmc is None or not bmc.scheme:
            raise BadAddress("the BMC was never reached: inspect the node first")
        return replace(bmc.address, system_path=self.node.system_path)

    @property
    def trust(self) -> Trust:
        """How the BMC's certificate is checked now."""
        bmc = self.node.bmc
        return Trust() if bmc is None else Trust(TrustKind(bmc.trust_kind), bmc.trust_value)

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now, self.doors.entropy(10))

    def image(self, name: str) -> Image | None:
        return self.settings.images.get(name)

    # -------------------------------------------------------- what it remembers

    @property
    def memo(self) -> Mapping[str, Any]:
        """What this operation remembers between steps; written with `remember`."""
        return self._memo

    def remember(self, **values: Any) -> None:
        """Kept with the step's settle. A value of None forgets."""
        self._memo.update(values)
        self._memo = {key: value for key, value in self._memo.items() if value is not None}
        self.facts = [fact for fact in self.facts if not isinstance(fact, SetMemo)]
        self.facts.append(SetMemo(dict(self._memo)))

    def since_s(self, key: str) -> float | None:
        """Seconds since `remember(key=m.now)`; None when it was not remembered."""
        at = self._memo.get(key)
        return None if at is None else max(0.0, (self.now - int(at)) / SECOND)

    def take_longer(self, what: str, seconds: int) -> None:
        """The operation's time budget grows by this, once for each `what`: hours that its verb alone does not tell."""
        known: dict[str, int] = dict(self._memo.get(LONGER) or {})
        if what not in known:
            self.remember(**{LONGER: {**known, what: seconds}})

    def note(self, *facts: Fact) -> None:
        """Written in the transaction that settles this step."""
        self.facts.extend(facts)

    def tell(self, event_type: str, **data: Any) -> None:
        """An event for the outbox, true once this step is settled."""
        self.facts.append(Emit(self.new_id("ev"), event_type, data))

    def condition(self, type_: str, status: str, reason: str = "", message: str = "") -> None:
        """Set, or with status `ok` clear, one of the node's conditions."""
        severity = {"ok": "info", "warning": "warning"}.get(status, "error")
        self.facts.append(SetCondition(type_, status, severity, reason, message))

    def secret(self, name: str) -> SecretStr:
        return self.secrets[name]

    # -------------------------------------------------------- what it does

    @property
    def bmc(self) -> Bmc:
        """Opaque: what it can do is asked with `need`."""
        return self.line.bmc

    async def look(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A read at the BMC; it counts as no effect."""
        return await self.line.call(fn, *args, **kwargs)

    async def ready_to_act(self) -> None:
        """Raises HeldBack or Stale when no effect may start now; writes `touched` before the first one."""
        if self.pool.mode is PoolMode.OBSERVE:
            raise HeldBack(f"pool {self.node.pool_id} only observes: nothing may be written", code="observe-mode")
        holds: Holds = await self.doors.store.read(claims.holds, self.lease.claim, self.operation.operation_id)
        if not holds.ours:
            raise Stale
        if holds.abort and not self.operation.cleaning:
            raise HeldBack("somebody asked to abort")
        if holds.maintenance or holds.quiet:
            raise HeldBack("the node is in maintenance", paused=True)
        if holds.frozen is not None:
            raise HeldBack(f"frozen: {holds.frozen}", paused=True)
        if not self.touched:
            await self.doors.store.write(claims.touch, self.lease.claim, self.operation.operation_id, self.now)
            self.touched = True
        if not self.lease_lasts():
            await self.lease.renew()

    def lease_lasts(self) -> bool:
        """Whether a call that starts now ends before the lease does."""
        return self.lease.left_s() >= self.line.deadline_s

    async def act(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A write at the BMC, whose effect can be read back."""
        try:
            return await self.line.write(_Act(self), fn, *args, **kwargs)
        except TooLate:
            raise HeldBack(TOO_LATE_WHY) from None

    async def act_once(self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Unsure:
        """A write whose effect cannot be read back: an intent is stored before it and closed after it.

        A resume that finds the intent open gets `Unsure`, and looks by other signs.
        """
        return await self._once(name, lambda once: self.line.write(once, fn, *args, **kwargs), ())

    async def ask_once(self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Unsure:
        """As `act_once`. An answer that says that nothing was begun closes the intent, so that it may be asked again."""
        return await self._once(name, lambda once: self.line.write(once, fn, *args, **kwargs), UNCHANGED)

    async def change_password_once(self, name: str, new: Credential, slot: str | None) -> Unsure | None:
        """As `act_once`. An error that shows that nothing was changed closes the intent, so that it may be tried again."""
        return await self._once(name, lambda once: self.line.change_password(once, new, slot), UNCHANGED)

    async def _once(
        self, name: str, write: Callable[[Start], Awaitable[T]], unchanged: tuple[type[Exception], ...]
    ) -> T | Unsure:
        once = _ActOnce(self, name)
        try:
            result = await write(once)
        except _Begun as begun:
            await once.close(begun.intent, "unsure")
            return Unsure(name)
        except TooLate:
            if once.intent is not None:
                await once.close(once.intent, NOT_BEGUN)
            raise HeldBack(TOO_LATE_WHY) from None
        except unchanged:
            if once.intent is not None:
                await once.close(once.intent, NOT_BEGUN)
            raise
        if once.intent is not None:
            await once.close(once.intent, "done")
        return result

    async def begun(self, name: str) -> bool:
        """Whether an act of that name was begun by this operation, and may have had its effect."""
        outcome = await self.doors.store.read(intents.outcome, self.operation.operation_id, name)
        return outcome not in (None, NOT_BEGUN)

    async def power_slot_wait_s(self) -> float:
        """Seconds until this machine's rack may take one more power-on; 0.0: now, and the place is taken."""
        rack = self.node.location_rack
        if rack is None:
            return 0.0
        now = self.now
        at = await self.doors.store.write(rack_slots.take, self.node.site_id, rack, now)
        return max(0.0, (at - now) / SECOND)


class _Begun(Exception):
    """An earlier run opened this intent, and never closed it."""

    def __init__(self, intent: Intent) -> None:
        super().__init__(intent.name)
        self.intent = intent


@dataclass(slots=True)
class _Act:
    machine: Machine

    async def ready(self) -> None:
        await self.machine.ready_to_act()

    def in_time(self) -> bool:
        return self.machine.lease_lasts()


@dataclass(slots=True)
class _ActOnce:
    """The intent is the last that is written before the call; the lease was made to last before it, and is looked at after it."""

    machine: Machine
    name: str
    intent: Intent | None = None

    async def ready(self) -> None:
        m = self.machine
        await m.ready_to_act()
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        found = await m.doors.store.write(
            claims.intent_begin, m.lease.claim, m.operation.operation_id, self.name, digest, m.now
        )
        if found.open:
            raise _Begun(found)
        self.intent = found

    def in_time(self) -> bool:
        return self.machine.lease_lasts()

    async def close(self, intent: Intent, outcome: str) -> None:
        m = self.machine
        await m.doors.store.write(claims.intent_end, m.lease.claim, m.operation.operation_id, intent.n, outcome, m.now)
