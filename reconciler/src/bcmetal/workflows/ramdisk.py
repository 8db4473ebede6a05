"""Steps that boot a machine once into the site's ramdisk, and wait for its agent: by virtual media, or over the network where there are none.

Each start has a boot token of its own. A ramdisk that never calls, an agent that falls silent and a machine that somebody switches are
ground that was lost: `boot_anew` goes back to the power-off, and the next start has a new token, so that whoever holds the old one is
nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from bcmetal.boot import token_file
from bcmetal.boot.media import new_path
from bcmetal.boot.pxe import new_key
from bcmetal.boot.token_file import Minted
from bcmetal.decisions import SECOND, Again, Back, Done, Failed, Micros
from bcmetal.ramdisk.build import opened
from bcmetal.ramdisk.faults import BuildFailed
from bcmetal.store import agents, boot_tokens, media, netboot
from bcmetal.store.values import SetNode, SetSighting
from bcmetal.workflows.machine import Machine, Outcome, Step
from bcmetal.workflows.media import PLAIN_HTTP_WHY, arm, insert_the_medium, inserted
from bcmetal.workflows.steps import (
    clear_boot_override,
    eject_media,
    forget_the_power,
    power_off,
    power_on,
    withdraw_the_medium,
)
from bcmetal.workflows.wrapped import once_more
from bcmetal_drivers.capabilities import BootOnce, Power, VirtualMedia, need, offers
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import BootDevice, PowerState

TOKEN_LASTS_US: Final = 24 * 3600 * SECOND  # its operation ends it sooner
POWER_LOOK_S: Final = 30.0
AWAY_S: Final = 120.0  # nobody looked for so long: the daemon was down
HELLO_POLL_S: Final = 10.0  # a hello wakes the operation at once
CONFLICTS_ALLOWED: Final = 2
NETWORK_WHY: Final = (
    "it boots its ramdisk over the network, unencrypted: whoever is on that network may change what it boots"
)


def boot_anew(m: Machine, why: str) -> Back:
    """Start over from the power-off, with a new token and a medium of its own."""
    m.remember(boot_offered=None, agent_awaited_at=None, boot_looked_at=None)
    forget_the_power(m, "on")
    return Back("power_off", why)


async def token_lost(m: Machine, why: str) -> Outcome:
    """This start's token is good no more: start over, but not for ever where somebody else comes with each of them. `why`: if nobody did."""
    conflicts = await m.doors.store.read(boot_tokens.conflicts, m.operation.operation_id)
    if conflicts > CONFLICTS_ALLOWED:
        return Failed("boot-token-conflict", f"{conflicts} times two agents came with the boot token of one start")
    if conflicts:
        why = "two agents came with one boot token: both are refused, and the machine starts with another"
    return boot_anew(m, why)


async def by_virtual_media(m: Machine) -> bool:
    """Whether this BMC has a slot that a medium can be put in."""
    if not offers(m.bmc, VirtualMedia):
        return False
    try:
        return bool(await m.look(need(m.bmc, VirtualMedia).inserted))
    except Unsupported:
        return False


async def offer_the_ramdisk(m: Machine) -> Outcome:
    """A boot token, and the medium or the network offer that carries it."""
    if m.memo.get("boot_offered") and await m.doors.store.read(
        boot_tokens.live, m.operation.operation_id, Micros(m.now)
    ):
        return Done()
    try:
        built = await asyncio.to_thread(opened, m.settings.daemon.ramdisk_folder)
    except BuildFailed as error:
        return Failed("ramdisk-missing", str(error))
    minted = token_file.fresh(m.doors.vault, m.operation.operation_id, m.now, m.doors.entropy)
    if await by_virtual_media(m):
        bmc, network = m.node.bmc, m.network
        if bmc is None or network is None or not network.media_url:
            return Failed("media-not-fetched", "the BMC's network names no `media_url` in the configuration")
        path, in_clear = new_path(m.doors.entropy(16)), not network.media_url.startswith("https://")
        await m.ready_to_act()
        sha256 = str(built.manifest["files"][built.iso.name]["sha256"])
        await m.doors.store.write(
            _offer_medium, m, minted, path, sha256, built.iso.name, bmc.host, built.token_offset, in_clear
        )
        m.remember(media_path=path, media_url=network.media_url.rstrip("/") + path)
        if in_clear:
            m.condition("boot-path", "warning", "plain-http", PLAIN_HTTP_WHY)
    else:
        await m.ready_to_act()
        await m.doors.store.write(_offer_network, m, minted, new_key(m.doors.entropy(16)))
        m.remember(media_path=None, media_url=None)
        m.condition("boot-path", "warning", "plain-network", NETWORK_WHY)
    m.remember(boot_offered=True, agent_awaited_at=None)
    return Done()


def _offer_medium(
    c: Connection,
    m: Machine,
    minted: Minted,
    path: str,
    sha256: str,
    file: str,
    host: str,
    offset: int,
    in_clear: bool,
) -> None:
    operation_id, node_id, now = m.operation.operation_id, m.node.node_id, m.now
    expires_at = Micros(now + TOKEN_LASTS_US)
    token_file.mint(c, operation_id, node_id, minted, expires_at, now, in_clear=in_clear)
    media.end(c, operation_id, now)
    media.add(c, path, node_id, operation_id, sha256, file, host, expires_at, now, offset)


def _offer_network(c: Connection, m: Machine, minted: Minted, key: str) -> None:
    operation_id, node_id, now = m.operation.operation_id, m.node.node_id, m.now
    expires_at = Micros(now + TOKEN_LASTS_US)
    token_file.mint(c, operation_id, node_id, minted, expires_at, now, in_clear=True)
    media.end(c, operation_id, now)
    netboot.offer(c, key, node_id, operation_id, expires_at, now)


async def insert_the_ramdisk(m: Machine) -> Outcome:
    """Insert the medium, and see it inserted; there is none where the machine boots from the network."""
    return await insert_the_medium(m) if m.memo.get("media_path") else Done()


def _device(m: Machine) -> BootDevice:
    return BootDevice.CD if m.memo.get("media_path") else BootDevice.PXE


async def arm_the_ramdisk(m: Machine) -> Outcome:
    """Arm the ramdisk's device for the next boot, while the machine is off."""
    return await arm(m, _device(m))


async def start_the_ramdisk(m: Machine) -> Outcome:
    """Power on with the override armed. That it was used is shown by the agent's call."""
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.ON:
        forget_the_power(m, "on")
        m.note(SetNode({"desired_power": "on"}))
        return Done()
    if power is PowerState.OFF:
        override = await m.look(need(m.bmc, BootOnce).boot_override)
        if override.device is not _device(m):
            return boot_anew(m, "the boot override was gone before the machine was started")
        if m.memo.get("media_path") and not await inserted(m):
            return boot_anew(m, "the medium was taken out before the machine was started")
    outcome = await power_on(m)
    return Again("looks how the machine starts", 0.0) if isinstance(outcome, Done) else outcome


async def wait_for_the_agent(m: Machine) -> Outcome:
    """The agent in the ramdisk said hello with this start's token."""
    operation_id = m.operation.operation_id
    agent = await m.doors.store.read(agents.current, operation_id)
    if agent is not None:
        m.remember(agent_awaited_at=None, boot_looked_at=None)
        m.condition("agent", "ok")
        return Done()
    if await m.doors.store.read(boot_tokens.live, operation_id, m.now) is None:
        return await token_lost(m, "the boot token's time was over before the agent called")
    waited, unseen = m.since_s("agent_awaited_at"), m.since_s("boot_looked_at") or 0.0
    if waited is None:
        m.remember(agent_awaited_at=m.now, boot_looked_at=m.now)
    elif unseen > AWAY_S:  # while the daemon was away, no agent could call
        away = int(unseen * SECOND)
        m.remember(agent_awaited_at=int(m.memo["agent_awaited_at"]) + away, boot_looked_at=m.now)
    elif waited > m.settings.daemon.hello_within_s:
        return await _never_called(m, waited)
    elif unseen >= POWER_LOOK_S:
        m.remember(boot_looked_at=m.now)
        power = await m.look(need(m.bmc, Power).power_state)
        m.note(SetSighting(power=power))
        if power is PowerState.OFF:
            return boot_anew(m, "the machine went off before its agent called")
    return Again(f"waits for the agent to call from the ramdisk, for {waited or 0.0:.0f} s", HELLO_POLL_S)


async def _never_called(m: Machine, waited: float) -> Outcome:
    if m.memo.get("media_path"):
        served = await m.doors.store.read(media.served_count, str(m.memo["media_path"]))
    else:
        served = await m.doors.store.read(netboot.served_count, m.operation.operation_id)
    code = "agent-silent"
    if served:
        why = "its ramdisk was fetched, so look at the machine's console and at its network"
    elif m.memo.get("media_path"):
        code, why = "media-not-fetched", "its BMC shows the medium as inserted, and never fetched it"
    else:
        why = "it never asked for its ramdisk: `bcmetal pxe dnsmasq` says what the network must answer, and `bootMac` from where"
    if m.operation.backs >= 1:
        return Failed(code, f"started {waited:.0f} s ago, and no agent called; {why}")
    return boot_anew(m, f"started {waited:.0f} s ago, and no agent called; {why}")


async def end_the_start(m: Machine) -> Outcome:
    """Whoever runs from this start's medium is nobody from now on; the next start is another."""
    await m.ready_to_act()
    await m.doors.store.write(boot_tokens.end, m.operation.operation_id, m.now)
    m.remember(boot_offered=None)
    return Done()


START: Final[Sequence[Step]] = (  # the machine is off, and its slots are empty
    offer_the_ramdisk,
    insert_the_ramdisk,
    arm_the_ramdisk,
    start_the_ramdisk,
    wait_for_the_agent,
)
RESTART: Final[Sequence[Step]] = (
    end_the_start,
    *once_more("again", power_off, eject_media, *START),
)
LEAVE: Final[Sequence[Step]] = once_more("at_the_end", power_off, eject_media, withdraw_the_medium, clear_boot_override)
