"""The Redfish driver against the emulated rack: media, Tasks, ETags, erases, sessions, several systems."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_hex
from typing import Any

import pytest
from pydantic import SecretStr

from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import (
    Accounts,
    Baseline,
    BootDevice,
    BootMode,
    BootModes,
    BootOnce,
    Credential,
    DriveErase,
    Identifies,
    Inventories,
    JobState,
    Limits,
    Power,
    PowerAction,
    PowerState,
    Readings,
    SecureBoot,
    Trust,
    TrustKind,
    VirtualMedia,
    need,
)
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.errors import (
    AmbiguousSystem,
    Busy,
    DriverError,
    LockedOut,
    Malformed,
    MaybeSent,
    NoSuchSystem,
    NotAsAsked,
    Refused,
    RejectedCredentials,
    ServerFault,
    TimedOut,
    Unsupported,
    UntrustedCertificate,
)
from bcmetal_drivers.registry import open_bmc, probe
from driver_bench import LIMITS, Seat, a_wrong_credential

SYSTEM = "/redfish/v1/Systems/1$"
INSERT = r"VirtualMedia\.InsertMedia$"
EJECT = r"VirtualMedia\.EjectMedia$"
ERASE = r"Drive\.SecureErase$"


class _Image(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"an image\n")

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def images() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Image) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(timeout=5)


# ---------------------------------------------------------------- virtual media


@pytest.mark.parametrize(
    "quirks",
    [
        {"media_at": "systems"},
        {"media_at": "managers"},
        {"media_at": "both"},
        {"media_insert": "patch"},
        {"media_insert": "patch", "etag": True},
    ],
    ids=str,
)
def test_a_medium_goes_in_is_read_back_and_comes_out(redfish: Seat, images: str, quirks: dict[str, Any]) -> None:
    redfish.bmc.set(**quirks)
    bmc = need(redfish.open(), VirtualMedia)
    slot = bmc.insert(f"{images}/one.iso")
    assert (slot.url, slot.inserted) == (f"{images}/one.iso", True)
    assert redfish.bmc.machine.media == f"{images}/one.iso"
    bmc.insert(f"{images}/two.iso")
    assert redfish.bmc.machine.media == f"{images}/two.iso"
    bmc.eject()
    bmc.eject()
    assert redfish.bmc.machine.media is None
    assert [slot.inserted for slot in bmc.inserted()] == [False] * len(bmc.inserted())


def test_a_machine_boots_what_was_inserted(redfish: Seat, images: str) -> None:
    opened = redfish.open()
    need(opened, VirtualMedia).insert(f"{images}/one.iso")
    need(opened, BootOnce).boot_once(BootDevice.CD, BootMode.UEFI)
    need(opened, Power).set_power(PowerAction.ON)
    assert redfish.bmc.machine.boots[-1].url == f"{images}/one.iso"


@pytest.mark.parametrize("path", [INSERT, EJECT])
def test_a_medium_that_is_acknowledged_and_not_moved_is_not_as_asked(redfish: Seat, images: str, path: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    bmc.insert(f"{images}/one.iso")
    if path == INSERT:
        bmc.eject()
    redfish.rack.rule(Rule(action="ignore", method="POST", path=path))
    with pytest.raises(NotAsAsked):
        bmc.insert(f"{images}/two.iso") if path == INSERT else bmc.eject()


@pytest.mark.parametrize(("status", "kind"), [(403, Refused), (500, ServerFault), (503, Busy), (409, DriverError)])
def test_an_eject_that_is_refused_counts_when_the_medium_is_still_there(
    redfish: Seat, images: str, status: int, kind: type[DriverError]
) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    bmc.insert(f"{images}/one.iso")
    redfish.rack.rule(
        Rule(action="refuse", method="POST", path=EJECT, status=status, code="GeneralError", message="no")
    )
    with pytest.raises(kind):
        bmc.eject()
    assert redfish.bmc.machine.media is not None


def test_an_insert_whose_answer_is_lost_is_read_back(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    fired = redfish.rack.rule(Rule(action="drop_after", method="POST", path=INSERT, times=1))
    assert bmc.insert(f"{images}/one.iso").inserted
    assert redfish.rack.fired(fired) == 1
    assert len([path for _, path in redfish.effects() if "InsertMedia" in path]) == 1


def test_an_insert_while_the_eject_still_runs_is_tried_again(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    redfish.rack.rule(Rule(action="refuse", method="POST", path=INSERT, times=1, status=500, code="GeneralError"))
    assert bmc.insert(f"{images}/one.iso").inserted


@pytest.mark.parametrize("missing", ["TransferProtocolType", "TransferMethod", "Inserted"])
def test_a_parameter_that_the_bmc_misses_is_sent(redfish: Seat, images: str, missing: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    rule = Rule(
        action="refuse",
        method="POST",
        path=INSERT,
        times=1,
        status=400,
        code="ActionParameterMissing",
        message=f"The action requires the parameter {missing}.",
    )
    redfish.rack.rule(rule)
    assert bmc.insert(f"{images}/one.iso").inserted


def test_an_image_that_cannot_be_fetched_is_an_error_and_leaves_the_slot_empty(redfish: Seat, images: str) -> None:
    bmc = need(redfish.open(), VirtualMedia)
    with pytest.raises(DriverError):
        bmc.insert("http://127.0.0.1:9/one.iso")
    assert redfish.bmc.machine.media is None


# ---------------------------------------------------------------- boot, ETags


def test_a_boot_mode_is_set_and_read_back(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootModes)
    bmc.set_boot_mode(BootMode.LEGACY)
    assert bmc.boot_mode() is BootMode.LEGACY
    assert redfish.bmc.machine.boot_mode is BootMode.LEGACY


def test_a_boot_mode_that_is_acknowledged_and_not_set_is_not_as_asked(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootModes)
    redfish.disturb("boot", "ignore", times=None)
    with pytest.raises(NotAsAsked):
        bmc.set_boot_mode(BootMode.LEGACY)


def test_a_bmc_that_shows_no_boot_mode_has_none(redfish: Seat) -> None:
    redfish.bmc.set(mode_shown=False)
    opened = redfish.open()
    assert need(opened, BootModes).boot_mode() is None
    need(opened, BootOnce).boot_once(BootDevice.CD)
    with pytest.raises(Unsupported):
        need(opened, BootModes).set_boot_mode(BootMode.UEFI)


def test_secure_boot_is_set_and_read_back(redfish: Seat) -> None:
    bmc = need(redfish.open(), SecureBoot)
    assert bmc.secure_boot() is False
    bmc.set_secure_boot(True)
    assert bmc.secure_boot() is True
    redfish.rack.rule(Rule(action="ignore", method="PATCH", path="SecureBoot"))
    with pytest.raises(NotAsAsked):
        bmc.set_secure_boot(False)


@pytest.mark.parametrize("form", ["strong", "weak", "empty", "absent"])
def test_whatever_etag_a_bmc_gives_and_demands_is_met(redfish: Seat, form: str) -> None:
    redfish.bmc.set(etag=True, etag_form=form)
    need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)
    assert redfish.bmc.machine.override.device is BootDevice.PXE


def test_another_writer_in_between_is_not_overwritten(redfish: Seat) -> None:
    bmc = need(redfish.open(), BootOnce)
    machine = redfish.bmc.machine
    fired = redfish.rack.rule(Rule(action="delay", method="PATCH", path=SYSTEM, times=1, seconds=1.0))

    def interfere() -> None:
        deadline = time.monotonic() + 5
        while redfish.rack.fired(fired) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        machine.arm(BootDevice.DISK, once=False)

    other = threading.Thread(target=interfere)
    other.start()
    with pytest.raises(Busy, match="another writer"):
        bmc.boot_once(BootDevice.PXE)
    other.join(timeout=5)
    assert machine.override.device is BootDevice.DISK


def test_a_change_during_post_is_busy(redfish: Seat) -> None:
    redfish.disturb("boot", "refuse", status=400, code="UnableToModifyDuringSystemPOST", message="during POST")
    with pytest.raises(Busy):
        need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)


# ---------------------------------------------------------------- power and Tasks


def test_a_reset_that_the_bmc_answers_409_because_it_is_there_is_success(redfish: Seat) -> None:
    redfish.bmc.set(refuse_same_power=True)
    bmc = need(redfish.open(), Power)
    bmc.set_power(PowerAction.OFF)
    bmc.set_power(PowerAction.ON)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON


@pytest.mark.parametrize("status", [400, 409])
def test_a_refused_reset_of_a_machine_that_is_there_by_now_is_success(redfish: Seat, status: int) -> None:
    bmc = need(redfish.open(), Power)
    redfish.disturb("power", "delay", seconds=1.0)
    fired = redfish.disturb("power", "refuse", status=status, code="GeneralError", message="it is on already")

    def switch_on() -> None:
        deadline = time.monotonic() + 5
        while redfish.rack.fired(fired - 1) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        redfish.bmc.machine.set_power(PowerAction.ON)

    hand = threading.Thread(target=switch_on)
    hand.start()
    bmc.set_power(PowerAction.ON)
    hand.join(timeout=5)
    assert redfish.rack.fired(fired) == 1


def test_a_refused_reset_of_a_machine_that_is_not_there_is_an_error(redfish: Seat) -> None:
    redfish.disturb("power", "refuse", times=None, status=400, code="GeneralError", message="no")
    with pytest.raises(Refused):
        need(redfish.open(), Power).set_power(PowerAction.ON)


def test_a_power_action_answered_by_a_task_is_followed_to_its_end(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=0.5)
    bmc = need(redfish.open(), Power)
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON


def test_a_task_that_fails_is_a_refusal(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=0.3, ends="exception")
    with pytest.raises(Refused, match="task failed"):
        need(redfish.open(), Power).set_power(PowerAction.ON)


def test_a_task_that_is_purged_is_no_success_by_itself(redfish: Seat) -> None:
    redfish.disturb("boot", "task", times=None, seconds=0.0, ends="purged")
    need(redfish.open(), BootOnce).boot_once(BootDevice.PXE)
    assert redfish.bmc.machine.override.device is BootDevice.PXE


def test_a_task_that_does_not_end_ends_at_the_deadline(redfish: Seat) -> None:
    redfish.disturb("power", "task", seconds=60.0)
    bmc = need(redfish.open(Limits(1, 1, 2)), Power)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        bmc.set_power(PowerAction.ON)
    assert time.monotonic() - began < 4


def test_health_and_boot_mode_are_in_the_reading(redfish: Seat) -> None:
    redfish.bmc.set(health="Critical")
    reading = need(redfish.open(), Readings).reading()
    assert (reading.boot_mode, reading.health) == (BootMode.UEFI, "critical")


# ---------------------------------------------------------------- erase


def erase(redfish: Seat) -> tuple[DriveErase, str]:
    serial = next(iter(redfish.bmc.machine.drives))
    redfish.bmc.machine.plant(serial)
    return need(redfish.open(), DriveErase), serial


def has_data(bmc: DriveErase, serial: str) -> bool | None:
    return {drive.serial: drive.has_data for drive in bmc.drives()}[serial]


def test_an_erase_is_started_followed_by_its_reference_and_seen_on_the_drive(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_s=0.5)
    assert has_data(bmc, serial) is True
    job = bmc.erase(serial)
    assert job.state is JobState.RUNNING
    later = need(redfish.open(), DriveErase)
    deadline = time.monotonic() + 5
    while later.erase_job(job.ref).state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    assert later.erase_job(job.ref).state is JobState.DONE
    assert has_data(later, serial) is False
    assert not redfish.bmc.machine.drives[serial].holds_data


def test_an_erase_that_runs_already_is_found_and_not_started_again(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_s=30.0)
    redfish.rack.rule(Rule(action="drop_after", method="POST", path=ERASE, times=1))
    with pytest.raises(MaybeSent):
        bmc.erase(serial)
    assert bmc.erase(serial).state is JobState.RUNNING
    assert len(redfish.effects()) == 1


def test_an_erase_that_lies_in_the_open_shows_data_afterwards(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_lie="visible")
    job = bmc.erase(serial)
    assert bmc.erase_job(job.ref).state is JobState.DONE
    assert has_data(bmc, serial) is True


def test_an_erase_that_lies_in_secret_is_known_to_the_oracle_alone(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase_lie="hidden")
    bmc.erase(serial)
    assert has_data(bmc, serial) is False
    assert redfish.bmc.machine.drives[serial].holds_data


def test_a_purged_erase_task_is_unknown(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.rack.rule(Rule(action="task", method="POST", path=ERASE, seconds=0.3, ends="purged"))
    job = bmc.erase(serial)
    deadline = time.monotonic() + 5
    while bmc.erase_job(job.ref).state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bmc.erase_job(job.ref).state is JobState.UNKNOWN


def test_a_failed_erase_task_is_failed(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.rack.rule(Rule(action="task", method="POST", path=ERASE, seconds=0.0, ends="exception"))
    job = bmc.erase(serial)
    assert bmc.erase_job(job.ref).state is JobState.FAILED
    assert redfish.bmc.machine.drives[serial].holds_data


def test_a_drive_without_an_erase_says_so(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(erase=False)
    assert not any(drive.erasable for drive in bmc.drives())
    with pytest.raises(Unsupported):
        bmc.erase(serial)
    with pytest.raises(Refused):
        bmc.erase("no such drive")


def test_a_bmc_that_does_not_tell_what_is_on_a_drive_is_not_taken_to_say_that_nothing_is(redfish: Seat) -> None:
    bmc, serial = erase(redfish)
    redfish.bmc.set(volumes_shown=False)
    assert has_data(bmc, serial) is None


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
