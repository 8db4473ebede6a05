"""Steps of a commission that judge the machine from inside: what it is made of, and whether it holds what it promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from bcmetal.comparing.bom import parse
from bcmetal.comparing.judging import judge
from bcmetal.decisions import Again, Done, Failed
from bcmetal.errors import InvalidInput
from bcmetal.settings_profiles import CommissionProfile
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.workflows.inside import seen_inside
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.tasks import result_of, task
from bcmetal_agent.wire_tasks import RescueParams, RescueReady, TestParams, TestResult

HOLD_POLL_S: Final = 30.0
SHOWN: Final = 20


async def compare_with_the_bom(m: Machine) -> Outcome:
    """The machine is made of what the profile's bill of materials lists; every difference is named."""
    profile = m.asked.commission_profile
    if profile is None or profile.bom is None:
        return Done()
    if m.memo.get("test_failed"):
        return await _held(m, profile)
    seen = await seen_inside(m)
    if isinstance(seen, Failed):
        return seen
    try:
        wanted = parse(await asyncio.to_thread(profile.bom.read_text, encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return Failed("profile-mismatch", f"the bill of materials {profile.bom} cannot be read")
    except InvalidInput as error:
        return Failed("profile-mismatch", f"the bill of materials {profile.bom}: {error}")
    found = judge(wanted, seen)
    if not found:
        return Done()
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return await _failed(m, "profile-mismatch", "; ".join(found[:SHOWN]) + more)


def wanted_tests(profile: CommissionProfile) -> Iterator[TestParams]:
    """The profile's tests, the quick ones first: what is plainly broken is told early."""
    tests, limits = profile.tests, profile.tests.limits

    def one(name: Any, duration_s: int, **marks: float | None) -> TestParams:
        given = {mark: value for mark, value in marks.items() if value is not None}
        return TestParams(name=name, duration_s=duration_s, limits={**given, **limits.get(name, {})})

    if tests.clock:
        yield one("clock", tests.watch_s)
    if tests.network is not None:
        yield one("network", tests.watch_s, links=tests.network)
    if tests.disks != "none":
        yield one("smart", tests.watch_s)
    if tests.disk_speed_s:
        yield one("disk-speed", tests.disk_speed_s, floor_mbps=tests.disk_floor_mbps)
    if tests.disks == "read":
        yield one("disk-read", tests.disk_read_s)
    if tests.gpu_s:
        yield one("gpu", tests.gpu_s)
    if tests.cpu_s:
        yield one("cpu", tests.cpu_s)
    if tests.memory_s:
        yield one("memory", tests.memory_s)


async def test_the_hardware(m: Machine) -> Outcome:
    """Every test of the profile, one after the other, each with its log. One that cannot be run here is told, and fails too."""
    profile = m.asked.commission_profile
    if profile is None:
        return Done()
    if m.memo.get("test_failed"):
        return await _held(m, profile)
    wanted = list(wanted_tests(profile))
    m.take_longer("tests", sum(one.duration_s for one in wanted))
    failed: list[str] = []
    for n, params in enumerate(wanted):
        row = await task(m, f"test-{params.name}", "test", params)
        if isinstance(row, Again):
            within = row.progress if row.progress is not None else 0.0
            return Again(
                f"tests {params.name} ({n + 1} of {len(wanted)}): {row.why}", row.after_s, (n + within) / len(wanted)
            )
        if not isinstance(row, AgentTaskRow):
            return row
        result = result_of(row, TestResult)
        if isinstance(result, Failed):
            return result
        if result.passed is not True:
            failed.append(f"{params.name}: {result.summary}")
    return await _failed(m, "hardware-test", "; ".join(failed)) if failed else Done()


async def _failed(m: Machine, code: str, why: str) -> Outcome:
    """Failed; or, where the profile says so, held first for somebody to look at the machine while it runs."""
    profile = m.asked.commission_profile
    m.condition("hardware", "error", code, why[:2000])
    if profile is None or not profile.hold_on_failure_s:
        return Failed(code, why[:2000])
    m.remember(test_failed=[code, why[:2000]], held_at=m.now)
    m.take_longer("hold", profile.hold_on_failure_s)
    return Again("opens the machine to the hardware engineer", 0.0)


async def _held(m: Machine, profile: CommissionProfile) -> Outcome:
    """SSH is open to the profile's `hold_keys` until the time is over, or somebody aborts."""
    code, why = (str(one) for one in m.memo["test_failed"])
    held_s = m.since_s("held_at") or 0.0
    if held_s >= profile.hold_on_failure_s:
        return Failed(code, why)
    params = RescueParams(ssh_keys=profile.hold_keys, expires_in_s=profile.hold_on_failure_s, user="engineer")
    row = await task(m, "hold", "rescue", params)
    if not isinstance(row, AgentTaskRow):
        return Failed(code, f"{why} (and it could not be held: {row.why})") if isinstance(row, Failed) else row
    ready = result_of(row, RescueReady)
    if isinstance(ready, Failed):
        return Failed(code, why)
    where = " or ".join(f"{ready.user}@{address}" for address in ready.addresses)
    left = int(profile.hold_on_failure_s - held_s)
    return Again(f"failed {why[:300]}; held for {left} s: ssh {where}; `bcmetal abort` ends it", HOLD_POLL_S)
