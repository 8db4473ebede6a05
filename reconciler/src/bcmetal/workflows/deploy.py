"""Deploy. Kind `iso` boots an ISO as it is:

1. know_the_machine        the machine is the one that was inspected
2. fetch_the_image         fetched from an allowed address, its checksum compared, kept on the daemon's shelf
3. end_the_membership      of the system before: its certificates are revoked
4. power_off               seen off
5. take_the_disks          from now on they may hold the tenant's data
6. offer_the_medium        served to this BMC alone, at a fresh path
7. insert_the_medium       seen inserted
8. arm_the_cd              seen armed, for one boot
9. start_from_the_medium   on, and the override used up by that start
10. see_a_sign_of_life     as the pool says; `none` is said to be unproven
11. wait_for_the_join      where that sign is the machine's agent

Kind `image` has the agent write it. Up to 5 as above, the image unpacked where it has to be; then:

6. eject_media, offer_the_ramdisk, insert_the_ramdisk, arm_the_ramdisk, start_the_ramdisk, wait_for_the_agent
7. look_from_inside        the machine is the one that was inspected, from inside too
8. choose_the_disk         by the node's hints, or by a rule
9. write_the_image         checked as it comes, written, read back
10. write_the_config_drive a single-use join token is minted as this task is handed out
11. set_the_boot_entry     the firmware starts from that disk
12. power_off_at_the_end, eject_media_at_the_end, withdraw_the_medium_at_the_end, clear_boot_override_at_the_end
13. power_on               its own system starts
14. see_a_sign_of_life, wait_for_the_join
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.boot.fetch import ImageSource
from bcmetal.decisions import Again, Back, Done, Failed
from bcmetal.states import Disks, System
from bcmetal.store import drives, media
from bcmetal.store.values import MarkDrives, SetNode
from bcmetal.workflows.asked import Asked
from bcmetal.workflows.imaging import choose_the_disk, set_the_boot_entry, write_the_config_drive, write_the_image
from bcmetal.workflows.inside import look_from_inside
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.media import (
    arm_the_cd,
    fetch_of,
    insert_the_medium,
    offer_the_medium,
    start_from_the_medium,
)
from bcmetal.workflows.membership import end_the_membership, wait_for_the_join
from bcmetal.workflows.ramdisk import LEAVE, START
from bcmetal.workflows.steps import UNDO, eject_media, know_the_machine, power_off, power_on
from bcmetal_drivers.capabilities import Readings, need
from bcmetal_drivers.resources import PowerState

RUNNING = "OSRunning"
LIFE_POLL_S = 5.0
LIFE_LONGEST_POLL_S = 30.0
LIFE_PATIENCE_S = 1800.0


async def fetch_the_image(m: Machine) -> Outcome:
    """Have the image on the shelf, checked."""
    wanted = m.input["image"]
    if wanted.get("name"):
        image = m.image(str(wanted["name"]))
        if image is None:
            return Failed("image-not-found", f"the configuration has no image {wanted['name']}")
        source = ImageSource(image.url, image.sha256, image.sha512, image.format)
    else:
        source = ImageSource(
            str(wanted["url"]),
            wanted.get("sha256"),
            wanted.get("sha512"),
            wanted.get("format") or "iso",
            m.node.tenant_id,
        )
    return fetch_of(source, m)


async def take_the_disks(m: Machine) -> Outcome:
    """The image may write to any disk of the machine once it boots: say so first."""
    known = await m.doors.store.read(drives.of_node, m.node.node_id)
    await m.ready_to_act()
    m.note(
        SetNode({"disks": Disks.TENANT, "system": System.INSTALLING}),
        MarkDrives(tuple(row.serial for row in known), True, m.node.tenant_id),
    )
    return Done()


async def see_a_sign_of_life(m: Machine) -> Outcome:
    """The pool's `sign_of_life`. With `none`, the medium was fetched and the machine is on: the rest is said to be unproven."""
    seen = await m.look(need(m.bmc, Readings).reading)
    if seen.power is PowerState.OFF:
        return Back("power_off", "the machine went off before it gave a sign of life")
    if m.input.get("kind") != "image" and not m.memo.get("media_served"):
        served = await m.doors.store.read(media.served_count, str(m.memo["media_path"]))
        if not served:
            return Failed("media-not-fetched", "the machine is on, and its BMC never fetched the medium")
        m.remember(media_served=True)
    if m.pool.sign_of_life == "bootProgress" and seen.boot_progress != RUNNING:
        if seen.boot_progress is None:
            return Failed("no-sign-of-life", "the pool waits for the BMC's BootProgress, which this BMC does not tell")
        waited = m.since_s("life_asked_at")
        if waited is None:
            m.remember(life_asked_at=m.now)
        elif waited > LIFE_PATIENCE_S:
            return Failed(
                "no-sign-of-life", f"started {waited:.0f} s ago, and its boot came no further than {seen.boot_progress}"
            )
        after_s = min(LIFE_LONGEST_POLL_S, max(LIFE_POLL_S, (waited or 0.0) / 20))
        return Again(f"waits for its system to run; its boot came as far as {seen.boot_progress}", after_s)
    if m.pool.sign_of_life == "agent":
        return Done()  # its join is the sign, and the next step's
    proven = m.pool.sign_of_life if m.pool.sign_of_life != "none" else "unproven"
    m.note(SetNode({"system": System.PRESENT}))
    m.remember(proof=proven)
    return Done()


STEPS = (
    know_the_machine,
    fetch_the_image,
    end_the_membership,
    power_off,
    take_the_disks,
    offer_the_medium,
    insert_the_medium,
    arm_the_cd,
    start_from_the_medium,
    see_a_sign_of_life,
    wait_for_the_join,
)
BY_THE_AGENT = (
    know_the_machine,
    fetch_the_image,
    end_the_membership,
    power_off,
    take_the_disks,
    eject_media,
    *START,
    look_from_inside,
    choose_the_disk,
    write_the_image,
    write_the_config_drive,
    set_the_boot_entry,
    *LEAVE,
    power_on,
    see_a_sign_of_life,
    wait_for_the_join,
)
CLEANUP = UNDO


def steps_for(asked: Asked) -> Sequence[Step]:
    return BY_THE_AGENT if asked.deploys_by_agent else STEPS
