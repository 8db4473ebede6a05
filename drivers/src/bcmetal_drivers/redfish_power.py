"""Power over Redfish: the word that the BMC says, and the reset that it offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import sushy
import sushy.exceptions

from bcmetal_drivers.capabilities import PowerAction, PowerState
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Busy, DriverError, MaybeSent, Refused, Unsupported
from bcmetal_drivers.redfish_tasks import wait_for
from bcmetal_drivers.redfish_tree import Doc, Tree, dig, text
from bcmetal_drivers.refusals import refusal

STATES: Final[Mapping[str, PowerState]] = {
    "On": PowerState.ON,
    "Off": PowerState.OFF,
    "PoweringOn": PowerState.POWERING_ON,
    "PoweringOff": PowerState.POWERING_OFF,
}
RESETS: Final[Mapping[PowerAction, tuple[str, ...]]] = {
    PowerAction.ON: ("On", "ForceOn"),
    PowerAction.OFF: ("ForceOff",),
    PowerAction.SOFT_OFF: ("GracefulShutdown",),
    PowerAction.CYCLE: ("ForceRestart", "PowerCycle"),
    PowerAction.NMI: ("Nmi",),
}
GOALS: Final[Mapping[PowerAction, tuple[PowerState, ...]]] = {
    PowerAction.ON: (PowerState.ON, PowerState.POWERING_ON),
    PowerAction.OFF: (PowerState.OFF,),
    PowerAction.SOFT_OFF: (PowerState.OFF, PowerState.POWERING_OFF),
}
RESET: Final = "#ComputerSystem.Reset"


def power_of(system: Doc) -> PowerState:
    return STATES.get(text(system, "PowerState") or "", PowerState.UNKNOWN)


def health_of(system: Doc) -> str | None:
    word = text(system, "Status", "HealthRollup") or text(system, "Status", "Health") or ""
    return word.lower() if word.lower() in ("ok", "warning", "critical") else None


def set_power(tree: Tree, action: PowerAction) -> None:
    """Asks once. What is there already, or on its way, is not asked for again; a refusal and a lost answer are followed by a look."""
    system = tree.system()
    state = power_of(system)
    if state in GOALS.get(action, ()):
        return
    if action in (PowerAction.CYCLE, PowerAction.NMI) and state is PowerState.OFF:
        raise Refused(f"{tree.address}: the machine is off, {action.value} is for one that is on")
    try:
        _reset(tree, action)
    except MaybeSent:
        if action in GOALS and _is_there(tree, action):
            return
        raise
    except sushy.exceptions.HTTPError as error:
        if error.status_code not in (400, 409):
            raise
        now = power_of(tree.system())
        if now in GOALS.get(action, ()):
            return
        if error.status_code == 409 or now is not state:
            raise Busy(f"{tree.address}: {action.value} is not taken in the present state ({now.value})") from error
        raise


def _is_there(tree: Tree, action: PowerAction) -> bool:
    """False too when the look fails: the lost answer is the news then."""
    with tolerated(DriverError):
        return power_of(tree.system()) in GOALS[action]
    return False


def _reset(tree: Tree, action: PowerAction) -> None:
    """The first of the resets that fit and that the BMC offers. One that offers none by name is asked for the next after a 400."""
    system = tree.sushy_system()
    try:
        offered = {str(value.value) for value in system.get_allowed_reset_system_values()}
    except sushy.exceptions.MissingActionError as error:
        raise Unsupported(f"{tree.address}: this system has no reset") from error
    fitting = [word for word in RESETS[action] if word in offered]
    if not fitting:
        raise Unsupported(f"{tree.address}: this BMC offers no {action.value}, it offers {_listed(offered)}")
    named = dig(system.json, "Actions", RESET, "ResetType@Redfish.AllowableValues") is not None
    for last, word in [(word == fitting[-1] or named, word) for word in fitting]:
        try:
            system.reset_system(sushy.ResetType(word))
        except sushy.exceptions.BadRequestError as error:
            if last or not isinstance(refusal(error.answer), Refused):
                raise
        else:
            if tree.door.last is not None:
                wait_for(tree.door, tree.door.last)
            return


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "nothing"
