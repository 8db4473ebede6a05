"""The serial console over IPMI: taken over, typed into, read, lost packets sent again, and given back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bcmetal_drivers.capabilities import ConsoleStream
from bcmetal_drivers.emulated.ipmi_sol import SIZE
from bcmetal_drivers.errors import Refused, TimedOut, Unreachable, Unsupported
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import ConsoleAccess, PowerState
from ipmi_bench import LIMITS, IpmiBench, driving


@pytest.fixture
def console(bmc: IpmiBmc) -> Iterator[ConsoleStream]:
    opened = bmc.open_console()
    yield opened
    opened.close()


def read_until(console: ConsoleStream, wanted: bytes, within_s: float = 5.0) -> bytes:
    heard, ends = b"", time.monotonic() + within_s
    while wanted not in heard and time.monotonic() < ends:
        heard += console.read(0.2)
    return heard


def test_what_the_machine_writes_is_read_and_what_is_typed_arrives(console: ConsoleStream, bench: IpmiBench) -> None:
    assert read_until(console, b"login: ") == b"login: "
    console.write(b"root\r")
    assert read_until(console, b"root\r") == b"root\r"
    assert bytes(bench.front.serial.typed) == b"root\r"


def test_much_goes_both_ways_in_order(console: ConsoleStream, bench: IpmiBench) -> None:
    read_until(console, b"login: ")
    text = os.urandom(SIZE * 20)
    console.write(text)
    assert bytes(bench.front.serial.typed) == text
    assert read_until(console, text) == text


def test_nothing_written_is_nothing_read_in_time(console: ConsoleStream) -> None:
    read_until(console, b"login: ")
    began = time.monotonic()
    assert console.read(0.2) == b""
    assert time.monotonic() - began < 2


def test_packets_that_are_lost_are_sent_again_and_count_once(console: ConsoleStream, bench: IpmiBench) -> None:
    read_until(console, b"login: ")
    bench.rule("sol-packet", "drop_before", times=2)
    console.write(b"once")
    assert bytes(bench.front.serial.typed) == b"once"
    bench.rule("sol-packet", "drop_before", times=1)  # an acknowledgement: the BMC sends the same once more
    bench.front.serial.output(b"again")
    assert read_until(console, b"again").endswith(b"again")
    assert console.read(0.3) == b""


def test_a_console_that_somebody_left_behind_is_taken_over(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("sol_stale", True)
    console = bmc.open_console()
    assert read_until(console, b"login: ") == b"login: "
    console.close()
    assert not bench.front.serial.in_use


def test_a_console_that_is_taken_away_says_so(console: ConsoleStream, bench: IpmiBench) -> None:
    read_until(console, b"login: ")
    bench.front.serial.take_away()
    with pytest.raises(Unreachable, match="taken away"):
        console.read(2.0)
    with pytest.raises(Unreachable):
        console.write(b"anybody?")


def test_a_console_whose_bmc_does_not_take_what_is_typed_times_out(bench: IpmiBench) -> None:
    with driving(bench, replace(LIMITS, read_s=0.2)) as bmc:
        console = bmc.open_console()
        bench.rule("sol-packet", "drop_before", times=None)
        with pytest.raises(TimedOut):
            console.write(b"hello")
        console.close()


def test_a_console_that_is_switched_off_is_unsupported(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("sol", False)
    assert bmc.consoles() == ()
    with pytest.raises(Unsupported, match="switched off"):
        bmc.open_console()
    assert bench.front.sessions() <= 1


def test_the_way_to_it_is_told_without_a_password(bmc: IpmiBmc, bench: IpmiBench) -> None:
    how = f"ipmitool -I lanplus -H {bench.host} -p {bench.front.port} -U admin -E sol activate"
    assert bmc.consoles() == (ConsoleAccess("ipmi-sol", bench.host, bench.front.port, how),)


def test_commands_go_on_beside_an_open_console(bmc: IpmiBmc, console: ConsoleStream, bench: IpmiBench) -> None:
    assert bmc.power_state() is PowerState.OFF
    assert bench.front.sessions() == 2
    console.close()
    console.close()
    assert bench.front.sessions() == 1


def test_an_observed_bmc_gives_no_console(bench: IpmiBench) -> None:
    with driving(bench, replace(LIMITS, write_allowed=False)) as bmc, pytest.raises(Refused, match="observed"):
        bmc.open_console()
