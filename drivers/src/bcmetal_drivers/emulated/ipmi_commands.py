"""What an emulated BMC answers to IPMI commands: bytes in, completion code and bytes out.

`Commands` knows the machine and the accounts; sessions, rules and the record of writes are the front's (`ipmi`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from bcmetal_drivers.emulated.ipmi_accounts import SLOTS, UserSlots
from bcmetal_drivers.emulated.ipmi_fru import fru_image
from bcmetal_drivers.emulated.ipmi_lan import CHANNEL, THIS_CHANNEL, Lan
from bcmetal_drivers.emulated.ipmi_sensors import PSU_FRU, EventLog, Sensors
from bcmetal_drivers.emulated.ipmi_sol import Serial
from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR, OPERATOR, USER
from bcmetal_drivers.emulated.machine import Machine, WrongState
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState

# completion codes (IPMI 2.0, table 5-2, and of single commands)
DONE, INVALID_COMMAND, NO_SUCH_RECORD, INVALID_DATA, WRONG_STATE = 0x00, 0xC1, 0xCB, 0xCC, 0xD5
PARAMETER_NOT_SUPPORTED = 0x80
PASSWORD_DIFFERS, PASSWORD_SIZE_DIFFERS = 0x80, 0x81

FLAGS_LAPSE_S: Final = 60.0
VALID, PERSISTENT, EFI = 0x80, 0x40, 0x20
KEEP_WITHOUT_CONTROL: Final = 0x08
ACTIONS: Final[Mapping[int, PowerAction]] = {
    0: PowerAction.OFF,
    1: PowerAction.ON,
    2: PowerAction.CYCLE,
    3: PowerAction.CYCLE,
    4: PowerAction.NMI,
    5: PowerAction.SOFT_OFF,
}
SELECTORS: Final[Mapping[int, BootDevice]] = {
    0: BootDevice.NONE,
    1: BootDevice.PXE,
    2: BootDevice.DISK,
    5: BootDevice.CD,
    6: BootDevice.BIOS_SETUP,
    8: BootDevice.CD,
    9: BootDevice.DISK,
}
MAKER_IANA: Final = 10876
PRODUCT: Final = 0x1B0F
FIRMWARE: Final = (3, 0x74)  # 3.74, the minor in BCD
_LOCATOR: Final = bytes((0x20, 0, 0, 0, 0, 0, 0, 0x07, 0x01, 0, 0xC3)) + b"BMC"
SDR: Final = bytes((1, 0, 0x51, 0x12, len(_LOCATOR))) + _LOCATOR

Reply = tuple[int, bytes]


class Commands:
    """The BMC's state that no machine has: boot flags' age, quirks."""

    def __init__(self, machine: Machine, users: UserSlots, host: str) -> None:
        self._machine = machine
        self._users = users
        self._keep_flags = False
        self._armed_at: float | None = None
        self._flags_lapse_s = FLAGS_LAPSE_S
        self._parameter_3 = True
        self._forgets_uefi = False
        self._password_bytes = 20
        self._fru = "good"
        self._tells_light = True
        self._light_stays = True
        self._already_there_d5 = False
        self._selectors: Mapping[int, BootDevice] = SELECTORS
        self._forgets_persistence = False
        self.lan = Lan(machine, host)
        self.sensors = Sensors(machine, SDR)
        self.log = EventLog()
        self.serial = Serial()
        self.resets = 0

    def set(self, name: str, value: object) -> None:
        """See `IpmiFront.set`."""
        known = (
            *("flags_lapse_s", "parameter_3", "forgets_uefi", "forgets_persistence", "password_bytes", "fru"),
            *("tells_light", "light_stays", "selectors", "already_there_d5"),
        )
        if name not in known:
            raise ValueError(f"an IPMI BMC of the rack has no setting {name!r}")
        setattr(self, f"_{name}", value)

    # ------------------------------------------------------------ application

    def get_device_id(self, _: bytes) -> Reply:
        device, revision, additional = 0x20, 0x01, 0x8B  # sensors, SEL, FRU, chassis
        fixed = bytes((device, revision, *FIRMWARE, 0x02, additional))
        return DONE, fixed + MAKER_IANA.to_bytes(3, "little") + PRODUCT.to_bytes(2, "little") + bytes(4)

    def get_system_guid(self, _: bytes) -> Reply:
        return DONE, self._machine.uuid.bytes_le

    def cold_reset(self, _: bytes) -> Reply:
        """The BMC restarts: its sessions are gone once this is answered."""
        self.resets += 1
        return DONE, b""

    # ------------------------------------------------------------ chassis

    def get_chassis_status(self, _: bytes) -> Reply:
        """IPMI knows on and off: a machine on its way off is still on, one on its way on is still off."""
        on = self._machine.power in (PowerState.ON, PowerState.POWERING_OFF)
        cooling = 0x08 if self._machine.health != "OK" else 0
        light = (0x20 if self._machine.identify else 0) | (0x40 if self._tells_light else 0)
        return DONE, bytes((int(on), 0, cooling | light))

    def identify(self, data: bytes) -> Reply:
        """Without the force bit it goes out by itself, which nothing here waits for."""
        seconds, force = (data[0] if data else 15), len(data) > 1 and data[1] & 0x01
        if force and not self._light_stays:
            return INVALID_DATA, b""
        self._machine.identify = bool(force or seconds)
        return DONE, b""

    def control_chassis(self, data: bytes) -> Reply:
        action = ACTIONS.get(data[0] & 0x0F)
        if action is None:
            return INVALID_DATA, b""
        self._let_flags_lapse()
        on = self._machine.power in (PowerState.ON, PowerState.POWERING_ON)
        if self._already_there_d5 and action in (PowerAction.ON, PowerAction.OFF) and on is (action is PowerAction.ON):
            return WRONG_STATE, b""
        try:
            self._machine.set_power(action)
        except WrongState:
            return WRONG_STATE, b""
        self._armed_at = None
        return DONE, b""

    def set_boot_options(self, data: bytes) -> Reply:
        parameter = data[0] & 0x7F
        if parameter == 5:
            return self._set_boot_flags(data[1], data[2])
        if parameter == 3 and self._parameter_3:
            self._keep_flags = bool(data[1] & KEEP_WITHOUT_CONTROL)
            return DONE, b""
        return (DONE if parameter in (0, 4) else PARAMETER_NOT_SUPPORTED), b""

    def _set_boot_flags(self, flags: int, selector: int) -> Reply:
        device = self._selectors.get(selector >> 2 & 0x0F)
        if device is None:
            return INVALID_DATA, b""
        if not flags & VALID or device is BootDevice.NONE:
            self._machine.arm(BootDevice.NONE, once=True)
            return DONE, b""
        uefi = flags & EFI and not self._forgets_uefi
        once = self._forgets_persistence or not flags & PERSISTENT
        self._machine.arm(device, once, BootMode.UEFI if uefi else BootMode.LEGACY)
        self._armed_at = self._machine.now()
        return DONE, b""

    def get_boot_options(self, data: bytes) -> Reply:
        parameter = data[0] & 0x7F
        if parameter != 5:
            return PARAMETER_NOT_SUPPORTED, b""
        self._let_flags_lapse()
        armed = self._machine.override
        if armed.device is BootDevice.NONE:
            return DONE, bytes((1, 5, 0, 0, 0, 0, 0))
        flags = VALID | (0 if armed.once else PERSISTENT) | (EFI if armed.mode is BootMode.UEFI else 0)
        selector = next(n for n, device in self._selectors.items() if device is armed.device)
        return DONE, bytes((1, 5, flags, selector << 2, 0, 0, 0))

    def _let_flags_lapse(self) -> None:
        armed_at = self._armed_at
        if armed_at is None or self._keep_flags or self._machine.now() - armed_at < self._flags_lapse_s:
            return
        self._machine.arm(BootDevice.NONE, once=True)
        self._armed_at = None

    # ------------------------------------------------------------ storage

    def get_fru_area(self, data: bytes) -> Reply:
        if data[0] not in (0, PSU_FRU) or self._fru == "absent":
            return NO_SUCH_RECORD, b""
        return DONE, len(self._image(data[0])).to_bytes(2, "little") + b"\x00"

    def read_fru(self, data: bytes) -> Reply:
        if data[0] not in (0, PSU_FRU) or self._fru == "absent":
            return NO_SUCH_RECORD, b""
        image = self._image(data[0])
        offset, count = int.from_bytes(data[1:3], "little"), data[3]
        if offset > len(image):
            return 0xC9, b""
        part = image[offset : offset + count]
        return DONE, bytes((len(part),)) + part

    def _image(self, device: int) -> bytes:
        of = self._machine.hardware
        if device == PSU_FRU:
            return fru_image(
                maker="Delta", model="DPS-1200", part_number="PWS-1K2", serial=f"PSU{of.serial}", board_serial=""
            )
        image = fru_image(
            maker=of.manufacturer,
            model=of.model,
            part_number=of.part_number,
            serial=of.serial,
            board_serial=of.board_serial,
            asset_tag=self._machine.asset_tag,
        )
        if self._fru == "checksum":  # of the product area, which is the last
            return image[:-1] + bytes((image[-1] ^ 0xFF,))
        return image[:8] + b"\xff" * (len(image) - 8) if self._fru == "garbled" else image

    # ------------------------------------------------------------ users

    def get_user_access(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[1] & 0x3F)
        if user is None:
            return INVALID_DATA, b""
        enabled = sum(u.enabled for u in self._users.slots.values())
        state = 0x40 if user.enabled else 0x80
        messaging = 0x10 if user.messaging else 0x00
        return DONE, bytes((SLOTS, state | enabled, 0x00, messaging | user.privilege))

    def get_user_name(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[0] & 0x3F)
        return (INVALID_DATA, b"") if user is None else (DONE, user.username.encode().ljust(16, b"\x00"))

    def set_user_name(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[0] & 0x3F)
        if user is None or data[0] & 0x3F == 1:  # the null user has none for good
            return INVALID_DATA, b""
        if len(data) != 17:
            return 0xC7, b""
        user.username = data[1:].rstrip(b"\x00").decode("utf-8", "replace")
        return DONE, b""

    def set_user_access(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[1] & 0x3F)
        if user is None or data[0] & 0x0F not in (CHANNEL, THIS_CHANNEL):
            return INVALID_DATA, b""
        user.privilege = data[2] & 0x0F
        if data[0] & 0x80:
            user.messaging = bool(data[0] & 0x10)
        return DONE, b""

    def set_user_password(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[0] & 0x3F)
        wide, operation = data[0] & 0x80, data[1] & 0x03
        if user is None:
            return INVALID_DATA, b""
        if operation in (0, 1):
            user.enabled = operation == 1
            return DONE, b""
        size = 20 if wide else 16
        if len(data) != 2 + size:
            return 0xC7, b""
        if size > self._password_bytes:
            return 0xC8, b""
        user.password = SecretStr(data[2:].rstrip(b"\x00").decode("utf-8", "surrogateescape"))
        return DONE, b""

    def test_user_password(self, data: bytes) -> Reply:
        user = self._users.slots.get(data[0] & 0x3F)
        if user is None:
            return INVALID_DATA, b""
        kept, said = user.password.get_secret_value().encode("utf-8", "surrogateescape"), data[2:].rstrip(b"\x00")
        if kept == said:
            return DONE, b""
        return (PASSWORD_SIZE_DIFFERS if len(kept) > 16 >= len(said) else PASSWORD_DIFFERS), b""


def _nothing(_: bytes) -> str:
    return ""


def _action(data: bytes) -> str:
    return ACTIONS[data[0] & 0x0F].value if data and data[0] & 0x0F in ACTIONS else ""


def _boot(data: bytes) -> str:
    if len(data) < 3 or data[0] & 0x7F != 5:
        return f"parameter-{data[0] & 0x7F}" if data else ""
    device = SELECTORS.get(data[2] >> 2 & 0x0F)
    return device.value if device else ""


def _slot(data: bytes) -> str:
    return str(data[0] & 0x3F) if data else ""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    needs: int
    run: Callable[[Commands, bytes], Reply]
    writes: bool = False
    about: Callable[[bytes], str] = _nothing


def _parameter(data: bytes) -> str:
    return f"parameter-{data[1]}" if len(data) > 1 else ""


def _user(data: bytes) -> str:
    return str(data[1] & 0x3F) if len(data) > 1 else ""


# fmt: off
# (network function, command) -> what it is; the names are the specification's in kebab-case
COMMANDS: Final[Mapping[tuple[int, int], Command]] = {
    (0x00, 0x01): Command("get-chassis-status", USER, Commands.get_chassis_status),
    (0x00, 0x02): Command("chassis-control", OPERATOR, Commands.control_chassis, writes=True, about=_action),
    (0x00, 0x04): Command("chassis-identify", OPERATOR, Commands.identify, writes=True),
    (0x00, 0x08): Command("set-boot-options", OPERATOR, Commands.set_boot_options, writes=True, about=_boot),
    (0x00, 0x09): Command("get-boot-options", OPERATOR, Commands.get_boot_options, about=_boot),
    (0x04, 0x27): Command("get-sensor-thresholds", USER, lambda c, data: c.sensors.get_sensor_thresholds(data)),
    (0x04, 0x2D): Command("get-sensor-reading", USER, lambda c, data: c.sensors.get_sensor_reading(data)),
    (0x06, 0x01): Command("get-device-id", USER, Commands.get_device_id),
    (0x06, 0x02): Command("cold-reset", ADMINISTRATOR, Commands.cold_reset, writes=True),
    (0x06, 0x03): Command("warm-reset", ADMINISTRATOR, Commands.cold_reset, writes=True),
    (0x06, 0x37): Command("get-system-guid", USER, Commands.get_system_guid),
    (0x06, 0x40): Command("set-channel-access", ADMINISTRATOR, lambda c, data: c.lan.set_channel_access(data), writes=True),
    (0x06, 0x41): Command("get-channel-access", USER, lambda c, data: c.lan.get_channel_access(data)),
    (0x06, 0x42): Command("get-channel-info", USER, lambda c, data: c.lan.get_channel_info(data)),
    (0x06, 0x43): Command("set-user-access", ADMINISTRATOR, Commands.set_user_access, writes=True, about=_user),
    (0x06, 0x44): Command("get-user-access", OPERATOR, Commands.get_user_access),
    (0x06, 0x45): Command("set-user-name", ADMINISTRATOR, Commands.set_user_name, writes=True, about=_slot),
    (0x06, 0x46): Command("get-user-name", OPERATOR, Commands.get_user_name),
    (0x06, 0x47): Command("set-user-password", ADMINISTRATOR, Commands.set_user_password, writes=True, about=_slot),
    (0x06, 0x54): Command("get-cipher-suites", USER, lambda c, data: c.lan.get_cipher_suites(data)),
    (0x0A, 0x10): Command("get-fru-area", USER, Commands.get_fru_area),
    (0x0A, 0x11): Command("read-fru", USER, Commands.read_fru),
    (0x0A, 0x20): Command("get-sdr-info", USER, lambda c, data: c.sensors.get_sdr_info(data)),
    (0x0A, 0x22): Command("reserve-sdr", USER, lambda c, data: c.sensors.reserve_sdr(data)),
    (0x0A, 0x23): Command("get-sdr", USER, lambda c, data: c.sensors.get_sdr(data)),
    (0x0A, 0x40): Command("get-sel-info", USER, lambda c, data: c.log.get_sel_info(data)),
    (0x0A, 0x42): Command("reserve-sel", USER, lambda c, data: c.log.reserve_sel(data)),
    (0x0A, 0x43): Command("get-sel-entry", USER, lambda c, data: c.log.get_sel_entry(data)),
    (0x0A, 0x47): Command("clear-sel", OPERATOR, lambda c, data: c.log.clear_sel(data), writes=True),
    (0x0A, 0x48): Command("get-sel-time", USER, lambda c, data: c.log.get_sel_time(data)),
    (0x0A, 0x49): Command("set-sel-time", OPERATOR, lambda c, data: c.log.set_sel_time(data), writes=True),
    (0x0C, 0x01): Command("set-lan-parameter", ADMINISTRATOR, lambda c, data: c.lan.set_lan_parameter(data), writes=True, about=_parameter),
    (0x0C, 0x02): Command("get-lan-parameter", OPERATOR, lambda c, data: c.lan.get_lan_parameter(data), about=_parameter),
    (0x0C, 0x21): Command("set-sol-parameter", ADMINISTRATOR, lambda c, data: c.serial.set_parameter(data), writes=True, about=_parameter),
    (0x0C, 0x22): Command("get-sol-parameter", USER, lambda c, data: c.serial.get_parameter(data), about=_parameter),
    (0x2C, 0x02): Command("dcmi-power-reading", USER, lambda c, data: c.sensors.get_power_reading(data)),
}
# fmt: on
CLEAR_STATUS: Final = Command("clear-sel-status", USER, lambda c, data: c.log.clear_sel(data))
TEST_PASSWORD: Final = Command("test-user-password", ADMINISTRATOR, Commands.test_user_password, about=_slot)


def command_for(netfn: int, command: int, data: bytes) -> Command | None:
    """Set User Password with the operation "test" writes nothing, as Clear SEL that asks how it goes; they have names of their own."""
    if (netfn, command) == (0x06, 0x47) and len(data) > 1 and data[1] & 0x03 == 0x03:
        return TEST_PASSWORD
    if (netfn, command) == (0x0A, 0x47) and len(data) > 5 and data[5] != 0xAA:
        return CLEAR_STATUS
    return COMMANDS.get((netfn, command))
