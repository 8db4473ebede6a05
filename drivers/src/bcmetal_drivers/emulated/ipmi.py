"""An emulated BMC that speaks IPMI 2.0: chassis, boot flags, device id, FRU, users, LAN settings, faults.

`IpmiFront` stands before a machine of the rack as the Redfish layer stands before others: same machine, same oracle, same
rules, the same list of writes. `ipmitool -I lanplus -C 3` drives it as the driver does.

A rule names a command by its kebab-case name from `ipmi_commands.COMMANDS` (`method="chassis-control"`) and matches `path` against what the
command is about: the action, the boot device, the user's slot.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from pydantic import SecretStr

from bcmetal_drivers.emulated.ipmi_accounts import UserSlots
from bcmetal_drivers.emulated.ipmi_commands import INVALID_COMMAND, Commands, command_for
from bcmetal_drivers.emulated.ipmi_sol import Serial
from bcmetal_drivers.emulated.ipmi_wire import INSUFFICIENT_PRIVILEGE, UNAUTHORISED_NAME, Login, Wire
from bcmetal_drivers.emulated.machine import Machine

NODE_BUSY, WRONG_LENGTH = 0xC0, 0xC7
RESETS: Final = ("cold-reset", "warm-reset")


class Seat(Protocol):
    """The BMC of the rack that the front stands for."""

    name: str

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def username(self) -> str: ...
    @property
    def password(self) -> SecretStr: ...


class Fault(Protocol):
    """A rule that fired."""

    @property
    def action(self) -> str: ...
    @property
    def args(self) -> Mapping[str, Any]: ...


class Surroundings(Protocol):
    """What the rack does for each of its BMCs, whatever they speak."""

    def fire(self, bmc: str, method: str, path: str) -> Fault | None:
        """The rule that applies to this request, counted as fired."""

    def wrote(self, bmc: str, machine: str | None, method: str, path: str, kind: str) -> None:
        """A write was applied; called before it is answered."""

    def counted(self, bmc: str, what: str) -> None: ...
    def password_changed(self, bmc: str, username: str, password: SecretStr) -> None: ...


class IpmiFront:
    """The IPMI side of one BMC of the rack."""

    def __init__(self, bmc: Seat, rack: Surroundings) -> None:
        self._bmc = bmc
        self._rack = rack
        self.users = UserSlots(bmc.username, bmc.password)
        self.unknown_names_are_refused = False  # else they are met with silence
        self.commands = Commands(bmc.machine, self.users, bmc.host)
        self._wire = Wire(self, bmc.host, bmc.port, bmc.machine.uuid, bmc.name)
        self._min_interval_s = 0.0
        self._good_at = 0.0
        self._failing_after_power_on = 0
        self._failing_logins = 0
        self._failed_in_a_row: dict[str, int] = {}
        self._locked_until: dict[str, float] = {}
        self.failed_logins = 0

    # ------------------------------------------------------------ for the rack

    @property
    def port(self) -> int:
        """The port bound, once started; kept for the next start."""
        return self._wire.port

    def start(self) -> None:
        self._wire.start()

    def stop(self) -> None:
        self._wire.stop()

    def sessions(self) -> int:
        return self._wire.open_sessions()

    def drop_sessions(self) -> None:
        """As a BMC that restarted: packets of the old sessions are met with silence."""
        self._wire.drop_sessions()

    def set(self, name: str, value: object) -> None:
        """Change a quirk while it runs.

        suites: tuple of 17, 3, 16, 15, 2, 1, 0
        kg: the BMC's second key
        ipmi_2: False: it knows 1.5 only
        ignores_suites: one that it does not take is met with silence
        privilege: of the rack's account
        unknown_names: "refused", or "ignored" as many BMCs do
        password_bytes: 16: longer ones are cut
        logins_fail_after_power_on: so many
        max_sessions: that are open at once
        min_interval_s: busy to what is asked sooner
        sol: False: the console is switched off; sol_stale: somebody left one behind
        sdr_read_limit: bytes that one reading of a record gives
        flags_lapse_s: boot flags lapse after so long, unless parameter 3 says otherwise; parameter_3: False: it is refused
        already_there_d5: True: 0xD5 to a chassis control that changes nothing
        forgets_uefi, forgets_persistence: bits of the boot flags
        selectors: number -> BootDevice
        tells_light, light_stays: of the identify light
        fru: "checksum", "garbled", "absent"
        """
        if name == "suites" and isinstance(value, tuple | list):
            self.commands.lan.use_suites(tuple(value))
        elif name == "kg" and isinstance(value, SecretStr):
            self._wire.kg = value.get_secret_value().encode()
        elif name == "min_interval_s" and isinstance(value, int | float):
            self._min_interval_s = float(value)
        elif name == "privilege" and isinstance(value, int):
            self.users.slots[2].privilege = value
        elif name == "ipmi_2" and isinstance(value, bool):
            self._wire.knows_ipmi_2 = value
        elif name == "ignores_suites" and isinstance(value, bool):
            self._wire.ignores_suites = value
        elif name == "logins_fail_after_power_on" and isinstance(value, int):
            self._failing_after_power_on = value
        elif name == "sol" and isinstance(value, bool):
            self.serial.enabled = value
        elif name == "sol_stale" and isinstance(value, bool):
            self.serial.stale = value
        elif name == "sdr_read_limit" and isinstance(value, int):
            self.commands.sensors.read_limit = value
        elif name == "max_sessions" and isinstance(value, int):
            self._wire.max_sessions = value
        elif name == "unknown_names":
            self.unknown_names_are_refused = value == "refused"
        else:
            self.commands.set(name, value)

    def snapshot(self) -> dict[str, Any]:
        log, lan = self.commands.log.snapshot(), self.commands.lan.snapshot()
        return {"users": self.users.snapshot(), "log": log, "lan": lan}

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.users.restore(doc["users"])
        self.commands.log.restore(doc["log"])
        self.commands.lan.restore(doc["lan"])

    # ------------------------------------------------------------ for the wire

    @property
    def suites(self) -> tuple[int, ...]:
        return self.commands.lan.suites()

    @property
    def is_on(self) -> bool:
        return self.commands.lan.is_on

    @property
    def serial(self) -> Serial:
        return self.commands.serial

    def takes_sol(self) -> bool:
        fault = self._rack.fire(self._bmc.name, "sol-packet", "")
        return fault is None or fault.action not in ("drop_before", "drop_after")

    def login(self, username: str) -> Login | None:
        user = self.users.named(username)
        if user is None:
            self.login_failed(username)
            return Login(b"", 0, UNAUTHORISED_NAME) if self.unknown_names_are_refused else None
        if self._failing_logins > 0:
            self._failing_logins -= 1
            return Login(secrets.token_bytes(16), user.privilege)
        if time.monotonic() < self._locked_until.get(username, 0.0):
            return Login(b"", 0, UNAUTHORISED_NAME)
        return Login(user.password.get_secret_value().encode("utf-8", "surrogateescape"), user.privilege)

    def login_failed(self, username: str) -> None:
        self.failed_logins += 1
        count = self._failed_in_a_row[username] = self._failed_in_a_row.get(username, 0) + 1
        fault = self._rack.fire(self._bmc.name, "failed-login", username)
        if fault is not None and fault.action == "lock_after" and count >= int(fault.args["n"]):
            self._locked_until[username] = time.monotonic() + float(fault.args["seconds"])

    def session_opened(self, username: str) -> None:
        self._failed_in_a_row.pop(username, None)
        self._rack.wrote(self._bmc.name, None, "open-session", username, "session")

    def session_closed(self) -> None:
        self._rack.wrote(self._bmc.name, None, "close-session", "", "session")

    def heard(self, what: str) -> None:
        self._rack.counted(self._bmc.name, what)

    def handle(self, privilege: int, netfn: int, command: int, data: bytes) -> tuple[int, bytes] | None:
        known = command_for(netfn, command, data)
        if known is None:
            self._rack.counted(self._bmc.name, f"{netfn:#04x}/{command:#04x}")
            return INVALID_COMMAND, b""
        self._rack.counted(self._bmc.name, known.name)
        if privilege < known.needs:
            return INSUFFICIENT_PRIVILEGE, b""
        if self._hasty():
            return NODE_BUSY, b""
        path = known.about(data)
        fault = self._rack.fire(self._bmc.name, known.name, path)
        action = fault.action if fault else ""
        args: Mapping[str, Any] = fault.args if fault else {}
        if action == "delay":
            self._wire.stopping.wait(float(args["seconds"]))
        elif action == "drop_before":
            return None
        elif action == "expire_sessions":
            self._wire.drop_sessions()
            return None
        elif action == "refuse":
            return int(args.get("code", 0xFF)), b""
        elif action == "ignore" and known.writes:
            return 0, b""
        try:
            code, answer = known.run(self.commands, data)
        except (IndexError, struct.error):
            code, answer = WRONG_LENGTH, b""
        if code == 0 and known.writes:
            self._applied(known.name, path, data)
        if code == 0 and known.name in RESETS:
            self._wire.drop_sessions()
        return None if action == "drop_after" else (code, answer)

    def _hasty(self) -> bool:
        """Whether it was asked again too soon."""
        now = time.monotonic()
        if now - self._good_at < self._min_interval_s:
            return True
        self._good_at = now
        return False

    def _applied(self, name: str, path: str, data: bytes) -> None:
        if name == "set-user-password":
            user = self.users.slots[data[0] & 0x3F]
            self._rack.password_changed(self._bmc.name, user.username, user.password)
        if name == "chassis-control" and path in ("on", "cycle") and self._failing_after_power_on:
            self._failing_logins = self._failing_after_power_on
            self._wire.drop_sessions()
        self._rack.wrote(self._bmc.name, self._bmc.machine.name, name, path, "effect")
