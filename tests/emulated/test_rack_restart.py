"""The rack ends and starts again, in this process and as one of its own."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from secrets import token_urlsafe

import pytest
from pydantic import SecretStr

from bcmetal_drivers.emulated.control import Control, ControlFault, RackClient
from bcmetal_drivers.emulated.rack import Rack, Rule
from bcmetal_drivers.resources import PowerState
from rack_client import INSERT, RESET, SYSTEM, a_media_server, dialling

ACCOUNT = "/redfish/v1/AccountService/Accounts/1"


def test_a_rack_made_again_goes_on_where_it_was(tmp_path: Path) -> None:
    rack = Rack(tmp_path, seed=7)
    bmc = rack.add_redfish("one", drives=3, session_limit=2)
    rack.add_ipmi("two")
    rack.add_redfish("three", systems=2)
    new = token_urlsafe()
    with rack, dialling(bmc) as client:
        with a_media_server() as media:
            client.post(INSERT, {"Image": media.url})
        client.boot_from("Cd")
        client.reset("On")
        client.boot_from("Pxe", "Continuous")
        client.patch(ACCOUNT, {"Password": new})
        bmc.machine.plant(next(iter(bmc.machine.drives)))
        client.login()
    before = (bmc.address, bmc.fingerprint, bmc.ca_pem, bmc.machine.snapshot(), bmc.machine.hardware)
    addresses = {name: known.address for name, known in rack.bmcs.items()}

    again = Rack(tmp_path, seed=7)
    same = again.add_redfish("one")
    with again:
        assert (same.address, same.fingerprint, same.ca_pem, same.machine.snapshot(), same.machine.hardware) == before
        assert {name: known.address for name, known in again.bmcs.items()} == addresses
        assert same.password.get_secret_value() == new
        assert again.sessions(same) == 0
        assert same.machine.would_boot() == ("pxe", None)
        assert [boot.device for boot in same.machine.boots] == ["cd"]
        with dialling(same) as client:
            assert client.login().status == 201
            assert client.login().status == 201
            assert client.login().status == 503  # its settings are kept too


def test_a_killed_rack_has_lost_no_write_that_it_acknowledged(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    bmc = rack.add_redfish("one")
    with rack:
        with dialling(bmc) as client:
            client.reset("On")
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}  # as a kill at this moment leaves them
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in files.items():
        (copy / name).write_bytes(content)
    assert Rack(copy).bmc("one").machine.power is PowerState.ON


def test_what_is_kept_is_private(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    rack.add_redfish("one")
    with rack:
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"bmc-one.json": 0o600, "one.pem": 0o600}


def test_a_stopped_rack_starts_again_on_the_same_ports() -> None:
    rack = Rack()
    bmc = rack.add_redfish("one")
    with rack, dialling(bmc) as client:
        port = bmc.port
        assert client.get().status == 200
    with rack, dialling(bmc) as client:
        assert bmc.port == port
        assert client.get().status == 200


def test_two_racks_share_nothing() -> None:
    first, second = Rack(seed=1), Rack(seed=2)
    a, b = first.add_redfish("one"), second.add_redfish("one")
    with first, second:
        with dialling(a) as client:
            client.reset("On")
        assert b.machine.power is PowerState.OFF
        assert (a.port, a.machine.serial) != (b.port, b.machine.serial)
        assert second.writes == []


def test_the_same_seed_makes_the_same_machines() -> None:
    assert Rack(seed=5).add_redfish("one").machine.hardware == Rack(seed=5).add_redfish("one").machine.hardware


def test_one_name_is_one_kind_of_bmc() -> None:
    rack = Rack()
    rack.add_redfish("one")
    with pytest.raises(ValueError, match="there already"):
        rack.add_ipmi("one")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="no setting"):
        Rack().add_redfish("one").set(colour="blue")


def test_without_tls_it_is_plain_http() -> None:
    rack = Rack()
    bmc = rack.add_redfish("one", tls=False)
    with rack, dialling(bmc) as client:
        assert bmc.address.startswith("redfish+http://127.")
        assert bmc.fingerprint == ""
        assert client.get().status == 200


def test_sixteen_bmcs_start_within_three_seconds() -> None:
    began = time.monotonic()
    rack = Rack()
    for n in range(16):
        rack.add_redfish(f"b{n}")
    with rack:
        assert time.monotonic() - began < 3


def test_one_bmc_that_is_stuck_holds_up_no_other() -> None:
    rack = Rack()
    stuck, other = rack.add_redfish("stuck"), rack.add_redfish("other")
    with rack, dialling(stuck) as first, dialling(other) as second:
        first.get()
        rule = rack.rule(Rule(bmc="stuck", action="delay", seconds=2))
        waiting = threading.Thread(target=first.get)
        waiting.start()
        deadline = time.monotonic() + 5
        while not rack.fired(rule) and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
        assert second.get().status == 200
        assert time.monotonic() - began < 1
        waiting.join()


# ---------------------------------------------------------------- control


def test_another_process_tells_and_judges(tmp_path: Path) -> None:
    rack = Rack()
    bmc = rack.add_redfish("one")
    control = Control(rack, tmp_path)
    control.start()
    try:
        with rack, dialling(bmc) as client:
            asking = RackClient(control.url, SecretStr(control.token_file.read_text()))
            assert [known["address"] for known in asking.bmcs()] == [bmc.address]
            rule = asking.rule(Rule(bmc="one", action="refuse", status=500, times=1))
            assert client.reset("On").status == 500
            assert client.reset("On").status == 204
            assert asking.fired(rule) == 1
            asking.rule(Rule(action="refuse"))
            asking.clear()
            assert asking.writes() == rack.writes
            assert asking.writes(after=1) == []
            machine = asking.machines()["one"]
            assert (machine["power"], machine["would_boot"], len(machine["boots"])) == ("on", ["disk", None], 1)
            asking.plant("one")
            assert all(drive["holds_data"] for drive in asking.machines()["one"]["drives"].values())
            asking.set("one", session_limit=0)
            assert client.login().status == 503
            asking.change_password("one", SecretStr(token_urlsafe()))
            assert asking.counts("one")["requests"]["POST"] == 3
            with pytest.raises(ControlFault):
                asking.set("none", erase=False)
            with pytest.raises(ControlFault):
                asking.fired(99)
    finally:
        control.stop()
    assert not control.token_file.exists()


def test_control_needs_its_token(tmp_path: Path) -> None:
    control = Control(Rack(), tmp_path)
    control.start()
    try:
        assert stat.S_IMODE(control.token_file.stat().st_mode) == 0o600
        with pytest.raises(ControlFault, match="token"):
            RackClient(control.url, SecretStr("wrong")).bmcs()
    finally:
        control.stop()


def test_the_rack_as_a_process_says_where_it_is_and_survives_itself(tmp_path: Path) -> None:
    addresses = []
    for expected in (PowerState.OFF, PowerState.ON):
        with subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bcmetal_drivers.emulated",
                "--state",
                str(tmp_path),
                "--redfish",
                "2",
                "--ipmi",
                "1",
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                where = json.loads(process.stdout.readline())
                token = SecretStr(Path(where["control"]["token_file"]).read_text())
                asking = RackClient(where["control"]["url"], token)
                assert asking.machines()["redfish-01"]["power"] == expected
                addresses.append([bmc["address"] for bmc in where["bmcs"]])
                bmc = Rack(tmp_path).bmc("redfish-01")
                assert bmc.password.get_secret_value() == Path(where["bmcs"][0]["password_file"]).read_text()
                with dialling(bmc) as client:
                    assert client.post(RESET, {"ResetType": "On"}).status == 204
                    assert client.get(SYSTEM).doc["PowerState"] == "On"
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    assert addresses[0] == addresses[1]
    assert len(addresses[0]) == 3
