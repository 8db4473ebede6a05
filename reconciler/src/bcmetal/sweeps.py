"""What runs by the clock: the power and reachability sweep, expiry, retention. APScheduler fires these; each is one function.

The sweep only reads. It leaves out nodes that are claimed or quiet, BMCs whose breaker is open, and BMCs that reject our password.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import Final

from bcmetal.breaker import reach_facts
from bcmetal.credentials import credentials_condition
from bcmetal.decisions import SECOND, Micros, Move, Params, decide
from bcmetal.errors import Lost, VaultError
from bcmetal.events import retention_before
from bcmetal.join.leaving import expire_overdue
from bcmetal.line import Lines
from bcmetal.states import Verb
from bcmetal.store import (
    agent_tasks,
    boot_tokens,
    certificates,
    claims,
    idempotency,
    leases,
    logins,
    media,
    nodes,
    operations,
    outbox,
    rescues,
    sweeping,
)
from bcmetal.store.ids import new_id
from bcmetal.store.values import Emit, Fact, NewAudit, NewOperation, SetCondition, SetSighting, Work
from bcmetal.workflows import workflow_of
from bcmetal.workflows.asked import asked_of
from bcmetal.workflows.machine import Doors
from bcmetal_drivers.capabilities import Readings, need
from bcmetal_drivers.errors import DriverError, RejectedCredentials, TimedOut, Unreachable
from bcmetal_drivers.resources import PowerState, Reading

log = logging.getLogger(__name__)

SWEEP_EVERY_S: Final = 60
SWEEP_AT_ONCE: Final = 32
SLOW_AT_ONCE: Final = 4  # of the BMCs that did not answer the last time
EXPIRY_EVERY_S: Final = 15
RETENTION_EVERY_S: Final = 3600
IDEMPOTENCY_KEPT_DAYS: Final = 7
EVENTS_KEPT_DAYS: Final = 14
CERTIFICATES_KEPT_DAYS: Final = 400  # after their end; past the grace a person may still let one renew
TOKENS_KEPT_DAYS: Final = 14  # what they were is told to whoever still calls with one
LOGS_KEPT_DAYS: Final = 90
LOGINS_KEPT_DAYS: Final = 1
REQUESTS_AT_ONCE: Final = 100
BY_ITSELF: Final = "daemon"  # in the audit: nobody asked


async def sweep(doors: Doors, lines: Lines, owner: str) -> int:
    """Read power, boot mode and health of every machine that is due; how many answered."""
    if not await doors.store.write(leases.take, "sweep", owner, SWEEP_EVERY_S):
        return 0
    now = doors.clock.now()
    before = Micros(now - SWEEP_EVERY_S * SECOND // 2)
    due = await doors.store.read(sweeping.due, before, now)
    began_s = doors.clock.monotonic_s()
    gate, slow_gate = asyncio.Semaphore(SWEEP_AT_ONCE), asyncio.Semaphore(SLOW_AT_ONCE)

    async def one(node_id: str) -> bool:
        work = await doors.store.read(claims.peek, node_id)
        if work is None or work.node.bmc is None:
            return False
        silent = work.node.bmc.breaker_failures > 0
        async with slow_gate if silent else gate:
            if silent and doors.clock.monotonic_s() - began_s > SWEEP_EVERY_S / 2:
                return False  # the next sweep begins with those: they must not make it late for the others
            return await look(doors, lines, node_id) is not Seen.NOTHING

    return sum(await asyncio.gather(*(one(node_id) for node_id in due)))


class Seen(Enum):
    """What a look at a machine found."""

    NOTHING = auto()
    SAME = auto()
    CHANGED = auto()  # other than at the look before


async def look(doors: Doors, lines: Lines, node_id: str) -> Seen:
    """Read it once, and note what is seen; nothing is noted of a node that somebody works on."""
    work = await doors.store.read(claims.peek, node_id)
    pool = doors.settings().pools.get(work.node.pool_id) if work is not None else None
    if work is None or pool is None:
        return Seen.NOTHING
    line = lines.to(work, pool, "")
    began = doors.clock.now()
    reading: Reading | None = None
    facts: list[Fact] = []
    try:
        reading = await line.call(need(line.bmc, Readings).reading)
    except (Unreachable, TimedOut) as error:
        log.debug("node %s: %s", work.node.name, error)
    except DriverError as error:
        log.info("node %s: the sweep got no reading: %s", work.node.name, error)
        said = credentials_condition(error, work.node.name)
        facts.extend([said] if said is not None else [])
        if isinstance(error, RejectedCredentials):  # no sweep asks there again
            event_id = new_id("ev", doors.clock.now(), doors.entropy(10))
            facts.append(Emit(event_id, "security.bmc-credentials.rejected", {}))
    except VaultError as error:
        log.info("node %s: the sweep got no reading: %s", work.node.name, error)
    now = doors.clock.now()
    facts.extend(reach_facts(work, line, now))
    if reading is not None:
        facts.append(SetCondition("credentials", "ok", "info", "", ""))
        facts.extend(_reading_facts(doors, work, reading, now))
    noted = await doors.store.write(sweeping.swept, node_id, facts, now, began)
    if reading is None:
        return Seen.NOTHING
    before = work.sighting or {}
    same = (before.get("power"), before.get("health")) == (reading.power, reading.health)
    return Seen.CHANGED if noted and not same else Seen.SAME


def _reading_facts(doors: Doors, work: Work, reading: Reading, now: Micros) -> list[Fact]:
    facts: list[Fact] = [SetSighting(power=reading.power, boot_mode=reading.boot_mode, health=reading.health)]
    before = (work.sighting or {}).get("power")
    if before is not None and before != reading.power and reading.power is not PowerState.UNKNOWN:
        data = {"from": before, "to": reading.power.value}
        facts.append(Emit(new_id("ev", now, doors.entropy(10)), "metal.power.changed", data))
    wanted = work.node.desired_power
    settled = reading.power in (PowerState.ON, PowerState.OFF)
    if wanted is not None and settled and wanted != reading.power:
        message = f"the machine is {reading.power}, and was last asked to be {wanted}"
        facts.append(SetCondition("power", "warning", "warning", "not-as-asked", message))
    elif settled:
        facts.append(SetCondition("power", "ok", "info", "", ""))
    if reading.health is not None:
        if reading.health == "ok":
            facts.append(SetCondition("hardware", "ok", "info", "", ""))
        else:
            status = "error" if reading.health == "critical" else "warning"
            message = f"the BMC calls the machine's health {reading.health}"
            facts.append(SetCondition("hardware", status, status, f"health-{reading.health}", message))
    return facts


async def expire(doors: Doors, owner: str) -> None:
    """What ends by itself: protection, media, join requests, rescues, `needsAttention` that becomes true with time."""
    if not await doors.store.write(leases.take, "expiry", owner, EXPIRY_EVERY_S):
        return
    now = doors.clock.now()
    await doors.store.write(nodes.expire_protection, now)
    await doors.store.write(nodes.recompute_attention, now)
    await doors.store.write(media.expire, now)
    site_of = {name: pool.site for name, pool in doors.settings().pools.items()}
    await doors.store.write(expire_overdue, site_of, REQUESTS_AT_ONCE, now)
    await doors.store.write(certificates.prune_challenges, now)
    await end_rescues(doors)


async def end_rescues(doors: Doors) -> None:
    """A rescue whose time is over is ended as a person would end it; what holds that back (maintenance, a protection) holds this back too."""
    now = doors.clock.now()
    for rescue in await doors.store.read(rescues.over, now):
        node = await doors.store.read(nodes.get, rescue.node_id)
        settings = doors.settings()
        pool = settings.pools.get(node.pool_id) if node is not None else None
        if node is None or pool is None or node.facts.maintenance or node.facts.quiet:
            continue
        move = decide(node.facts, Verb.UNRESCUE, Params(), pool.policy(settings), now)
        if not isinstance(move, Move):
            log.warning("node %s: its rescue is over, and it cannot be ended: %s", node.name, move.message)
            continue
        steps = tuple(workflow_of(Verb.UNRESCUE, asked_of(node, {}, pool, settings)).steps)
        operation = NewOperation(
            new_id("op", now, doors.entropy(10)),
            "workflow",
            Verb.UNRESCUE,
            BY_ITSELF,
            {},
            steps[0],
            move.budget_s * SECOND,
            steps=steps,
        )
        audit = NewAudit(
            new_id("au", now, doors.entropy(10)),
            BY_ITSELF,
            node.tenant_id,
            "",
            "compute:metal:unrescue",
            f"compute-pool/{node.pool_id}/nodes/{node.node_id}",
            "allowed",
            doors.entropy(16).hex(),  # its own trace
            node.node_id,
            {"operation": operation.operation_id, "why": "the rescue's time is over"},
        )
        try:
            await doors.store.write(
                operations.start, node.node_id, node.generation, move, operation, audit, [], now, None
            )
        except Lost:  # somebody else asked for something meanwhile
            log.info("node %s moved on before its rescue was ended", node.name)


async def retain(doors: Doors, owner: str) -> None:
    """Drop what is older than it needs to be: idempotency keys, delivered events, certificates, boot tokens, tasks and logs, images that nothing needs."""
    if not await doors.store.write(leases.take, "retention", owner, RETENTION_EVERY_S):
        return
    now = doors.clock.now()
    await doors.store.write(idempotency.prune, retention_before(now, IDEMPOTENCY_KEPT_DAYS))
    await doors.store.write(outbox.prune, retention_before(now, EVENTS_KEPT_DAYS))
    await doors.store.write(certificates.prune, retention_before(now, CERTIFICATES_KEPT_DAYS))
    await doors.store.write(boot_tokens.prune, retention_before(now, TOKENS_KEPT_DAYS))
    await doors.store.write(logins.prune, retention_before(now, LOGINS_KEPT_DAYS))
    await doors.store.write(agent_tasks.prune, retention_before(now, LOGS_KEPT_DAYS))
    kept = {*await doors.store.read(media.files, now), *await doors.store.read(agent_tasks.files)}
    await asyncio.to_thread(doors.shelf.prune, kept)
