"""The IPMI driver against OpenIPMI's `ipmi_sim`: a BMC that somebody else wrote, in C, with its own idea of the standard."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.errors import InsecureTransport, NotAsAsked, Refused, RejectedCredentials, Unreachable
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState, Sensor, SensorKind
from ipmi_bench import Between

pytestmark = pytest.mark.skipif(shutil.which("ipmi_sim") is None, reason="ipmi_sim is not installed (Debian: openipmi)")

GUID = "00112233445566778899aabbccddeeff"

# What ipmi_sim calls for the chassis: "get power", "set boot pxe", …; the state lies in files beside it.
CHASSIS = """#!/bin/sh
verb="$1"; shift
case "$verb" in
get) for name in "$@"; do echo "$name:$(cat "{dir}/$name")"; done ;;
set) while [ $# -gt 1 ]; do echo "$2" > "{dir}/$1"; echo "$1 $2" >> "{dir}/log"; shift 2; done ;;
esac
"""


def fru_area(prefix: bytes, *fields: str) -> bytes:
    body = prefix + b"".join(bytes((0xC0 | len(f),)) + f.encode() for f in fields) + b"\xc1"
    size = (len(body) + 3 + 7) // 8 * 8
    area = (bytes((1, size // 8)) + body).ljust(size - 1, b"\x00")
    return area + bytes((-sum(area) & 0xFF,))


def fru_image() -> bytes:
    board = fru_area(b"\x00\x10\x20\x30", "Acme", "Board", "B-100", "BP-1")
    product = fru_area(b"\x00", "Acme", "Rocket 1", "PN-1", "1.0", "SER-100", "asset 7")
    header = bytes((1, 0, 0, 1, 1 + len(board) // 8, 0, 0))
    return header + bytes((-sum(header) & 0xFF,)) + board + product


@dataclass(frozen=True)
class Simulator:
    address: BmcAddress
    admin: Credential
    operator: Credential
    directory: Path
    serial: socket.socket  # where it connects to the machine's serial port

    def chassis(self, name: str) -> str:
        return (self.directory / name).read_text().strip()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def a_credential(name: str) -> Credential:
    return Credential(name, SecretStr(secrets.token_hex(8)))


def sensor_record() -> bytes:
    """A temperature with three upper thresholds (IPMI 2.0, table 43-1)."""
    body = bytes((0x20, 0, 1, 3, 1, 0x7F, 0x68, 1, 1, 0, 0x70, 0, 0x70, 0x38, 0x38, 0x80, 1, 0, 0, 1))
    body += bytes((0, 0, 0, 0, 0, 0, 30, 0xFF, 0, 0xFF, 0, 100, 95, 85, 0, 0, 0, 2, 2, 0, 0, 0, 0xC4)) + b"Temp"
    return bytes((0, 0, 0x51, 1, len(body))) + body


def configure(directory: Path, port: int, admin: Credential, operator: Credential, serial: int) -> None:
    script = directory / "chassis"
    script.write_text(CHASSIS.format(dir=directory))
    script.chmod(0o755)
    for name, value in {"power": "0", "boot": "none", "log": ""}.items():
        (directory / name).write_text(value)
    (directory / "lan.conf").write_text(f"""name "sim"
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid {GUID}
  endlan
  sol "tcp:localhost:{serial}" 115200
  chassis_control "{script}"
  user 2 true "{admin.username}" "{admin.password.get_secret_value()}" admin 10 md5
  user 3 true "{operator.username}" "{operator.password.get_secret_value()}" operator 10 md5
""")
    fru, sensor = fru_image(), sensor_record()
    (directory / "sim.emu").write_text(
        "mc_setbmc 0x20\n"
        "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x0002a2 0xf02\n"
        "sel_enable 0x20 1000 0x0a\n"
        f"mc_add_fru_data 0x20 0 {len(fru)} data {' '.join(hex(b) for b in fru)}\n"
        f"main_sdr_add 0x20 {' '.join(hex(b) for b in sensor)}\n"
        "sensor_add 0x20 0 1 1 1\n"
        "sensor_set_value 0x20 0 1 90 0\n"
        "sensor_set_threshold 0x20 0 1 settable 111000 100 95 85 0 0 0\n"
        "mc_enable 0x20\n"
    )


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Simulator]:
    admin, operator = a_credential("admin"), a_credential("oper")
    port = free_port()
    serial = socket.create_server(("127.0.0.1", 0))
    configure(tmp_path, port, admin, operator, serial.getsockname()[1])
    (tmp_path / "state").mkdir()
    files = ["-c", str(tmp_path / "lan.conf"), "-f", str(tmp_path / "sim.emu"), "-s", str(tmp_path / "state")]
    process = subprocess.Popen(
        ["ipmi_sim", *files, "-n"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    simulator = Simulator(BmcAddress("ipmi", "127.0.0.1", port), admin, operator, tmp_path, serial)
    try:
        wait_until_it_answers(simulator, process)
        yield simulator
    finally:
        process.terminate()
        process.wait(timeout=10)
        serial.close()


def wait_until_it_answers(simulator: Simulator, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        bmc = open_bmc(simulator)
        try:
            bmc.power_state()
            return
        except Unreachable:
            assert process.poll() is None, "ipmi_sim ended: a bad line in its configuration"
            assert time.monotonic() < deadline, "ipmi_sim does not listen"
            time.sleep(0.05)
        finally:
            bmc.close()


def open_bmc(sim: Simulator, credential: Credential | None = None, limits: Limits | None = None) -> IpmiBmc:
    return IpmiBmc(sim.address, credential or sim.admin, Trust(), limits or Limits(total_s=20))


@pytest.fixture
def bmc(sim: Simulator) -> Iterator[IpmiBmc]:
    opened = open_bmc(sim)
    yield opened
    opened.close()


def older(packet: bytes) -> list[bytes]:
    """Says that the BMC knows IPMI 1.5 only, as an attacker would, or an old BMC."""
    if packet[4] != 0 or packet[19] != 0x38:  # Get Channel Authentication Capabilities
        return [packet]
    changed = bytearray(packet)
    changed[22] &= 0x7F
    changed[24] &= 0xFD
    changed[-1] = -sum(changed[17:-1]) & 0xFF
    return [bytes(changed)]


@contextmanager
def downgraded(sim: Simulator) -> Iterator[tuple[Simulator, list[bytes]]]:
    with Between(sim.address, older) as between:
        yield replace(sim, address=between.address), between.heard


def test_a_downgrade_to_ipmi_15_is_refused_without_a_challenge_and_spoken_to_legacy_bmcs_alone(sim: Simulator) -> None:
    with downgraded(sim) as (old, heard):
        strict = open_bmc(old)
        with pytest.raises(InsecureTransport):
            strict.power_state()
        assert len(heard) == 1
        assert not any(sim.admin.username.encode() in packet for packet in heard)
        legacy = open_bmc(old, limits=Limits(total_s=20, ipmi_legacy=True))
        legacy.set_power(PowerAction.ON)
        assert legacy.power_state() is PowerState.ON
        assert legacy.identity().serial == "SER-100"
        legacy.close()
        assert sim.chassis("power") == "1"
        wrong = open_bmc(old, a_credential("admin"), Limits(total_s=20, ipmi_legacy=True))
        with pytest.raises(RejectedCredentials):
            wrong.power_state()
        nobody = open_bmc(old, a_credential("nobody"), Limits(total_s=20, ipmi_legacy=True))
        with pytest.raises(RejectedCredentials):
            nobody.power_state()
        assert all(packet[4] in (0, 2) for packet in heard)  # never RMCP+ in all this


def test_a_password_that_ipmi_15_would_cut_short_is_refused_with_its_limit(sim: Simulator) -> None:
    with downgraded(sim) as (old, _):
        long = Credential("admin", SecretStr(secrets.token_hex(10)))
        bmc = open_bmc(old, long, Limits(total_s=20, ipmi_legacy=True))
        with pytest.raises(Refused, match="16 bytes"):
            bmc.power_state()


def test_power_goes_on_and_off(bmc: IpmiBmc, sim: Simulator) -> None:
    assert bmc.power_state() is PowerState.OFF
    bmc.set_power(PowerAction.ON)
    assert bmc.power_state() is PowerState.ON
    bmc.set_power(PowerAction.CYCLE)
    assert "reset 1" in sim.chassis("log")
    bmc.set_power(PowerAction.OFF)
    assert sim.chassis("power") == "0"
    assert bmc.reading().power is PowerState.OFF


def test_identity_comes_from_fru_and_guid(bmc: IpmiBmc) -> None:
    identity = bmc.identity()
    assert (identity.serial, identity.model, identity.manufacturer) == ("SER-100", "Rocket 1", "Acme")
    assert (identity.sku, identity.asset_tag) == ("PN-1", "asset 7")
    assert identity.product_uuid == "33221100-5544-7766-8899-aabbccddeeff"


def test_the_bmc_says_its_maker_and_firmware(bmc: IpmiBmc) -> None:
    info = bmc.bmc_info()
    assert (info.maker, info.firmware) == ("Dell", "9.08")


def test_accounts_carry_their_roles(bmc: IpmiBmc) -> None:
    assert [(a.username, a.role) for a in bmc.accounts()] == [("admin", "ADMINISTRATOR"), ("oper", "OPERATOR")]


def test_a_new_password_is_the_one_that_counts(bmc: IpmiBmc, sim: Simulator) -> None:
    new = a_credential("admin")
    bmc.set_password("admin", new.password)
    bmc.close()
    with pytest.raises(RejectedCredentials):
        open_bmc(sim).power_state()
    again = open_bmc(sim, new)
    assert again.power_state() is PowerState.OFF
    again.close()


def test_a_password_that_the_bmc_cuts_short_is_taken_back(bmc: IpmiBmc, sim: Simulator) -> None:
    """ipmi_sim keeps 16 of 20 bytes, says yes to them in its own test, and then takes no login with them."""
    with pytest.raises(NotAsAsked, match="16 bytes; the old one was put back"):
        bmc.set_password("admin", SecretStr(secrets.token_hex(10)))
    bmc.close()
    assert bmc.power_state() is PowerState.OFF


def test_boot_flags_that_are_not_shown_as_valid_are_not_believed(bmc: IpmiBmc, sim: Simulator) -> None:
    """ipmi_sim takes the device and reads it back without the valid bit: acknowledged, and not shown."""
    with pytest.raises(NotAsAsked):
        bmc.boot_once(BootDevice.PXE, BootMode.UEFI)
    assert sim.chassis("boot") == "pxe"


def test_an_operator_changes_no_password(sim: Simulator) -> None:
    bmc = open_bmc(sim, sim.operator, Limits(privilege="OPERATOR", total_s=20))
    bmc.set_power(PowerAction.ON)
    with pytest.raises(Refused, match="not privilege enough"):
        bmc.set_password("admin", SecretStr(secrets.token_hex(8)))
    bmc.close()


def test_a_wrong_password_and_an_unknown_name_are_rejected(sim: Simulator) -> None:
    for credential in (a_credential("admin"), a_credential("nobody")):
        with pytest.raises(RejectedCredentials):
            open_bmc(sim, credential).power_state()


def test_the_baseline_names_accounts_network_and_firmware(bmc: IpmiBmc) -> None:
    baseline = bmc.baseline()
    assert baseline["firmware"] == "9.08"
    assert isinstance(baseline["network"], dict)
    assert set(baseline["network"]) >= {"ip", "mac", "gateway", "cipherSuitePrivileges"}


def test_a_sensor_of_its_own_records_is_read(bmc: IpmiBmc) -> None:
    thresholds = {"upper-caution": 85.0, "upper-critical": 95.0, "upper-fatal": 100.0}
    assert bmc.sensors() == (Sensor("Temp", SensorKind.TEMPERATURE, 90.0, "Cel", "warning", thresholds),)


def test_the_event_log_is_read_and_cleared(bmc: IpmiBmc) -> None:
    bmc.clear_event_log()
    assert bmc.event_log() == ()


def test_an_account_is_made_switched_off_and_emptied(bmc: IpmiBmc, sim: Simulator) -> None:
    third = a_credential("third")
    slot = bmc.create_account("third", third.password, "OPERATOR").slot
    theirs = open_bmc(sim, third, Limits(privilege="OPERATOR", total_s=20))
    assert theirs.power_state() is PowerState.OFF
    theirs.close()
    bmc.enable_account(slot, False)
    assert [account.enabled for account in bmc.accounts()] == [True, True, False]
    bmc.delete_account(slot)
    assert [account.username for account in bmc.accounts()] == ["admin", "oper"]


def test_suites_without_encryption_are_closed(bmc: IpmiBmc) -> None:
    bmc.close_network_way("unencrypted-suites")
    shown = {way.name: way.open for way in bmc.network_ways()}
    assert (shown["cipher-0"], shown["unencrypted-suites"]) == (False, False)
    bmc.close()
    assert bmc.power_state() is PowerState.OFF


def test_the_serial_console_goes_both_ways_and_is_taken_over(bmc: IpmiBmc, sim: Simulator) -> None:
    sim.serial.settimeout(10)
    machine, _ = sim.serial.accept()
    machine.settimeout(10)
    with machine, machine.makefile("rb") as typed, closing(bmc.open_console()) as left_behind:
        left_behind.write(b"first")
        assert typed.read(5) == b"first"
        with closing(bmc.open_console()) as console:
            text = secrets.token_hex(50).encode()
            console.write(text)
            assert typed.read(len(text)) == text
            machine.sendall(b"login: ")
            heard, ends = b"", time.monotonic() + 5
            while b"login: " not in heard and time.monotonic() < ends:
                heard += console.read(0.2)
            assert heard == b"login: "
