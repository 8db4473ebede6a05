"""Power, health, the identify light and the restart of the BMC itself, over IPMI."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from bcmetal_drivers.errors import Busy, MaybeSent, NotAsAsked, Refused, Transient, Unsupported
from bcmetal_drivers.ipmi_door import NOT_IN_THIS_STATE, UNSUPPORTED, Command, IpmiDoor
from bcmetal_drivers.ipmi_values import Answer
from bcmetal_drivers.resources import PowerAction, PowerState

GET_CHASSIS_STATUS: Final = Command("Get Chassis Status", 0x00, 0x01)
CHASSIS_CONTROL: Final = Command("Chassis Control", 0x00, 0x02)
CHASSIS_IDENTIFY: Final = Command("Chassis Identify", 0x00, 0x04)
COLD_RESET: Final = Command("Cold Reset", 0x06, 0x02)
WARM_RESET: Final = Command("Warm Reset", 0x06, 0x03)
GET_SEL_TIME: Final = Command("Get SEL Time", 0x0A, 0x48)
SET_SEL_TIME: Final = Command("Set SEL Time", 0x0A, 0x49)

POWER_CYCLE: Final = 2
INVALID_DATA: Final = 0xCC
CONTROL: Final[Mapping[PowerAction, int]] = {
    PowerAction.OFF: 0,
    PowerAction.ON: 1,
    PowerAction.CYCLE: 3,  # hard reset: mandatory, which the power cycle (2) is not
    PowerAction.NMI: 4,
    PowerAction.SOFT_OFF: 5,
    PowerAction.POWER_CYCLE: POWER_CYCLE,
}
GOALS: Final[Mapping[PowerAction, PowerState]] = {
    PowerAction.ON: PowerState.ON,
    PowerAction.OFF: PowerState.OFF,
    PowerAction.SOFT_OFF: PowerState.OFF,
}
INDEFINITELY: Final = bytes((0, 1))
CLOCK_SLACK_S: Final = 5
NO_CLOCK: Final = 0x20000000  # earlier ones count from the BMC's start (IPMI 2.0, section 37.1)


def chassis_status(door: IpmiDoor) -> bytes:
    """The data of Get Chassis Status (IPMI 2.0, table 28-3): power state, last event, misc. state."""
    return door.get(GET_CHASSIS_STATUS)


def power(status: bytes) -> PowerState:
    """By the chassis status; UNKNOWN where that is empty."""
    if not status:
        return PowerState.UNKNOWN
    return PowerState.ON if status[0] & 0x01 else PowerState.OFF


def health(status: bytes) -> str | None:
    """None: the chassis shows no fault, which says nothing of what it does not watch."""
    if len(status) < 3:
        return None
    if status[0] & 0x08:  # a fault of the main power
        return "critical"
    return "warning" if status[2] & 0x0C else None  # cooling, drive


def set_power(door: IpmiDoor, action: PowerAction) -> None:
    """A lost answer is not repeated blindly: on and off after a look at the state, a cycle or an NMI not at all (MaybeSent)."""
    control, goal = CONTROL.get(action), GOALS.get(action)
    if control is None:
        raise Unsupported(f"{door.address}: IPMI knows no {action.value}")
    try:
        code = door.write(CHASSIS_CONTROL, bytes((control,))).code
    except MaybeSent as lost:
        if goal is not None and _is_there(door, goal, lost):
            return
        if action not in (PowerAction.ON, PowerAction.OFF):
            raise
        code = _once_more(door, action, GOALS[action])
    if action is PowerAction.CYCLE and (code in UNSUPPORTED or code == INVALID_DATA):
        code = door.write(CHASSIS_CONTROL, bytes((POWER_CYCLE,))).code
    if code == NOT_IN_THIS_STATE:
        state = power(chassis_status(door))
        if state is goal:
            return
        if state is PowerState.OFF and goal is not PowerState.ON:
            raise Refused(f"{door.address}: the machine is off, {action.value} is for one that is on")
        raise Busy(f"{door.address}: {action.value} is not taken in the present state")
    door.check(CHASSIS_CONTROL, Answer(code, b""))


def _once_more(door: IpmiDoor, action: PowerAction, goal: PowerState) -> int:
    """The state shows that it did not happen, and on or off twice is the same as once."""
    try:
        return door.write(CHASSIS_CONTROL, bytes((CONTROL[action],))).code
    except MaybeSent as lost:
        if _is_there(door, goal, lost):
            return 0
        raise


def _is_there(door: IpmiDoor, goal: PowerState, lost: MaybeSent) -> bool:
    try:
        return power(chassis_status(door)) is goal
    except Transient:
        raise lost from None


# ---------------------------------------------------------------- the light


def identified(door: IpmiDoor) -> bool | None:
    """None where the BMC does not tell the light's state."""
    status = chassis_status(door)
    if len(status) < 3 or not status[2] & 0x40:
        return None
    return status[2] >> 4 & 0x03 in (1, 2)


def identify(door: IpmiDoor, on: bool) -> None:
    """Lit until it is put out. Raises Unsupported where the BMC knows only so many seconds of it."""
    answer = door.write(CHASSIS_IDENTIFY, INDEFINITELY if on else b"\x00")
    if on and answer.code in (INVALID_DATA, 0xC7, 0xC8):
        raise Unsupported(f"{door.address}: lights the identify light for some seconds only, not until it is put out")
    door.check(CHASSIS_IDENTIFY, answer)
    shown = identified(door)
    if shown is not None and shown is not on:
        raise NotAsAsked(f"{door.address}: the identify light is still {'on' if shown else 'off'}")


# ---------------------------------------------------------------- the BMC itself


def reset_bmc(door: IpmiDoor, hard: bool) -> None:
    """Warm where the BMC knows it, else cold; `hard`: cold. It ends every session, ours with them."""
    try:
        if hard:
            door.put(COLD_RESET)
        else:
            answer = door.write(WARM_RESET)
            if answer.code in UNSUPPORTED or answer.code == INVALID_DATA:
                door.put(COLD_RESET)
            else:
                door.check(WARM_RESET, answer)
    finally:
        door.abandon()


def clock(door: IpmiDoor) -> str | None:
    """RFC 3339; None where it has none, or one that only counts from its start."""
    answer = door.read(GET_SEL_TIME)
    if answer.code != 0:
        return None
    return when(answer.data[:4])


def when(stamp: bytes) -> str | None:
    """An IPMI timestamp; None for one that is not set, or counts from the BMC's start."""
    seconds = int.from_bytes(stamp, "little")
    if len(stamp) < 4 or seconds < NO_CLOCK or seconds == 0xFFFFFFFF:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def set_clock(door: IpmiDoor, at: datetime) -> None:
    """In UTC, as the SEL counts. Raises NotAsAsked when the clock is not there afterwards."""
    wanted = int(at.timestamp())
    door.put(SET_SEL_TIME, wanted.to_bytes(4, "little"))
    shown = int.from_bytes(door.get(GET_SEL_TIME)[:4], "little")
    if not -CLOCK_SLACK_S <= shown - wanted <= CLOCK_SLACK_S + 60:
        raise NotAsAsked(f"{door.address}: its clock was set, and stands {shown - wanted} s off")
