"""A real daemon process is killed forty times at seeded random moments, while sixteen machines go through their lives."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from bcmetal.client import ApiError, Client
from bcmetal_drivers.emulated.rack import Rack
from bcmetal_drivers.resources import PowerState
from e2e.mortal_site import MortalSite, mortal_site
from e2e.rounds import Admin, Life, story, timeline

SEED: Final = 20261202
KILLS: Final = 40
KILLED_AFTER_S: Final = (0.15, 1.2)  # after the daemon said that it is ready
REDFISH: Final = 12
IPMI: Final = 4
TIME_S: Final = 240.0
# A dead daemon cannot log out: its sessions stay until the BMC lets them lapse, here sooner than in earnest, for the kills come sooner.
SESSION_LAPSES_S: Final = 10.0
IPMI_SESSIONS: Final = 64
POWER_LAG_S: Final = 0.2
ERASE_S: Final = 0.5


def _rack() -> Rack:
    rack = Rack(seed=SEED)
    for n in range(1, REDFISH + 1):
        rack.add_redfish(f"r{n:02d}", power_lag_s=POWER_LAG_S, erase_s=ERASE_S, session_timeout_s=SESSION_LAPSES_S)
    for n in range(1, IPMI + 1):
        rack.add_ipmi(f"i{n:02d}", power_lag_s=POWER_LAG_S).set(max_sessions=IPMI_SESSIONS)
    return rack


@pytest.mark.slow
def test_forty_kills_leave_no_machine_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    dice = random.Random(SEED)
    rack = _rack()
    bmcs = tuple(rack.bmcs.values())
    at_work: Counter[str] = Counter()
    kills = busy_kills = 0
    with mortal_site(tmp_path, rack, bmcs[:REDFISH], bmcs[REDFISH:]) as site:
        site.daemon.start()
        admin = Admin(site, began + TIME_S)
        admin.start()
        try:
            for _ in range(KILLS):
                time.sleep(dice.uniform(*KILLED_AFTER_S))
                if admin.over or not admin.is_alive():
                    break
                site.daemon.kill()
                kills += 1
                found = site.interrupted()
                busy_kills += bool(found)
                at_work.update(one.verb for one in found)
                site.daemon.start()
            else:
                admin.enough.set()
            killed_s = time.monotonic() - began
            admin.join(max(0.0, began + TIME_S - time.monotonic()))
        finally:
            admin.give_up.set()
            admin.join()
        unanswered = sum(life.unanswered for life in admin.lives)
        print(f"\nseed {SEED}: {kills} kills in {killed_s:.0f} s, {busy_kills} of them with operations under way:")
        print(f"  {dict(at_work)}; {unanswered} verbs lost their answer")
        print(f"  rounds: {[life.round for life in admin.lives]}; at rest after {time.monotonic() - began:.0f} s")
        complaints = _complaints(site, admin)
        assert not complaints, f"seed {SEED}\n" + "\n".join(complaints)
        assert site.daemon.stop() == 0, site.daemon.last_words()
    assert kills == KILLS
    assert busy_kills >= KILLS * 3 // 4


def _complaints(site: MortalSite, admin: Admin) -> list[str]:
    """Whatever is not as it was asked, each with the node's timeline; empty when all is well."""
    found: list[str] = []
    if not site.daemon.alive():
        found.append(f"the daemon is dead:\n{site.daemon.last_words()}")
        site.daemon.start()
    # A fault stops the admin: those that had not come to rest by then are not what is to be looked at.
    lives = [life for life in admin.lives if life.fault] or admin.lives
    with site.client() as client:
        for life in lives:
            wrong = _wrong(life)
            if wrong:
                found.append(f"{life.name}: {'; '.join(wrong)}\n{_story(client, life)}")
    return found


def _story(client: Client, life: Life) -> str:
    try:
        return story(timeline(client, life)) if life.view else "    it was never enrolled"
    except ApiError as e:
        return f"    no timeline: {e.message}"


def _wrong(life: Life) -> list[str]:
    wrong = [life.fault] if life.fault else []
    if not life.over:
        wrong.append(f"did not come to rest: round {life.round}, {life.chapter.method}, {life.view.get('operation')}")
    if life.over and not life.fault:
        machine = life.bmc.machine
        if life.view["state"] != "retired":
            wrong.append(f"is {life.view['state']}")
        if machine.power is not PowerState.OFF:
            wrong.append(f"the machine is {machine.power}")
        if machine.media is not None:
            wrong.append("a medium is inserted")
    return wrong
