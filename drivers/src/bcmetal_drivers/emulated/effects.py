"""What a rule does to its BMC and the machine behind it, before the request is looked at (`before`) or after it was applied (`effect`).

{"settings": {"power_lag_s": 30}}                       as `EmulatedBmc.set`
{"flag": {"name": "posting", "value": true, "seconds": 60}}   for rules' `when`
{"end_sessions": {}} · {"restart": {"seconds": 30, "flaps": 4}}   the BMC goes away, then answers every second time only
{"power": {"to": "off"}} · {"lose_medium": {"slot": "Cd"}} · {"boot": {"device": "none", "once": true, "mode": "legacy"}}
{"password": {}} · {"account": {"username": "guest", "role": "Administrator"}}   a person at the BMC's own page
{"firmware": {"BIOS": "2.15.0"}} · {"purge_tasks": {}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bcmetal_drivers.emulated.machine import CD, Machine
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction

Effects = Mapping[str, Mapping[str, Any]]


class Levers(Protocol):
    """What an effect can move at a BMC."""

    def settings(self, **values: Any) -> None: ...
    def flag(self, name: str, value: object = True, seconds: float = float("inf")) -> None: ...
    def end_sessions(self) -> None: ...
    def restart(self, seconds: float, flaps: int = 0) -> None: ...
    def password(self) -> None: ...
    def account(self, username: str, role: str = "Administrator") -> None: ...
    def firmware(self, **versions: str) -> None: ...
    def purge_tasks(self) -> None: ...


def _power(machine: Machine, to: str) -> None:
    machine.set_power(PowerAction(to))


def _lose_medium(machine: Machine, slot: str = CD) -> None:
    machine.eject(slot)


def _boot(machine: Machine, device: str | None = None, once: bool = True, mode: str | None = None) -> None:
    if device is not None:
        machine.arm(BootDevice(device), once, BootMode(mode) if mode else None)
    elif mode is not None:
        machine.boot_mode = BootMode(mode)


OF_MACHINES: Final[Mapping[str, Callable[..., None]]] = {"power": _power, "lose_medium": _lose_medium, "boot": _boot}
OF_BMCS: Final = frozenset(
    {"settings", "flag", "end_sessions", "restart", "password", "account", "firmware", "purge_tasks"}
)
EFFECTS: Final = OF_BMCS | OF_MACHINES.keys()


def take_place(effects: Effects, machine: Machine, levers: Levers | None = None) -> None:
    """`levers` None: only what concerns the machine."""
    for name, args in effects.items():
        if name in OF_MACHINES:
            OF_MACHINES[name](machine, **args)
        elif levers is not None:
            getattr(levers, name)(**args)
