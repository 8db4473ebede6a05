"""The event log: its newest entries whatever their order and pages are, its clearing, and events that are told or looked for."""

from __future__ import annotations

import threading
import time
from queue import Queue

import pytest

from bcmetal_drivers.capabilities import EventLog, Events, EventStreams, Power, need
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import NotAsAsked, Unsupported
from bcmetal_drivers.resources import PowerState
from claims import claimed
from driver_bench import Seat
from raw_bmc import DOCS, Asked, a_door, a_raw_bmc, answer

ENTRIES = "LogServices/SEL/Entries"


def tell(seat: Seat, *messages: str, severity: str = "Warning") -> None:
    if isinstance(seat.bmc.front, IpmiFront):
        for _ in messages:
            seat.bmc.front.commands.log.add(1, 1, 1, bytes((0x59, 101, 95)))
        return
    assert isinstance(seat.bmc.front, RedfishFront)
    for message in messages:
        seat.bmc.front.upkeep.tell(message, severity, "Temperature")


def said(bmc: EventLog, limit: int = 100) -> list[str]:
    return [entry.message for entry in bmc.event_log(limit)]


def test_an_empty_log_is_empty_and_an_entry_has_time_severity_and_words(seat: Seat) -> None:
    bmc = claimed(seat, EventLog)
    assert bmc.event_log() == ()
    tell(seat, "CPU 1 is hot")
    [entry] = bmc.event_log()
    assert entry.severity in ("warning", "critical")
    assert entry.message
    assert entry.ref
    assert entry.at is not None


def test_a_log_is_cleared_and_seen_to_be(seat: Seat) -> None:
    bmc = claimed(seat, EventLog)
    tell(seat, "one", "two")
    before = bmc.event_log()
    bmc.clear_event_log()
    assert not set(before) & set(bmc.event_log())


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("page", [None, 7])
@pytest.mark.parametrize("inline", [True, False])
def test_the_newest_come_oldest_first_whatever_the_order_and_the_pages(
    redfish: Seat, order: str, page: int | None, inline: bool
) -> None:
    redfish.bmc.set(log_order=order, page=page, log_inline=inline)
    tell(redfish, *(f"event {n}" for n in range(30)))
    assert said(need(redfish.open(), EventLog), 5) == [f"event {n}" for n in range(25, 30)]
    assert redfish.rack.requests(redfish.bmc)["GET"] < 45


def test_a_long_log_is_read_at_its_end_only(redfish: Seat) -> None:
    redfish.bmc.set(page=10)
    tell(redfish, *(f"event {n}" for n in range(400)))
    bmc = need(redfish.open(), EventLog)
    assert said(bmc, 3) == ["event 397", "event 398", "event 399"]
    assert redfish.rack.requests(redfish.bmc)["GET"] < 15


def test_a_clearing_that_is_acknowledged_and_not_done_is_not_as_asked(redfish: Seat) -> None:
    tell(redfish, "one")
    redfish.rack.rule(Rule(action="ignore", method="POST", path="ClearLog"))
    with pytest.raises(NotAsAsked):
        need(redfish.open(), EventLog).clear_event_log()


def test_a_clearing_whose_answer_is_lost_is_looked_for_and_not_repeated(redfish: Seat) -> None:
    tell(redfish, "one")
    redfish.rack.rule(Rule(action="drop_after", method="POST", path="ClearLog", times=1))
    bmc = need(redfish.open(), EventLog)
    bmc.clear_event_log()
    assert "one" not in said(bmc)
    assert len([path for _, path in redfish.effects() if "ClearLog" in path]) == 1


def test_a_bmc_without_a_log_has_none_to_show(redfish: Seat) -> None:
    assert isinstance(redfish.bmc.front, RedfishFront)
    redfish.bmc.front.overlay.add({"/redfish/v1/Managers/bmc/LogServices": None})
    with pytest.raises(Unsupported):
        need(redfish.open(), EventLog).event_log()


# ---------------------------------------------------------------- events


def soon(seat: Seat, *messages: str) -> threading.Timer:
    timer = threading.Timer(0.4, tell, (seat, *messages))
    timer.start()
    return timer


@pytest.mark.parametrize("stream", [True, False])
def test_an_event_is_told_as_it_happens_by_stream_or_by_looking(redfish: Seat, stream: bool) -> None:
    redfish.bmc.set(events_stream=stream)
    tell(redfish, "before")
    bmc = need(redfish.open(), Events)
    assert bmc.events(0.2) == ()
    timer = soon(redfish, "a fan failed")
    began = time.monotonic()
    [event] = bmc.events(8)
    timer.join()
    assert time.monotonic() - began < 6
    assert (event.message, event.severity) == ("a fan failed", "warning")
    assert event.ref.startswith("sse:" if stream else "log:")
    assert need(bmc, Power).power_state() is PowerState.OFF


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("word", ["Info", "informational"])
def test_what_is_told_for_information_is_well_by_stream_and_by_looking(redfish: Seat, word: str, stream: bool) -> None:
    redfish.bmc.set(events_stream=stream)
    bmc = need(redfish.open(), Events)
    assert bmc.events(0.2) == ()
    timer = threading.Timer(0.4, tell, (redfish, "somebody logged in"), {"severity": word})
    timer.start()
    [event] = bmc.events(8)
    timer.join()
    assert event.severity == "ok"


@pytest.mark.parametrize("stream", [True, False])
def test_what_came_meanwhile_is_told_after_the_last_one(redfish: Seat, stream: bool) -> None:
    redfish.bmc.set(events_stream=stream)
    bmc = need(redfish.open(), Events)
    bmc.events(0.2)
    timer = soon(redfish, "first")
    [first] = bmc.events(8)
    timer.join()
    tell(redfish, "second", "third")
    later = need(redfish.open(), Events)
    told = list(later.events(8, after=first.ref))
    if len(told) < 2:
        told += later.events(8, after=told[-1].ref)
    assert [event.message for event in told] == ["second", "third"]
    assert later.events(0.2, after=told[-1].ref) == ()


def test_a_session_that_ended_does_not_end_the_listening(redfish: Seat) -> None:
    bmc = need(redfish.open(), Events)
    bmc.events(0.2)
    redfish.bmc.front.drop_sessions()
    timer = soon(redfish, "hello")
    assert [event.message for event in bmc.events(8)] == ["hello"]
    timer.join()


@pytest.mark.parametrize("by_the_driver", [False, True])
def test_an_open_stream_tells_beside_other_calls_and_ends_when_somebody_ends_it(
    redfish: Seat, by_the_driver: bool
) -> None:
    bmc = redfish.open()
    stream = need(bmc, EventStreams).open_events()
    assert stream is not None
    told: Queue[str] = Queue()

    def listen() -> None:
        for event in stream.events():
            told.put(event.message)
        stream.close()

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        assert need(bmc, Power).power_state() is PowerState.OFF
        tell(redfish, "a fan failed")
        assert told.get(timeout=8) == "a fan failed"
        assert need(bmc, Power).power_state() is PowerState.OFF
    finally:
        (bmc.close if by_the_driver else stream.hang_up)()
        listening.join(8)
    assert not listening.is_alive()


def test_a_bmc_without_a_stream_opens_none(redfish: Seat) -> None:
    redfish.bmc.set(events_stream=False)
    assert need(redfish.open(), EventStreams).open_events() is None


def test_a_stream_of_endless_lines_and_of_rubbish_is_bounded() -> None:
    rubbish = b'data: {\n\ndata: [1]\n\nid: \x1b[2J7\ndata: {"Events": [{"Message": "ok"}, 3]}\n\n'

    def script(asked: Asked) -> list[bytes]:
        if asked.path != "/stream":
            return [answer(DOCS.get(asked.path, {}))]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        return [head, rubbish, b"data: " + b"x" * 300_000]

    with a_raw_bmc(script) as bmc, a_door(bmc) as door, door.call():
        lines = door.lines("/stream", 3, {})
        assert next(lines) == b"data: {\n"
        with pytest.raises(Exception, match="longer than"):
            list(lines)
