"""sushy-tools' resource drivers over machines of the rack: systems, managers, indicators."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sushy_tools import error
from sushy_tools.emulator.resources import indicators, managers
from sushy_tools.emulator.resources.systems.fakedriver import FakeDriver

from bcmetal_drivers.emulated.machine import Machine, WrongState
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState

MANAGER: Final = "bmc"
POWER_WORDS: Final = {
    PowerState.ON: "On",
    PowerState.OFF: "Off",
    PowerState.POWERING_ON: "PoweringOn",
    PowerState.POWERING_OFF: "PoweringOff",
}
RESETS: Final = {
    "On": PowerAction.ON,
    "ForceOn": PowerAction.ON,
    "ForceOff": PowerAction.OFF,
    "GracefulShutdown": PowerAction.SOFT_OFF,
    "GracefulRestart": PowerAction.SOFT_RESTART,
    "ForceRestart": PowerAction.CYCLE,
    "PowerCycle": PowerAction.POWER_CYCLE,
    "PushPowerButton": PowerAction.PUSH_BUTTON,
    "Nmi": PowerAction.NMI,
}
BOOT_TARGETS: Final = {
    "None": BootDevice.NONE,
    "Pxe": BootDevice.PXE,
    "Hdd": BootDevice.DISK,
    "Cd": BootDevice.CD,
    "BiosSetup": BootDevice.BIOS_SETUP,
}
MODES: Final = {"UEFI": BootMode.UEFI, "Legacy": BootMode.LEGACY}


class RackSystems(FakeDriver):  # type: ignore[misc]  # sushy-tools has no types
    """Power that obeys, state in memory. A system's id stands for its UUID in paths; the layer in front puts the true UUID in."""

    def __init__(self, machines: Mapping[str, Machine], quirks: Quirks) -> None:
        # not FakeDriver.__init__: it shares a database in the temporary folder with every other emulator
        self._machines = machines
        self._quirks = quirks

    def machine(self, identity: str) -> Machine:
        try:
            return self._machines[identity]
        except KeyError:
            raise error.NotFound(f"no system {identity}") from None

    @property
    def systems(self) -> list[str]:
        return list(self._machines)

    def uuid(self, identity: str) -> str:
        return self.machine(identity).hardware.system_id

    def name(self, identity: str) -> str:
        return self.machine(identity).name

    def get_power_state(self, identity: str) -> str:
        return POWER_WORDS[self.machine(identity).power]

    def set_power_state(self, identity: str, state: str) -> None:
        machine = self.machine(identity)
        action = RESETS.get(state)
        if action is None or state in self._quirks.without_resets:
            raise error.BadRequest(f"ResetType {state} is not in the list of acceptable values")
        if self._quirks.refuse_same_power and _is_there(machine.power, action):
            raise error.Conflict(f"the system is {machine.power} already")
        try:
            machine.set_power(action)
        except WrongState as e:
            raise error.Conflict(str(e)) from e

    def get_boot_device(self, identity: str) -> str:
        armed = self.machine(identity).override.device
        return next(word for word, device in BOOT_TARGETS.items() if device is armed)

    def get_boot_mode(self, identity: str) -> str:
        mode = self.machine(identity).boot_mode
        return next(word for word, known in MODES.items() if known is mode)

    def get_secure_boot(self, identity: str) -> bool:
        return self.machine(identity).secure_boot

    def set_secure_boot(self, identity: str, secure: bool) -> None:
        self.machine(identity).secure_boot = bool(secure)

    def set_boot_image(
        self, identity: str, device: str, boot_image: str | None = None, write_protected: bool = True
    ) -> None:
        """The medium is the machine's already: the virtual-media driver put it in."""
        self.machine(identity)

    def get_nics(self, identity: str) -> list[dict[str, str]]:
        return [{"id": f"NIC.{n}", "mac": mac} for n, mac in enumerate(self.machine(identity).macs, 1)]

    def get_total_memory(self, identity: str) -> int:
        return self.machine(identity).hardware.memory_gib

    def get_total_cpus(self, identity: str) -> int:
        return self.machine(identity).hardware.cpus

    def get_versions(self, identity: str) -> dict[str, str]:
        self.machine(identity)
        return {"BiosVersion": "2.14.1"}


def _is_there(power: PowerState, action: PowerAction) -> bool:
    return (action is PowerAction.ON and power is PowerState.ON) or (
        action in (PowerAction.OFF, PowerAction.SOFT_OFF) and power is PowerState.OFF
    )


class RackManagers(managers.FakeDriver):  # type: ignore[misc]  # sushy-tools has no types
    """One manager for all systems behind the BMC; sushy-tools makes one for each."""

    def __init__(self, systems: RackSystems, quirks: Quirks) -> None:
        self._systems = systems
        self._quirks = quirks

    @property
    def managers(self) -> list[str]:
        return [MANAGER]

    def get_manager(self, identity: str) -> dict[str, str]:
        if identity != MANAGER:
            raise error.NotFound(f"no manager {identity}")
        return {"Id": MANAGER, "UUID": MANAGER, "Name": "Manager"}

    def get_managed_systems(self, manager: Mapping[str, Any]) -> list[str]:
        return self._systems.systems

    def get_managed_chassis(self, manager: Mapping[str, Any]) -> list[str]:
        return ["1"]

    def get_managers_for_system(self, ident: str) -> list[str]:
        return [MANAGER]

    def get_datetime(self) -> dict[str, str]:
        shown = datetime.now(UTC) + timedelta(seconds=self._quirks.clock_skew_s)
        return {"DateTime": shown.isoformat(timespec="seconds"), "DateTimeLocalOffset": "+00:00"}

    def set_datetime(self, datetime_value: str, datetimelocaloffset_value: str) -> None:
        raise error.NotSupportedError("the clock is set by NTP")


class RackIndicators(indicators.StaticDriver):  # type: ignore[misc]  # sushy-tools has no types
    """The identify light is the machine's."""

    def __init__(self, systems: RackSystems) -> None:
        self._systems = systems

    def get_indicator_state(self, identity: str) -> str:
        return "Blinking" if self._systems.machine(identity).identify else "Off"

    def set_indicator_state(self, identity: str, state: str) -> None:
        if state not in ("Lit", "Blinking", "Off"):
            raise error.BadRequest(f"IndicatorLED {state} is not in the list of acceptable values")
        self._systems.machine(identity).identify = state != "Off"
