"""The IPMI driver: power, boot device, identity, accounts and a baseline over IPMI 2.0 LAN.

IPMI has no virtual media and no drive erase: those Protocols are absent here, and `need` says so. Errors are typed in
`ipmi_door`; the session is `ipmi_session`.

A `Trust` is taken like by every driver and not looked at: IPMI has no certificates, RAKP message 2 proves that the BMC knows the password.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final, TypeVar

from pydantic import SecretStr

from bcmetal_drivers.capabilities import (
    Account,
    Accounts,
    Baseline,
    Bmc,
    BmcAddress,
    BmcInfo,
    BootDevice,
    BootMode,
    BootOnce,
    BootOverride,
    Credential,
    Identifies,
    Identity,
    Inventories,
    Inventory,
    Limits,
    Power,
    PowerAction,
    PowerState,
    Reading,
    Readings,
    Trust,
)
from bcmetal_drivers.errors import Busy, Malformed, MaybeSent, NotAsAsked, Permanent, Refused, Transient, Unsupported
from bcmetal_drivers.ipmi_accounts import read_accounts, read_channel_access, read_lan, set_password
from bcmetal_drivers.ipmi_door import GET_DEVICE_ID, NOT_IN_THIS_STATE, Command, IpmiDoor
from bcmetal_drivers.ipmi_fru import MAKERS, FruFields, read_fru, read_guid
from bcmetal_drivers.ipmi_session import Answer

GET_CHASSIS_STATUS: Final = Command("Get Chassis Status", 0x00, 0x01)
CHASSIS_CONTROL: Final = Command("Chassis Control", 0x00, 0x02)
SET_BOOT_OPTIONS: Final = Command("Set System Boot Options", 0x00, 0x08)
GET_BOOT_OPTIONS: Final = Command("Get System Boot Options", 0x00, 0x09)
GET_SEL_TIME: Final = Command("Get SEL Time", 0x0A, 0x48)

CONTROL: Final[Mapping[PowerAction, int]] = {
    PowerAction.OFF: 0,
    PowerAction.ON: 1,
    PowerAction.CYCLE: 3,  # hard reset: mandatory, which the power cycle (2) is not
    PowerAction.NMI: 4,
    PowerAction.SOFT_OFF: 5,
}
GOALS: Final[Mapping[PowerAction, PowerState]] = {
    PowerAction.ON: PowerState.ON,
    PowerAction.OFF: PowerState.OFF,
    PowerAction.SOFT_OFF: PowerState.OFF,
}

BOOT_FLAGS: Final = 5
VALID, PERSISTENT, EFI = 0x80, 0x40, 0x20
KEEP_FLAGS: Final = bytes((3, 0x08))  # do not let the flags lapse after 60 s without a chassis control
SELECTORS: Final[Mapping[BootDevice, int]] = {
    BootDevice.PXE: 1,
    BootDevice.DISK: 2,
    BootDevice.CD: 5,
    BootDevice.BIOS_SETUP: 6,
}
DEVICES: Final[Mapping[int, BootDevice]] = {
    0: BootDevice.NONE,
    1: BootDevice.PXE,
    2: BootDevice.DISK,
    3: BootDevice.DISK,  # in safe mode
    5: BootDevice.CD,
    6: BootDevice.BIOS_SETUP,
    8: BootDevice.CD,  # remote
}

T = TypeVar("T")
OFFERED: Final = ("Power", "Readings", "BootOnce", "Identifies", "Inventories", "Accounts", "Baseline")


class IpmiBmc:
    """An open conversation with one BMC over IPMI. Logs in at the first call; calls from several threads take turns."""

    def __init__(self, address: BmcAddress, credential: Credential, trust: Trust, limits: Limits) -> None:
        """Raises Refused when the user name (16 bytes) or the password (20 bytes) is longer than IPMI carries."""
        self._address = address
        self._door = IpmiDoor(address, credential, limits)
        self._lock = threading.Lock()

    @property
    def address(self) -> BmcAddress:
        return self._address

    def close(self) -> None:
        if self._lock.acquire(timeout=3):
            try:
                self._door.close()
            finally:
                self._lock.release()

    @contextmanager
    def _call(self) -> Iterator[IpmiDoor]:
        with self._lock:
            self._door.start_call()
            yield self._door

    # ------------------------------------------------------------ power

    def power_state(self) -> PowerState:
        with self._call() as door:
            return _power(_chassis_status(door))

    def reading(self) -> Reading:
        """Health is "critical" or "warning" when the chassis status flags a fault; else None, for IPMI says little of health."""
        with self._call() as door:
            status = _chassis_status(door)
            return Reading(_power(status), health=_health(status))

    def set_power(self, action: PowerAction) -> None:
        """A lost answer is not repeated blindly: on and off after a look at the state, a cycle or an NMI not at all (MaybeSent)."""
        with self._call() as door:
            goal = GOALS.get(action)
            try:
                code = door.write(CHASSIS_CONTROL, bytes((CONTROL[action],))).code
            except MaybeSent as lost:
                if goal is not None and self._is_there(door, goal, lost):
                    return
                if action not in (PowerAction.ON, PowerAction.OFF):
                    raise
                code = self._once_more(door, action, GOALS[action])
            if code == NOT_IN_THIS_STATE:
                state = _power(_chassis_status(door))
                if state is goal:
                    return
                if state is PowerState.OFF and goal is not PowerState.ON:
                    raise Refused(f"{door.address}: the machine is off, {action.value} is for one that is on")
                raise Busy(f"{door.address}: {action.value} is not taken in the present state")
            door.check(CHASSIS_CONTROL, Answer(code, b""))

    def _once_more(self, door: IpmiDoor, action: PowerAction, goal: PowerState) -> int:
        """The state shows that it did not happen, and on or off twice is the same as once."""
        try:
            return door.write(CHASSIS_CONTROL, bytes((CONTROL[action],))).code
        except MaybeSent as lost:
            if self._is_there(door, goal, lost):
                return 0
            raise

    @staticmethod
    def _is_there(door: IpmiDoor, goal: PowerState, lost: MaybeSent) -> bool:
        try:
            return _power(_chassis_status(door)) is goal
        except Transient:
            raise lost from None

    # ------------------------------------------------------------ boot

    def boot_once(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """Boot flags lapse after 60 s on BMCs that do not honour parameter 3: reset at once.

        IPMI knows no "as it is": without a mode the UEFI bit is set, and a BMC that loses it is not blamed.
        """
        if device is BootDevice.NONE:
            self.clear_boot_override()
            return
        flags = VALID if mode is BootMode.LEGACY else VALID | EFI
        with self._call() as door:
            _write_flags(door, flags, SELECTORS[device] << 2)
            shown = _read_override(door)
            if shown.device is not device or not shown.once or (mode is not None and shown.mode is not mode):
                raise NotAsAsked(
                    f"{door.address}: asked to boot once from {device.value}, and it shows {_words(shown)}"
                )

    def boot_override(self) -> BootOverride:
        with self._call() as door:
            return _read_override(door)

    def clear_boot_override(self) -> None:
        with self._call() as door:
            _write_flags(door, 0, 0)
            shown = _read_override(door)
            if shown.device is not BootDevice.NONE:
                raise NotAsAsked(f"{door.address}: asked to clear the boot override, and it shows {_words(shown)}")

    # ------------------------------------------------------------ who it is

    def identity(self) -> Identity:
        """From FRU 0 and the system GUID. `product_uuid` is in SMBIOS order (see `ipmi_fru.read_guid`); no host MACs in IPMI."""
        with self._call() as door:
            return _identity(_fru_or_trouble(door), read_guid(door))

    def bmc_info(self) -> BmcInfo:
        with self._call() as door:
            return _bmc_info(door)

    def inventory(self) -> Inventory:
        """IPMI tells who the machine is and little more; what the host holds is `absent`, for the agent to say."""
        with self._call() as door:
            fields = _fru_or_trouble(door)
            bmc = _bmc_info(door)
            identity = _identity(fields, read_guid(door))
        sections = dict.fromkeys(("cpus", "memory", "nics", "drives", "gpus", "tpm"), "absent")
        firmware = {"BMC": bmc.firmware} if bmc.firmware else {}
        return Inventory(
            identity=identity,
            bmc=bmc,
            firmware=firmware,
            capabilities=OFFERED,
            sections={**sections, "identity": fields.trouble or "ok", "bmc": "ok"},
        )

    # ------------------------------------------------------------ accounts

    def accounts(self) -> tuple[Account, ...]:
        with self._call() as door:
            return read_accounts(door)

    def set_password(self, username: str, password: SecretStr, slot: str | None = None) -> None:
        """The BMC is asked to test the new password. From then on this conversation logs in with it, where the account is its own."""
        with self._call() as door:
            set_password(door, username, password, slot)
            if username == door.credential.username:
                door.use(Credential(username, password))

    def baseline(self) -> Mapping[str, object]:
        with self._call() as door:
            return {
                "accounts": [_kept(account) for account in read_accounts(door)],
                "network": dict(_or_none(read_lan, door) or {}),
                "channelAccess": read_channel_access(door),
                "firmware": _bmc_info(door).firmware,
                "boot": _or_none(lambda d: asdict(_read_override(d)), door),
            }


def _kept(account: Account) -> Mapping[str, object]:
    """What must be the same when a tenant hands the machine back."""
    return {name: getattr(account, name) for name in ("slot", "username", "role", "enabled")}


# ---------------------------------------------------------------- bytes


def _chassis_status(door: IpmiDoor) -> bytes:
    return door.get(GET_CHASSIS_STATUS)


def _power(status: bytes) -> PowerState:
    if not status:
        return PowerState.UNKNOWN
    return PowerState.ON if status[0] & 0x01 else PowerState.OFF


def _health(status: bytes) -> str | None:
    if len(status) < 3:
        return None
    if status[0] & 0x08:  # a fault of the main power
        return "critical"
    return "warning" if status[2] & 0x0C else None  # cooling, drive


def _write_flags(door: IpmiDoor, flags: int, selector: int) -> None:
    with suppress(Permanent, MaybeSent):  # OpenBMC refuses parameter 3; whether it was taken changes nothing here
        door.put(SET_BOOT_OPTIONS, KEEP_FLAGS)
    request = bytes((BOOT_FLAGS, flags, selector, 0, 0, 0))
    try:
        door.put(SET_BOOT_OPTIONS, request)
    except MaybeSent:
        door.put(SET_BOOT_OPTIONS, request)  # the same flags twice are the same as once


def _read_override(door: IpmiDoor) -> BootOverride:
    data = door.get(GET_BOOT_OPTIONS, bytes((BOOT_FLAGS, 0, 0)))
    if len(data) < 4 or data[1] & 0x7F != BOOT_FLAGS:
        raise Malformed(
            f"{door.address}: {GET_BOOT_OPTIONS.name} gave {data[:8].hex() or 'nothing'} for the boot flags"
        )
    selector = data[3] >> 2 & 0x0F
    if data[1] & 0x80 or not data[2] & VALID or selector == 0:
        return BootOverride(BootDevice.NONE, once=True)
    if selector not in DEVICES:
        raise Unsupported(f"{door.address}: the boot override names device {selector}, which has no name here")
    mode = BootMode.UEFI if data[2] & EFI else BootMode.LEGACY
    return BootOverride(DEVICES[selector], once=not data[2] & PERSISTENT, mode=mode)


def _words(shown: BootOverride) -> str:
    mode = f", {shown.mode.value}" if shown.mode else ""
    return f"{shown.device.value}, {'once' if shown.once else 'lasting'}{mode}"


def _fru_or_trouble(door: IpmiDoor) -> FruFields:
    try:
        return read_fru(door)
    except Permanent as error:
        return FruFields(trouble=str(error))  # the inventory goes on without it


def _identity(fields: FruFields, guid: str | None) -> Identity:
    return Identity(
        product_uuid=guid,
        serial=fields.serial,
        sku=fields.part_number,
        manufacturer=fields.manufacturer,
        model=fields.model,
        asset_tag=fields.asset_tag,
    )


def _bmc_info(door: IpmiDoor) -> BmcInfo:
    data = door.get(GET_DEVICE_ID)
    if len(data) < 11:
        raise Malformed(f"{door.address}: {GET_DEVICE_ID.name} gave {len(data)} bytes")
    maker = int.from_bytes(data[6:9], "little") & 0x0FFFFF
    return BmcInfo(
        maker=MAKERS.get(maker, f"IANA {maker}"),
        model=f"product 0x{int.from_bytes(data[9:11], 'little'):04x}",
        firmware=f"{data[2] & 0x7F}.{data[3] >> 4}{data[3] & 0x0F}",
        clock=_clock(door),
    )


def _clock(door: IpmiDoor) -> str | None:
    answer = door.read(GET_SEL_TIME)
    seconds = int.from_bytes(answer.data[:4], "little")
    if answer.code != 0 or len(answer.data) < 4 or seconds in (0, 0xFFFFFFFF):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _or_none(read: Callable[[IpmiDoor], T], door: IpmiDoor) -> T | None:
    try:
        return read(door)
    except Permanent:
        return None


_bmc: type[Bmc] = IpmiBmc
_conforms_power: type[Power] = IpmiBmc
_conforms_readings: type[Readings] = IpmiBmc
_conforms_boot: type[BootOnce] = IpmiBmc
_conforms_identity: type[Identifies] = IpmiBmc
_conforms_inventory: type[Inventories] = IpmiBmc
_conforms_accounts: type[Accounts] = IpmiBmc
_conforms_baseline: type[Baseline] = IpmiBmc
