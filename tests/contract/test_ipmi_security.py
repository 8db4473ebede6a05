"""What the IPMI driver gives away to somebody who answers in the BMC's place, and what it accepts from him."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.errors import (
    Busy,
    InsecureTransport,
    NotThisService,
    Refused,
    RejectedCredentials,
    TimedOut,
    Unsupported,
)
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import PowerAction, PowerState
from ipmi_bench import Between, an_ipmi_bench

OPEN_REQUEST, OPEN_RESPONSE, RAKP1, RAKP2, RAKP3 = 0x10, 0x11, 0x12, 0x13, 0x14
SESSION_CHALLENGE = 0x39
IPMI_2, IPMI_15_ONLY = 0x80, 0x04

Packet = bytes
Answerer = Callable[[Packet], list[Packet]]


class Impostor:
    """A UDP port on the loopback that keeps all it is told, and answers as it likes."""

    def __init__(self, answer: Answerer) -> None:
        self.heard: list[Packet] = []
        self._answer = answer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.address = BmcAddress("ipmi", "127.0.0.1", self._socket.getsockname()[1])

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                packet, where = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            self.heard.append(packet)
            for answer in self._answer(packet):
                self._socket.sendto(answer, where)

    def kinds(self) -> set[int]:
        """The RMCP+ payload types that arrived."""
        return {p[5] & 0x3F for p in self.heard if p[4] == 6}

    def count(self, kind: int) -> int:
        return sum(1 for p in self.heard if p[4] == 6 and p[5] & 0x3F == kind)

    def commands(self) -> set[int]:
        """The commands that arrived in IPMI 1.5 packets."""
        return {p[19] for p in self.heard if p[4] != 6}

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()


def checksum(data: bytes) -> bytes:
    return bytes((-sum(data) & 0xFF,))


def capabilities(request: Packet, support: int, code: int = 0) -> Packet:
    """An answer to Get Channel Authentication Capabilities."""
    sequence = request[18]
    body = bytes((0x20, sequence, 0x38, code, 1, support, 0x04, 0x02 if support & IPMI_2 else 0x01, 0, 0, 0, 0))
    head = bytes((0x81, 0x1C))
    message = head + checksum(head) + body + checksum(body)
    return b"\x06\x00\xff\x07\x00" + bytes(8) + bytes((len(message),)) + message


def rmcp_plus(kind: int, payload: bytes) -> Packet:
    return b"\x06\x00\xff\x07\x06" + bytes((kind,)) + bytes(8) + len(payload).to_bytes(2, "little") + payload


def open_response(request: Packet, status: int = 0, suite: bytes = b"") -> Packet:
    tag, client = request[16], request[20:24]
    if status:
        return rmcp_plus(OPEN_RESPONSE, bytes((tag, status, 4, 0)) + client)
    return rmcp_plus(OPEN_RESPONSE, bytes((tag, 0, 4, 0)) + client + b"\x01\x02\x03\x04" + (suite or request[24:48]))


def an_ipmi_bmc(*, rakp2: Callable[[Packet, Packet], list[Packet]], open_status: int = 0) -> Answerer:
    """The first half of a login as the standard has it, with `rakp2` as the answer to RAKP 1."""
    opened: list[Packet] = []

    def answer(packet: Packet) -> list[Packet]:
        if packet[4] == 0:
            return [capabilities(packet, IPMI_2)]
        if packet[5] == OPEN_REQUEST:
            opened.append(packet)
            return [open_response(packet, open_status)]
        return rakp2(packet, opened[-1]) if packet[5] == RAKP1 else []

    return answer


def a_guess(request: Packet, opened: Packet) -> list[Packet]:
    """RAKP 2 of somebody who does not know the password: a check value made of nothing."""
    return [rmcp_plus(RAKP2, bytes((request[16], 0, 0, 0)) + opened[20:24] + os.urandom(16 + 16 + 32))]


@contextmanager
def facing(impostor: Impostor, limits: Limits | None = None) -> Iterator[IpmiBmc]:
    bmc = IpmiBmc(impostor.address, Credential("admin", SecretStr(secrets.token_hex(8))), Trust(), limits or Limits())
    with impostor:
        yield bmc
        bmc.close()


def test_a_downgrade_to_ipmi_15_gets_no_challenge_and_no_name() -> None:
    impostor = Impostor(lambda packet: [capabilities(packet, IPMI_15_ONLY)])
    with facing(impostor) as bmc, pytest.raises(InsecureTransport, match=r"IPMI 1\.5"):
        bmc.power_state()
    assert SESSION_CHALLENGE not in impostor.commands()
    assert not any(b"admin" in packet for packet in impostor.heard)


def test_a_bmc_that_does_not_know_the_20_bit_is_refused() -> None:
    impostor = Impostor(lambda packet: [capabilities(packet, 0, code=0xCC)])
    with facing(impostor) as bmc, pytest.raises(InsecureTransport):
        bmc.power_state()
    assert len(impostor.heard) == 1


def test_a_rogue_bmc_gets_no_rakp_3_and_one_login_only() -> None:
    """It would be the answer to which passwords could be guessed offline."""
    impostor = Impostor(an_ipmi_bmc(rakp2=a_guess))
    with facing(impostor) as bmc, pytest.raises(RejectedCredentials):
        bmc.power_state()
    assert impostor.count(RAKP1) == 1
    assert impostor.count(RAKP3) == 0


def test_only_suites_17_and_3_are_proposed() -> None:
    impostor = Impostor(an_ipmi_bmc(rakp2=a_guess, open_status=0x11))
    with facing(impostor) as bmc, pytest.raises(InsecureTransport, match="17, 3"):
        bmc.power_state()
    proposals = [(p[28], p[36], p[44]) for p in impostor.heard if p[4] == 6]
    assert proposals == [(3, 4, 1), (1, 1, 1)]


def test_a_node_may_insist_on_suite_17() -> None:
    impostor = Impostor(an_ipmi_bmc(rakp2=a_guess, open_status=0x11))
    with facing(impostor, Limits(ipmi_suites=(17,))) as bmc, pytest.raises(InsecureTransport):
        bmc.power_state()
    assert impostor.count(OPEN_REQUEST) == 1


def test_algorithms_that_were_not_proposed_are_refused() -> None:
    none = bytes((0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 2, 0, 0, 8, 0, 0, 0, 0))  # cipher suite 0

    def answer(packet: Packet) -> list[Packet]:
        return [capabilities(packet, IPMI_2) if packet[4] == 0 else open_response(packet, suite=none)]

    impostor = Impostor(answer)
    with facing(impostor) as bmc, pytest.raises(InsecureTransport):
        bmc.power_state()
    assert RAKP1 not in impostor.kinds()


@pytest.mark.parametrize("suites", [(0,), (1, 2), ()])
def test_suites_without_encryption_are_not_spoken(suites: tuple[int, ...]) -> None:
    impostor = Impostor(lambda _: [])
    with facing(impostor, Limits(ipmi_suites=suites)) as bmc, pytest.raises(Unsupported):
        bmc.power_state()
    assert impostor.heard == []


def test_a_full_session_table_is_busy_and_not_asked_again() -> None:
    impostor = Impostor(an_ipmi_bmc(rakp2=a_guess, open_status=0x01))
    with facing(impostor) as bmc, pytest.raises(Busy):
        bmc.power_state()
    assert impostor.count(OPEN_REQUEST) == 1


def test_a_name_that_is_met_with_silence_is_rejected_after_two_tries() -> None:
    impostor = Impostor(an_ipmi_bmc(rakp2=lambda _request, _opened: []))
    with facing(impostor) as bmc, pytest.raises(RejectedCredentials, match="ignores this user name"):
        bmc.power_state()
    assert impostor.count(RAKP1) == 2


def test_a_silent_port_ends_within_the_connect_deadline() -> None:
    impostor = Impostor(lambda _: [])
    began = time.monotonic()
    with facing(impostor, Limits(connect_s=1.0)) as bmc, pytest.raises(TimedOut):
        bmc.power_state()
    assert time.monotonic() - began < 3


def test_garbage_is_as_if_nothing_had_come() -> None:
    junk = [
        b"",
        b"\x06",
        b"\x06\x00\xff\x07",
        b"\x06\x00\xff\x07\x00" + bytes(20),
        os.urandom(600),
        b"\x06\x00\xff\x07\x06\x11" + bytes(12),
    ]
    impostor = Impostor(lambda packet: [*junk, capabilities(packet, 0, code=0xFF)])
    with facing(impostor) as bmc, pytest.raises(NotThisService):
        bmc.power_state()


@pytest.mark.parametrize(("name_bytes", "password_bytes", "says"), [(17, 8, "16 bytes"), (8, 21, "20 bytes")])
def test_what_ipmi_would_cut_short_is_refused_with_the_limit(name_bytes: int, password_bytes: int, says: str) -> None:
    password = "p" * password_bytes
    with pytest.raises(Refused, match=says) as refused:
        IpmiBmc(
            BmcAddress("ipmi", "127.0.0.1", 623), Credential("u" * name_bytes, SecretStr(password)), Trust(), Limits()
        )
    assert password not in str(refused.value)


def chassis_status(request: Packet, status: int) -> Packet:
    """An answer to Get Chassis Status as nobody signed it."""
    body = bytes((0x20, request[20], 0x01, 0x00, status, 0, 0, 0))
    head = bytes((0x81, 0x04))
    return rmcp_plus(0x00, head + checksum(head) + body + checksum(body))


def test_answers_that_are_forged_or_of_another_time_change_nothing() -> None:
    """Before each true answer come all earlier ones, one that nobody signed, and one with another signature."""
    earlier: list[Packet] = []

    def among_forgeries(packet: Packet) -> list[Packet]:
        if packet[4] != 6 or packet[5] & 0x3F:
            return [packet]
        unsigned = [chassis_status(bytes((0,) * 20 + (n << 2,)), 0x01) for n in range(8)]
        forged = [*earlier, *unsigned, packet[:-12] + os.urandom(12)]
        earlier.append(packet)
        return [*forged, packet]

    with an_ipmi_bench() as bench, Between(bench.address, among_forgeries) as between:
        bmc = IpmiBmc(between.address, bench.credential, Trust(), Limits(total_s=10))
        for action, state in ((PowerAction.ON, PowerState.ON), (PowerAction.OFF, PowerState.OFF)) * 3:
            bmc.set_power(action)
            assert bmc.power_state() is state
        bmc.close()
    assert len(earlier) > 12
