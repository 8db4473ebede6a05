"""IPMI messages over a UDP socket of their own: pyghmi's framing, and when each packet is sent and taken.

pyghmi's framing, key derivation and encryption are used as they are; its event loop is not. In pyghmi 1.6.19 one thread and
class-level tables serve the whole process, a session cannot be given up without leaving its socket there, and a lost reply to a
chassis control is sent again, with new logins, up to nine times. Here `pyghmi.ipmi.private.session.Session` is subclassed and everything
that touches those tables is replaced: a connected socket (answers of others never arrive), the caller's own thread, no keepalive,
each packet sent when this module says so. The names used are private to pyghmi: the version is pinned, the contract tests notice.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from pyghmi.ipmi.private import session as pyghmi_session

from bcmetal_drivers.connection import BmcAddress, Credential
from bcmetal_drivers.errors import DriverError, Refused, Unreachable
from bcmetal_drivers.ipmi_values import PASSWORD_LIMIT_1_5, PRIVILEGES, Answer, Deadline

SOL: Final = 0x01  # payload type
STRANGER_WAIT_S: Final = 0.5
# Get Channel Authentication Capabilities for IPMI 2.0 and an administrator, in a packet of no session
FROM_OUTSIDE: Final = bytes.fromhex("0600ff07 00 00000000 00000000 09 2018c8 81 00 38 8e 04 b5")


class IpmiPackets(pyghmi_session.Session):  # type: ignore[misc]  # pyghmi has no types
    """What goes to and comes from one BMC, before and after a login. One thread at a time."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        return object.__new__(cls)  # pyghmi's looks for a session of the same BMC in its tables

    def __init__(self, address: BmcAddress, credential: Credential, privilege: str) -> None:
        """`privilege` is one of PRIVILEGES. Nothing is sent, and no socket opened."""
        self.address = address
        self.privilege = privilege
        self.privlevel = PRIVILEGES[privilege]
        self.role_refused = False  # the account may not work at this privilege
        self.userid = credential.username.encode()
        self.password = credential.password.get_secret_value().encode()
        self.established = False
        self.socket: socket.socket | None = None
        self._answer: Answer | None = None
        self._expected: tuple[int, int] | None = None
        self._failure: DriverError | None = None
        self._asking_capabilities = False
        self._answers_strangers = False
        self._set_up_pyghmi()

    def _set_up_pyghmi(self) -> None:
        self.servermode = False
        self.nameonly = 0x10  # look the account up by name, not by name and privilege
        self.autopriv = False
        self.logontries = 0
        self.maxtimeout = 2
        self.timeout = 1.0
        self.sol_handler: Callable[[bytearray], None] | None = None
        self.pendingpayloads: deque[object] = deque()
        self.request_entry: list[object] = []
        self.seqlun = 0
        self.last_payload_type: int | None = None  # pyghmi reads it before it was ever written
        self._initsession()

    def _connect(self) -> None:
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise Unreachable(f"{self.address}: the name is not known") from error
        family, kind, proto, _, where = found[0]
        self.socket = socket.socket(family, kind, proto)
        try:
            self.socket.connect(where)
        except OSError as error:
            raise Unreachable(f"{self.address}: no route: {error.strerror}") from error

    def _drop(self) -> None:
        self.established = False
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def role_is_refused(self, code: int) -> Refused:
        self.role_refused = True
        return Refused(f"{self.address}: the account may not work as {self.privilege} (code 0x{code:02x})")

    # ------------------------------------------------------------ commands

    def exchange(
        self,
        netfn: int,
        command: int,
        data: bytes,
        waits_s: tuple[float, ...],
        deadline: Deadline,
        lun: int = 0,
        *,
        doubtful: bool = False,
    ) -> Answer | None:
        """Send a command once for each of `waits_s`, until one is answered. None: silence. A write gives one wait.

        `doubtful`: the BMC may have forgotten this session; when it answers strangers and not us, no more is sent. Raises Unreachable when
        the port is closed.
        """
        self.request_entry.clear()  # a late answer to an earlier command is not one to this
        self._answer = None
        self._expected = (netfn + 1, command)
        for wait_s in waits_s:
            if deadline.left_s() <= 0:
                return None
            self.seqlun = (self.seqlun + 1) & 0x3F
            self.lastpayload = None
            self.ipmicallback = self._keep
            self._send_ipmi_net_payload(netfn, command, data, retry=False, rslun=lun)
            if self._pump(lambda: self._answer is not None, wait_s, deadline):
                return self._answer
            if doubtful and self._is_forgotten(deadline):
                return self._answer
        return None

    def _is_forgotten(self, deadline: Deadline) -> bool:
        """Whether the BMC answers a question from outside of any session, and not this session's. True too when that answer came now."""
        self._answers_strangers = False
        if self.socket is not None:
            with suppress(OSError):
                self.socket.send(FROM_OUTSIDE)
        self._pump(lambda: self._answers_strangers or self._answer is not None, STRANGER_WAIT_S, deadline)
        return self._answers_strangers or self._answer is not None

    def send_sol(self, payload: bytes) -> None:
        """A packet of the serial console; what comes back goes to `sol_handler`."""
        self.send_payload(bytearray(payload), SOL, retry=False)

    def listen(self, done: Callable[[], bool], seconds: float) -> bool:
        """Take packets until `done`, for `seconds` at most. Whether it was done. Raises Unreachable when the port is closed."""
        return self._pump(done, seconds, Deadline.after(seconds))

    def _keep(self, response: Mapping[str, object]) -> None:
        if (response["netfn"], response["command"]) == self._expected:
            code, data = response["code"], response["data"]
            if isinstance(code, int) and isinstance(data, bytearray):
                self._answer = Answer(code, bytes(data))

    # ------------------------------------------------------------ packets

    def _pump(self, done: Callable[[], bool], seconds: float, deadline: Deadline) -> bool:
        """Take packets until `done`, for `seconds` at most. Whether it was done."""
        until = min(time.monotonic() + seconds, deadline.at)
        while not done() and self.socket is not None:
            left = until - time.monotonic()
            if left <= 0:
                break
            self.socket.settimeout(left)
            try:
                packet = self.socket.recv(4096)
            except TimeoutError:
                break
            except OSError as error:
                raise Unreachable(f"{self.address}: nothing listens there: {error.strerror}") from error
            self._take(packet)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
        return done()

    def _take(self, packet: bytes) -> None:
        """Hand one packet to pyghmi. What is not IPMI, or not in this phase's form, or garbled, is as if it had not come."""
        if len(packet) < 16 or packet[0] != 6 or packet[2:4] != b"\xff\x07":
            return
        if packet[4] != (0 if self._asking_capabilities else self.authtype):
            self._answers_strangers = self._answers_strangers or packet[4] == 0
            return
        try:
            self._handle_ipmi_packet(bytearray(packet), sockaddr=None, qent=(None, None, None))
        except (IndexError, KeyError, TypeError, ValueError, struct.error):
            return

    def _xmit_packet(self, retry: bool = True, delay_xmit: object = None, timeout: object = None) -> None:
        if self.socket is None:
            raise Unreachable(f"{self.address}: the session is closed")
        if self.sequencenumber:  # 0 is for packets outside of a session
            self.sequencenumber += 1
        self.lastpayload = None  # pyghmi would hold the next packet back until this one was answered
        try:
            self.socket.send(bytes(self.netpacket))
        except OSError as error:
            raise Unreachable(f"{self.address}: nothing listens there: {error.strerror}") from error

    def _ipmi15authcode(self, payload: bytes, checkremotecode: bool = False) -> bytes:
        """pyghmi's is of a time when passwords were str."""
        if self.authtype == 0:
            return b""
        sequence = self.remseqnumber if checkremotecode else self.sequencenumber
        return _auth_code(self.password, self.sessionid, sequence or 0, bytes(payload))


def _auth_code(password: bytes, session: int, sequence: int, payload: bytes) -> bytes:
    """IPMI 1.5, section 18.15.1: MD5 over password, session, message, sequence number, password."""
    padded = password.ljust(PASSWORD_LIMIT_1_5, b"\x00")
    message = padded + struct.pack("<I", session) + payload + struct.pack("<I", sequence) + padded
    return hashlib.md5(message, usedforsecurity=False).digest()
