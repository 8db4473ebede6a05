"""Steps that boot a machine from an ISO by virtual media: fetch and check it, offer it, insert it, arm it once, start the machine."""

from __future__ import annotations

from bcmetal.boot.fetch import ImageFault, ImageSource
from bcmetal.boot.media import new_path
from bcmetal.boot.shelf import Ready
from bcmetal.decisions import Again, Back, Done, Failed
from bcmetal.store import media
from bcmetal.store.values import SetNode, SetSighting
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal.workflows.steps import forget_the_power, power_on
from bcmetal_drivers.capabilities import BootOnce, Power, VirtualMedia, need
from bcmetal_drivers.resources import BootDevice, BootMode, PowerState

PLAIN_HTTP_WHY = (
    "its medium is handed to the BMC over plain HTTP: whoever is on that wire may change what the machine boots"
)
OVERRIDE_USED_UP_S = 60.0  # some BMCs show a used-up Once until POST is over


def fetch_of(source: ImageSource, m: Machine) -> Outcome:
    """Have the image on the shelf, checked; a fetch goes on in the background."""
    try:
        look = m.doors.shelf.look(source, by=m.operation.operation_id)
    except ImageFault as fault:
        if fault.retryable:
            return Again(str(fault), 10.0)
        return Failed(fault.code, str(fault))
    if isinstance(look, Ready):
        m.remember(image_file=look.path.name, image_sha256=look.sha256, image_bytes=look.size)
        m.remember(image_compression=look.compression, image_raw_bytes=look.raw_bytes)
        return Done()
    progress = look.done_bytes / look.total_bytes if look.total_bytes else None
    return Again("fetches and checks the image", 0.5, progress)


async def offer_the_medium(m: Machine) -> Outcome:
    """Serve the image to this BMC alone, at a fresh path, over HTTP."""
    if m.memo.get("media_path"):
        return Done()
    bmc, network = m.node.bmc, m.network
    if bmc is None or network is None or not network.media_url:
        return Failed("media-not-fetched", "the BMC's network names no `media_url` in the configuration")
    await m.ready_to_act()
    path = new_path(m.doors.entropy(16))
    await m.doors.store.write(
        media.add,
        path,
        m.node.node_id,
        m.operation.operation_id,
        str(m.memo["image_sha256"]),
        str(m.memo["image_file"]),
        bmc.host,
        None,
        m.now,
    )
    m.remember(media_path=path, media_url=network.media_url.rstrip("/") + path)
    if network.media_url.startswith("http://"):
        m.condition("boot-path", "warning", "plain-http", PLAIN_HTTP_WHY)
    return Done()


async def insert_the_medium(m: Machine) -> Outcome:
    """Insert the offered medium while the machine is off, and see it inserted."""
    power = await m.look(need(m.bmc, Power).power_state)
    if power is not PowerState.OFF:
        return Back("power_off", f"the machine is {power} before its medium is in")
    if await inserted(m):
        return Done()
    await m.act(need(m.bmc, VirtualMedia).insert, str(m.memo["media_url"]))
    return Again("looks whether the medium is in", 0.0)


async def inserted(m: Machine) -> bool:
    """Whether a slot shows the medium of this very operation."""
    slots = await m.look(need(m.bmc, VirtualMedia).inserted)
    return any(slot.shows(str(m.memo["media_url"])) for slot in slots)


async def arm_the_cd(m: Machine) -> Outcome:
    """Arm the virtual CD for the next boot, while the machine is off."""
    return await arm(m, BootDevice.CD)


async def arm(m: Machine, device: BootDevice) -> Outcome:
    """Arm this device for the next boot, while the machine is off."""
    power = await m.look(need(m.bmc, Power).power_state)
    if power is not PowerState.OFF:
        return Back("power_off", f"the machine is {power} before its boot override is set")
    override = await m.look(need(m.bmc, BootOnce).boot_override)
    if override.device is device and override.once:
        return Done()
    await m.act(need(m.bmc, BootOnce).boot_once, device, wanted_mode(m))
    return Again("looks whether the boot override is set", 0.0)


def wanted_mode(m: Machine) -> BootMode | None:
    profile = m.settings.profiles.commission.get(m.node.profile or m.pool.commission)
    return BootMode(profile.boot_mode) if profile is not None and profile.boot_mode else None


async def start_from_the_medium(m: Machine) -> Outcome:
    """Power on with the override armed; the machine is on, and the override is used up by that very start."""
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    override = await m.look(need(m.bmc, BootOnce).boot_override)
    armed = override.device is BootDevice.CD
    if power is PowerState.OFF and not armed:
        return Back("arm_the_cd", "the boot override was used up before the machine was started for this run")
    if power is PowerState.OFF and not await inserted(m):
        return Back("insert_the_medium", "the medium was taken out before the machine was started")
    if power is PowerState.ON:
        if armed and override.once:
            seen = m.since_s("on_seen_at")
            if seen is None:
                m.remember(on_seen_at=m.now)
            elif seen > OVERRIDE_USED_UP_S:
                m.remember(on_seen_at=None)
                forget_the_power(m, "on")
                return Back("power_off", "the machine is on, and its boot override was not used")
            return Again("waits for the machine to use its boot override", 2.0)
        m.remember(on_seen_at=None)
        forget_the_power(m, "on")
        m.note(SetNode({"desired_power": "on"}))
        return Done()
    outcome = await power_on(m)
    return Again("looks how the machine starts", 0.0) if isinstance(outcome, Done) else outcome
