"""IPMI 1.5, for BMCs that know nothing newer and that the settings call `legacy`: signed with MD5, and in the clear.

The challenge comes before the BMC has proved anything, so that whoever answers in its place may guess the password offline.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import TYPE_CHECKING, Final

from bcmetal_drivers.errors import Busy, InsecureTransport, Refused, RejectedCredentials, TimedOut

if TYPE_CHECKING:
    from bcmetal_drivers.ipmi_session import IpmiSession
    from bcmetal_drivers.ipmi_values import Answer, Deadline

PASSWORD_LIMIT: Final = 16
USERNAME_BYTES: Final = 16
GET_CHALLENGE, ACTIVATE = 0x39, 0x3A
MD5: Final = 2
WAITS_S: Final = (1.0, 2.0)
NO_ROOM: Final = (0x81, 0x82, 0x83)
UNKNOWN_NAME: Final = (0x81, 0x82)  # of Get Session Challenge
ROLE: Final = (0x85, 0x86)


def auth_code(password: bytes, session: int, sequence: int, payload: bytes) -> bytes:
    """IPMI 1.5, section 18.15.1: MD5 over password, session, message, sequence number, password."""
    padded = password.ljust(PASSWORD_LIMIT, b"\x00")
    message = padded + struct.pack("<I", session) + payload + struct.pack("<I", sequence) + padded
    return hashlib.md5(message, usedforsecurity=False).digest()


def log_in(session: IpmiSession, deadline: Deadline) -> None:
    """Get Session Challenge, Activate Session. Raises a DriverError."""
    if len(session.password) > PASSWORD_LIMIT:
        raise Refused(f"{session.address}: the password is longer than the {PASSWORD_LIMIT} bytes that IPMI 1.5 takes")
    session.ipmiversion, session.authtype, session.sessionid, session.sequencenumber = 1.5, 0, 0, 0
    name = session.userid.ljust(USERNAME_BYTES, b"\x00")
    answer = _asked(session, GET_CHALLENGE, bytes((MD5,)) + name, deadline)
    if answer.code in UNKNOWN_NAME:
        raise RejectedCredentials(f"{session.address}: refuses this user name (code 0x{answer.code:02x})")
    if answer.code != 0 or len(answer.data) < 20:
        raise InsecureTransport(f"{session.address}: takes no login of IPMI 1.5 by MD5 (code 0x{answer.code:02x})")
    session.sessionid = struct.unpack("<I", answer.data[:4])[0]
    session.authtype = MD5
    session.remseqnumber = None
    first = secrets.randbits(16) | 1
    request = bytes((MD5, session.privlevel)) + answer.data[4:20] + struct.pack("<I", first)
    answer = _asked(session, ACTIVATE, request, deadline)
    if answer.code in NO_ROOM:
        raise Busy(f"{session.address}: the BMC's session table is full")
    if answer.code in ROLE:
        raise session.role_is_refused(answer.code)
    if answer.code != 0 or len(answer.data) < 9:
        raise RejectedCredentials(f"{session.address}: refuses the login (code 0x{answer.code:02x})")
    session.sessionid, session.sequencenumber = struct.unpack("<II", answer.data[1:9])
    session.remseqnumber = None


def _asked(session: IpmiSession, command: int, data: bytes, deadline: Deadline) -> Answer:
    answer = session.exchange(0x06, command, data, WAITS_S, deadline)
    if answer is None:  # what is signed with another password is met with silence
        raise (RejectedCredentials if command == ACTIVATE else TimedOut)(
            f"{session.address}: the login of IPMI 1.5 was not answered"
        )
    return answer
