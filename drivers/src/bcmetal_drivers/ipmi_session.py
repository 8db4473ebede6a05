"""The login of one IPMI 2.0 (RMCP+) session; what is sent under it goes by `ipmi_packets`.

A BMC, or somebody who answers in its place, without the 2.0 bit is refused before a user name was sent; `legacy` alone speaks IPMI 1.5
with it (`ipmi_legacy`). RAKP message 2 proves that the BMC knows the password; where it does not, message 3 is never sent.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from bcmetal_drivers import ipmi_legacy
from bcmetal_drivers.connection import BmcAddress, Credential, Limits
from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    InsecureTransport,
    NotThisService,
    Refused,
    RejectedCredentials,
    TimedOut,
    Unsupported,
)
from bcmetal_drivers.ipmi_packets import IpmiPackets
from bcmetal_drivers.ipmi_values import PRIVILEGES, Deadline, check_kg, check_limits

# Cipher suite -> (pyghmi's name of the hash, authentication, integrity, confidentiality algorithm); 1 is AES-CBC-128, 0 is none.
SUITES: Final[Mapping[int, tuple[int, int, int, int]]] = {17: (256, 3, 4, 1), 3: (1, 1, 1, 1)}
LEGACY_SUITES: Final[Mapping[int, tuple[int, int, int, int]]] = {16: (256, 3, 4, 0), 2: (1, 1, 1, 0)}  # signed only

OPEN_REQUEST: Final = 0x10  # payload type

RESENDS_S: Final = (0.6, 1.2, 2.4)
RAKP_WAIT_S: Final = 2.0
HANDSHAKES: Final = 2  # how often one login starts over when a RAKP answer is lost

# RMCP+ status codes (IPMI 2.0, table 13-15)
NO_RESOURCES: Final = (0x01, 0x0B)
STALE_SESSION: Final = 0x02
ROLE_REFUSED: Final = (0x09, 0x0A)


class IpmiSession(IpmiPackets):
    """A login and the commands sent under it. One thread at a time.

    `established` turns false for good once a login failed or `close` was called; open another then.
    """

    def __init__(self, address: BmcAddress, credential: Credential, limits: Limits, privilege: str = "") -> None:
        """`privilege`: another than that of `limits`. Raises Refused for what IPMI cannot carry, Unsupported where no suite is left."""
        privilege = privilege or limits.privilege
        check_limits(address, credential)
        check_kg(address, limits.ipmi_kg)
        if privilege not in PRIVILEGES:
            raise Refused(f"{address}: {privilege!r} is no IPMI privilege level; use one of {', '.join(PRIVILEGES)}")
        known = {**SUITES, **LEGACY_SUITES} if limits.ipmi_legacy else SUITES
        wanted = (*limits.ipmi_suites, *LEGACY_SUITES) if limits.ipmi_legacy else limits.ipmi_suites
        spoken = {suite: known[suite] for suite in wanted if suite in known}
        if not spoken:
            raise Unsupported(
                f"{address}: none of the cipher suites {wanted} is spoken by this driver, which knows 17 and 3"
            )
        super().__init__(address, credential, privilege)
        self.suites = spoken
        self.legacy = limits.ipmi_legacy
        self.two_keys = limits.ipmi_kg is not None
        self.kg = limits.ipmi_kg.get_secret_value().encode() if limits.ipmi_kg is not None else self.password
        self.suite: int | None = None
        self._open_status = 0

    # ------------------------------------------------------------ opening and closing

    def open(self, deadline: Deadline, connect_s: float) -> None:
        """Log in, at most twice over when answers get lost. Raises a DriverError; the socket is closed then."""
        try:
            self._connect()
            if self._speaks_ipmi_2(deadline, connect_s):
                self._log_in(deadline)
            else:
                ipmi_legacy.log_in(self, deadline)
            self._raise_privilege(deadline)
        except BaseException:
            self._drop()
            raise
        self.established = True

    def close(self, wait_s: float = 1.0) -> None:
        """Tell the BMC that the session ends, and close the socket. Never raises."""
        if self.established:
            with suppress(DriverError):  # it ends by itself after a minute
                self.exchange(0x06, 0x3C, struct.pack("<I", self.sessionid), (wait_s,), Deadline.after(wait_s))
        self._drop()

    def _speaks_ipmi_2(self, deadline: Deadline, connect_s: float) -> bool:
        """False where it knows IPMI 1.5 only and that is allowed. Raises InsecureTransport where it is not."""
        self._asking_capabilities = True
        try:
            until = Deadline(min(deadline.at, time.monotonic() + connect_s), connect_s)
            answer = self.exchange(0x06, 0x38, bytes((0x8E, self.privlevel)), RESENDS_S, until)
        finally:
            self._asking_capabilities = False
        if answer is None:
            raise TimedOut(f"{self.address}: no answer on the IPMI port within {connect_s:g} s")
        if answer.code == 0xCC:  # a bit of 2.0 in the question is nonsense to it
            return self._old_ipmi("knows only IPMI 1.5")
        if answer.code != 0 or len(answer.data) < 4:
            raise NotThisService(
                f"{self.address}: the question for IPMI capabilities was answered with code 0x{answer.code:02x}"
            )
        if not (answer.data[1] & 0x80 and answer.data[3] & 0x02):
            return self._old_ipmi("the answer offers only IPMI 1.5")
        return True

    def _old_ipmi(self, what: str) -> bool:
        if not self.legacy:
            raise InsecureTransport(f"{self.address}: {what}, which is not allowed here")
        return False

    def _log_in(self, deadline: Deadline) -> None:
        for suite in self.suites:
            last = suite == list(self.suites)[-1]
            for _ in range(HANDSHAKES):
                reached = self._handshake(suite, deadline, RESENDS_S if last else RESENDS_S[:2])
                if reached in ("ESTABLISHED", "REFUSED") or (reached == "OPENSESSION" and not last):
                    break
            if reached == "OPENSESSION" and not last:
                continue  # some BMCs ignore a suite that they do not know
            if reached not in ("ESTABLISHED", "REFUSED"):
                raise self._silence(reached, deadline)
            if reached == "ESTABLISHED":
                self.suite = suite
                return
        wanted = ", ".join(map(str, self.suites))
        raise InsecureTransport(
            f"{self.address}: takes none of the cipher suites {wanted} (code 0x{self._open_status:02x})"
        )

    def _silence(self, reached: str, deadline: Deadline) -> DriverError:
        """What it means that the handshake was met with silence: many BMCs ignore a user name that they do not know."""
        if reached == "EXPECTINGRAKP2":
            self._initsession()
            self._speaks_ipmi_2(deadline, RAKP_WAIT_S)
            return RejectedCredentials(
                f"{self.address}: alive, but it ignores this user name, as many BMCs do with unknown ones"
            )
        return TimedOut(f"{self.address}: the login was not answered")

    def _handshake(self, suite: int, deadline: Deadline, resends_s: tuple[float, ...]) -> str:
        """Open session, RAKP 1 to 4. Returns how far it came (pyghmi's `sessioncontext`, or REFUSED for this suite)."""
        self._initsession()
        self.attemptedhash = self.suites[suite][0]
        self.localsid = secrets.randbits(31) | 1
        self.ipmiversion = 2.0
        self._proposed = suite
        self.sessioncontext = "OPENSESSION"
        for wait_s in resends_s:
            self._open_rmcpplus_request()  # with a tag and a session id of its own each time: safe to send again
            if self._pump(lambda: self.sessioncontext != "OPENSESSION", wait_s, deadline):
                break
        for stage in ("EXPECTINGRAKP2", "EXPECTINGRAKP4"):
            if self.sessioncontext == stage and not self._pump(
                lambda stage=stage: self.sessioncontext != stage,  # type: ignore[misc]  # mypy cannot infer the default
                RAKP_WAIT_S,
                deadline,
            ):
                break
        return str(self.sessioncontext)

    def _raise_privilege(self, deadline: Deadline) -> None:
        self.established = True
        answer = self.exchange(0x06, 0x3B, bytes((self.privlevel,)), RESENDS_S, deadline)
        if answer is None:
            raise TimedOut(f"{self.address}: the request for {self.privilege} was not answered")
        if answer.code != 0:
            raise self.role_is_refused(answer.code)

    # ------------------------------------------------------------ pyghmi's steps of the login, with typed outcomes

    def send_payload(self, payload: bytearray, payload_type: int | None = None, **more: object) -> None:
        if payload_type == OPEN_REQUEST:
            payload[28] = self.suites[self._proposed][3]  # pyghmi proposes AES only
        super().send_payload(payload, payload_type, **more)

    def _got_rmcp_response(self, data: bytearray) -> None:
        if self.sessioncontext != "OPENSESSION" or data[0] != self.rmcptag:
            return
        self._open_status = data[1]
        if data[1] in NO_RESOURCES:
            self._failure = Busy(f"{self.address}: the BMC's session table is full")
        elif data[1] != 0:
            self.sessioncontext = "REFUSED"
        elif (data[16], data[24], data[32]) != self.suites[self._proposed][1:]:
            self.sessioncontext = "REFUSED"  # it chose algorithms that were not proposed
        else:
            super()._got_rmcp_response(data)

    def _got_rakp2(self, data: bytearray) -> None:
        if self.sessioncontext != "EXPECTINGRAKP2" or data[0] != self.rmcptag or data[1] == STALE_SESSION:
            return
        if data[1] in ROLE_REFUSED:
            self._failure = self.role_is_refused(data[1])
        elif data[1] in NO_RESOURCES:
            self._failure = Busy(f"{self.address}: the BMC's session table is full")
        elif data[1] != 0:
            self._failure = RejectedCredentials(
                f"{self.address}: refuses this user name (RAKP 2, code 0x{data[1]:02x})"
            )
        else:
            super()._got_rakp2(data)

    def _got_rakp4(self, data: bytearray) -> None:
        if self.sessioncontext != "EXPECTINGRAKP4" or data[0] != self.rmcptag or data[1] == STALE_SESSION:
            return
        if data[1] != 0:
            self._failure = RejectedCredentials(f"{self.address}: refuses the login (RAKP 4, code 0x{data[1]:02x})")
        else:
            super()._got_rakp4(data)
            if self.sessioncontext == "ESTABLISHED" and not self.suites[self._proposed][3]:
                self.confalgo = 0  # pyghmi takes AES for granted

    def onlogon(self, parameter: Mapping[str, object]) -> None:
        """pyghmi's verdict: the HMAC of RAKP 2 or of RAKP 4 was wrong."""
        if self.sessioncontext == "FAILED":
            self._failure = RejectedCredentials(
                f"{self.address}: the BMC does not know this password (its RAKP 2 proves another)"
            )
        else:
            kg = (
                "this K_g is not its own"
                if self.two_keys
                else "perhaps it has a K_g, which the pool's settings must name"
            )
            self._failure = RejectedCredentials(f"{self.address}: knows the password, and RAKP 4 is not right: {kg}")

    def _req_priv_level(self) -> None:
        """pyghmi would go on from inside the packet's handler; `open` does it in its turn."""

    def logout(self, sessionok: bool = True) -> Mapping[str, object]:
        """pyghmi's name for `close`."""
        self.close()
        return {"success": True}
