"""The RAID layout of the commission profile: what is not of it is deleted, what it lacks is made, each job followed to its end.

Volumes destroy what is on their drives, so the disks count as half erased from the first of it on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from bcmetal.comparing.raid import Layout, NoLayout, layout_of
from bcmetal.decisions import Again, Done, Failed
from bcmetal.settings_profiles import CommissionProfile
from bcmetal.states import Disks, Verb
from bcmetal.store.values import MarkDrives, SetNode
from bcmetal.workflows.bios import not_offered
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal.workflows.restarting import let_a_boot_apply, under_way
from bcmetal_drivers.capabilities import DriveErase, Jobs, Volumes, need, offers
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import Drive, Job, JobState, VolumeWanted

JOB: Final = "raid_job"  # in the memo: what was asked last
JOB_POLL_S: Final = 10.0
SHOWS_ITSELF_S: Final = 120.0  # what takes no boot is there by then
LONGEST_JOB_S: Final = 3600.0


async def lay_out_the_raid(m: Machine) -> Outcome:
    """Look at the volumes, change one at a time, look again."""
    profile = _profile(m)
    if profile is None or not profile.raid:
        return Done()
    try:
        drives = await m.look(need(m.bmc, DriveErase).drives)
        volumes = await m.look(need(m.bmc, Volumes).volumes)
    except Unsupported as error:
        return not_offered(m, profile, "RAID volumes", error)
    try:
        layout = layout_of(profile.raid, drives, volumes)
    except NoLayout as error:
        return Failed("raid", str(error))
    return await _towards(m, layout, drives)


def _profile(m: Machine) -> CommissionProfile | None:
    """A release that erases puts back the layout that the machine was commissioned with."""
    if m.operation.verb != Verb.RELEASE:
        return m.asked.commission_profile
    erases = m.asked.release_profile is not None and m.asked.release_profile.erases
    return m.asked.commissioned_by if erases else None


async def delete_volumes_on(m: Machine, serials: Collection[str]) -> Outcome:
    """A drive that is part of a volume is not erased by its BMC: the volume goes first."""
    if not offers(m.bmc, Volumes):
        return Done()
    try:
        volumes = await m.look(need(m.bmc, Volumes).volumes)
    except Unsupported:
        return Done()
    return await _towards(m, Layout(tuple(one for one in volumes if set(one.drives) & set(serials)), ()), ())


async def _towards(m: Machine, layout: Layout, drives: tuple[Drive, ...]) -> Outcome:
    if under_way(m, "raid"):

        async def applied() -> bool:
            return layout.is_there

        return await let_a_boot_apply(m, "raid", applied, "its RAID layout", code="raid")
    asked: dict[str, Any] | None = m.memo.get(JOB)
    if asked is not None:
        return await _follow(m, layout, asked)
    if layout.is_there:
        return Done()
    return await _change(m, layout, drives)


async def _change(m: Machine, layout: Layout, drives: tuple[Drive, ...]) -> Outcome:
    """One volume. What was asked already and did not come is asked no second time: a start of the machine may bring it."""
    done: list[str] = list(m.memo.get("raid_asked") or ())
    deleting = next(iter(layout.delete), None)
    making = None if deleting is not None else layout.make[0]
    what = f"delete {deleting.ref}" if deleting is not None else f"make {_named(making)}"
    if what in done:

        async def applied() -> bool:
            return False

        return await let_a_boot_apply(m, "raid", applied, "its RAID layout", code="raid")
    await m.ready_to_act()
    if drives and m.node.facts.disks is not Disks.HALF and not m.memo.get("erases"):
        m.note(SetNode({"disks": Disks.HALF}), MarkDrives(tuple(one.serial for one in drives), True))
    bmc = need(m.bmc, Volumes)
    job: Job | Unsure
    if deleting is not None:
        job = await m.act_once(what, bmc.delete_volume, deleting.ref)
    else:
        job = await m.act_once(what, bmc.create_volume, layout.make[0])
    ref = "" if isinstance(job, Unsure) else job.ref
    m.remember(raid_asked=[*done, what], **{JOB: {"ref": ref, "at": m.now, "what": what}})
    return Again(f"waits for the controller to {what.partition(' ')[0]} a volume", 1.0)


def _named(wanted: VolumeWanted | None) -> str:
    return "" if wanted is None else f"{wanted.raid} of {', '.join(wanted.drives)}"


async def _follow(m: Machine, layout: Layout, asked: dict[str, Any]) -> Outcome:
    """A job that the BMC knows no more says nothing: the volumes do."""
    waited = max(0.0, (m.now - int(asked["at"])) / 1_000_000)
    job = Job(str(asked["ref"]), JobState.UNKNOWN)
    if asked["ref"] and offers(m.bmc, Jobs):
        job = await m.look(need(m.bmc, Jobs).job, str(asked["ref"]))
    if job.state is JobState.FAILED:
        m.remember(**{JOB: None})
        return Failed("raid", f"the controller did not {asked['what']}: {job.message or 'it gives no reason'}")
    came = not _still_wanted(layout, str(asked["what"]))
    if came or (job.state is not JobState.RUNNING and waited > SHOWS_ITSELF_S) or waited > LONGEST_JOB_S:
        m.remember(**{JOB: None})
        return Again("looks at the volumes again", 0.0)
    if job.state is JobState.RUNNING and waited > SHOWS_ITSELF_S and not job.progress:
        m.remember(**{JOB: None})  # it may wait for a start of the machine
        return Again("looks at the volumes again", 0.0)
    return Again(f"waits for the controller to {asked['what']}", JOB_POLL_S, job.progress)


def _still_wanted(layout: Layout, what: str) -> bool:
    deletes = {f"delete {one.ref}" for one in layout.delete}
    return what in deletes or what in {f"make {_named(one)}" for one in layout.make}
