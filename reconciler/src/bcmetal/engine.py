"""The engine: claims a due node, runs the next step of its operation, settles it, saves it. The only place that retries or times out.

Three beats: claim (a short transaction) → await the step (no transaction) → settle and save (a short transaction, guarded by the
claim's epoch). A wait is never a sleeping worker: the node is released, and due again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bcmetal.breaker import AWAY_AFTER, reach_facts
from bcmetal.credentials import credentials_accepted, left_by_a_rotation, note_refusal
from bcmetal.decisions import (
    SECOND,
    Again,
    Back,
    Done,
    Ended,
    Failed,
    LastError,
    Micros,
    Outcome,
    Run,
    Trouble,
    settle,
)
from bcmetal.errors import Stale, Unavailable, VaultError
from bcmetal.line import Lines
from bcmetal.proof.signing import signed
from bcmetal.settling import UNASKED_S
from bcmetal.side import side_of
from bcmetal.states import WORKFLOWS, SideVerb, State, Verb
from bcmetal.store import claims
from bcmetal.store.bmcs import BmcInUse
from bcmetal.store.identifiers import IdentityHeld
from bcmetal.store.ids import new_id
from bcmetal.store.values import Claim, Emit, Fact, MoveSealed, OperationRow, StepRun, Work
from bcmetal.workflows import Workflow, workflow_of
from bcmetal.workflows.asked import asked_of
from bcmetal.workflows.machine import Doors, HeldBack, Machine, Step, longer_s
from bcmetal_drivers.errors import DriverError, NotAsAsked, TaskFailed, Transient

log = logging.getLogger(__name__)

LEASE_S: Final = 60
RENEW_S: Final = 20.0
# BMCs show what they took up to a minute later; the step looks before it asks again.
SHOWN_LATE_S: Final = (5.0, 10.0, 20.0, 30.0)
HELD_POLL_S: Final = 5.0
IDLE_POLL_S: Final = 1.0
AWAY_POLL_S: Final = 2.0
SIDE_BUDGET_S: Final = 900
CAPS: Final[Mapping[Verb, int]] = {row.verb: row.cap for row in WORKFLOWS.values()}


@dataclass(slots=True)
class HeldLease:
    """A claim, and how long it still lasts by the monotonic clock (an epoch cannot fence a BMC)."""

    engine: Engine
    claim: Claim
    ends_at_s: float

    def left_s(self) -> float:
        return self.ends_at_s - self.engine.doors.clock.monotonic_s()

    async def renew(self) -> None:
        began_s = self.engine.doors.clock.monotonic_s()
        still = await self.engine.doors.store.write(claims.renew, [self.claim], LEASE_S)
        renewed = still.get(self.claim.node_id)
        if renewed is None:
            raise Stale
        self.claim = renewed
        self.ends_at_s = began_s + LEASE_S


class Engine:
    """One for each daemon. `owner` is the daemon's id; `at_once` bounds the nodes that are worked on at the same time.

    While `may_work()` is false nothing is claimed, and what is claimed is given back after the step that it is in.
    """

    def __init__(
        self, doors: Doors, lines: Lines, owner: str, at_once: int = 64, may_work: Callable[[], bool] = lambda: True
    ) -> None:
        self.doors = doors
        self.lines = lines
        self.owner = owner
        self.at_once = at_once
        self._may_work = may_work
        self._leases: dict[str, HeldLease] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self, node_id: str | None = None) -> None:
        """Something may be due; called on the loop after a verb was committed."""
        self._wake.set()

    # -------------------------------------------------------- the loop

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then finish the steps under way and release their nodes."""
        tasks: set[asyncio.Task[None]] = set()
        renewing = asyncio.create_task(self._keep_leases())
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._wake.clear()
                before = self.doors.clock.now()
                try:
                    for claim in await self._claim(self.at_once - len(tasks)):
                        task = asyncio.create_task(self._work(claim))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        task.add_done_callback(lambda _: self._wake.set())
                    pause_s = await self._pause_s(before)
                except Unavailable as error:
                    log.warning("%s; trying again", error)
                    pause_s = AWAY_POLL_S
                waking = asyncio.create_task(self._wake.wait())
                await asyncio.wait({waking, stopping, renewing}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if renewing.done():
                    renewing.result()
        finally:
            self._stopping = True
            if tasks:
                await asyncio.wait(tasks)
            renewing.cancel()
            stopping.cancel()
            await asyncio.gather(renewing, stopping, return_exceptions=True)

    async def tick(self) -> int:
        """Claim all that is due now, work it until it waits, and say how many nodes that was."""
        found = await self._claim(self.at_once)
        results = await asyncio.gather(*(self._work(claim) for claim in found), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return len(found)

    async def _pause_s(self, before: Micros) -> float:
        """Seconds until something is due that was not yet due at `before`, when nodes were last claimed."""
        due = await self.doors.store.read(claims.next_due, before)
        if due is None:
            return IDLE_POLL_S
        return min(IDLE_POLL_S, max(0.02, (due - self.doors.clock.now()) / SECOND))

    async def _claim(self, room: int) -> list[Claim]:
        if room <= 0 or not self._may_work():
            return []
        began_s = self.doors.clock.monotonic_s()
        found = await self.doors.store.write(claims.claim_due, self.owner, self.doors.clock.now(), room, CAPS, LEASE_S)
        for claim in found:
            self._leases[claim.node_id] = HeldLease(self, claim, began_s + LEASE_S)
        return found

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            held = list(self._leases.values())
            if not held:
                continue
            began_s = self.doors.clock.monotonic_s()
            try:
                still = await self.doors.store.write(claims.renew, [lease.claim for lease in held], LEASE_S)
            except Unavailable as error:  # no effect starts on a lease that runs out
                log.warning("%s; the leases run on", error)
                continue
            for lease in held:
                renewed = still.get(lease.claim.node_id)
                if renewed is not None and renewed.epoch == lease.claim.epoch:
                    lease.claim = renewed
                    lease.ends_at_s = began_s + LEASE_S

    # -------------------------------------------------------- one node

    async def _work(self, claim: Claim) -> None:
        lease = self._leases[claim.node_id]
        operation: OperationRow | None = None
        work: Work | None = None
        try:
            while True:
                work = await self.doors.store.read(claims.load, lease.claim, self.doors.clock.now())
                if work is None:
                    return
                operation = self._next_operation(work)
                if operation is None or self._stopping or not self._may_work():
                    await self.doors.store.write(claims.release, lease.claim)
                    return
                if operation.kind == "workflow":
                    await self._step(lease, work, operation)
                else:
                    await self._side(lease, work, operation)
        except Stale:
            log.warning("node %s: the claim was lost; nothing was written", claim.node_id)
            await self._let_go(lease)
        except Unavailable as error:
            log.warning("node %s: %s; it goes on where it was once its lease is over", claim.node_id, error)
        except Exception:  # a bug must end this one operation in words, not be met again with each lease for ever
            log.exception("node %s: %s could not be settled", claim.node_id, operation and operation.verb)
            if work is not None and operation is not None:
                await self._give_up(lease, work, operation)
        finally:
            if self._leases.get(claim.node_id) is lease:
                del self._leases[claim.node_id]

    async def _let_go(self, lease: HeldLease) -> None:
        try:
            await self.doors.store.write(claims.let_go, lease.claim)
        except Unavailable as error:
            log.warning("node %s: %s; it is free once its lease is over", lease.claim.node_id, error)

    async def _give_up(self, lease: HeldLease, work: Work, operation: OperationRow) -> None:
        """End an operation whose step or settling failed by a fault of ours; nothing of what it found is kept."""
        now = self.doors.clock.now()
        why = "a fault of bcmetal itself while it settled a step"
        try:
            if operation.kind != "workflow":
                error = {"code": "internal", "message": why, "step": operation.verb, "at": now}
                await self.doors.store.write(
                    claims.save_side, lease.claim, operation.operation_id, "failed", error, [], now, None
                )
                return
            run = _run_of(work, operation, self._workflow(work, operation))
            settled = settle(run, Failed("internal", why), now)
            step_run = StepRun(run.step, run.attempt + 1, "failed", why, now, now)
            await self.doors.store.write(
                claims.save, lease.claim, operation.operation_id, settled, step_run, [], now, False
            )
            await self.doors.store.write(claims.release, lease.claim)
        except (Stale, Unavailable, ValueError) as error:
            log.error("node %s: it could not even be ended: %s", lease.claim.node_id, error)

    def _next_operation(self, work: Work) -> OperationRow | None:
        """What is due now: side operations first, oldest first, then the workflow's step."""
        now = self.doors.clock.now()
        waiting = [*work.side, work.workflow] if work.workflow is not None else list(work.side)
        for operation in waiting:
            if operation.abort and not operation.cleaning:
                return operation
            if operation.wake_at is None or operation.wake_at <= now:
                return operation
        return None

    def _machine(self, lease: HeldLease, work: Work, operation: OperationRow) -> Machine | None:
        pool = self.doors.settings().pools.get(work.node.pool_id)
        if pool is None:
            return None
        line = self.lines.to(work, pool, operation.operation_id)
        return Machine(self.doors, work, operation, pool, lease, line, line.secrets)

    def _workflow(self, work: Work, operation: OperationRow) -> Workflow:
        """Of a pool that the configuration lost, the plainest: no step of it is run."""
        settings = self.doors.settings()
        pool = settings.pools.get(work.node.pool_id)
        if pool is None:
            return workflow_of(Verb(operation.verb))
        return workflow_of(Verb(operation.verb), asked_of(work.node, operation.input, pool, settings))

    async def _step(self, lease: HeldLease, work: Work, operation: OperationRow) -> None:
        workflow = self._workflow(work, operation)
        run = _run_of(work, operation, workflow)
        started = self.doors.clock.now()
        machine = self._machine(lease, work, operation)
        held = work.frozen is not None
        outcome: Outcome
        if machine is None:
            outcome = Trouble("internal", f"the configuration has no pool {work.node.pool_id}")
        elif run.abort and not run.cleaning:
            outcome = Again("it is being aborted", 0.0)
        else:
            outcome, held_back = await self._perform(machine, _step_named(workflow, run))
            held = held or held_back
        now = self.doors.clock.now()
        facts = self._facts(work, machine, now) if machine is not None else []
        run = replace(run, touched=run.touched or (machine is not None and machine.touched), held=held)
        if machine is not None:
            grown_s = longer_s(machine.memo) - longer_s(operation.memo)
            run = replace(run, budget_us=run.budget_us + grown_s * SECOND)
        settled = settle(run, outcome, now)
        step_run = StepRun(run.step, run.attempt + 1, _word(outcome), _why(outcome), started, now)
        try:
            await self._save(lease, work, operation, run, settled, step_run, facts, now)
        except (IdentityHeld, BmcInUse) as conflict:
            code = "bmc-in-use" if isinstance(conflict, BmcInUse) else "identity-conflict"
            settled = settle(run, Failed(code, str(conflict)), now)
            step_run = StepRun(run.step, run.attempt + 1, "failed", str(conflict), started, now)
            await self._save(lease, work, operation, run, settled, step_run, [], now)

    def _facts(self, work: Work, machine: Machine, now: Micros) -> list[Fact]:
        return [*credentials_accepted(machine.line), *machine.facts, *reach_facts(work, machine.line, now)]

    async def _save(
        self,
        lease: HeldLease,
        work: Work,
        operation: OperationRow,
        run: Run,
        settled: Run | Ended,
        step_run: StepRun,
        facts: list[Fact],
        now: Micros,
    ) -> None:
        facts = [*facts, *self._events(work, run, settled, step_run)]
        if isinstance(settled, Ended) or settled.cleaning:
            facts = [*left_by_a_rotation(work, facts), *facts]
        facts = await signed(self.doors.store, self.doors.vault, facts, work.node, operation, now)
        lease.claim = await self.doors.store.write(
            claims.save, lease.claim, operation.operation_id, settled, step_run, facts, now, False
        )
        if isinstance(settled, Ended):
            log.info("node %s: %s %s, now %s", work.node.name, settled.verb, settled.status, settled.state)

    def _events(self, work: Work, run: Run, settled: Run | Ended, step_run: StepRun) -> list[Emit]:
        about = {"operationId": run.operation_id, "verb": run.verb.value, "step": run.step}
        found: list[Emit] = []
        if step_run.outcome == "done":
            found.append(self._emit("metal.step.finished", about))
        elif step_run.outcome == "failed":
            found.append(self._emit("metal.step.failed", {**about, "why": step_run.why}))
        if isinstance(settled, Ended):
            change = {
                **about,
                "from": work.node.facts.state.value,
                "to": settled.state.value,
                "outcome": settled.status.value,
            }
            if settled.error is not None:
                change["code"] = settled.error.code
            found.append(self._emit("metal.state.changed", change))
        return found

    def _emit(self, type_: str, data: Mapping[str, object]) -> Emit:
        return Emit(new_id("ev", self.doors.clock.now(), self.doors.entropy(10)), type_, data)

    async def _side(self, lease: HeldLease, work: Work, operation: OperationRow) -> None:
        now = self.doors.clock.now()
        machine = self._machine(lease, work, operation)
        outcome: Outcome
        facts: list[Fact] = []
        if operation.abort:
            outcome = Failed("aborted", "somebody aborted it")
        elif machine is None:
            outcome = Trouble("internal", f"the configuration has no pool {work.node.pool_id}")
        else:
            outcome, held = await self._perform(machine, side_of(SideVerb(operation.verb)))
            now = self.doors.clock.now()
            facts = self._facts(work, machine, now)
            used_s = float(operation.memo.get("used_s", 0.0))
            if not held and work.frozen is None:
                used_s += min((now - operation.counted_at) / SECOND, UNASKED_S)
            if isinstance(outcome, Again | Trouble):
                machine.remember(used_s=round(used_s, 3))
                facts = self._facts(work, machine, now)
            if isinstance(outcome, Again | Trouble) and used_s > SIDE_BUDGET_S:
                outcome = Failed("deadline", f"the {SIDE_BUDGET_S // 60} minutes are used up; it waited: {outcome.why}")
        error = wake_at = None
        waiting_for: str | None = None
        match outcome:
            case Done():
                status = "done"
            case Failed(code, why):
                status, error = "failed", {"code": code, "message": why, "step": operation.verb, "at": now}
            case Again(why=waiting_for):
                status, wake_at = "queued", Micros(now + int(outcome.after_s * SECOND))
            case Trouble(why=waiting_for):
                status, wake_at = "queued", Micros(now + int(max(5.0, outcome.retry_after_s or 0.0) * SECOND))
                error = {"code": outcome.code, "message": outcome.why, "step": operation.verb, "at": now}
            case Back(why=why):
                status, error = "failed", {"code": "internal", "message": why, "step": operation.verb, "at": now}
        bmc = work.node.bmc
        if status == "failed" and operation.verb == SideVerb.SET_BMC_CREDENTIALS and bmc is not None:
            facts.append(MoveSealed(bmc.bmc_id, accept=False))  # what was never proven is not kept as pending
        if status == "failed" and operation.verb == SideVerb.ROTATE_BMC_CREDENTIALS:
            facts = [*left_by_a_rotation(work, facts), *facts]
        try:
            lease.claim = await self.doors.store.write(
                claims.save_side,
                lease.claim,
                operation.operation_id,
                status,
                error,
                facts,
                now,
                wake_at,
                waiting_for=waiting_for,
            )
        except (IdentityHeld, BmcInUse) as conflict:
            error = {"code": "identity-conflict", "message": str(conflict), "step": operation.verb, "at": now}
            lease.claim = await self.doors.store.write(
                claims.save_side, lease.claim, operation.operation_id, "failed", error, [], now, None
            )

    async def _perform(self, machine: Machine, step: Step) -> tuple[Outcome, bool]:
        """The step's outcome, and whether it is held by maintenance or a freeze."""
        try:
            return await step(machine), False
        except HeldBack as held:
            if held.code is not None:
                return Failed(held.code, held.why), False
            return Again(held.why, HELD_POLL_S if held.paused else 0.0), held.paused
        except (Stale, Unavailable):
            raise
        except Transient as error:
            note_refusal(machine, error)
            return Trouble(error.code, str(error), error.retry_after_s), False
        except (NotAsAsked, TaskFailed) as error:
            tried = machine.operation.step_attempt
            if tried < len(SHOWN_LATE_S):
                return Trouble(error.code, str(error), SHOWN_LATE_S[tried]), False
            return Failed(error.code, str(error)), False
        except DriverError as error:
            note_refusal(machine, error)
            return Failed(error.code, str(error)), False
        except VaultError as error:
            return Failed("vault", str(error)), False
        except Exception:  # a bug in one step is a failure of one machine, never of the engine
            log.exception("node %s: step %s", machine.node.name, getattr(step, "__name__", step))
            return Failed("internal", f"a fault of bcmetal itself in step {getattr(step, '__name__', step)}"), False


def _step_named(workflow: Workflow, run: Run) -> Step:
    return (workflow.cleanup if run.cleaning else workflow.steps)[run.step]


def _run_of(work: Work, operation: OperationRow, workflow: Workflow) -> Run:
    """The durable cursor. A step that this version does not know starts the workflow again: every step looks first."""
    steps, cleanup = tuple(workflow.steps), tuple(workflow.cleanup)
    known = cleanup if operation.cleaning else steps
    step = operation.step if operation.step in known else known[0]
    error = operation.error
    bmc = work.node.bmc
    away = bmc is not None and bmc.breaker_failures >= AWAY_AFTER
    return Run(
        operation_id=operation.operation_id,
        node_id=operation.node_id,
        verb=Verb(operation.verb),
        origin=State(operation.origin_state),
        steps=steps,
        cleanup=cleanup,
        step=step,
        budget_us=operation.budget_us,
        counted_at=operation.counted_at,
        attempt=operation.step_attempt,
        backs=operation.backs,
        touched=operation.touched,
        abort=operation.abort,
        cleaning=operation.cleaning,
        error=LastError(error["code"], error["message"], error["step"], error["at"]) if error else None,
        budget_used_us=operation.budget_used_us,
        asked_wait_us=operation.asked_wait_us,
        wake_at=operation.wake_at or Micros(0),
        waiting_for=operation.waiting_for,
        waiting_since=operation.waiting_since,
        progress=operation.progress,
        away_since=bmc.breaker_since_at if away and bmc is not None else None,
    )


def _word(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


def _why(outcome: Outcome) -> str | None:
    return None if isinstance(outcome, Done) else outcome.why
