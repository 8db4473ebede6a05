"""The door to a Redfish BMC against a bare socket: lines that drop, answers that drip, links that lead elsewhere."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable

import pytest

from bcmetal_drivers.connection import BmcAddress, Limits, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    Malformed,
    MaybeSent,
    NotThisService,
    Refused,
    ServerFault,
    TimedOut,
    Unreachable,
)
from bcmetal_drivers.redfish import RedfishBmc
from raw_bmc import (
    DOCS,
    LIMITS,
    RESET,
    ROOT,
    SYSTEM,
    Asked,
    Reset,
    Script,
    a_credential,
    a_door,
    a_raw_bmc,
    answer,
    at,
    documents,
    error,
    get,
    post,
)

PAUSE = threading.Event()  # never set: a server that takes its time


# ---------------------------------------------------------------- repeating


def test_a_get_on_a_dropped_kept_line_is_sent_once_more() -> None:
    with a_raw_bmc(at(SYSTEM, [answer(DOCS[SYSTEM])], Reset, [answer(DOCS[SYSTEM])])) as bmc, a_door(bmc) as door:
        get(door)
        assert get(door)["PowerState"] == "On"
        assert len(bmc.seen("GET", SYSTEM)) == 3


def test_a_get_that_is_dropped_on_a_fresh_line_is_not_sent_for_ever() -> None:
    with a_raw_bmc(at(SYSTEM, Reset)) as bmc, a_door(bmc) as door:
        with pytest.raises(Unreachable):
            get(door)
        assert len(bmc.seen("GET", SYSTEM)) <= 2


def test_a_line_that_is_always_cut_at_the_second_request_is_used_once_each() -> None:
    requests_on: dict[int, int] = {}

    def script(asked: Asked) -> Iterable[bytes]:
        requests_on[asked.connection] = requests_on.get(asked.connection, 0) + 1
        if requests_on[asked.connection] > 1:
            raise Reset
        return [answer({})] if asked.method == "POST" else documents(DOCS)(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        get(door)
        get(door)
        post(door)
        assert len(bmc.effects) == 1


@pytest.mark.parametrize("method", ["post", "patch", "delete"])
def test_a_write_whose_answer_is_lost_is_maybe_sent_and_reached_the_bmc_once(method: str) -> None:
    with a_raw_bmc(at(RESET, Reset)) as bmc, a_door(bmc) as door:
        get(door)
        with pytest.raises(MaybeSent), door.call():
            getattr(door, method)(RESET, data={})
        assert len(bmc.effects) == 1


def test_a_write_whose_answer_is_cut_short_is_maybe_sent() -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\n{}"

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != RESET:
            yield from documents(DOCS)(asked)
            return
        yield cut
        raise Reset

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        with pytest.raises(MaybeSent):
            post(door)
        assert len(bmc.effects) == 1


def test_a_write_goes_over_a_new_line_when_the_kept_one_has_ended() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        yield answer(DOCS.get(asked.path, {}))
        if asked.path == SYSTEM:
            raise Reset

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        get(door)
        deadline = time.monotonic() + 2
        while bmc.connections == 1 and time.monotonic() < deadline:
            with door.call():  # the reset may still be on its way
                door.get(ROOT)
        post(door)
        assert len(bmc.effects) == 1


# ---------------------------------------------------------------- deadlines


def dripping(bmc_pause: float, payload: bytes) -> Script:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != SYSTEM:
            yield from documents(DOCS)(asked)
            return
        for n in range(len(payload)):
            PAUSE.wait(bmc_pause)
            yield payload[n : n + 1]

    return script


@pytest.mark.parametrize("payload", [answer({"x": "y" * 500}), b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 90])
def test_an_answer_that_drips_ends_at_the_total_deadline(payload: bytes) -> None:
    with a_raw_bmc(dripping(0.1, payload)) as bmc, a_door(bmc, Limits(2, 1, 1.5)) as door:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            get(door)
        assert time.monotonic() - began < 3


def test_silence_ends_at_the_read_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = BmcAddress("redfish+http", "127.0.0.1", silent.getsockname()[1])
        door = Door(address, a_credential(), Trust(TrustKind.NONE), Limits(2, 0.5, 5))
        began = time.monotonic()
        with pytest.raises(TimedOut):
            get(door)
        assert time.monotonic() - began < 2


def test_a_tls_handshake_that_never_ends_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = BmcAddress("redfish", "127.0.0.1", silent.getsockname()[1])
        door = Door(address, a_credential(), Trust(TrustKind.NONE), Limits(0.3, 0.3, 1))
        began = time.monotonic()
        with pytest.raises(TimedOut):
            get(door)
        assert time.monotonic() - began < 2


def many_times(door: Door, times: int) -> None:
    with door.call():
        for _ in range(times):
            door.get(SYSTEM)


def test_one_deadline_spans_all_requests_of_a_call() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        PAUSE.wait(0.3)
        return documents(DOCS)(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc, Limits(2, 2, 1)) as door:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            many_times(door, 20)
        assert time.monotonic() - began < 2


def test_a_closed_port_is_unreachable_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    door = Door(BmcAddress("redfish", "127.0.0.1", port), a_credential(), Trust(), LIMITS)
    began = time.monotonic()
    with pytest.raises(Unreachable):
        get(door)
    assert time.monotonic() - began < 1


# ---------------------------------------------------------------- origin


@pytest.mark.parametrize(
    "link",
    [
        "https://127.0.0.2/redfish/v1/Systems/1",
        "http://127.0.0.1:1/redfish/v1/Systems/1",
        "//127.0.0.2/redfish/v1",
        "http://127.0.0.1@127.0.0.2/redfish/v1",
        "ftp://127.0.0.1/x",
        "\\\\127.0.0.2\\x",
        "http://[",
        "Systems/1",
        "",
        "/" + "x" * 5000,
    ],
)
def test_a_link_to_elsewhere_is_refused_before_anything_is_sent(link: str) -> None:
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        with pytest.raises(Malformed):
            get(door, link)
        assert bmc.asked == []


def test_a_line_break_in_a_link_makes_no_second_request_and_no_header() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        with pytest.raises(DriverError):
            get(door, "/redfish/v1/x\r\nX-Odd: 1\r\n\r\nGET /redfish/v1/y HTTP/1.1\r\n")
        assert not any(asked.path.startswith("/redfish/v1/y") or "x-odd" in asked.headers for asked in bmc.asked)


def test_a_link_that_spells_out_our_own_origin_is_followed() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        assert get(door, f"http://127.0.0.1:{bmc.port}{SYSTEM}#/Status")["Id"] == "1"


def test_a_redirect_to_another_origin_carries_no_token_there() -> None:
    with (
        a_raw_bmc(documents(DOCS)) as elsewhere,
        a_raw_bmc(at(SYSTEM, [answer(None, 307, Location=f"http://127.0.0.1:{elsewhere.port}{SYSTEM}")])) as bmc,
        a_door(bmc) as door,
    ):
        with pytest.raises(Malformed, match="another origin"):
            get(door)
        assert elsewhere.asked == []


def test_a_redirect_within_the_bmc_is_followed_a_few_times() -> None:
    with a_raw_bmc(at("/redfish/v1/old", [answer(None, 308, Location=SYSTEM)])) as bmc, a_door(bmc) as door:
        assert get(door, "/redfish/v1/old")["Id"] == "1"
    with a_raw_bmc(at(SYSTEM, [answer(None, 302, Location=SYSTEM)])) as bmc, a_door(bmc) as door:
        with pytest.raises(Malformed):
            get(door)
        assert len(bmc.seen("GET", SYSTEM)) < 6


def test_proxy_variables_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        assert get(door)["Id"] == "1"


# ---------------------------------------------------------------- hostile answers


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Gateway Time-out</body></html>",
        b"",
        b"[]",
        b"[1, 2]",
        b'"text"',
        b"null",
        b"NaN",
        b"-Infinity",
        b'{"a": 1}{"a": 1}',
        b'{"a": ',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
    ids=lambda body: body[:12].decode(errors="replace"),
)
def test_what_is_no_document_is_malformed_and_names_the_url(body: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [answer(body)])) as bmc, a_door(bmc) as door, pytest.raises(Malformed, match=SYSTEM):
        get(door)


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_read_as_absent_and_costs_nothing_else(odd: str) -> None:
    body = f'{{"Id": "1", "Reading": {odd}, "Max": 1.5, "Of": [{odd}, 2, {{"Deep": {odd}, "Name": "NaN"}}]}}'.encode()
    with a_raw_bmc(at(SYSTEM, [answer(body)])) as bmc, a_door(bmc) as door:
        assert get(door) == {"Id": "1", "Max": 1.5, "Of": [2, {"Name": "NaN"}]}


def test_a_machine_whose_sensor_has_no_reading_still_has_its_identity() -> None:
    body = json.dumps({**DOCS[SYSTEM], "UUID": "x", "SerialNumber": "S1", "MemorySummary": {"TotalSystemMemoryGiB": 0}})
    bodies = {**DOCS, "/redfish/v1": DOCS[ROOT]}
    nan = body.replace('"TotalSystemMemoryGiB": 0', '"TotalSystemMemoryGiB": NaN').encode()

    def script(asked: Asked) -> Iterable[bytes]:
        return [answer(nan)] if asked.path == SYSTEM else documents(bodies)(asked)

    with a_raw_bmc(script) as bmc:
        address = BmcAddress("redfish+http", "127.0.0.1", bmc.port, SYSTEM)
        driver = RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS)
        try:
            assert driver.identity().serial == "S1"
        finally:
            driver.close()


@pytest.mark.parametrize("status", [400, 403, 404, 409, 418, 500, 502, 504])
@pytest.mark.parametrize(
    "body",
    [
        b"<html>no</html>",
        b"[]",
        b'{"error": "text"}',
        b'{"error": []}',
        b'{"error": {"@Message.ExtendedInfo": "text"}}',
        b'{"error": {"@Message.ExtendedInfo": [1, null, {"MessageArgs": 7, "Message": 3}]}}',
        b'{"error": {"code": 5, "message": ["x"]}}',
    ],
)
def test_no_error_body_leaves_the_error_tree(status: int, body: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [answer(body, status)])) as bmc, a_door(bmc) as door:
        with pytest.raises(DriverError) as raised:
            get(door)
        assert isinstance(raised.value, ServerFault if status >= 500 else Refused)


def test_text_of_the_bmc_in_an_error_is_bounded_and_printable() -> None:
    shouting = error("Base.1.0.GeneralError", "\x1b[31m" + "A\n" * 5000, status=400)
    with a_raw_bmc(at(SYSTEM, [shouting])) as bmc, a_door(bmc) as door:
        with pytest.raises(Refused) as raised:
            get(door)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) <= 400


def test_a_huge_answer_is_not_read_to_its_end() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != SYSTEM:
            yield from documents(DOCS)(asked)
            return
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
        for _ in range(10_000):
            yield b"x" * 100_000

    with a_raw_bmc(script) as bmc, a_door(bmc) as door, pytest.raises(Malformed, match="longer"):
        get(door)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", ServerFault),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{}", ServerFault),
        (b"SSH-2.0-OpenSSH_9.2\r\n", NotThisService),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500, Malformed),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, Malformed),
        (b"", Unreachable),
    ],
)
def test_broken_http_has_an_error_of_its_own(raw: bytes, kind: type[DriverError]) -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != SYSTEM:
            yield from documents(DOCS)(asked)
            return
        yield raw
        raise OSError("the line ends here")

    with a_raw_bmc(script) as bmc, a_door(bmc) as door, pytest.raises(kind):
        get(door)


def test_a_success_with_an_error_in_it_is_a_refusal() -> None:
    failure = [error("Base.1.0.GeneralError", "no such luck", status=200)]
    success = [error("Base.1.0.Success", "fine", status=200)]
    with a_raw_bmc(at(RESET, failure, success)) as bmc, a_door(bmc) as door:
        with pytest.raises(Refused, match="no such luck"):
            post(door)
        post(door)


# ---------------------------------------------------------------- busy


@pytest.mark.parametrize(
    "refusal",
    [
        error("Base.1.0.ServiceTemporarilyUnavailable", status=503, Retry_After="7"),
        error("Base.1.0.GeneralError", status=429, Retry_After="7"),
        error("iLO.2.0.UnableToModifyDuringSystemPOST", status=400, Retry_After="7"),
        error("Base.1.0.ResourceInUse", status=409, Retry_After="7"),
    ],
)
def test_not_now_is_busy_and_says_how_long(refusal: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [refusal])) as bmc, a_door(bmc) as door:
        with pytest.raises(Busy) as raised:
            get(door)
        assert raised.value.retry_after_s == 7
        assert len(bmc.seen("GET", SYSTEM)) == 1


@pytest.mark.parametrize("after", ["soon", "-5", "9" * 400, ""])
def test_a_senseless_retry_after_does_no_harm(after: str) -> None:
    with a_raw_bmc(at(SYSTEM, [answer(None, 503, Retry_After=after)])) as bmc, a_door(bmc) as door:
        with pytest.raises(Busy) as raised:
            get(door)
        assert raised.value.retry_after_s is None or 0 <= raised.value.retry_after_s <= 3600


def test_a_request_body_is_json_and_asks_for_json() -> None:
    with a_raw_bmc(at(RESET, [answer(None, 204)])) as bmc, a_door(bmc) as door:
        with door.call():
            door.post(RESET)
        sent = bmc.effects[0]
        assert json.loads(sent.body) == {}
        assert sent.headers["content-type"] == "application/json"
        assert sent.headers["accept-encoding"] == "identity"
