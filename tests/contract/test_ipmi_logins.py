"""Logging in over IPMI: passwords, keys, suites, privileges and sessions, and what a new password costs."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR, OPERATOR
from bcmetal_drivers.errors import (
    Busy,
    InsecureTransport,
    MaybeSent,
    NotAsAsked,
    Refused,
    RejectedCredentials,
    ServerFault,
    Unreachable,
)
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import PowerAction, PowerState
from driver_bench import a_secret
from ipmi_bench import LIMITS, IpmiBench, driving

# ---------------------------------------------------------------- accounts


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 20])
def test_a_new_password_counts_at_once(bmc: IpmiBmc, bench: IpmiBench, size: int) -> None:
    old, new = bench.credential, SecretStr(secrets.token_hex(size // 2))
    bmc.set_password("admin", new)
    assert bench.password.get_secret_value() == new.get_secret_value()
    bench.front.drop_sessions()
    assert bmc.power_state() is PowerState.OFF
    with driving(bench, credential=old) as late, pytest.raises(RejectedCredentials):
        late.power_state()


def test_a_bmc_of_16_bytes_takes_a_short_password_and_refuses_a_long_one(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("password_bytes", 16)
    bmc.set_password("admin", a_secret())
    with pytest.raises(Refused):
        bmc.set_password("admin", SecretStr(secrets.token_hex(10)))
    assert bmc.power_state() is PowerState.OFF


def test_a_password_change_that_was_ignored_is_caught(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-user-password", "ignore")
    with pytest.raises(NotAsAsked):
        bmc.set_password("admin", a_secret())


def test_a_password_change_whose_answer_is_lost_is_found_done(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-user-password", "drop_after")
    new = a_secret()
    bmc.set_password("admin", new)
    assert bench.password.get_secret_value() == new.get_secret_value()
    assert bench.effects("set-user-password") == ["2"]


def test_a_password_change_that_never_arrived_stays_uncertain(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.rule("set-user-password", "drop_before")
    with pytest.raises(MaybeSent):
        bmc.set_password("admin", a_secret())
    assert bench.effects("set-user-password") == []
    assert bmc.power_state() is PowerState.OFF


def test_the_password_of_nobody_is_refused(bmc: IpmiBmc) -> None:
    with pytest.raises(Refused, match="no account"):
        bmc.set_password("nobody", a_secret())


def test_an_operator_account_works_where_the_node_asks_for_no_more(bench: IpmiBench) -> None:
    own = Credential("oper", a_secret())
    bench.front.users.add(own.username, own.password, OPERATOR)
    with driving(bench, credential=own) as asks_too_much, pytest.raises(Refused, match="it may as OPERATOR"):
        asks_too_much.power_state()
    with driving(bench, replace(LIMITS, privilege="OPERATOR"), own) as bmc:
        bmc.set_power(PowerAction.ON)
        with pytest.raises(Refused):
            bmc.set_password("admin", a_secret())
    with driving(bench, replace(LIMITS, privilege="USER"), own) as bmc, pytest.raises(Refused, match="not privilege"):
        bmc.set_power(PowerAction.OFF)


# ---------------------------------------------------------------- logins


def test_logins_that_fail_after_power_on_are_not_a_bad_password_at_once(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("logins_fail_after_power_on", 2)
    bmc.set_power(PowerAction.ON)
    for _ in range(2):
        with pytest.raises(ServerFault, match="took them before"):
            bmc.power_state()
    assert bmc.power_state() is PowerState.ON
    assert bench.front.failed_logins == 0


def test_a_password_that_stays_refused_is_rejected_in_the_end(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.power_state()
    bench.front.users.slots[2].password = a_secret()
    bench.front.drop_sessions()
    for error in (ServerFault, ServerFault, RejectedCredentials):
        with pytest.raises(error):
            bmc.power_state()


def test_a_bmc_that_wants_time_between_commands_is_given_it(bench: IpmiBench) -> None:
    bench.front.set("min_interval_s", 0.1)
    with driving(bench) as bmc:
        for _ in range(6):
            bmc.power_state()
        learned = bench.counts["get-chassis-status"]
        for _ in range(3):
            bmc.power_state()
        assert bench.counts["get-chassis-status"] == learned + 3  # none of them was busy


@pytest.mark.parametrize("suite", [17, 3])
def test_a_two_key_login_takes_the_password_and_the_kg(bench: IpmiBench, suite: int) -> None:
    kg = a_secret()
    bench.front.set("kg", kg)
    with driving(bench, replace(LIMITS, ipmi_suites=(suite,), ipmi_kg=kg)) as bmc:
        bmc.set_power(PowerAction.ON)
        assert bmc.power_state() is PowerState.ON


def test_a_wrong_kg_or_none_is_told_apart_from_a_wrong_password(bench: IpmiBench) -> None:
    kg = a_secret()
    bench.front.set("kg", kg)
    with driving(bench) as without, pytest.raises(RejectedCredentials, match="perhaps it has a K_g"):
        without.power_state()
    other = replace(LIMITS, ipmi_kg=a_secret())
    with driving(bench, other) as wrong, pytest.raises(RejectedCredentials, match="K_g is not its own") as raised:
        wrong.power_state()
    assert kg.get_secret_value() not in str(raised.value)
    too_long = replace(LIMITS, ipmi_kg=SecretStr("k" * 21))
    with pytest.raises(Refused, match="20 bytes"):
        bench.driver(too_long)


@pytest.mark.parametrize("suites", [(16,), (2,), (16, 2, 1, 0)])
def test_suites_without_encryption_are_spoken_to_legacy_bmcs_alone(bench: IpmiBench, suites: tuple[int, ...]) -> None:
    bench.front.set("suites", suites)
    with driving(bench) as strict, pytest.raises(InsecureTransport, match="none of the cipher suites 17, 3"):
        strict.power_state()
    assert bench.counts["rakp1"] == 0
    with driving(bench, replace(LIMITS, ipmi_legacy=True)) as bmc:
        bmc.set_power(PowerAction.ON)
        assert bmc.identity().serial == bench.machine.serial


def test_a_legacy_bmc_that_knows_encryption_is_spoken_to_with_it(bench: IpmiBench) -> None:
    bench.front.set("suites", (17, 3, 2, 0))
    with driving(bench, replace(LIMITS, ipmi_legacy=True)) as bmc:
        bmc.power_state()
        assert bmc._door._session is not None
        assert bmc._door._session.suite == 17


def test_a_numeric_password_is_the_string_that_it_is(bench: IpmiBench) -> None:
    own = Credential("1234", SecretStr(f"00{secrets.randbelow(10**8)}"))
    bench.front.users.add(own.username, own.password, ADMINISTRATOR)
    with driving(bench, credential=own) as bmc:
        assert bmc.power_state() is PowerState.OFF


def test_a_wrong_password_makes_one_login_and_no_failed_one(bench: IpmiBench) -> None:
    """RAKP 2 tells the driver first; the BMC sees a login that was begun, and none that failed."""
    with driving(bench, credential=Credential("admin", a_secret())) as bmc, pytest.raises(RejectedCredentials):
        bmc.power_state()
    assert (bench.counts["rakp1"], bench.counts["rakp3"]) == (1, 0)
    assert bench.front.failed_logins == 0


def test_an_unknown_name_is_rejected(bench: IpmiBench) -> None:
    bench.front.set("unknown_names", "refused")
    with driving(bench, credential=Credential("nobody", a_secret())) as bmc, pytest.raises(RejectedCredentials):
        bmc.power_state()
    assert bench.front.failed_logins == bench.counts["rakp1"] == 1


@pytest.mark.parametrize(("offered", "used"), [((17, 3), 17), ((3,), 3)])
def test_the_better_suite_is_taken_where_it_is_offered(bench: IpmiBench, offered: tuple[int, ...], used: int) -> None:
    bench.front.set("suites", offered)
    with driving(bench) as bmc:
        assert bmc.power_state() is PowerState.OFF
    with driving(bench, replace(LIMITS, ipmi_suites=(used,))) as bmc:
        assert bmc.power_state() is PowerState.OFF


def test_one_session_serves_many_calls_and_close_ends_it(bench: IpmiBench) -> None:
    with driving(bench) as bmc:
        for _ in range(3):
            bmc.inventory()
        assert (bench.counts["rakp1"], bench.front.sessions()) == (1, 1)
        bmc.close()
        bmc.close()
        assert bench.front.sessions() == 0
        assert bmc.power_state() is PowerState.OFF


@pytest.mark.slow
def test_a_session_that_the_bmc_forgot_is_replaced(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.power_state()
    bench.front.drop_sessions()
    assert bmc.power_state() is PowerState.OFF
    assert bench.counts["rakp1"] == 2


def test_a_full_session_table_is_busy(bench: IpmiBench) -> None:
    bench.front.set("max_sessions", 1)
    with driving(bench) as first:
        first.power_state()
        with driving(bench) as second, pytest.raises(Busy, match="session table"):
            second.power_state()
    with driving(bench) as third:
        assert third.power_state() is PowerState.OFF


def test_a_port_where_nobody_listens_is_unreachable(bench: IpmiBench) -> None:
    bench.front.stop()
    with driving(bench) as bmc, pytest.raises(Unreachable):
        bmc.power_state()
