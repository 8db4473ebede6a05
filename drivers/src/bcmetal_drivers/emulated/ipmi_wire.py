"""RMCP+ as a BMC speaks it: one UDP socket and one thread for each emulated BMC.

pyghmi's server classes bring framing, keys and encryption. Their event loop is the client's, one for the process, which would
let a slow emulated BMC hold up every driver beside it; so packets are received and handed out here. Beyond pyghmi: cipher suites with
AES and without, and 0, which asks for no password; K_g; status codes of RAKP, privilege levels, a bounded session table, sessions that
end after a minute.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from pyghmi.ipmi import bmc as pyghmi_bmc
from pyghmi.ipmi.private import constants, serversession

from bcmetal_drivers.emulated.ipmi_sol import RESEND_S, Serial

ACTIVATE, DEACTIVATE = (0x06, 0x48), (0x06, 0x49)  # Activate Payload, Deactivate Payload
CALLBACK, USER, OPERATOR, ADMINISTRATOR = 1, 2, 3, 4

IDLE_S: Final = 60.0
HANDSHAKE_S: Final = 10.0
# suite -> (authentication, integrity, confidentiality, hash, bytes of the hash that a packet carries); the better ones last
SUITES: Final = {
    0: (0, 0, 0, None, 0),
    1: (1, 0, 0, hashlib.sha1, 12),
    2: (1, 1, 0, hashlib.sha1, 12),
    3: (1, 1, 1, hashlib.sha1, 12),
    15: (3, 0, 0, hashlib.sha256, 16),
    16: (3, 4, 0, hashlib.sha256, 16),
    17: (3, 4, 1, hashlib.sha256, 16),
}

# RMCP+ status codes (IPMI 2.0, table 13-15)
OK, NO_RESOURCES, UNAUTHORISED_ROLE, UNAUTHORISED_NAME, BAD_CHECK_VALUE, NO_SUITE = 0x00, 0x01, 0x0A, 0x0D, 0x0F, 0x11
INSUFFICIENT_PRIVILEGE: Final = 0xD4


@dataclass(frozen=True, slots=True)
class Login:
    """What a name may do. `status` other than OK refuses it with that RMCP+ code; `password` is then not looked at."""

    password: bytes
    privilege: int
    status: int = OK


class Host(Protocol):
    """The BMC behind the wire."""

    @property
    def suites(self) -> tuple[int, ...]:
        """Those that may be used."""

    @property
    def is_on(self) -> bool:
        """Whether it answers on the network at all."""

    def login(self, username: str) -> Login | None:
        """None: not known; such a name is met with silence."""

    def login_failed(self, username: str) -> None: ...
    def session_opened(self, username: str) -> None: ...
    def session_closed(self) -> None: ...
    def heard(self, what: str) -> None: ...
    @property
    def serial(self) -> Serial: ...
    def takes_sol(self) -> bool:
        """Whether this packet of the console's gets through."""

    def handle(self, privilege: int, netfn: int, command: int, data: bytes) -> tuple[int, bytes] | None:
        """Completion code and data; None: no answer is sent."""


class _Session(serversession.ServerSession):  # type: ignore[misc]  # pyghmi has no types
    """One client's session, from its open request on."""

    def __new__(cls, *_args: object) -> _Session:
        return object.__new__(cls)

    def __init__(self, wire: Wire, where: tuple[str, int], request: bytearray) -> None:
        self.wire = wire
        self.uuid = wire.uuid
        self.currhashlib: Any = hashlib.sha1
        self.currhashlen = 12
        self.rqaddr = constants.IPMI_BMC_ADDRESS
        self.servermode = True
        self.ipmiversion = 2.0
        self.sequencenumber = 0
        self.sessionid = 0
        self.lastpayload = self.last_payload_type = None
        self.sol_handler = self._take_sol
        self.rqlun = None
        self.broken = False
        self.authtype = 6
        self.integrityalgo: int | str = 0
        self.confalgo: int | str = 0
        self.k1: bytes | None = None
        self.localsid = 0
        self.socket = wire.socket
        self.sockaddr = where
        self.pendingpayloads: deque[object] = deque()
        self.pktqueue: deque[object] = deque()
        self.clientsessionid = bytes(request[4:8])
        self.managedsessionid = os.urandom(4)
        self.username = b""
        self.maximum = 0
        self.privilege = USER
        self.established = False
        self.alive_at = time.monotonic()
        self._tag = request[0]
        self._suite = next(
            (s for s in wire.host.suites if (request[12], request[20], request[28]) == SUITES[s][:3]), None
        )

    def answer_open(self, full: bool) -> bool:
        """Answer the open request; whether the handshake goes on."""
        status = NO_RESOURCES if full else NO_SUITE if self._suite is None else OK
        if status == NO_SUITE and self.wire.ignores_suites:
            return False
        message = bytearray((self._tag, status, ADMINISTRATOR, 0)) + self.clientsessionid
        if status == OK and self._suite is not None:
            auth, integrity, secrecy, self.currhashlib, self.currhashlen = SUITES[self._suite]
            message += self.managedsessionid
            message += bytes((0, 0, 0, 8, auth, 0, 0, 0, 1, 0, 0, 8, integrity, 0, 0, 0, 2, 0, 0, 8, secrecy, 0, 0, 0))
        self.send_payload(message, constants.payload_types["rmcpplusopenresponse"], retry=False)
        return status == OK

    def take(self, packet: bytearray) -> None:
        self.alive_at = time.monotonic()
        if self.established and not self.integrityalgo and packet[5] & 0x3F == 0x00:
            size = packet[14] | packet[15] << 8  # pyghmi takes nothing that is not signed
            self._parse_ipmi_payload(packet[16 : 16 + size])
        else:
            self._handle_ipmi2_packet(packet)

    def _got_rakp1(self, data: bytearray) -> None:
        self.wire.host.heard("rakp1")
        self.Rm = bytes(data[8:24])
        self.rolem = data[24]
        wanted = self.rolem & 0x0F
        self.username = bytes(data[28 : 28 + data[27]])
        login = self.wire.host.login(self.username.decode("utf-8", "replace"))
        if login is None:
            return  # like many BMCs, and like pyghmi's server
        status = login.status
        if status == OK and wanted > login.privilege:
            status = UNAUTHORISED_ROLE
        if status != OK:
            self._send("rakp2", bytes((data[0], status, 0, 0)) + self.clientsessionid)
            return
        self.maximum = min(wanted, login.privilege)
        self.kuid = login.password
        self.Rc = os.urandom(16)
        signed = self.clientsessionid + self.managedsessionid + self.Rm + self.Rc + self.uuid.bytes_le + self._who()
        self._send(
            "rakp2",
            bytes((data[0], OK, 0, 0))
            + self.clientsessionid
            + self.Rc
            + self.uuid.bytes_le
            + self._sign(self.kuid, signed),
        )

    def _got_rakp3(self, data: bytearray) -> None:
        self.wire.host.heard("rakp3")
        if data[1] != OK or not hasattr(self, "Rc"):
            return  # the client did not like RAKP 2
        expected = self._sign(self.kuid, self.Rc + self.clientsessionid + self._who())
        given = bytes(data[8 : 8 + len(expected)])
        if not hmac.compare_digest(expected, given):
            self.wire.host.login_failed(self.username.decode("utf-8", "replace"))
            self._send("rakp4", bytes((data[0], BAD_CHECK_VALUE, 0, 0)) + self.clientsessionid)
            return
        self.sik = self._sign(self.wire.kg or self.kuid, self.Rm + self.Rc + self._who())
        self.k1 = self._sign(self.sik, b"\x01" * 20)
        self.k2 = self._sign(self.sik, b"\x02" * 20)
        self.aeskey = self.k2[:16]
        check = self._sign(self.sik, self.Rm + self.managedsessionid + self.uuid.bytes_le)
        self._send("rakp4", bytes((data[0], OK, 0, 0)) + self.clientsessionid + check[: self.currhashlen])
        self.localsid = struct.unpack("<I", self.managedsessionid)[0]
        self.sessionid = struct.unpack("<I", self.clientsessionid)[0]
        self.ipmicallback = self.handle_client_request
        _, integrity, secrecy, _, _ = SUITES[self._suite or 0]
        self.confalgo = "aes" if secrecy else 0
        self.integrityalgo = "sha" if integrity else 0
        self.sequencenumber = 1
        self.established = True
        self.wire.host.session_opened(self.username.decode("utf-8", "replace"))

    def handle_client_request(self, request: dict[str, int | bytearray]) -> None:
        netfn, command, data = int(request["netfn"]), int(request["command"]), bytes(request["data"])
        if (netfn, command) == (0x06, 0x3B):
            self._set_privilege(data)
        elif (netfn, command) == (0x06, 0x3C):
            self.wire.forget(self)
            self.send_ipmi_response()
        elif (netfn, command) in (ACTIVATE, DEACTIVATE):
            self._switch_console(command)
        else:
            reply = self.wire.host.handle(self.privilege, netfn, command, data)
            if reply is not None:
                self.send_ipmi_response(code=reply[0], data=reply[1])

    def _switch_console(self, command: int) -> None:
        serial = self.wire.host.serial
        code, answer = serial.activate(self.send_sol, self.wire.port) if command == ACTIVATE[1] else serial.deactivate()
        self.send_ipmi_response(code=code, data=answer)
        serial.start()

    def send_sol(self, packet: bytes) -> None:
        self.send_payload(bytearray(packet), constants.payload_types["sol"], retry=False)

    def _take_sol(self, packet: bytearray) -> None:
        if len(packet) >= 4 and self.wire.host.takes_sol():
            self.wire.host.serial.take(bytes(packet))

    def _set_privilege(self, data: bytes) -> None:
        wanted = data[0] & 0x0F if data else 0
        if wanted > self.maximum:
            self.send_ipmi_response(code=0x81)
            return
        self.privilege = wanted or self.privilege
        self.send_ipmi_response(data=bytes((self.privilege,)))

    def _who(self) -> bytes:
        return bytes((self.rolem, len(self.username))) + self.username

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.currhashlib).digest() if self.currhashlib is not None else b""

    def _send(self, kind: str, message: bytes) -> None:
        self.send_payload(bytearray(message), constants.payload_types[kind], retry=False)


class Wire(pyghmi_bmc.Bmc):  # type: ignore[misc]  # pyghmi has no types
    """A BMC's UDP port. `start` binds it; port 0 takes a free one, found in `port` from then on."""

    def __init__(self, host: Host, address: str, port: int, guid: UUID, name: str) -> None:
        # not IpmiServer.__init__: it binds into the process-wide loop
        self.host = host
        self.address = address
        self.port = port
        self.uuid = guid
        self.max_sessions = 8
        self.kg: bytes | None = None
        self.knows_ipmi_2 = True
        self.ignores_suites = False  # suites that it does not take are met with silence
        self.socket: socket.socket | None = None
        self.stopping = threading.Event()  # what a delayed answer waits on
        self._name = name
        self._sessions: dict[bytes, _Session] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake: socket.socket | None = None

    @property
    def authcap(self) -> bytes:
        """Channel 1, named users; IPMI 2.0 only, or MD5 of 1.5 only (which is not spoken here)."""
        return bytes(
            (0, 1, 0x80, 0x04, 0x02, 0, 0, 0, 0) if self.knows_ipmi_2 else (0, 1, 0x04, 0x04, 0x01, 0, 0, 0, 0)
        )

    def start(self) -> None:
        self.socket = self.serversocket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((self.address, self.port))
        self.port = self.socket.getsockname()[1]
        self.stopping.clear()
        self._wake, heard = socket.socketpair()
        self._thread = threading.Thread(
            target=self._serve, args=(self.socket, heard), name=f"ipmi {self._name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port; the sessions are gone, and nobody is told."""
        if self._thread is None or self._wake is None or self.socket is None:
            return
        self.stopping.set()
        self._wake.close()
        self._thread.join(timeout=10)
        self.socket.close()
        with self._lock:
            self._sessions.clear()
        self._thread = self._wake = self.socket = None

    def open_sessions(self) -> int:
        with self._lock:
            self._expire()
            return sum(session.established for session in self._sessions.values())

    def drop_sessions(self) -> None:
        """Forget every session, as a BMC that was restarted does."""
        with self._lock:
            self._sessions.clear()

    def forget(self, session: _Session) -> None:
        self.host.serial.dropped(session.send_sol)
        with self._lock:
            known = self._sessions.pop(session.managedsessionid, None)
        if known is not None:
            self.host.session_closed()

    def _serve(self, port: socket.socket, heard: socket.socket) -> None:
        with selectors.DefaultSelector() as ready, heard:
            ready.register(port, selectors.EVENT_READ)
            ready.register(heard, selectors.EVENT_READ)
            while True:
                keys = [key.fileobj for key, _ in ready.select(RESEND_S if self.host.serial.in_use else None)]
                if heard in keys:
                    return
                if not keys:
                    self.host.serial.again()
                    continue
                packet, where = port.recvfrom(4096)
                try:
                    self._take(bytearray(packet), where)
                except (IndexError, KeyError, TypeError, ValueError, struct.error):
                    continue  # a garbled packet is not answered

    def _take(self, packet: bytearray, where: tuple[str, int]) -> None:
        if len(packet) < 16 or packet[0] != 6 or packet[2:4] != b"\xff\x07" or not self.host.is_on:
            return
        if packet[4] != 6:
            self.sessionless_data(packet, where)
            return
        kind = packet[5] & 0x3F
        in_session = kind in (0x00, 0x01)
        if kind == 0x10:
            self._open(packet[16:], where)
            return
        if kind == 0x00 and packet[6:10] == bytes(4):
            self.sessionless_data(packet, where)
            return
        key = bytes(packet[6:10]) if in_session else bytes(packet[20:24])
        with self._lock:
            self._expire()
            session = self._sessions.get(key)
        if session is not None:
            session.take(packet)

    def send_cipher_suites(
        self, rs: int, lun: int, rq: int, rq_lun: int, sequence: int, packet: bytearray, where: tuple[str, int]
    ) -> None:
        """pyghmi's names suite 3 alone. `packet` has lost two bytes, as an IPMI 1.5 one."""
        index = packet[22] & 0x3F if len(packet) > 22 else 0
        head = bytes((rq, rq_lun | 7 << 2))
        body = bytes((rs, lun | sequence << 2, 0x54, 0x00)) + suite_records(self.host.suites, index)
        message = head + _checksum(head) + body + _checksum(body)
        if self.socket is not None:
            head = b"\x06\x00\xff\x07\x06\x00" + bytes(8) + len(message).to_bytes(2, "little")
            self.socket.sendto(head + message, where)

    def _open(self, request: bytearray, where: tuple[str, int]) -> None:
        session = _Session(self, where, request)
        with self._lock:
            self._expire()
            full = sum(other.established for other in self._sessions.values()) >= self.max_sessions
        if session.answer_open(full):
            with self._lock:
                self._sessions[session.managedsessionid] = session

    def _expire(self) -> None:
        now = time.monotonic()
        for key, session in list(self._sessions.items()):
            if now - session.alive_at > (IDLE_S if session.established else HANDSHAKE_S):
                del self._sessions[key]


def suite_records(suites: Iterable[int], index: int) -> bytes:
    """The data of an answer to Get Channel Cipher Suites: the channel, and 16 bytes of the records (IPMI 2.0, section 22.15.2)."""
    records = b"".join(
        bytes((0xC0, suite, SUITES[suite][0], 0x40 | SUITES[suite][1], 0x80 | SUITES[suite][2]))
        for suite in sorted(suites)
    )
    return b"\x01" + records[index * 16 : index * 16 + 16]


def _checksum(data: bytes) -> bytes:
    return bytes((-sum(data) & 0xFF,))
