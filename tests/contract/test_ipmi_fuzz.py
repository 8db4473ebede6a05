"""Whatever comes from an IPMI BMC, or from somebody in its place: nothing but a DriverError leaves the driver, and it leaves in time."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex

import pytest
from pydantic import SecretStr

from bcmetal_drivers.capabilities import BmcAddress, BootDevice, Limits, PowerAction, Trust
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_sensors import SENSOR_SPECIFIC
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.ipmi_door import NOT_NOW, TIMEOUT_WHILE_PROCESSING
from ipmi_bench import IpmiBench, an_ipmi_bench, driving

LIMITS = Limits(connect_s=0.5, read_s=0.3, total_s=2.0)


def power(bmc: IpmiBmc) -> None:
    bmc.power_state()
    bmc.reading()
    bmc.set_power(PowerAction.ON)


def boot(bmc: IpmiBmc) -> None:
    bmc.boot_override()
    bmc.boot_once(BootDevice.PXE)


def identity(bmc: IpmiBmc) -> None:
    bmc.inventory()
    bmc.identity()
    bmc.bmc_info()


def ways(bmc: IpmiBmc) -> None:
    bmc.network_ways()
    bmc.host_ways()
    bmc.close_network_way("cipher-0")


def sensors(bmc: IpmiBmc) -> None:
    bmc.power_draw_w()
    bmc.sensors()


def log(bmc: IpmiBmc) -> None:
    bmc.event_log()
    bmc.clear_event_log()


def light(bmc: IpmiBmc) -> None:
    bmc.identified()
    bmc.identify(True)


def clock(bmc: IpmiBmc) -> None:
    bmc.bmc_clock()
    bmc.set_bmc_clock(datetime.now(UTC))


def console(bmc: IpmiBmc) -> None:
    bmc.consoles()
    bmc.open_console().close()


def account(bmc: IpmiBmc) -> None:
    slot = bmc.create_account("second", SecretStr(token_hex(8)), "USER").slot
    bmc.enable_account(slot, False)
    bmc.delete_account(slot)


CALLS: tuple[Callable[[IpmiBmc], object], ...] = (
    *(power, boot, identity, account, ways, sensors, log, light, clock, console),
    *(IpmiBmc.accounts, IpmiBmc.baseline, IpmiBmc.bmc_network),
)


def garbled(data: bytes, dice: random.Random) -> bytes:
    """Cut short, grown, with bits turned, or something else altogether."""
    match dice.randrange(6):
        case 0:
            return data[: dice.randrange(len(data) + 1)]
        case 1:
            return data + dice.randbytes(dice.randrange(1, 40))
        case 2:
            return dice.randbytes(dice.randrange(64))
        case 3:
            return bytes(len(data))
        case 4:
            return b"\xff" * len(data)
        case _:
            flipped = bytearray(data)
            for _ in range(dice.randrange(1, 4) if flipped else 0):
                flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
            return bytes(flipped)


class GarbledFront(IpmiFront):
    """Signs and encrypts its nonsense: it comes as far as anything true."""

    dice = random.Random(0)
    share = 0.5  # of the answers

    def handle(self, privilege: int, netfn: int, command: int, data: bytes) -> tuple[int, bytes] | None:
        answer = super().handle(privilege, netfn, command, data)
        if answer is None or self.dice.random() > self.share:
            return answer
        code = answer[0] if self.dice.random() < 0.8 else self.dice.randrange(256)
        waits = code in NOT_NOW or code == TIMEOUT_WHILE_PROCESSING  # tested elsewhere: they cost seconds
        return (0xFF if waits else code), garbled(answer[1], self.dice)


@contextmanager
def a_garbled_bench(seed: int) -> Iterator[IpmiBench]:
    bench = IpmiBench()
    front = bench.front = GarbledFront(bench, bench)
    front.dice, front.share = random.Random(seed), (0.6, 0.2, 0.05)[seed % 3]
    for n in range(3):
        front.commands.log.add(0x0C, n, SENSOR_SPECIFIC, bytes((n,)))
    front.start()
    try:
        yield bench
    finally:
        front.stop()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_answers_that_are_signed_and_make_no_sense(call: Callable[[IpmiBmc], object]) -> None:
    for seed in range(12):
        with a_garbled_bench(seed) as bench, driving(bench, LIMITS) as bmc:
            began, told = time.monotonic(), ""
            try:
                call(bmc)
            except DriverError as error:
                told = str(error)
            assert told.isprintable()
            assert time.monotonic() - began < LIMITS.total_s * 3 + 1


class Noise:
    """Between client and BMC: what the BMC sends is garbled, doubled, cut, or comes beside what somebody made up."""

    def __init__(self, there: BmcAddress, seed: int) -> None:
        self._dice = random.Random(seed)
        self._there = (there.host, there.port)
        self._near, self._far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for end in (self._near, self._far):
            end.bind(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.address = replace(there, port=self._near.getsockname()[1])

    def _serve(self) -> None:
        client = None
        while not self._over.is_set():
            ready, _, _ = select.select([self._near, self._far], [], [], 0.05)
            for end in ready:
                packet, where = end.recvfrom(4096)
                if end is self._near:
                    client = where
                    self._far.sendto(packet, self._there)
                elif client is not None:
                    for heard in self._made_of(packet):
                        self._near.sendto(heard, client)

    def _made_of(self, packet: bytes) -> list[bytes]:
        match self._dice.randrange(5):
            case 0:
                return [packet, packet]
            case 1:
                return [garbled(packet, self._dice)]
            case 2:
                return [packet[:16] + garbled(packet[16:], self._dice)]
            case 3:  # before the true one
                return [packet[:5] + self._dice.randbytes(self._dice.randrange(80)), packet]
            case _:
                return [packet]

    def __enter__(self) -> Noise:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._near.close()
        self._far.close()


def test_packets_that_are_garbled_on_the_way() -> None:
    """From the first question on: capabilities, the open session, RAKP, and what is signed."""

    def listen(seed: int) -> tuple[float, BaseException | None]:
        with an_ipmi_bench() as bench, Noise(bench.address, seed) as noise:
            bmc = IpmiBmc(noise.address, bench.credential, Trust(), replace(LIMITS, ipmi_suites=((17, 3)[seed % 2],)))
            began = time.monotonic()
            try:
                for _ in range(5):
                    bmc.power_state()
            except DriverError:
                return time.monotonic() - began, None
            except Exception as error:  # noqa: BLE001  # that there is none is the test
                return 0.0, error
            finally:
                bmc.close()
            return time.monotonic() - began, None

    with ThreadPoolExecutor(12) as pool:
        for took_s, escaped in pool.map(listen, range(24)):
            assert escaped is None, repr(escaped)
            assert took_s < LIMITS.total_s * 5 + 2
