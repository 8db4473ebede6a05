"""Rescue: boot the site's rescue ISO beside the tenant's disks. The ISO carries its own access; no key is delivered to it.

1. know_the_machine        the machine is the one that was inspected
2. fetch_the_rescue_iso    on the daemon's shelf, its checksum compared
3. power_off               seen off
4. offer_the_medium        served to this BMC alone, at a fresh path
5. insert_the_medium       seen inserted
6. arm_the_cd              seen armed, for one boot
7. start_from_the_medium   on, and the override used up by that start
"""

from __future__ import annotations

from bcmetal.boot.fetch import ImageSource
from bcmetal.decisions import Failed
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.media import (
    arm_the_cd,
    fetch_of,
    insert_the_medium,
    offer_the_medium,
    start_from_the_medium,
)
from bcmetal.workflows.steps import UNDO, know_the_machine, power_off


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
CLEANUP = UNDO
