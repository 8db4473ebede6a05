"""Who gets in: sessions, Basic, bad passwords, lock-outs, accounts."""

from __future__ import annotations

from secrets import token_urlsafe

from pydantic import SecretStr

from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from rack_client import SESSIONS, SYSTEM, Client, FakeClock, basic, dialling

ACCOUNT = "/redfish/v1/AccountService/Accounts/1"


def test_a_session_opens_reads_and_closes(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    assert client.login().status == 201
    assert rack.sessions(bmc) == 1
    assert client.get().status == 200
    assert client.logout().status == 204
    assert rack.sessions(bmc) == 0
    assert [(w.method, w.kind) for w in rack.writes] == [("POST", "session"), ("DELETE", "session")]


def test_a_closed_sessions_token_is_dead(client: Client) -> None:
    client.login()
    token = client.token
    client.logout()
    client.token = token
    assert client.get().status == 401


def test_the_root_needs_no_login_and_the_rest_does(client: Client) -> None:
    assert client.get("/redfish/v1/", Authorization="").status == 200
    assert client.get(SYSTEM, Authorization="").status == 401


def test_a_wrong_password_is_counted_however_it_comes(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    wrong = token_urlsafe()
    assert client.login(wrong).status == 401
    assert client.get(SYSTEM, Authorization=basic(bmc.username, wrong)).status == 401
    assert rack.failed_logins(bmc) == 2
    assert client.get().status == 200
    assert rack.failed_logins(bmc) == 2
    assert rack.writes == []


def test_a_dead_token_is_no_failed_login(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    client.token = "0" * 32
    assert client.get().status == 401
    assert rack.failed_logins(bmc) == 0


def test_an_idle_session_expires(bmc: EmulatedBmc, rack: Rack, clock: FakeClock, client: Client) -> None:
    bmc.set(session_timeout_s=60.0)
    client.login()
    clock.now += 59
    assert client.get().status == 200
    clock.now += 61
    assert client.get().status == 401
    assert rack.sessions(bmc) == 0


def test_a_full_table_refuses_more_sessions(bmc: EmulatedBmc, rack: Rack, client: Client) -> None:
    bmc.set(session_limit=1)
    assert client.login().status == 201
    with dialling(bmc) as other:
        assert other.login().status == 503
    assert rack.sessions(bmc) == 1


def test_an_account_locks_and_the_lock_passes(rack: Rack, bmc: EmulatedBmc, clock: FakeClock, client: Client) -> None:
    rule = rack.rule(Rule(bmc="one", action="lock_after", n=3, seconds=30))
    for _ in range(2):
        assert client.login(token_urlsafe()).status == 401
    assert rack.fired(rule) == 0
    assert client.login(token_urlsafe()).status == 401
    assert rack.fired(rule) == 1
    assert client.login().status == 403
    assert client.get().status == 401  # Basic is locked out as well
    clock.now += 31
    assert client.login().status == 201


def test_a_good_login_ends_a_row_of_failures(rack: Rack, client: Client) -> None:
    rule = rack.rule(Rule(action="lock_after", n=2, seconds=30))
    for _ in range(3):
        assert client.login(token_urlsafe()).status == 401
        assert client.get().status == 200
    assert rack.fired(rule) == 0


def test_a_new_password_holds_at_once_and_ends_other_sessions(bmc: EmulatedBmc, client: Client) -> None:
    old, new = bmc.password.get_secret_value(), token_urlsafe()
    client.login()
    with dialling(bmc) as other:
        other.login()
        assert client.patch(ACCOUNT, {"Password": new}).status == 200
        assert client.get().status == 200
        assert other.get().status == 401
    assert bmc.password.get_secret_value() == new
    with dialling(bmc) as third:
        assert third.login(old).status == 401
        assert third.login(new).status == 201


def test_a_password_that_is_too_long_is_refused_and_changes_nothing(bmc: EmulatedBmc, client: Client) -> None:
    before = bmc.password.get_secret_value()
    assert client.patch(ACCOUNT, {"Password": "x" * 65}).status == 400
    assert bmc.password.get_secret_value() == before
    assert client.get().status == 200


def test_a_password_changed_behind_the_clients_back_kills_its_session(bmc: EmulatedBmc, client: Client) -> None:
    client.login()
    bmc.change_password(SecretStr(token_urlsafe()))
    assert client.get().status == 401


def test_no_password_is_ever_shown(bmc: EmulatedBmc, client: Client) -> None:
    reply = client.get(ACCOUNT)
    assert reply.doc["UserName"] == bmc.username
    assert bmc.password.get_secret_value().encode() not in reply.raw


def test_a_bmc_without_basic_still_takes_sessions(bmc: EmulatedBmc, client: Client) -> None:
    bmc.set(basic=False)
    assert client.get().status == 401
    assert client.login().status == 201
    assert client.get().status == 200


def test_a_bmc_without_session_service_still_takes_basic(bmc: EmulatedBmc, client: Client) -> None:
    bmc.set(session_service=False)
    assert "SessionService" not in client.get("/redfish/v1").doc
    assert client.get(SESSIONS).status == 404
    assert client.get().status == 200


def test_a_reset_of_the_bmc_loses_the_sessions(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    client.login()
    assert client.post("/redfish/v1/Managers/bmc/Actions/Manager.Reset", {"ResetType": "ForceRestart"}).status == 204
    assert rack.sessions(bmc) == 0
