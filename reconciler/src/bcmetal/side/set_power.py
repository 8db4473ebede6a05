"""Set the power: ask once, look, and say when the machine does not get there."""

from __future__ import annotations

from bcmetal.decisions import Again, Done, Failed
from bcmetal.store.values import SetNode, SetSighting
from bcmetal.workflows.machine import Machine, Outcome, Unsure
from bcmetal.workflows.steps import power_off, power_on, wait_to_be_told
from bcmetal_drivers.capabilities import Power, PowerAction, PowerState, need

SOFT_PATIENCE_S = 180.0


async def run(m: Machine) -> Outcome:
    """on, off, softOff, cycle or nmi, as asked."""
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
        case PowerAction.NMI:
            return await _nmi(m)


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


async def _nmi(m: Machine) -> Outcome:
    """Cannot be observed: sent once, and when it is not known whether it was, nothing is repeated."""
    sent = await m.act_once("nmi", need(m.bmc, Power).set_power, PowerAction.NMI)
    if isinstance(sent, Unsure):
        return Failed("unsure", "it is not known whether the NMI was sent; look at the machine before sending another")
    return Done()
