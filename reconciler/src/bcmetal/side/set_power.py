"""Set the power: ask once, look, and say when the machine does not get there."""

from __future__ import annotations

from bcmetal.decisions import Again, Done, Failed
from bcmetal.store.values import SetNode, SetSighting
from bcmetal.workflows.machine import Machine, Outcome, Step, Unsure
from bcmetal.workflows.steps import power_off, power_on, wait_to_be_told
from bcmetal_drivers.capabilities import Power, need
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import PowerAction, PowerState

SOFT_PATIENCE_S = 180.0


async def run(m: Machine) -> Outcome:
    """As asked: a value of PowerAction."""
    action = PowerAction(m.input["action"])
    match action:
        case PowerAction.ON:
            m.note(SetNode({"desired_power": "on"}))
            return await power_on(m)
        case PowerAction.OFF:
            m.note(SetNode({"desired_power": "off"}))
            return await power_off(m)
        case PowerAction.SOFT_OFF:
            return await _soft_off(m)
        case PowerAction.CYCLE:
            return await _cycle(m)
        case PowerAction.SOFT_RESTART:
            return await _natively(m, action, _soft_restart)
        case PowerAction.POWER_CYCLE:
            return await _natively(m, action, _cycle)
        case PowerAction.NMI | PowerAction.PUSH_BUTTON:
            return await _sent_once(m, action)


async def _soft_off(m: Machine) -> Outcome:
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.OFF:
        m.note(SetNode({"desired_power": "off"}))
        return Done()
    if power is PowerState.UNKNOWN:
        return wait_to_be_told(m)
    asked = m.since_s("soft_asked_at")
    if asked is None:
        await m.act(need(m.bmc, Power).set_power, PowerAction.SOFT_OFF)
        m.remember(soft_asked_at=m.now)
    elif asked > SOFT_PATIENCE_S:
        return Failed(
            "power-not-reached", f"asked softly {asked:.0f} s ago: the system does not shut down; `off` forces it"
        )
    return Again("waits for the system to shut down", 2.0)


async def _cycle(m: Machine) -> Outcome:
    """Off, seen off, on: a restart that can be seen; a reset in one act can not."""
    if not m.memo.get("took_down"):
        outcome = await power_off(m)
        return Again("it is off; now on again", 0.0) if isinstance(outcome, Done) else outcome
    m.note(SetNode({"desired_power": "on"}))
    return await power_on(m)


async def _soft_restart(m: Machine) -> Outcome:
    """Softly off, seen off, on."""
    if not m.memo.get("went_off"):
        outcome = await _soft_off(m)
        if not isinstance(outcome, Done):
            return outcome
        m.remember(went_off=True)
        return Again("it is off; now on again", 0.0)
    m.note(SetNode({"desired_power": "on"}))
    return await power_on(m)


async def _natively(m: Machine, action: PowerAction, by_hand: Step) -> Outcome:
    """The BMC's own where it has one, sent once; else off, seen off, and on. A restart by the BMC cannot be observed."""
    if m.memo.get("by_hand"):
        return await by_hand(m)
    power = await m.look(need(m.bmc, Power).power_state)
    m.note(SetSighting(power=power))
    if power is PowerState.UNKNOWN:
        return wait_to_be_told(m)
    try:
        return await _sent_once(m, action)
    except Unsupported:
        m.remember(by_hand=True)
        return Again("this BMC has no such restart: off, and on again", 0.0)


async def _sent_once(m: Machine, action: PowerAction) -> Outcome:
    """What cannot be observed: when it is not known whether it was sent, nothing is repeated."""
    sent = await m.act_once(action.value, need(m.bmc, Power).set_power, action)
    if isinstance(sent, Unsure):
        what = "the NMI" if action is PowerAction.NMI else action.value
        return Failed("unsure", f"it is not known whether {what} was sent; look at the machine before it is sent again")
    return Done()
