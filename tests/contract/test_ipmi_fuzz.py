"""Whatever comes from an IPMI BMC, or from somebody in its place: nothing but a DriverError leaves the driver, and it leaves in time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import Limits, Trust
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_sensors import SENSOR_SPECIFIC
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.ipmi_door import NOT_NOW, TIMEOUT_WHILE_PROCESSING
from bcmetal_drivers.resources import BootDevice, PowerAction
from ipmi_bench import Between, IpmiBench, an_ipmi_bench, driving

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


class CutFront(IpmiFront):
    """Answers for its MAC with four bytes, and with an IPv6 prefix that there is none of."""

    def handle(self, privilege: int, netfn: int, command: int, data: bytes) -> tuple[int, bytes] | None:
        if (netfn, command) == (0x0C, 0x02) and data[1] == 5:
            return 0, b"\x11\x52\x54\x00\x12"
        if (netfn, command) == (0x0C, 0x02) and data[1] in (56, 59):
            return 0, bytes((0x11, data[2], 0x80)) + bytes.fromhex("20010db8" + "00" * 11 + "01") + b"\xff\x00"
        return super().handle(privilege, netfn, command, data)


def test_a_mac_that_is_cut_short_and_a_prefix_that_is_too_long_are_none() -> None:
    bench = IpmiBench()
    bench.front = CutFront(bench, bench)
    bench.front.start()
    try:
        with driving(bench, LIMITS) as bmc:
            assert [(one.mac, one.ipv6) for one in bmc.bmc_network()] == [(None, ())]
    finally:
        bench.front.stop()


def noise(seed: int) -> Callable[[bytes], list[bytes]]:
    """What the BMC sends is garbled, doubled, cut, or comes beside what somebody made up."""
    dice = random.Random(seed)

    def made_of(packet: bytes) -> list[bytes]:
        match dice.randrange(5):
            case 0:
                return [packet, packet]
            case 1:
                return [garbled(packet, dice)]
            case 2:
                return [packet[:16] + garbled(packet[16:], dice)]
            case 3:  # before the true one
                return [packet[:5] + dice.randbytes(dice.randrange(80)), packet]
            case _:
                return [packet]

    return made_of


def test_packets_that_are_garbled_on_the_way() -> None:
    """From the first question on: capabilities, the open session, RAKP, and what is signed."""

    def listen(seed: int) -> tuple[float, BaseException | None]:
        with an_ipmi_bench() as bench, Between(bench.address, noise(seed)) as between:
            bmc = IpmiBmc(between.address, bench.credential, Trust(), replace(LIMITS, ipmi_suites=((17, 3)[seed % 2],)))
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
