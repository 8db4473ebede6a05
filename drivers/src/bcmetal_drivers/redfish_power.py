"""Power over Redfish: the word that the BMC says, and the reset that it offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import sushy
import sushy.exceptions

from bcmetal_drivers.capabilities import PowerAction, PowerState
from bcmetal_drivers.door import STUMBLES, tolerated
from bcmetal_drivers.errors import Busy, DriverError, MaybeSent, Refused, Unsupported
from bcmetal_drivers.redfish_tasks import wait_for
from bcmetal_drivers.redfish_tree import Doc, Tree, action_target, dig, text
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


def boot_progress_of(system: Doc) -> str | None:
    """How far the last start came, in Redfish's words (ComputerSystem v1.13, BootProgress.LastState)."""
    return text(system, "BootProgress", "LastState")


def set_power(tree: Tree, action: PowerAction) -> None:
    """Asks once. What is there already, or on its way, is not asked for again; a refusal and a lost answer are followed by a look."""
    system = tree.system()
    state = power_of(system)
    if state in GOALS.get(action, ()):
        return
    if action in (PowerAction.CYCLE, PowerAction.NMI) and state is PowerState.OFF:
        raise Refused(f"{tree.address}: the machine is off, {action.value} is for one that is on")
    try:
        _reset(tree, system, action)
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


def _reset(tree: Tree, system: Doc, action: PowerAction) -> None:
    """The first of the resets that fit and that the BMC offers. One that offers none by name is asked for the next after a 400."""
    offered, ask = _by_sushy(tree, system) or _by_hand(tree, system)
    fitting = [word for word in RESETS[action] if offered is None or word in offered]
    if not fitting:
        raise Unsupported(f"{tree.address}: this BMC offers no {action.value}, it offers {_listed(offered or ())}")
    for word in fitting:
        try:
            ask(word)
        except sushy.exceptions.BadRequestError as error:
            if offered is not None or word == fitting[-1] or not isinstance(refusal(error.answer), Refused):
                raise
        else:
            return


Offer = tuple[Collection[str] | None, Callable[[str], None]]


def _by_sushy(tree: Tree, system: Doc) -> Offer | None:
    """What sushy makes of the reset action, its ActionInfo included; None where sushy stumbles over another part of the document."""
    try:
        found = tree.sushy_system()
        named = found.get_allowed_reset_system_values()
    except sushy.exceptions.MissingActionError as error:
        raise Unsupported(f"{tree.address}: this system has no reset") from error
    except sushy.exceptions.HTTPError:
        raise
    except (sushy.exceptions.SushyError, *STUMBLES):
        return None
    offered = None if set(named) == set(sushy.ResetType) else {str(value.value) for value in named}

    def ask(word: str) -> None:
        found.reset_system(sushy.ResetType(word))
        if tree.door.last is not None:
            wait_for(tree.door, tree.door.last)

    return offered, ask


def _by_hand(tree: Tree, system: Doc) -> Offer:
    target = action_target(system, RESET)
    if target is None:
        raise Unsupported(f"{tree.address}: this system has no reset")
    listed = dig(system, "Actions", RESET, "ResetType@Redfish.AllowableValues")

    def ask(word: str) -> None:
        tree.act(target, {"ResetType": word})

    return listed if isinstance(listed, list) else None, ask


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(map(str, words))) or "nothing"
