"""What is shown of a BMC holds whatever it sends: certificates that were damaged anywhere, IPMI answers of any bytes."""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bcmetal.decisions import Micros
from bcmetal.diagnosis import Seen, shown
from bcmetal_drivers.connection import BmcAddress
from bcmetal_drivers.first_look import RedfishSeen
from bcmetal_drivers.ipmi_offered import IpmiSeen, ipmi_seen
from raw_bmc import a_certificate


def of(certificate: bytes) -> dict[str, object]:
    redfish = RedfishSeen(BmcAddress("redfish", "127.0.0.1", 443), certificate, "0" * 64)
    seen = Seen("127.0.0.1", redfish, IpmiSeen(), "ipmi://127.0.0.1:623", Micros(1_700_000_000_000_000), trusted=False)
    return shown(seen)


@pytest.mark.filterwarnings(
    "ignore::cryptography.utils.CryptographyDeprecationWarning"
)  # of what it will refuse one day
@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_a_certificate_that_was_damaged_anywhere_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(a_certificate(tmp_path).pem)
    whole = of(der)["redfish"]
    assert isinstance(whole, dict)
    assert whole["certificate"]["subject"] == "CN=raw bmc"
    chance = random.Random(7)
    unread = 0
    for _ in range(2000):
        damaged = bytearray(der)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        found = of(bytes(damaged))["redfish"]
        assert isinstance(found, dict)
        json.dumps(found)
        unread += found["certificate"]["subject"] is None
    assert 0 < unread < 2000


@contextmanager
def answering(seed: int) -> Iterator[int]:
    """Something that answers each packet with one like an IPMI BMC's, damaged; its port."""
    chance = random.Random(seed)
    port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    port.bind(("127.0.0.1", 0))
    port.settimeout(10)

    def serve() -> None:
        while True:
            packet, where = port.recvfrom(1024)
            if packet == b"over":
                return
            v2 = packet[4] == 6
            start = 16 if v2 else 14
            sequence, command = packet[start + 4], packet[start + 5]
            said = bytes(chance.randrange(256) for _ in range(chance.randint(0, 24)))
            message = bytes((0x81, 0x1C, 0, 0x20, sequence, command, 0)) + said
            port.sendto(packet[: start - (2 if v2 else 1)] + bytes(2 if v2 else 1) + message, where)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port.getsockname()[1]
    finally:
        port.sendto(b"over", port.getsockname())
        thread.join()
        port.close()


def test_ipmi_answers_of_any_bytes_are_read_or_are_no_ipmi() -> None:
    theres = set()
    for seed in range(60):
        with answering(seed) as port:
            seen = ipmi_seen("127.0.0.1", port)
        theres.add(seen.there)
        assert all(0 <= suite <= 255 for suite in seen.suites or ())
    assert theres == {True, False}


@contextmanager
def a_bmc_that_tells_suites(tell: Callable[[socket.socket, bytes, tuple[str, int]], bool]) -> Iterator[int]:
    """It speaks IPMI 2.0; `tell` answers what is asked of suites, and whether it goes on; its port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(10)
    number = sock.getsockname()[1]

    def serve() -> None:
        with sock:
            while True:
                packet, where = sock.recvfrom(1024)
                if packet == b"over":
                    return
                if packet[4] == 6:
                    if not tell(sock, packet, where):
                        return
                    continue
                message = bytes((0x81, 0x1C, 0, 0x20, packet[18], packet[19], 0, 0x0E, 0x80, 0x00, 0x02))
                sock.sendto(packet[:13] + b"\x00" + message + bytes(5), where)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield number
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"over", ("127.0.0.1", number))
        thread.join()


def test_a_bmc_that_tells_its_suites_slowly_holds_nobody_up_and_what_it_told_before_stays() -> None:
    def tell(sock: socket.socket, packet: bytes, where: tuple[str, int]) -> bool:
        time.sleep(0.3)
        message = bytes((0x81, 0x1C, 0, 0x20, packet[20], packet[21], 0, 0x0E)) + bytes(16) + b"\x00"
        sock.sendto(packet[:14] + bytes(2) + message, where)
        return True

    with a_bmc_that_tells_suites(tell) as port:
        begun_s = time.monotonic()
        seen = ipmi_seen("127.0.0.1", port, total_s=1.0)
        took_s = time.monotonic() - begun_s
    assert took_s < 3
    assert (seen.there, seen.v2_0, seen.suites) == (True, True, None)


def test_a_bmc_that_is_gone_when_its_suites_are_asked_is_there_as_far_as_it_told() -> None:
    with a_bmc_that_tells_suites(lambda *_: False) as port:
        seen = ipmi_seen("127.0.0.1", port)
    assert (seen.there, seen.v2_0, seen.suites) == (True, True, None)
