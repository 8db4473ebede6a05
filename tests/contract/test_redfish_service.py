"""The Redfish driver and its service: identity, pages, several systems, logins, trust, probing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from secrets import token_hex

import pytest
from pydantic import SecretStr

from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import Accounts, Baseline, Identifies, Inventories, Power, need
from bcmetal_drivers.connection import Credential, Trust, TrustKind
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.errors import (
    AmbiguousSystem,
    Busy,
    DriverError,
    LockedOut,
    Malformed,
    NoSuchSystem,
    NotAsAsked,
    RejectedCredentials,
    ServerFault,
    UntrustedCertificate,
)
from bcmetal_drivers.registry import open_bmc, probe
from bcmetal_drivers.resources import PowerAction, PowerState
from driver_bench import LIMITS, Seat, a_wrong_credential

SYSTEM = "/redfish/v1/Systems/1$"
INSERT = r"VirtualMedia\.InsertMedia$"
EJECT = r"VirtualMedia\.EjectMedia$"
ERASE = r"Drive\.SecureErase$"


# ---------------------------------------------------------------- who it is


def test_the_inventory_agrees_with_the_hardware(redfish: Seat) -> None:
    inventory = need(redfish.open(), Inventories).inventory()
    machine = redfish.bmc.machine
    assert {drive.serial for drive in inventory.drives} == set(machine.drives)
    assert inventory.identity.macs == machine.macs
    assert inventory.memory_bytes == machine.hardware.memory_gib * 1024**3
    assert len(inventory.cpus) == machine.hardware.cpus
    assert set(inventory.sections.values()) <= {"ok", "absent"}
    assert "VirtualMedia" in inventory.capabilities


@pytest.mark.parametrize("action", ["refuse", "html", "garbage"])
def test_a_section_that_fails_costs_no_other_section(redfish: Seat, action: str) -> None:
    redfish.rack.rule(Rule(action=action, method="GET", path="/(Processors|Storage)$", status=500))
    inventory = need(redfish.open(), Inventories).inventory()
    assert inventory.drives == ()
    assert inventory.cpus == ()
    assert inventory.sections["drives"] not in ("ok", "absent")
    assert inventory.sections["cpus"] not in ("ok", "absent")
    assert inventory.sections["nics"] == "ok"
    assert inventory.identity.macs


def test_a_collection_in_pages_is_read_to_its_end(redfish: Seat) -> None:
    redfish.bmc.set(page=1)
    inventory = need(redfish.open(), Inventories).inventory()
    assert len(inventory.drives) == 2
    assert len(inventory.nics) == 2
    assert len(inventory.firmware) == 3


def test_the_baseline_names_accounts_network_and_firmware(redfish: Seat) -> None:
    baseline = need(redfish.open(), Baseline).baseline()
    assert baseline["accounts"] == [{"slot": "1", "username": "admin", "role": "Administrator", "enabled": True}]
    assert redfish.bmc.host in str(baseline["network"])
    assert baseline["certificate"] == redfish.bmc.fingerprint
    assert redfish.bmc.password.get_secret_value() not in str(baseline)


def test_two_systems_and_none_named_is_ambiguous_and_names_them() -> None:
    rack = Rack()
    bmc = rack.add_redfish("blades", systems=2, page=1)
    with rack:
        opened = open_bmc(parse(bmc.address), Credential(bmc.username, bmc.password), Trust(TrustKind.CA, bmc.ca_pem))
        with pytest.raises(AmbiguousSystem, match="Systems/1, /redfish/v1/Systems/2"):
            need(opened, Power).power_state()
        opened.close()


def test_a_system_that_is_not_there_is_named_with_those_that_are(redfish: Seat) -> None:
    address = replace(redfish.address, system_path="/redfish/v1/Systems/9")
    with pytest.raises(NoSuchSystem, match="it has: /redfish/v1/Systems/1"):
        need(redfish.open(address=address), Power).power_state()


def test_systems_behind_one_bmc_are_kept_apart_and_share_one_session() -> None:
    rack = Rack()
    bmc = rack.add_redfish("blades", systems=3)
    credential, trust = Credential(bmc.username, bmc.password), Trust(TrustKind.FINGERPRINT, bmc.fingerprint)
    with rack:
        blades = [
            open_bmc(replace(parse(bmc.address), system_path=f"/redfish/v1/Systems/{n}"), credential, trust)
            for n in (1, 2, 3)
        ]
        need(blades[1], Power).set_power(PowerAction.ON)
        assert [need(blade, Power).power_state() for blade in blades] == [PowerState.OFF, PowerState.ON, PowerState.OFF]
        assert rack.sessions(bmc) == 1
        blades[0].close()
        assert rack.sessions(bmc) == 1
        blades[1].close()
        blades[2].close()
        assert rack.sessions(bmc) == 0


# ---------------------------------------------------------------- logins, trust


def test_a_new_password_is_proven_and_used_from_then_on(redfish: Seat) -> None:
    opened = redfish.open()
    old, new = redfish.credential, SecretStr(token_hex(8))
    need(opened, Accounts).set_password("admin", new)
    assert redfish.bmc.password.get_secret_value() == new.get_secret_value()
    redfish.bmc.front.drop_sessions()
    assert need(opened, Power).power_state() is PowerState.OFF
    with pytest.raises(RejectedCredentials):
        need(redfish.open(credential=old), Power).power_state()


def test_a_new_password_that_was_not_taken_is_not_as_asked_and_the_old_one_goes_on(redfish: Seat) -> None:
    opened = redfish.open()
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path="Accounts"))
    with pytest.raises(NotAsAsked):
        need(opened, Accounts).set_password("admin", SecretStr(token_hex(8)))
    assert need(opened, Power).power_state() is PowerState.OFF


def test_accounts_are_listed_without_the_empty_slots(redfish: Seat) -> None:
    assert [account.username for account in need(redfish.open(), Accounts).accounts()] == ["admin"]


def test_a_locked_account_is_told_from_a_wrong_password(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="lock_after", n=1, seconds=60.0))
    with pytest.raises(RejectedCredentials):
        need(redfish.open(credential=a_wrong_credential()), Power).power_state()
    with pytest.raises(LockedOut):
        need(redfish.open(), Power).power_state()


@pytest.mark.parametrize("status", [503, 400])
def test_a_full_session_table_is_busy_and_not_tried_by_basic(redfish: Seat, status: int) -> None:
    redfish.rack.rule(Rule(action="session_table_full", status=status, headers={"Retry-After": "30"}))
    with pytest.raises(Busy) as raised:
        need(redfish.open(), Power).power_state()
    assert raised.value.retry_after_s == 30
    assert redfish.rack.failed_logins(redfish.bmc) == 0


def test_sessions_that_expire_again_and_again_do_not_pile_up(redfish: Seat) -> None:
    bmc = need(redfish.open(), Power)
    bmc.power_state()
    for _ in range(5):
        rule = redfish.rack.rule(Rule(action="expire_sessions", method="GET", path=SYSTEM, times=1))
        assert bmc.power_state() is PowerState.OFF
        assert redfish.rack.fired(rule) == 1
        assert redfish.rack.sessions(redfish.bmc) == 1


def test_a_line_that_is_cut_every_second_time_does_no_harm(redfish: Seat) -> None:
    redfish.rack.rule(Rule(action="cut"))
    bmc = need(redfish.open(), Power)
    states = []
    for _ in range(4):
        try:
            states.append(bmc.power_state())
        except DriverError as error:
            assert "bmc" in error.code  # noqa: PT017  # the first login may be cut; what follows may not
    assert states[-3:] == [PowerState.OFF] * 3


@pytest.mark.parametrize("kind", [TrustKind.SYSTEM, TrustKind.FINGERPRINT])
def test_a_distrusted_bmc_gets_no_login(redfish: Seat, kind: TrustKind) -> None:
    trust = Trust(kind, "ab" * 32 if kind is TrustKind.FINGERPRINT else "")
    with pytest.raises(UntrustedCertificate):
        need(redfish.open(trust=trust), Identifies).identity()
    assert redfish.rack.requests(redfish.bmc) == {}
    assert redfish.rack.writes == []


@pytest.mark.parametrize("action", ["html", "garbage"])
def test_nonsense_instead_of_a_system_is_an_error_with_its_url(redfish: Seat, action: str) -> None:
    redfish.disturb("look", action, times=None)
    with pytest.raises((Malformed, ServerFault), match="Systems/1"):
        need(redfish.open(), Power).power_state()


# ---------------------------------------------------------------- probing


@contextmanager
def a_rack_of_all_kinds() -> Iterator[Rack]:
    rack = Rack()
    rack.add_redfish("tls")
    rack.add_redfish("plain", tls=False)
    rack.add_ipmi("ipmi")
    with rack:
        yield rack


def test_probing_finds_what_each_bmc_speaks_and_sends_no_credential() -> None:
    anyone = Trust(TrustKind.NONE)
    with a_rack_of_all_kinds() as rack:
        for name, scheme in (("tls", "redfish"), ("plain", "redfish+http"), ("ipmi", "ipmi")):
            bmc = rack.bmc(name)
            found = probe(bmc.host, bmc.port, anyone, LIMITS)
            assert (found.scheme, found.host, found.port) == (scheme, bmc.host, bmc.port)
        assert rack.writes == []


def test_probing_keeps_to_the_trust() -> None:
    with a_rack_of_all_kinds() as rack:
        tls, plain = rack.bmc("tls"), rack.bmc("plain")
        with pytest.raises(UntrustedCertificate):
            probe(tls.host, tls.port, Trust(), LIMITS)
        with pytest.raises(DriverError):
            probe(plain.host, plain.port, Trust(), LIMITS)
        assert rack.requests(plain) == {}
