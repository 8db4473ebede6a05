"""Rescue: start another system beside the tenant's disks. Without keys, the site's rescue ISO, which carries its own access:

1. know_the_machine        the machine is the one that was inspected
2. fetch_the_rescue_iso    on the daemon's shelf, its checksum compared
3. power_off               seen off
4. offer_the_medium        served to this BMC alone, at a fresh path
5. insert_the_medium       seen inserted
6. arm_the_cd              seen armed, for one boot
7. start_from_the_medium   on, and the override used up by that start

With keys or a password's hash the agent in the ramdisk opens SSH to them, the disks neither assembled nor mounted:

2. power_off, eject_media, offer_the_ramdisk, insert_the_ramdisk, arm_the_ramdisk, start_the_ramdisk, wait_for_the_agent
3. open_the_rescue         its address and host keys are told in the node's view
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.boot.fetch import ImageSource
from bcmetal.decisions import Done, Failed
from bcmetal.store import rescues
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.media import (
    arm_the_cd,
    fetch_of,
    insert_the_medium,
    offer_the_medium,
    start_from_the_medium,
)
from bcmetal.workflows.ramdisk import START
from bcmetal.workflows.steps import UNDO, eject_media, know_the_machine, power_off
from bcmetal.workflows.tasks import result_of, task
from bcmetal_agent.wire_tasks import RescueParams, RescueReady


async def fetch_the_rescue_iso(m: Machine) -> Outcome:
    """Have the pool's rescue ISO on the shelf, checked."""
    image = m.image(m.pool.rescue_iso) if m.pool.rescue_iso else None
    if image is None:
        return Failed("image-not-found", "the pool names no `rescue_iso` that the configuration has")
    return fetch_of(ImageSource(image.url, image.sha256, image.sha512), m)


STEPS = (
    know_the_machine,
    fetch_the_rescue_iso,
    power_off,
    offer_the_medium,
    insert_the_medium,
    arm_the_cd,
    start_from_the_medium,
)


async def open_the_rescue(m: Machine) -> Outcome:
    """SSH is open; the password's hash goes to the agent as the task is handed out, and is stored nowhere in the clear."""
    params = RescueParams(
        ssh_keys=tuple(m.input.get("sshKeys") or ()), expires_in_s=int(m.input.get("expiresAfterS") or 0)
    )
    row = await task(m, rescues.TASK, "rescue", params)
    if not isinstance(row, AgentTaskRow):
        return row
    ready = result_of(row, RescueReady)
    return ready if isinstance(ready, Failed) else Done()


BY_THE_AGENT = (know_the_machine, power_off, eject_media, *START, open_the_rescue)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    return BY_THE_AGENT if asked.rescues_by_agent else STEPS
