"""Accounts at the BMC: listed, made, switched, removed, their passwords, and the rules that they are held to."""

from __future__ import annotations

import json
from dataclasses import replace
from secrets import token_hex

import pytest
from pydantic import SecretStr

from bcmetal_drivers import redfish_accounts
from bcmetal_drivers.capabilities import AccountControl, Accounts, Power, need, offers
from bcmetal_drivers.connection import Credential, Trust, TrustKind
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.rack import Rule
from bcmetal_drivers.errors import (
    NotAsAsked,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    Unsupported,
)
from bcmetal_drivers.introductions import introduces_itself
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import AccountPolicy, PowerState
from driver_bench import LIMITS, Seat, a_secret
from raw_bmc import DOCS, Asked, a_door, a_raw_bmc, answer, error

ACCOUNTS = "/redfish/v1/AccountService/Accounts"


def control(seat: Seat) -> AccountControl:
    opened = seat.open()
    if not offers(opened, AccountControl):
        pytest.skip(f"{seat.bench.name} does not claim AccountControl")
    return need(opened, AccountControl)


def must_change(seat: Seat) -> None:
    assert isinstance(seat.bmc.front, RedfishFront)
    seat.bmc.front.accounts.slots["1"].must_change = True


def test_an_account_is_made_switched_off_and_on_and_removed(seat: Seat) -> None:
    bmc, password = control(seat), a_secret()
    made = bmc.create_account("second", password, "Operator")
    assert (made.username, (made.role or "").upper(), made.enabled) == ("second", "OPERATOR", True)
    as_operator = replace(LIMITS, privilege="OPERATOR")
    theirs = seat.open(as_operator, Credential("second", password))
    assert need(theirs, Power).power_state() is PowerState.OFF
    theirs.close()
    bmc.enable_account(made.slot, False)
    with pytest.raises(RejectedCredentials):
        need(seat.open(as_operator, Credential("second", password)), Power).power_state()
    bmc.enable_account(made.slot, True)
    bmc.delete_account(made.slot)
    bmc.delete_account(made.slot)
    assert [account.username for account in need(bmc, Accounts).accounts()] == [seat.bmc.username]


def test_where_accounts_are_fixed_slots_an_empty_one_is_filled_and_emptied_again(redfish: Seat) -> None:
    redfish.bmc.set(account_slots=16)
    bmc = control(redfish)
    made = bmc.create_account("second", a_secret(), "ReadOnly")
    assert [account.slot for account in need(bmc, Accounts).accounts()] == ["1", made.slot]
    bmc.delete_account(made.slot)
    assert [account.slot for account in need(bmc, Accounts).accounts()] == ["1"]
    assert ("POST", ACCOUNTS) not in redfish.effects()


def test_our_own_account_is_neither_switched_off_nor_removed(redfish: Seat) -> None:
    bmc = control(redfish)
    with pytest.raises(Refused):
        bmc.enable_account("1", False)
    with pytest.raises(Refused):
        bmc.delete_account("1")
    assert redfish.effects() == []


def test_a_name_that_is_there_already_is_not_made_twice(redfish: Seat) -> None:
    with pytest.raises(Refused):
        control(redfish).create_account(redfish.bmc.username, a_secret(), "Administrator")
    assert redfish.effects() == []


def test_a_new_account_that_is_acknowledged_and_not_there_is_not_as_asked(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="ignore", method="POST", path="Accounts$"))
    with pytest.raises(NotAsAsked):
        control(redfish).create_account("second", a_secret(), "Operator")


def test_the_rules_are_read_written_and_read_back(seat: Seat) -> None:
    bmc = control(seat)
    if bmc.account_policy().lockout_threshold is None:  # as in IPMI, whose rules are the protocol's
        with pytest.raises(Unsupported):
            bmc.set_account_policy(AccountPolicy(lockout_threshold=5))
        return
    bmc.set_account_policy(AccountPolicy(password_shortest=12, lockout_threshold=5, lockout_s=300))
    policy = bmc.account_policy()
    assert (policy.password_shortest, policy.lockout_threshold, policy.lockout_s) == (12, 5, 300)
    with pytest.raises(Refused):
        bmc.create_account("second", SecretStr(token_hex(3)), "Operator")


def test_rules_that_the_bmc_does_not_have_are_unsupported(redfish: Seat) -> None:
    with pytest.raises(Unsupported):
        control(redfish).set_account_policy(AccountPolicy(lockout_reset_s=60))
    assert redfish.effects() == []


def test_an_account_says_that_it_is_locked_and_when_it_ends(redfish: Seat) -> None:
    assert isinstance(redfish.bmc.front, RedfishFront)
    redfish.bmc.set(lock_after=1, lock_s=600)
    made = control(redfish).create_account("second", a_secret(), "Operator")
    redfish.bmc.front.accounts.slots[made.slot].expires = "2031-01-01T00:00:00Z"
    with pytest.raises(RejectedCredentials):
        need(redfish.open(credential=Credential("second", a_secret())), Power).power_state()
    shown = next(a for a in need(redfish.open(), Accounts).accounts() if a.slot == made.slot)
    assert (shown.locked, shown.password_expired, shown.expires) == (True, False, "2031-01-01T00:00:00Z")


def test_the_account_is_chosen_by_its_id(redfish: Seat) -> None:
    bmc = redfish.open()
    made = need(bmc, AccountControl).create_account("second", a_secret(), "Operator")
    with pytest.raises(Refused):
        need(bmc, Accounts).set_password("second", a_secret(), slot="1")
    new = a_secret()
    need(bmc, Accounts).set_password("second", new, slot=made.slot)
    assert need(redfish.open(credential=Credential("second", new)), Power).power_state() is PowerState.OFF


@pytest.mark.parametrize("sessions", [True, False])
def test_a_password_that_must_be_changed_first_is_told_apart_and_can_be_changed(redfish: Seat, sessions: bool) -> None:
    redfish.bmc.set(session_service=sessions)
    must_change(redfish)
    bmc = redfish.open()
    with pytest.raises(PasswordChangeRequired) as raised:
        need(bmc, Power).power_state()
    assert raised.value.account == f"{ACCOUNTS}/1"
    assert redfish.rack.failed_logins(redfish.bmc) == 0
    new = a_secret()
    need(bmc, Accounts).set_password(redfish.bmc.username, new)
    assert need(bmc, Power).power_state() is PowerState.OFF
    assert redfish.bmc.password == new


def test_a_password_that_no_patch_changes_is_changed_by_the_accounts_action() -> None:
    """ManagerAccount 1.13.0: some services take a new password only together with the session's own."""
    account, new = f"{ACCOUNTS}/1", a_secret()
    action = f"{account}/Actions/ManagerAccount.ChangePassword"
    docs = {
        **DOCS,
        "/redfish/v1/": {"AccountService": {"@odata.id": "/redfish/v1/AccountService"}, **DOCS.get("/redfish/v1/", {})},
        "/redfish/v1/AccountService": {"Accounts": {"@odata.id": ACCOUNTS}},
        ACCOUNTS: {"Members": [{"@odata.id": account}]},
        account: {
            "@odata.id": account,
            "Id": "1",
            "UserName": "admin",
            "Actions": {"#ManagerAccount.ChangePassword": {"target": action}},
        },
    }

    def script(asked: Asked) -> list[bytes]:
        if asked.method == "PATCH":
            return [error("Base.1.0.PropertyNotWritable", "Password cannot be written.")]
        if asked.method == "POST" and asked.path == action:
            return [answer(status=204)]
        return [answer(docs[asked.path])] if asked.path in docs else []

    with a_raw_bmc(script) as bmc, a_door(bmc) as door, door.call():
        old = Credential("admin", a_secret())
        changed = redfish_accounts.set_password(Tree(door, door.address), old, "admin", new, "1")
        [sent] = [asked for asked in bmc.asked if asked.path == action]
        secret = old.password.get_secret_value()
        assert json.loads(sent.body) == {"NewPassword": new.get_secret_value(), "SessionAccountPassword": secret}
        assert changed.password == new


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            answer({"Oem": {"Dell": {"ServiceTag": "7XK2M13", "x": 7}}, "Name": ["a", None, {"deep": "b"}]}),
            {"7XK2M13", "a", "b"},
        ),
        (answer({"Name": "x" * 5000, "More": [str(n) for n in range(5000)]}), None),
        (error("Base.1.0.AccessDenied", "no", status=401), set()),
        (answer({"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": "too deep"}}}}}}}}}), set()),
    ],
    ids=["texts", "bounded", "refused", "deep"],
)
def test_what_a_bmc_says_of_itself_to_everybody_is_bounded_and_costs_no_credential(
    reply: bytes, told: set[str] | None
) -> None:
    with a_raw_bmc(lambda asked: [reply]) as bmc, a_door(bmc) as door:
        found = introduces_itself(door.address, Trust(TrustKind.NONE), LIMITS)
        assert told is None or set(found) == told
        assert len(found) <= 200
        assert max((len(one) for one in found), default=0) <= 256
        assert [asked.method for asked in bmc.asked] == ["GET"]
        assert not any("authorization" in map(str.lower, asked.headers) for asked in bmc.asked)


def test_a_login_that_is_refused_for_the_same_reason_is_no_wrong_password() -> None:
    def script(asked: Asked) -> list[bytes]:
        if asked.method == "POST":
            return [error("iLO.2.14.PasswordChangeRequired", "Your password has expired.", status=401)]
        return [answer(DOCS.get(asked.path, {}))]

    with a_raw_bmc(script, logs_in=False) as bmc, a_door(bmc) as door:
        with pytest.raises(PasswordChangeRequired), door.call():
            door.get("/redfish/v1/Systems/1")
        assert not door.rejected
