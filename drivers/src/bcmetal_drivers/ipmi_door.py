"""The one way of this driver to an IPMI BMC: logs in when needed, repeats what may be repeated, types what went wrong.

Reads are sent again when no answer comes, and once more under a new login. Writes are sent once: an answer that is lost is
`MaybeSent`, and the caller looks before it repeats. Completion codes that say "busy" are waited out; a BMC that says so again and again,
and never some time later, is given that time between commands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from bcmetal_drivers.connection import BmcAddress, Credential, Limits
from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    MaybeSent,
    Refused,
    RejectedCredentials,
    ServerFault,
    TimedOut,
    Transient,
    Unreachable,
    Unsupported,
)
from bcmetal_drivers.ipmi_session import IpmiSession
from bcmetal_drivers.ipmi_values import PRIVILEGES, Answer, Deadline, check_kg, check_limits

# The command was not executed; it may be sent again: node busy, SDR update, BMC update, BMC initialisation, no resources, …
NOT_NOW: Final = frozenset({0xC0, 0xC4, 0xD0, 0xD1, 0xD2, 0xDF})
TIMEOUT_WHILE_PROCESSING: Final = 0xC3  # perhaps executed
NOT_IN_THIS_STATE: Final = 0xD5
UNSUPPORTED: Final = frozenset({0xC1, 0xC2, 0xD6})
NO_PRIVILEGE: Final = 0xD4
UNSPECIFIED: Final = 0xFF

BUSY_WAITS_S: Final = (0.1, 0.4, 0.5, 1.0, 1.0, 2.0)
HASTY: Final = 3  # commands in a row that are busy at first, after which there is time between commands
SPACING_LIMIT_S: Final = 5.0
DOUBTS: Final = 2  # how often a password that was good is thought to be good still, though it is refused
READ_WAITS_S: Final = (1.0, 2.0, 3.0)
IDLE_LOGIN_S: Final = 45.0  # BMCs end an idle session after 60 s, and then answer nothing
IDLE_PROBE_S: Final = 10.0  # some end it sooner: before a write, a read tells


@dataclass(frozen=True, slots=True)
class Command:
    """An IPMI command. `name` is the specification's, for messages."""

    name: str
    netfn: int
    code: int
    lun: int = 0


GET_DEVICE_ID: Final = Command("Get Device ID", 0x06, 0x01)


class IpmiDoor:
    """A conversation with one BMC, across logins. One thread at a time."""

    def __init__(
        self, address: BmcAddress, credential: Credential, limits: Limits, memory: dict[str, Any] | None = None
    ) -> None:
        """`memory` is what was learned of the BMC before, and is added to."""
        check_limits(address, credential)
        check_kg(address, limits.ipmi_kg)
        self.address = address
        self.credential = credential
        self.limits = limits
        self._session: IpmiSession | None = None
        self._used_at = 0.0
        self.memory: dict[str, Any] = {} if memory is None else memory
        self._spacing_s = min(float(self.memory.get("spacingS") or 0.0), SPACING_LIMIT_S)
        self._hasty = 0  # commands in a row that were busy at first, and good later
        self._proven = False  # the BMC took these credentials
        self._doubted = 0
        self._deadline = Deadline.after(limits.total_s)

    def start_call(self) -> None:
        """A capability's call begins: its whole deadline is ahead of it."""
        self._deadline = Deadline.after(self.limits.total_s)

    def use(self, credential: Credential) -> None:
        """Log in with this from the next login on; the open session stays."""
        check_limits(self.address, credential)
        self.credential = credential
        self._proven, self._doubted = False, 0

    def proves(self, credential: Credential, privilege: str) -> bool | None:
        """Whether the BMC takes a login with this. None: it could not be tried just now."""
        session = IpmiSession(self.address, credential, self.limits_of_a_login(), privilege)
        try:
            session.open(self._deadline, self.limits.connect_s)
        except RejectedCredentials:
            return False
        except Transient:
            return None
        session.close()
        return True

    def close(self) -> None:
        """End the session; the next command logs in again. Never raises."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def speaks_old_ipmi(self) -> bool:
        """Whether its open session is one of IPMI 1.5."""
        return self._session is not None and self._session.ipmiversion == 1.5

    def another_session(self) -> IpmiSession:
        """An open one beside that of this door, the caller's to close. Raises Refused where the BMC is only observed."""
        if not self.limits.write_allowed:
            raise Refused(f"{self.address}: a console is typed into, and this BMC is only observed")
        session = IpmiSession(self.address, self.credential, self.limits_of_a_login())
        session.open(Deadline.after(self.limits.total_s), self.limits.connect_s)
        return session

    def abandon(self) -> None:
        """The BMC ended the session by itself."""
        self._forget()

    def read(self, command: Command, data: bytes = b"") -> Answer:
        """The BMC's answer, whatever its completion code, once it is not a busy one."""
        return self._once_not_busy(command, lambda: self._ask(command, data), (*NOT_NOW, TIMEOUT_WHILE_PROCESSING))

    def write(self, command: Command, data: bytes = b"") -> Answer:
        """Send a write once. Raises MaybeSent when the answer is lost or says that it is not known whether it was done."""
        if not self.limits.write_allowed:
            raise Refused(f"{self.address}: {command.name} is a write, and this BMC is only observed")
        self._probe()
        answer = self._once_not_busy(command, lambda: self._send_once(command, data), NOT_NOW)
        if answer.code == TIMEOUT_WHILE_PROCESSING:
            raise MaybeSent(f"{self.address}: timed out while it processed {command.name}")
        return answer

    def check(self, command: Command, answer: Answer) -> bytes:
        """The answer's data. Raises what its completion code means: Unsupported, Refused, Busy or ServerFault."""
        if answer.code == 0:
            return answer.data
        said = f"{self.address}: {command.name} was answered with code 0x{answer.code:02x}"
        if answer.code in UNSUPPORTED:
            raise Unsupported(said)
        if answer.code == NO_PRIVILEGE:
            raise Refused(f"{said}: {self.limits.privilege} is not privilege enough")
        if answer.code == NOT_IN_THIS_STATE:
            raise Busy(f"{said}: not in the present state")
        if answer.code == UNSPECIFIED:
            raise ServerFault(said)
        raise Refused(said)

    def get(self, command: Command, data: bytes = b"") -> bytes:
        """`read`, and `check` of its answer."""
        return self.check(command, self.read(command, data))

    def put(self, command: Command, data: bytes = b"") -> bytes:
        """`write`, and `check` of its answer."""
        return self.check(command, self.write(command, data))

    # ------------------------------------------------------------

    def _ask(self, command: Command, data: bytes) -> Answer:
        fresh = self._session is None
        answer = self._try_read(command, data, doubtful=not fresh)
        if answer is None and not fresh:
            # the BMC may have forgotten the session: under a new login
            answer = self._try_read(command, data, doubtful=False)
        if answer is None:
            self._in_time(command)
            raise TimedOut(f"{self.address}: {command.name} was not answered")
        return answer

    def _try_read(self, command: Command, data: bytes, *, doubtful: bool) -> Answer | None:
        session = self._logged_in(command)
        try:
            answer = session.exchange(
                command.netfn, command.code, data, READ_WAITS_S, self._deadline, command.lun, doubtful=doubtful
            )
        except Unreachable:
            self._forget()
            raise
        if answer is None:
            self._forget()
        else:
            self._used_at = time.monotonic()
        return answer

    def _send_once(self, command: Command, data: bytes) -> Answer:
        session = self._logged_in(command)
        self._in_time(command)
        try:
            answer = session.exchange(
                command.netfn, command.code, data, (self.limits.read_s,), self._deadline, command.lun
            )
        except Unreachable as error:
            self._forget()
            raise MaybeSent(f"{self.address}: went away while {command.name} was under way") from error
        if answer is None:
            self._forget()
            raise MaybeSent(f"{self.address}: the answer to {command.name} was lost")
        self._used_at = time.monotonic()
        return answer

    def _probe(self) -> None:
        """See that the session still lives, so that a write is not lost in a dead one."""
        if self._session is not None and time.monotonic() - self._used_at > IDLE_PROBE_S:
            self._ask(GET_DEVICE_ID, b"")

    def _logged_in(self, command: Command) -> IpmiSession:
        if self._session is not None and time.monotonic() - self._used_at > IDLE_LOGIN_S:
            self.close()
        if self._session is None:
            self._in_time(command)
            session = IpmiSession(self.address, self.credential, self.limits_of_a_login())
            try:
                session.open(self._deadline, self.limits.connect_s)
            except Refused as error:
                if session.role_refused:
                    raise Refused(f"{error}{self._works_as()}") from error
                raise
            except RejectedCredentials as error:
                self._doubt(error)
                raise
            self._session = session
            if session.suite is not None:
                self.memory["ipmiSuite"] = session.suite
            self._proven, self._doubted = True, 0
            self._used_at = time.monotonic()
        return self._session

    def limits_of_a_login(self) -> Limits:
        """With the cipher suite that worked first; what the limits do not allow stays out."""
        allowed, known = self.limits.ipmi_suites, self.memory.get("ipmiSuite")
        if known not in allowed:
            return self.limits
        return replace(self.limits, ipmi_suites=(known, *(suite for suite in allowed if suite != known)))

    def _doubt(self, error: RejectedCredentials) -> None:
        """Some BMCs refuse every login for a while when their machine was switched on: not a bad password at once."""
        if self._proven and self._doubted < DOUBTS:
            self._doubted += 1
            raise ServerFault(f"{error}; it took them before, and may be restarting") from error

    def _works_as(self) -> str:
        """The highest privilege that the account has below the one asked for, as words for a person."""
        levels = sorted(PRIVILEGES, key=PRIVILEGES.__getitem__, reverse=True)
        for level in levels[levels.index(self.limits.privilege) + 1 :]:
            try:
                session = IpmiSession(self.address, self.credential, self.limits_of_a_login(), level)
                session.open(self._deadline, self.limits.connect_s)
            except DriverError:
                continue
            session.close()
            return f"; it may as {level}: the pool's settings can ask for that"
        return "; the pool's settings can ask for less"

    def _forget(self) -> None:
        """Give a session up that does not answer: its end is announced, but not waited for."""
        if self._session is not None:
            self._session.close(wait_s=0.05)
            self._session = None

    def space(self, at_least_s: float) -> None:
        """Leave so much time between commands from now on."""
        self._spacing_s = max(self._spacing_s, min(at_least_s, SPACING_LIMIT_S))

    def _space(self, command: Command) -> None:
        left = self._used_at + self._spacing_s - time.monotonic()
        if self._session is not None and left > 0:
            self._in_time(command, left)
            time.sleep(left)

    def _once_not_busy(self, command: Command, send: Callable[[], Answer], busy: Collection[int]) -> Answer:
        waited_s = 0.0
        for wait_s in (*BUSY_WAITS_S, None):
            self._space(command)
            answer = send()
            if answer.code not in busy:
                self._note_pace(waited_s)
                return answer
            if wait_s is not None:
                self._in_time(command, wait_s)
                time.sleep(wait_s)
                waited_s += wait_s
        raise Busy(f"{self.address}: {command.name} is answered with busy (code 0x{answer.code:02x})")

    def _note_pace(self, waited_s: float) -> None:
        """After `waited_s` of busy answers there was a good one; 0: it was good at once."""
        self._hasty = self._hasty + 1 if waited_s else 0
        if self._hasty >= HASTY:
            self.space(self._spacing_s + waited_s)
            self.memory["spacingS"] = self._spacing_s
            self._hasty = 0

    def _in_time(self, command: Command, needed_s: float = 0.0) -> None:
        if self._deadline.left_s() <= needed_s:
            raise TimedOut(f"{self.address}: {command.name} was not done within {self._deadline.total_s:g} s")
