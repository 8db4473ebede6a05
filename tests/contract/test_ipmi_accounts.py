"""User slots and the ways in over IPMI: made, switched, emptied, closed, and read back each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.emulated.ipmi_accounts import SLOTS, UserSlot
from bcmetal_drivers.emulated.ipmi_wire import ADMINISTRATOR
from bcmetal_drivers.errors import DriverError, NotAsAsked, Refused, RejectedCredentials, Unsupported
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import AccountPolicy, PowerState
from driver_bench import a_secret
from ipmi_bench import LIMITS, IpmiBench, driving


def open_ways(bmc: IpmiBmc) -> set[str]:
    return {way.name for way in bmc.network_ways() if way.open}


# ---------------------------------------------------------------- slots


@pytest.mark.parametrize(("role", "size"), [("ADMINISTRATOR", 20), ("Operator", 16), ("ReadOnly", 8)])
def test_a_new_account_logs_in_with_its_role(bmc: IpmiBmc, bench: IpmiBench, role: str, size: int) -> None:
    own = Credential("second", a_secret(size))
    made = bmc.create_account(own.username, own.password, role)
    assert (made.slot, made.enabled) == ("3", True)
    assert made in bmc.accounts()
    with driving(bench, replace(LIMITS, privilege=made.role or ""), own) as second:
        assert second.power_state() is PowerState.OFF


def test_an_account_is_switched_off_and_on(bmc: IpmiBmc, bench: IpmiBench) -> None:
    own = Credential("second", a_secret())
    bench.front.set("unknown_names", "refused")  # not by silence, which takes seconds
    slot = bmc.create_account(own.username, own.password, "ADMINISTRATOR").slot
    bmc.enable_account(slot, False)
    assert [account.enabled for account in bmc.accounts()] == [True, False]
    with driving(bench, credential=own) as second, pytest.raises(RejectedCredentials):
        second.power_state()
    bmc.enable_account(slot, True)
    with driving(bench, credential=own) as second:
        assert second.power_state() is PowerState.OFF


def test_an_emptied_slot_has_no_name_no_privilege_and_another_password(bmc: IpmiBmc, bench: IpmiBench) -> None:
    own = Credential("second", a_secret())
    slot = bmc.create_account(own.username, own.password, "ADMINISTRATOR").slot
    bmc.delete_account(slot)
    assert [account.username for account in bmc.accounts()] == ["admin"]
    left = bench.front.users.slots[int(slot)]
    assert (left.username, left.privilege, left.enabled, left.messaging) == ("", 0x0F, False, False)
    assert left.password.get_secret_value() != own.password.get_secret_value()


def test_a_name_that_cannot_be_emptied_stays_disabled(bmc: IpmiBmc, bench: IpmiBench) -> None:
    slot = bmc.create_account("second", a_secret(), "USER").slot
    bench.rule("set-user-name", "refuse", code=0xCC)
    bmc.delete_account(slot)
    assert [(account.username, account.enabled) for account in bmc.accounts()] == [("admin", True), ("second", False)]


@pytest.mark.parametrize("command", ["set-user-password", "set-user-access", "set-user-name"])
def test_an_account_that_was_acknowledged_and_is_not_there_is_caught(
    bmc: IpmiBmc, bench: IpmiBench, command: str
) -> None:
    bench.rule(command, "ignore", times=None)
    with pytest.raises(NotAsAsked):
        bmc.create_account("second", a_secret(), "ADMINISTRATOR")
    assert not bench.front.users.slots[3].enabled


def test_the_own_account_is_neither_disabled_nor_emptied(bmc: IpmiBmc, bench: IpmiBench) -> None:
    with pytest.raises(Refused, match="came in with"):
        bmc.enable_account("2", False)
    with pytest.raises(Refused, match="came in with"):
        bmc.delete_account("2")
    assert [w for w in bench.writes if w.kind == "effect"] == []


def test_a_second_account_of_our_name_is_not_ours(bmc: IpmiBmc, bench: IpmiBench) -> None:
    slot = bench.front.users.add("admin", a_secret(), ADMINISTRATOR)
    bmc.delete_account(str(slot))
    assert [account.slot for account in bmc.accounts()] == ["2"]
    with pytest.raises(Refused, match="came in with"):
        bmc.delete_account("2")


def test_the_null_user_that_we_are_stays(bench: IpmiBench) -> None:
    own = Credential("", a_secret())
    bench.front.users.slots[1] = UserSlot("", own.password, ADMINISTRATOR, True)
    with driving(bench, credential=own) as nobody, pytest.raises(Refused, match="come in as"):
        nobody.close_network_way("null-user")
    assert bench.front.users.slots[1].enabled


@pytest.mark.parametrize(
    ("name", "size", "role", "says"),
    [
        ("u" * 17, 8, "USER", "16 bytes"),
        ("", 8, "USER", "16 bytes"),
        ("user", 22, "USER", "20 bytes"),
        ("user", 8, "KING", "privilege level"),
        ("admin", 8, "USER", "already"),
    ],
)
def test_what_ipmi_cannot_hold_is_refused_with_its_limit(
    bmc: IpmiBmc, bench: IpmiBench, name: str, size: int, role: str, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        bmc.create_account(name, a_secret(size), role)
    assert [w for w in bench.writes if w.kind == "effect"] == []


def test_a_bmc_whose_slots_are_all_taken_says_so(bmc: IpmiBmc, bench: IpmiBench) -> None:
    for n in range(3, SLOTS + 1):
        bench.front.users.slots[n] = UserSlot(f"user{n}", a_secret(), ADMINISTRATOR, True)
    with pytest.raises(Refused, match="slots are taken"):
        bmc.create_account("second", a_secret(), "USER")


@pytest.mark.parametrize("slot", ["0", "64", "-1", "two", "9" * 500])
def test_a_slot_that_cannot_be_is_refused(bmc: IpmiBmc, slot: str) -> None:
    with pytest.raises(Refused):
        bmc.enable_account(slot, True)


def test_rules_for_accounts_are_the_protocols_and_cannot_be_set(bmc: IpmiBmc) -> None:
    policy = bmc.account_policy()
    assert (policy.username_longest, policy.password_longest, policy.lockout_threshold) == (16, 20, None)
    with pytest.raises(Unsupported):
        bmc.set_account_policy(AccountPolicy(lockout_threshold=3))


# ---------------------------------------------------------------- ways in


def test_what_is_open_to_the_network_is_named_and_closed(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bench.front.set("suites", (17, 3, 2, 1, 0))
    bench.front.users.slots[1].enabled = True
    bench.front.commands.lan.set_parameter(2, bytes((0, 4, 4, 4, 0)))
    assert open_ways(bmc) == {"cipher-0", "unencrypted-suites", "null-user", "ipmi-1.5", "ipmi-over-lan"}
    for name in ("cipher-0", "unencrypted-suites", "null-user", "ipmi-1.5"):
        bmc.close_network_way(name)
        bmc.close_network_way(name)
    assert open_ways(bmc) == {"ipmi-over-lan"}
    assert bench.front.suites == (3, 17)
    assert [account.username for account in bmc.accounts()] == ["admin"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("cipher-0", "set-lan-parameter"),
        ("ipmi-1.5", "set-lan-parameter"),
        ("null-user", "set-user-password"),
        ("ipmi-over-lan", "set-channel-access"),
    ],
)
def test_a_closing_that_was_acknowledged_and_not_done_is_caught(
    bmc: IpmiBmc, bench: IpmiBench, name: str, command: str
) -> None:
    bench.front.set("suites", (17, 3, 0))
    bench.front.users.slots[1].enabled = True
    bench.front.commands.lan.set_parameter(2, bytes((0, 4, 4, 4, 0)))
    bench.rule(command, "ignore", times=None)
    bench.rule("set-user-access", "ignore", times=None)
    with pytest.raises(NotAsAsked):
        bmc.close_network_way(name)
    assert name in open_ways(bmc)


def test_suites_without_encryption_stay_where_nothing_else_would_be_left(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.power_state()  # the session stays
    bench.front.set("suites", (2, 0))
    with pytest.raises(Refused, match="lock it"):
        bmc.close_network_way("cipher-0")
    assert bench.front.suites == (0, 2)


def test_ipmi_over_lan_is_off_for_everybody_once_it_is_closed(bmc: IpmiBmc, bench: IpmiBench) -> None:
    bmc.close_network_way("ipmi-over-lan")
    with driving(bench, replace(LIMITS, connect_s=0.5, total_s=2)) as late, pytest.raises(DriverError):
        late.power_state()
    assert not bench.front.is_on


def test_the_hosts_way_in_is_named_and_has_no_lock(bmc: IpmiBmc) -> None:
    [way] = bmc.host_ways()
    assert (way.name, way.open, way.closable) == ("kcs", True, False)
    with pytest.raises(Unsupported):
        bmc.close_host_way("kcs")
    with pytest.raises(Unsupported):
        bmc.close_network_way("telnet")


def test_the_baseline_changes_with_each_thing_that_somebody_planted(bmc: IpmiBmc, bench: IpmiBench) -> None:
    before = bmc.baseline()
    assert bmc.baseline() == before
    bench.front.users.add("mallory", a_secret(), ADMINISTRATOR)
    assert bmc.baseline()["accounts"] != before["accounts"]
    earlier = bmc.baseline()["channels"]
    bench.front.set("suites", (17, 3, 0))
    assert bmc.baseline()["channels"] != earlier
    for parameter, planted in ((2, b"\x04" * 5), (16, b"private".ljust(18, b"\x00")), (12, bytes((10, 0, 0, 1)))):
        earlier = bmc.baseline()["channels"]
        bench.front.commands.lan.set_parameter(parameter, planted)
        assert bmc.baseline()["channels"] != earlier


def test_the_network_is_told_with_prefix_and_without_what_is_not_set(bmc: IpmiBmc, bench: IpmiBench) -> None:
    [interface] = bmc.bmc_network()
    assert interface.ipv4 == (f"{bench.host}/8",)
    assert (interface.dhcp, interface.gateway, interface.vlan) == (False, None, None)
    bench.front.commands.lan.set_parameter(20, bytes((0x05, 0x80)))
    bench.front.commands.lan.set_parameter(12, bytes((10, 0, 0, 1)))
    [interface] = bmc.bmc_network()
    assert (interface.gateway, interface.vlan) == ("10.0.0.1", 5)
