"""Firmware brought to a baseline of the configuration, one component after another, in the order of the file.

The image is fetched and checked by the daemon, and handed to this BMC alone. What the BMC says of the update is followed to its end
and not believed: the version is read several times in a row, for BMCs restart, flap, and call complete what changed nothing. What only a
boot brings into force gets one start of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from bcmetal.boot.fetch import ImageFault, ImageSource
from bcmetal.boot.media import new_path
from bcmetal.boot.shelf import Ready
from bcmetal.decisions import Again, Done, Failed
from bcmetal.settings_profiles import FirmwareImage
from bcmetal.store import media
from bcmetal.workflows.bios import not_offered
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal.workflows.restarting import let_a_boot_apply, under_way
from bcmetal.workflows.watched import watched
from bcmetal_drivers.capabilities import Firmware, Identifies, Jobs, need, offers
from bcmetal_drivers.errors import Transient, Unsupported
from bcmetal_drivers.resources import FirmwareComponent, Job, JobState

NOW: Final = "firmware_now"  # in the memo: what is being brought
BROUGHT: Final = "firmware_brought"  # component → version
GOOD_READS: Final = 3
READ_POLL_S: Final = 5.0
JOB_POLL_S: Final = 10.0
JOB_PATIENCE_S: Final = 3600.0
SHOWS_ITSELF_S: Final = 180.0  # what takes no boot shows its version by then
TAKES_S: Final = 3600  # beside the verb's own budget, for each component


@dataclass(frozen=True, slots=True)
class Update:
    """A row of the baseline, and those of this machine's components that it is for."""

    pattern: str
    image: FirmwareImage
    components: tuple[FirmwareComponent, ...]

    @property
    def wrong(self) -> tuple[FirmwareComponent, ...]:
        return tuple(one for one in self.components if not is_version(one.version, self.image.version))


def is_version(shown: str, wanted: str) -> bool:
    """`2.15.1`, and what tells more around it: `BIOS Date: 03/12/2026 Ver 2.15.1`."""
    return re.search(rf"(?<![\w.]){re.escape(wanted)}(?![\w.])", shown, re.IGNORECASE) is not None


def updates_of(
    baseline: Mapping[str, FirmwareImage], model: str, components: Sequence[FirmwareComponent]
) -> list[Update]:
    """In the order of the file; rows for other models are left out."""
    found = []
    for pattern, image in baseline.items():
        if image.models is not None and not re.fullmatch(image.models, model):
            continue
        names = re.compile(pattern, re.IGNORECASE)
        mine = [one for one in components if any(names.fullmatch(text) for text in (one.name, one.software_id or ""))]
        found.append(Update(pattern, image, tuple(mine)))
    return found


async def bring_the_firmware(m: Machine) -> Outcome:
    """The firmware baseline of the commission profile."""
    profile = m.asked.commission_profile
    if profile is None or profile.firmware is None:
        return Done()
    try:
        return await bring_baseline(m, profile.firmware)
    except Unsupported as error:
        return not_offered(m, profile, "firmware updates", error)


async def bring_baseline(
    m: Machine, name: str, only: frozenset[str] | None = None, *, compared_only: bool = True
) -> Outcome:
    """`only`: names of components, where not all of the baseline is wanted. `compared_only` False: rows without an image say nothing. Raises Unsupported where the BMC has no way to it."""
    baseline = m.settings.firmware.get(name)
    if baseline is None:
        return Failed("firmware-update", f"the configuration has no firmware baseline {name}")
    components = await _read(m)
    identity = await m.look(need(m.bmc, Identifies).identity)
    updates = updates_of(baseline, identity.model or "", components)
    missing = [one.pattern for one in updates if not one.components]
    if missing and only is None:
        raise Unsupported(f"{m.address}: the BMC lists no firmware like {', '.join(missing)}")
    if not compared_only:
        updates = [one for one in updates if one.image.url is not None]
    now: dict[str, Any] | None = m.memo.get(NOW)
    if now is None:
        wanted = [one for one in updates if any(only is None or part.name in only for part in one.wrong)]
        if not wanted:
            return Done()
        return _begin(m, wanted[0])
    update = next((one for one in updates if one.pattern == now["pattern"]), None)
    if update is None:
        m.remember(**{NOW: None})
        return Again("the firmware that is wanted changed meanwhile", 0.0)
    return await _go_on(m, update, now)


async def _read(m: Machine) -> tuple[FirmwareComponent, ...]:
    """A read that fails breaks the row of good ones."""
    try:
        return await m.look(need(m.bmc, Firmware).firmware)
    except Transient:
        _keep(m, good=0)
        raise


def _keep(m: Machine, **more: Any) -> None:
    known = m.memo.get(NOW)
    if known is not None:
        m.remember(**{NOW: {**known, **more}})


def _begin(m: Machine, update: Update) -> Outcome:
    if update.image.url is None:
        told = "; ".join(f"{one.name} is {one.version}" for one in update.wrong)
        return Failed("firmware-update", f"{told}; {update.image.version} is wanted, and no image of it is named")
    m.take_longer(f"firmware {update.pattern}", TAKES_S)
    m.remember(**{NOW: {"pattern": update.pattern}})
    return Again(f"brings {update.image.version} to {update.pattern}", 0.0)


async def _go_on(m: Machine, update: Update, now: Mapping[str, Any]) -> Outcome:
    """Fetch → offer → ask → follow the job → read the version back."""
    if "url" not in now:
        return await _offer(m, update)
    if "asked_at" not in now:
        return await _ask(m, update, str(now["url"]))
    if not now.get("job_ended"):
        return await _follow(m, update, now)
    return await _prove(m, update, now)


async def _offer(m: Machine, update: Update) -> Outcome:
    image, bmc, network = update.image, m.node.bmc, m.network
    if bmc is None or network is None or not network.media_url:
        return Failed("media-not-fetched", "the BMC's network names no `media_url` in the configuration")
    source = ImageSource(str(image.url), image.sha256, image.sha512, "firmware")
    try:
        look = m.doors.shelf.look(source, by=m.operation.operation_id)
    except ImageFault as fault:
        return Again(str(fault), 10.0) if fault.retryable else Failed(fault.code, str(fault))
    if not isinstance(look, Ready):
        progress = look.done_bytes / look.total_bytes if look.total_bytes else None
        return Again("fetches and checks the firmware", 0.5, progress)
    await m.ready_to_act()
    path = new_path(m.doors.entropy(16), PurePosixPath(urlsplit(str(image.url)).path).suffix)
    where = (m.node.node_id, m.operation.operation_id, look.sha256, look.path.name, bmc.host)
    await m.doors.store.write(media.add, path, *where, None, m.now)
    _keep(m, url=network.media_url.rstrip("/") + path, path=path, file=look.path.name)
    m.remember(firmware_path=path)
    return Again("asks the BMC to take the firmware", 0.0)


async def _ask(m: Machine, update: Update, url: str) -> Outcome:
    """Once; what is not known to have been taken is looked for in the versions."""
    targets = tuple(one.ref for one in update.wrong)
    name = f"firmware {update.pattern} {m.memo[NOW].get('path')}"
    try:
        job: Job | Unsure = await m.ask_once(name, need(m.bmc, Firmware).update_firmware, url, targets)
    except Unsupported:
        image = m.doors.shelf.folder / str(m.memo[NOW]["file"])
        push = need(m.bmc, Firmware).push_firmware
        async with watched(m, f"sends {update.image.version} to {update.pattern}", image.stat().st_size) as told:
            job = await m.ask_once(f"{name} sent", push, image, targets, told)
    if isinstance(job, Unsure) or not job.ref:
        _keep(m, asked_at=m.now, job="", job_ended=True, ended_at=m.now)
    else:
        _keep(m, asked_at=m.now, job=job.ref)
    return Again("follows the update", 1.0)


async def _follow(m: Machine, update: Update, now: Mapping[str, Any]) -> Outcome:
    """To the end of its Task. One that is purged or lost says nothing: the version does."""
    job = Job(str(now["job"]), JobState.UNKNOWN)
    if offers(m.bmc, Jobs):
        job = await m.look(need(m.bmc, Jobs).job, str(now["job"]))
    waited = max(0.0, (m.now - int(now["asked_at"])) / 1_000_000)
    if job.state is JobState.RUNNING and waited <= JOB_PATIENCE_S:
        return Again(f"waits for the update of {update.pattern}", JOB_POLL_S, job.progress)
    if job.state in (JobState.FAILED, JobState.RUNNING):
        await _withdraw(m)
        m.remember(**{NOW: None})
        why = job.message or ("it does not end" if job.state is JobState.RUNNING else "the BMC gives no reason")
        return Failed("firmware-update", f"the update of {update.pattern} to {update.image.version} failed: {why}")
    _keep(m, job_ended=True, ended_at=m.now)
    return Again("reads the firmware's version back", 1.0)


async def _prove(m: Machine, update: Update, now: Mapping[str, Any]) -> Outcome:
    """The version asked for, in several reads in a row; where it does not come by itself, after a start of the machine."""
    right = not update.wrong
    if under_way(m, "firmware"):

        async def applied() -> bool:
            return right

        outcome = await let_a_boot_apply(m, "firmware", applied, "its new firmware", code="firmware-update")
        if isinstance(outcome, Failed):
            await _withdraw(m)
            m.remember(**{NOW: None})
            shown = ", ".join(f"{one.name} is {one.version}" for one in update.wrong)
            return Failed("firmware-update", f"the update to {update.image.version} ended, and {shown}")
        return outcome if not isinstance(outcome, Done) else Again("reads the firmware's version back", 0.0)
    if right:
        good = int(now.get("good", 0)) + 1
        if good < GOOD_READS:
            _keep(m, good=good)
            return Again("reads the firmware's version several times in a row", READ_POLL_S)
        brought = {one.name: one.version for one in update.components}
        await _withdraw(m)
        m.remember(**{NOW: None, BROUGHT: {**(m.memo.get(BROUGHT) or {}), **brought}})
        m.tell("metal.firmware.updated", components=brought)
        return Again(f"{update.pattern} has its firmware", 0.0)
    _keep(m, good=0)
    waited = max(0.0, (m.now - int(now["ended_at"])) / 1_000_000)
    if waited < SHOWS_ITSELF_S:
        return Again("waits for the BMC to show the new version", JOB_POLL_S)

    async def never() -> bool:
        return False

    return await let_a_boot_apply(m, "firmware", never, "its new firmware")


async def _withdraw(m: Machine) -> None:
    path = m.memo.get("firmware_path")
    if path:
        await m.doors.store.write(media.end_one, str(path), m.now)
        m.remember(firmware_path=None)
