"""Logging in at a Redfish BMC: one session, one failed login, no secret that shows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pytest

from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    LockedOut,
    Refused,
    RejectedCredentials,
    ServerFault,
    Transient,
)
from raw_bmc import (
    DOCS,
    LIMITS,
    RESET,
    ROOT,
    SESSIONS,
    SYSTEM,
    Asked,
    Reset,
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


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (error("Base.1.0.SessionLimitExceeded", status=503), Busy),
        (error("IDRAC.2.8.RAC0218", "The maximum number of user sessions is reached.", status=400), Busy),
        (error("Base.1.0.GeneralError", "slow down", status=429), Busy),
        (error("Base.1.0.GeneralError", "Service not ready", status=400), Busy),
        (error("Base.1.0.ResourceAtUriUnauthorized", status=401), RejectedCredentials),
        (error("iLO.2.14.UnauthorizedLoginAttempt", status=400), RejectedCredentials),
        (error("Base.1.0.GeneralError", "The account is locked.", status=401), LockedOut),
        (error("Base.1.0.AccountLockedOut", status=403), LockedOut),
        (answer(b"<html>504</html>", 504), ServerFault),
    ],
)
def test_a_refused_login_has_an_error_of_its_own_and_is_not_tried_by_basic(
    refusal: bytes, kind: type[DriverError]
) -> None:
    with a_raw_bmc(at(SESSIONS, [refusal]), logs_in=False) as bmc, a_door(bmc) as door:
        with pytest.raises(kind):
            get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1
        assert not [asked for asked in bmc.asked if "authorization" in asked.headers]


def test_a_locked_account_is_asked_again_later_and_not_held_for_rejected() -> None:
    locked = error("Base.1.0.GeneralError", "The account is locked.", status=401)
    with a_raw_bmc(at(SYSTEM, [locked], [answer(DOCS[SYSTEM])]), logs_in=False) as bmc, a_door(bmc) as door:
        with pytest.raises(LockedOut):
            get(door)
        assert not door.rejected
        assert get(door) == DOCS[SYSTEM]


def test_rejected_credentials_are_not_sent_again() -> None:
    refused = [error("Base.1.0.ResourceAtUriUnauthorized", status=401)]
    with a_raw_bmc(at(SESSIONS, refused), logs_in=False) as bmc, a_door(bmc) as door:
        for _ in range(3):
            with pytest.raises(RejectedCredentials):
                get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1


def test_a_wrong_password_under_basic_costs_one_login() -> None:
    with a_raw_bmc(at(SYSTEM, [answer(None, 401)]), logs_in=False) as bmc, a_door(bmc) as door:
        for _ in range(2):
            with pytest.raises(RejectedCredentials):
                get(door)
        assert len([asked for asked in bmc.asked if "authorization" in asked.headers]) == 1


@pytest.mark.parametrize(
    "no_sessions",
    [
        error("Base.1.0.ResourceMissingAtURI", status=404),
        answer(None, 405),
        answer(None, 501),
        answer({}, 201),
        answer({}, 200, X_Auth_Token=""),
    ],
)
def test_a_bmc_without_sessions_is_driven_by_basic_and_remembered(no_sessions: bytes) -> None:
    with a_raw_bmc(at(SESSIONS, [no_sessions]), logs_in=False) as bmc, a_door(bmc) as door:
        get(door)
        get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1
        assert all(asked.headers["authorization"].startswith("Basic ") for asked in bmc.seen("GET", SYSTEM))


def test_a_bmc_that_falls_over_session_logins_is_driven_by_basic() -> None:
    with a_raw_bmc(at(SESSIONS, [answer(b"<html>", 500)]), logs_in=False) as bmc, a_door(bmc) as door:
        for _ in range(2):
            get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1
        assert door.memory["login"] == "basic"


def test_a_bmc_that_links_no_sessions_is_not_asked_for_one() -> None:
    with a_raw_bmc(documents({**DOCS, ROOT: {"RedfishVersion": "1.0.0"}})) as bmc, a_door(bmc) as door:
        get(door)
        assert bmc.seen("POST") == []
        assert bmc.seen("GET", SYSTEM)[0].headers["authorization"].startswith("Basic ")


def test_one_session_serves_all_calls_and_is_ended() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc:
        with a_door(bmc) as door:
            for _ in range(5):
                get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1
        assert [asked.path for asked in bmc.seen("DELETE")] == [f"{SESSIONS}/1"]
        assert bmc.connections == 1


def test_an_expired_token_is_replaced_the_old_session_deleted_and_the_get_repeated() -> None:
    with a_raw_bmc(at(SYSTEM, [answer(DOCS[SYSTEM])], [answer(None, 401)], [answer(DOCS[SYSTEM])])) as bmc:
        with a_door(bmc) as door:
            get(door)
            assert get(door)["Id"] == "1"
            assert [asked.path for asked in bmc.seen("DELETE")] == [f"{SESSIONS}/1"]
            assert bmc.seen("GET", SYSTEM)[-1].headers["x-auth-token"] == "token-2"
        assert [asked.path for asked in bmc.seen("DELETE")] == [f"{SESSIONS}/1", f"{SESSIONS}/2"]


def test_a_write_that_was_answered_401_was_not_applied_and_is_sent_once_more() -> None:
    with a_raw_bmc(at(RESET, [answer(None, 401)], [answer(None, 204)])) as bmc, a_door(bmc) as door:
        get(door)
        post(door)
        assert len(bmc.effects) == 2


def test_a_token_that_is_refused_at_once_gives_way_to_basic() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == SYSTEM and "authorization" not in asked.headers:
            return [answer(None, 401)]
        return documents(DOCS)(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        assert get(door)["Id"] == "1"
        assert len(bmc.seen("POST", SESSIONS)) == 1
        assert [asked.path for asked in bmc.seen("DELETE")] == [f"{SESSIONS}/1"]


def test_a_bmc_that_refuses_its_own_tokens_and_basic_does_not_condemn_a_good_password() -> None:
    with a_raw_bmc(at(SYSTEM, *[[answer(None, 401)]] * 2, [answer(DOCS[SYSTEM])])) as bmc, a_door(bmc) as door:
        with pytest.raises(ServerFault):
            get(door)
        assert get(door)["Id"] == "1"
        assert len(bmc.seen("POST", SESSIONS)) == 2


def test_a_login_whose_answer_is_lost_is_not_repeated() -> None:
    with a_raw_bmc(at(SESSIONS, Reset), logs_in=False) as bmc, a_door(bmc) as door:
        with pytest.raises(Transient):
            get(door)
        assert len(bmc.seen("POST", SESSIONS)) == 1


def test_an_observed_bmc_gets_no_write_but_login_and_logout() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc:
        with a_door(bmc, replace(LIMITS, write_allowed=False)) as door:
            get(door)
            for write in (door.post, door.patch, door.delete):
                with pytest.raises(Refused, match="only observed"), door.call():
                    write(RESET, data={})
        assert bmc.effects == []
        assert len(bmc.seen("DELETE", SESSIONS)) == 1


def test_no_secret_is_in_an_error_or_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    credential = a_credential()
    secret = credential.password.get_secret_value()

    def echo(asked: Asked) -> Iterable[bytes]:
        if asked.path == SESSIONS:
            return [error("Base.1.0.GeneralError", f"token {asked.headers.get('x-auth-token')}", status=401)]
        return documents(DOCS)(asked)

    said: list[str] = []
    for logs_in, script in (
        (False, echo),
        (True, at(SYSTEM, [answer(None, 500)])),
        (True, at(SYSTEM, [answer(b"[]")])),
    ):
        with a_raw_bmc(script, logs_in=logs_in) as bmc, a_door(bmc, credential=credential) as door:
            with pytest.raises(DriverError) as raised:
                get(door)
            error_: BaseException | None = raised.value
            while error_ is not None:
                said.append(f"{error_!r} {error_}")
                error_ = error_.__cause__
    assert said
    for text in (*said, caplog.text):
        assert secret not in text
        assert "token-1" not in text
