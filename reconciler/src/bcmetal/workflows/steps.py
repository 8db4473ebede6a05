"""Steps that several workflows share. Each looks first, acts only if what it sees is not what it wants, and can run again at any time."""

from __future__ import annotations

from sqlalchemy import Connection

from bcmetal.decisions import Again, Done, Failed, Micros
from bcmetal.store import agent_tasks, boot_tokens, media
from bcmetal.store.values import SetNode, SetSighting
from bcmetal.workflows.identity import changed_identity
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import BootOnce, Identifies, Power, VirtualMedia, need, offers
from bcmetal_drivers.errors import DriverError, Unsupported
from bcmetal_drivers.resources import BootDevice, PowerAction, PowerState

SOON_S = 0.25  # most BMCs are there at once; the others are asked less and less often
POLL_S = 2.0
UNKNOWN_POLL_S = 10.0
ASK_AGAIN_S = 30.0  # BMCs lag by up to a minute, and some drop an On that follows an Off too soon
STUCK_S = 120.0  # after which a state of passage is none: some BMCs show PoweringOn until they are told something
POWER_PATIENCE_S = 300.0
UNTOLD_PATIENCE_S = 900.0
UNSEEN_S = 120.0  # the daemon was away, or the machine held: what it saw before says nothing of now
UNKNOWN_WHY = "the BMC does not say whether the machine is on; nothing is forced meanwhile"


async def know_the_machine(m: Machine) -> Outcome:
    """Log in, and see that this is still the machine that was inspected."""
    seen = await m.look(need(m.bmc, Identifies).identity)
    changed = changed_identity(m.node.identifiers, seen)
    if changed is not None:
        m.condition("identity", "error", "identity-changed", changed)
        return Failed("identity-changed", changed)
    return Done()


async def power_off(m: Machine) -> Outcome:
    """Switch the machine off, and see it off."""
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.OFF:
        forget_the_power(m, "off")
        m.remember(took_down=True)
        m.note(SetNode({"desired_power": "off"}))
        return Done()
    return await _ask_for_power(m, power, PowerState.ON, PowerAction.OFF, "off")


def forget_the_power(m: Machine, word: str) -> None:
    """Forget since when it is to power `word` (`on`, `off`): whoever wants that next begins anew."""
    m.remember(**{f"{word}_first_at": None, f"{word}_asked_at": None, f"{word}_passing_at": None})


async def _ask_for_power(m: Machine, power: PowerState, present: PowerState, action: PowerAction, word: str) -> Outcome:
    """Ask once, look, and ask again only after a while; give up in words, but only on a machine that was asked.

    `present` is the state that an ask begins from; every other one is a state of passage.
    """
    if power is PowerState.UNKNOWN:
        return wait_to_be_told(m)
    if m.memo.get("untold_at") is not None:
        m.remember(untold_at=None, untold_seen_at=None)
    passing = m.since_s(f"{word}_passing_at")
    if (power is present) is (passing is not None):  # on its way, or it only looks so; or no longer
        m.remember(**{f"{word}_passing_at": None if power is present else m.now})
    waited = m.since_s(f"{word}_first_at")
    if waited is not None and waited > POWER_PATIENCE_S:
        forget_the_power(m, word)
        return Failed(
            "power-not-reached", f"waited {waited:.0f} s for it to power {word}, and the BMC still shows {power}"
        )
    asked = m.since_s(f"{word}_asked_at")
    stuck = power is not present and passing is not None and passing > STUCK_S
    if (power is present or stuck) and (asked is None or asked >= ASK_AGAIN_S):
        if action is PowerAction.ON:
            wait_s = await m.power_slot_wait_s()
            if wait_s > 0:
                return Again("its rack takes no more power-ons just now", wait_s)
        await m.act(need(m.bmc, Power).set_power, action)
        m.remember(**{f"{word}_asked_at": m.now, f"{word}_first_at": m.memo.get(f"{word}_first_at", m.now)})
    since_s = m.since_s(f"{word}_asked_at") or 0.0
    return Again(f"waits for the machine to power {word}; the BMC shows {power}", min(POLL_S, max(SOON_S, since_s)))


def wait_to_be_told(m: Machine) -> Outcome:
    """Nothing is forced on a machine whose power is not known. Some BMCs never tell it: that is said after a while."""
    unseen, waited = m.since_s("untold_seen_at"), m.since_s("untold_at")
    if waited is None or unseen is None or unseen > UNSEEN_S:
        m.remember(untold_at=m.now, untold_seen_at=m.now)
    elif waited > UNTOLD_PATIENCE_S:
        m.remember(untold_at=None, untold_seen_at=None)
        return Failed("power-unknown", f"for {waited:.0f} s the BMC has not said whether the machine is on")
    else:
        m.remember(untold_seen_at=m.now)
    return Again(UNKNOWN_WHY, UNKNOWN_POLL_S)


async def power_on(m: Machine) -> Outcome:
    """Switch the machine on, and see it on."""
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.ON:
        forget_the_power(m, "on")
        m.note(SetNode({"desired_power": "on"}))
        return Done()
    return await _ask_for_power(m, power, PowerState.OFF, PowerAction.ON, "on")


async def eject_media(m: Machine) -> Outcome:
    """Empty the virtual CD. A BMC without virtual media has none to empty."""
    if not offers(m.bmc, VirtualMedia):
        return Done()
    try:
        slots = await m.look(need(m.bmc, VirtualMedia).inserted)
        if any(slot.inserted or slot.url for slot in slots):
            return await _eject(m)
        if any(slot.in_doubt for slot in slots) and not m.memo.get("ejected_in_doubt"):
            m.remember(ejected_in_doubt=True)  # whether something went out is not to be seen: once is all that helps
            return await _eject(m)
    except Unsupported:  # this model has no slot that could hold a medium of ours
        return Done()
    m.condition("media", "ok")
    return Done()


async def _eject(m: Machine) -> Outcome:
    """A medium that stays in is told, for the machine may boot it."""
    try:
        await m.act(need(m.bmc, VirtualMedia).eject)
    except Unsupported:
        raise
    except DriverError as error:
        m.condition("media", "warning", "not-ejected", f"the medium could not be ejected: {error}")
        raise
    return Again("looks whether the medium is out", 0.0)


async def clear_boot_override(m: Machine) -> Outcome:
    """Let the machine boot as its own settings say."""
    if not offers(m.bmc, BootOnce):
        return Done()
    override = await m.look(need(m.bmc, BootOnce).boot_override)
    if override.device is BootDevice.NONE:
        return Done()
    await m.act(need(m.bmc, BootOnce).clear_boot_override)
    return Again("looks whether the boot override is gone", 0.0)


# ---------------------------------------------------------------- cleanup


async def power_off_what_we_started(m: Machine) -> Outcome:
    """Power off, but only a machine that this operation took down before."""
    if not m.memo.get("took_down"):
        return Done()
    return await power_off(m)


async def eject_what_we_inserted(m: Machine) -> Outcome:
    """Eject, but only a medium that this operation offered."""
    if not m.memo.get("media_path"):
        return Done()
    return await eject_media(m)


async def clear_what_we_armed(m: Machine) -> Outcome:
    """Clear the boot override, but only where this operation took the machine down to arm it."""
    if not m.memo.get("took_down"):
        return Done()
    return await clear_boot_override(m)


async def withdraw_the_medium(m: Machine) -> Outcome:
    """Serve this node's media no more, once they are out; whoever still runs from one is no agent of ours any more."""
    m.condition("boot-path", "ok")
    await m.doors.store.write(_withdraw, m.node.node_id, m.operation.operation_id, m.now)
    return Done()


def _withdraw(c: Connection, node_id: str, operation_id: str, now: Micros) -> None:
    media.end_of_node(c, node_id, now)
    boot_tokens.end(c, operation_id, now)
    agent_tasks.end(c, operation_id, now)


async def withdraw_what_we_offered(m: Machine) -> Outcome:
    """Serve the medium of this operation no more."""
    if not (m.memo.get("media_path") or m.memo.get("boot_offered") or m.memo.get("firmware_path")):
        return Done()
    return await withdraw_the_medium(m)


UNDO = (power_off_what_we_started, eject_what_we_inserted, withdraw_what_we_offered, clear_what_we_armed)
