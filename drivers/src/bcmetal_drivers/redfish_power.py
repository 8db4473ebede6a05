"""Power over Redfish: the word that the BMC says, and the reset that it offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import sushy.exceptions

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Busy, DriverError, MaybeSent, Refused, TaskFailed, Unsupported
from bcmetal_drivers.redfish_actions import action
from bcmetal_drivers.redfish_document import Doc, as_spelled, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import refusal
from bcmetal_drivers.resources import PowerAction, PowerState

STATES: Final[Mapping[str, PowerState]] = {
    "on": PowerState.ON,
    "off": PowerState.OFF,
    "poweringon": PowerState.POWERING_ON,
    "poweringoff": PowerState.POWERING_OFF,
}
RESETS: Final[Mapping[PowerAction, tuple[str, ...]]] = {
    PowerAction.ON: ("On", "ForceOn"),
    PowerAction.OFF: ("ForceOff",),
    PowerAction.SOFT_OFF: ("GracefulShutdown",),
    PowerAction.CYCLE: ("ForceRestart", "PowerCycle"),
    PowerAction.NMI: ("Nmi",),
    PowerAction.SOFT_RESTART: ("GracefulRestart",),
    PowerAction.POWER_CYCLE: ("PowerCycle", "FullPowerCycle", "ForcePowerCycle"),
    PowerAction.PUSH_BUTTON: ("PushPowerButton",),
}
SOFT_WHERE_IT_CAN_BE_FORCED: Final = "Off"  # Cray EX offers it beside ForceOff; alone it may be the hard one
GOALS: Final[Mapping[PowerAction, tuple[PowerState, ...]]] = {
    PowerAction.ON: (PowerState.ON, PowerState.POWERING_ON),
    PowerAction.OFF: (PowerState.OFF,),
    PowerAction.SOFT_OFF: (PowerState.OFF, PowerState.POWERING_OFF),
}
OF_ONE_THAT_IS_ON: Final = (PowerAction.CYCLE, PowerAction.NMI, PowerAction.SOFT_RESTART, PowerAction.POWER_CYCLE)
ALWAYS: Final = (PowerAction.ON, PowerAction.OFF)
RESET: Final = "#ComputerSystem.Reset"


def power_of(system: Doc) -> PowerState:
    return STATES.get((text(system, "PowerState") or "").replace(" ", "").lower(), PowerState.UNKNOWN)


def boot_progress_of(system: Doc) -> str | None:
    """How far the last start came, in Redfish's words (ComputerSystem v1.13, BootProgress.LastState)."""
    return text(system, "BootProgress", "LastState")


def set_power(tree: Tree, wanted: PowerAction) -> None:
    """Asks once. What is there already, or on its way, is not asked for again; a refusal and a lost answer are followed by a look."""
    system = tree.system()
    state = power_of(system)
    if state in GOALS.get(wanted, ()):
        return
    if wanted in OF_ONE_THAT_IS_ON and state is PowerState.OFF:
        raise Refused(f"{tree.address}: the machine is off, {wanted.value} is for one that is on")
    try:
        _reset(tree, system, wanted)
    except (MaybeSent, TaskFailed):  # a Task that "completed with errors" may have done what was asked
        if wanted in GOALS and _is_there(tree, wanted):
            return
        raise
    except sushy.exceptions.HTTPError as error:
        if error.status_code not in (400, 409):
            raise
        now = power_of(tree.system())
        if now in GOALS.get(wanted, ()):
            return
        if error.status_code == 409 or now is not state:
            raise Busy(f"{tree.address}: {wanted.value} is not taken in the present state ({now.value})") from error
        raise


def _is_there(tree: Tree, wanted: PowerAction) -> bool:
    """False too when the look fails: the lost answer is the news then."""
    with tolerated(DriverError):
        return power_of(tree.system()) in GOALS[wanted]
    return False


def _reset(tree: Tree, system: Doc, wanted: PowerAction) -> None:
    """The first of the resets that fit and that the BMC offers, and after a 400 the next: lists of them lie, too.

    On and ForceOff are asked for where the list has nothing like them, since no machine is without.
    """
    reset = action(system, RESET)
    if reset is None:
        raise Unsupported(f"{tree.address}: this system has no reset")
    offered = reset.allowed(tree, "ResetType")
    words = RESETS[wanted]
    if wanted is PowerAction.SOFT_OFF and as_spelled("ForceOff", offered or ()) is not None:
        words = (*words, SOFT_WHERE_IT_CAN_BE_FORCED)
    if offered is None:
        fitting = list(words)
    else:
        fitting = [word for one in words if (word := as_spelled(one, offered)) is not None]
    if not fitting and wanted in ALWAYS:
        fitting = list(RESETS[wanted][:1])
    if not fitting:
        raise Unsupported(f"{tree.address}: this BMC offers no {wanted.value}, it offers {_listed(offered or ())}")
    known = tree.learned.get("resets") or {}
    fitting.sort(key=lambda word: word != known.get(wanted.value))  # what was taken before comes first
    for word in fitting:
        try:
            tree.act(reset.target, {"ResetType": word})
        except sushy.exceptions.BadRequestError as error:
            if word == fitting[-1] or not isinstance(refusal(error.answer), Refused):
                raise
        else:
            if offered is None and word != RESETS[wanted][0]:
                tree.learned["resets"] = {**known, wanted.value: word}
            return


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words)) or "nothing"
