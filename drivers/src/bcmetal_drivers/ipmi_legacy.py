"""IPMI 1.5, for BMCs that know nothing newer and that the settings call `legacy`: signed with MD5, and in the clear.

The challenge comes before the BMC has proved anything, so that whoever answers in its place may guess the password offline.
"""

from __future__ import annotations

import secrets
import struct
from typing import Final

from bcmetal_drivers.errors import Busy, InsecureTransport, Refused, RejectedCredentials, TimedOut
from bcmetal_drivers.ipmi_packets import IpmiPackets
from bcmetal_drivers.ipmi_values import PASSWORD_LIMIT_1_5, USERNAME_LIMIT, Answer, Deadline

GET_CHALLENGE, ACTIVATE = 0x39, 0x3A
MD5: Final = 2
WAITS_S: Final = (1.0, 2.0)
NO_ROOM: Final = (0x81, 0x82, 0x83)
UNKNOWN_NAME: Final = (0x81, 0x82)  # of Get Session Challenge
ROLE: Final = (0x85, 0x86)


def log_in(session: IpmiPackets, deadline: Deadline) -> None:
    """Get Session Challenge, Activate Session. Raises a DriverError. `session` has a socket, and nobody is logged in on it."""
    if len(session.password) > PASSWORD_LIMIT_1_5:
        raise Refused(
            f"{session.address}: the password is longer than the {PASSWORD_LIMIT_1_5} bytes that IPMI 1.5 takes"
        )
    session.ipmiversion, session.authtype, session.sessionid, session.sequencenumber = 1.5, 0, 0, 0
    name = session.userid.ljust(USERNAME_LIMIT, b"\x00")
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


def _asked(session: IpmiPackets, command: int, data: bytes, deadline: Deadline) -> Answer:
    answer = session.exchange(0x06, command, data, WAITS_S, deadline)
    if answer is None:  # what is signed with another password is met with silence
        raise (RejectedCredentials if command == ACTIVATE else TimedOut)(
            f"{session.address}: the login of IPMI 1.5 was not answered"
        )
    return answer
