"""Every fault of the rack, as a plain client sees it; each counted when it really took effect."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule, Write
from bcmetal_drivers.resources import PowerState
from rack_client import RESET, SESSIONS, SYSTEM, Client, dialling

LOST = (ConnectionError, http.client.RemoteDisconnected)


@pytest.fixture
def rack() -> Iterator[Rack]:
    rack = Rack()
    rack.add_redfish("one")
    with rack:
        yield rack


def test_a_rule_fires_after_and_as_often_as_it_says(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="refuse", status=503, after=1, times=2, headers={"Retry-After": "7"}))
    assert [client.get().status for _ in range(4)] == [200, 503, 503, 200]
    assert rack.fired(rule) == 2


def test_a_refusal_says_what_it_was_told_to(rack: Rack, client: Client) -> None:
    rack.rule(Rule(action="refuse", status=429, code="Vendor.1.0.Busy", message="busy", headers={"Retry-After": "7"}))
    reply = client.get()
    assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
    assert (reply.doc["error"]["code"], reply.doc["error"]["message"]) == ("Vendor.1.0.Busy", "busy")


def test_a_rule_concerns_its_bmc_method_and_path_only(rack: Rack, client: Client) -> None:
    other = rack.add_redfish("two")
    rule = rack.rule(Rule(bmc="one", method="POST", path="Reset$", action="refuse"))
    assert client.get().status == 200
    assert client.boot_from("Pxe").status == 204
    with dialling(other) as second:
        assert second.reset("On").status == 204
    assert rack.fired(rule) == 0
    assert client.reset("On").status == 503
    assert rack.fired(rule) == 1


def test_a_cleared_rule_is_over_and_keeps_its_count(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="refuse"))
    assert client.get().status == 503
    rack.clear(rule)
    assert client.get().status == 200
    assert rack.fired(rule) == 1
    rack.rule(Rule(action="refuse"))
    rack.clear()
    assert client.get().status == 200


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(ValueError, match="no such action"):
        Rule(action="explode")


def test_a_delay_delays(rack: Rack, client: Client) -> None:
    client.get()
    rack.rule(Rule(action="delay", seconds=0.3))
    began = time.monotonic()
    assert client.get().status == 200
    assert time.monotonic() - began >= 0.3


def test_a_delay_does_not_hold_up_the_end_of_the_rack(rack: Rack, client: Client) -> None:
    client.get()
    rule = rack.rule(Rule(action="delay", seconds=60))
    waiting = threading.Thread(target=_lost, args=(client,))
    waiting.start()
    deadline = time.monotonic() + 5
    while not rack.fired(rule) and time.monotonic() < deadline:
        time.sleep(0.01)
    began = time.monotonic()
    rack.stop()
    assert time.monotonic() - began < 5
    waiting.join(timeout=5)
    assert not waiting.is_alive()


def test_a_client_that_stops_in_its_handshake_holds_up_nobody(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    with socket.create_connection((bmc.host, bmc.port)) as silent:
        silent.sendall(b"\x16\x03")
        began = time.monotonic()
        assert client.get().status == 200
        rack.stop()
        assert time.monotonic() - began < 3


def _lost(client: Client) -> None:
    try:
        client.get()
    except (OSError, http.client.HTTPException):
        return


def test_a_dripping_answer_is_whole_in_the_end(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="drip", seconds=0.002, path="Managers$"))
    began = time.monotonic()
    assert client.get("/redfish/v1/Managers").doc["Members@odata.count"] == 1
    assert time.monotonic() - began > 0.3
    assert rack.fired(rule) == 1


def test_dropped_before_nothing_is_applied(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    rule = rack.rule(Rule(method="POST", action="drop_before", times=1))
    with pytest.raises(LOST):
        client.reset("On")
    assert (bmc.machine.power, rack.writes, rack.fired(rule)) == (PowerState.OFF, [], 1)


def test_dropped_after_all_is_applied(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    rule = rack.rule(Rule(method="POST", action="drop_after", times=1))
    with pytest.raises(LOST):
        client.reset("On")
    assert (bmc.machine.power, len(rack.writes), rack.fired(rule)) == (PowerState.ON, 1, 1)


def test_a_dropped_line_is_reset(rack: Rack, client: Client) -> None:
    client.get()
    rack.rule(Rule(action="drop_before", times=1))
    with pytest.raises(ConnectionResetError):
        client.get()


def test_every_second_request_on_a_line_is_cut(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="cut"))
    for _ in range(2):
        assert client.get().status == 200
        with pytest.raises(LOST):
            client.get()
        client.line.close()
    assert rack.fired(rule) == 2


def test_html_and_garbage_are_no_json_and_apply_nothing(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    page = rack.rule(Rule(method="POST", action="html", status=504, times=1))
    reply = client.reset("On")
    assert (reply.status, reply.headers["Content-Type"]) == (504, "text/html")
    rubbish = rack.rule(Rule(method="POST", action="garbage", times=1))
    reply = client.reset("On")
    assert reply.status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(reply.raw)
    assert (bmc.machine.power, rack.fired(page), rack.fired(rubbish)) == (PowerState.OFF, 1, 1)


def test_tokens_that_die_are_counted_only_when_there_was_one(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    rule = rack.rule(Rule(action="expire_sessions", method="GET", times=1))
    assert client.get().status == 200  # Basic
    assert rack.fired(rule) == 0
    client.login()
    assert client.get().status == 401
    assert (rack.fired(rule), rack.sessions(bmc)) == (1, 0)


def test_a_session_table_can_be_full_by_rule(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="session_table_full", path="Sessions", times=1, status=400))
    assert client.get(SESSIONS).status == 200
    assert rack.fired(rule) == 0
    assert client.login().status == 400
    assert client.login().status == 201
    assert rack.fired(rule) == 1


def test_a_write_that_is_ignored_is_acknowledged_and_not_recorded(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    rule = rack.rule(Rule(action="ignore", method="POST", times=1))
    assert client.reset("On").status == 204
    assert (bmc.machine.power, rack.writes, rack.fired(rule)) == (PowerState.OFF, [], 1)


def test_an_ignoring_bmc_still_wants_a_login(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="ignore"))
    assert client.post(RESET, {"ResetType": "On"}, Authorization="").status == 401
    assert rack.fired(rule) == 0


# ---------------------------------------------------------------- ETags, pages


def test_a_patch_needs_the_present_etag_where_it_is_demanded(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    rule = rack.rule(Rule(action="etag"))
    body = {"Boot": {"BootSourceOverrideTarget": "Pxe"}}
    assert client.patch(SYSTEM, body).status == 428
    etag = client.get().headers["ETag"]
    assert client.patch(SYSTEM, body, If_Match=etag).status == 204
    assert client.patch(SYSTEM, body, If_Match=etag).status == 412  # the write changed it
    assert client.patch(SYSTEM, {"Boot": {"BootSourceOverrideTarget": "Hdd"}}, If_Match="*").status == 204
    assert rack.fired(rule) == 2
    assert bmc.machine.would_boot() == ("disk", None)


def test_a_stale_etag_is_refused_even_where_none_is_demanded(bmc: EmulatedBmc, client: Client) -> None:
    assert client.patch(SYSTEM, {"AssetTag": "x"}, If_Match='"stale"').status == 412
    assert bmc.machine.asset_tag == ""
    assert client.patch(SYSTEM, {"AssetTag": "x"}).status == 204


def test_an_etag_does_not_change_with_the_power(client: Client) -> None:
    before = client.get().headers["ETag"]
    client.reset("On")
    assert client.get().headers["ETag"] == before


@pytest.mark.parametrize(("form", "start"), [("strong", '"'), ("weak", 'W/"'), ("empty", '""')])
def test_etags_come_in_forms(bmc: EmulatedBmc, client: Client, form: str, start: str) -> None:
    bmc.set(etag_form=form, etag=True)
    etag = client.get().headers["ETag"]
    assert etag.startswith(start)
    assert client.patch(SYSTEM, {"AssetTag": "x"}, If_Match=etag).status == 204


def test_a_bmc_may_have_no_etags(bmc: EmulatedBmc, client: Client) -> None:
    bmc.set(etag_form="absent")
    assert "ETag" not in client.get().headers


def test_collections_come_in_pages(rack: Rack) -> None:
    bmc = rack.add_redfish("many", systems=5)
    rule = rack.rule(Rule(bmc="many", action="page", n=2))
    with dialling(bmc) as client:
        path, found, pages = "/redfish/v1/Systems", list[str](), 0
        while path:
            doc = client.get(path).doc
            assert doc["Members@odata.count"] == 5
            found += [member["@odata.id"] for member in doc["Members"]]
            path, pages = doc.get("Members@odata.nextLink"), pages + 1
    assert (len(set(found)), pages, rack.fired(rule)) == (5, 3, 3)


# ---------------------------------------------------------------- the record of writes


def test_the_hook_comes_after_the_effect_and_before_the_answer(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    seen: list[tuple[str, PowerState, bool]] = []
    answered = threading.Event()

    def hook(write: Write) -> None:
        seen.append((write.path, bmc.machine.power, answered.is_set()))

    rack.on_write = hook
    client.reset("On")
    answered.set()
    assert seen == [(RESET, PowerState.ON, False)]
    assert [(w.n, w.bmc, w.machine, w.method, w.kind) for w in rack.writes] == [(1, "one", "one", "POST", "effect")]


def test_refused_writes_and_reads_are_not_recorded(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    client.get()
    client.reset("Explode")
    client.boot_from("Nowhere")
    client.post("/redfish/v1/nonsense")
    assert rack.writes == []
    assert rack.requests(bmc) == {"GET": 1, "POST": 2, "PATCH": 1}


def test_broken_json_is_a_bad_request(client: Client) -> None:
    assert client.ask("PATCH", SYSTEM, b"{").status == 400
    assert client.ask("PATCH", SYSTEM, b"[]").status == 400
    assert client.ask("POST", RESET, b"{").status == 400
    assert client.ask("DELETE", SYSTEM).status == 405
