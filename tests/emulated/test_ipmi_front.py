"""The emulated IPMI BMC, driven by `ipmitool`: a client that is not ours."""

from __future__ import annotations

import os
import pty
import secrets
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from bcmetal_drivers.emulated.ipmi_sensors import THRESHOLD
from bcmetal_drivers.emulated.ipmi_wire import OPERATOR
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState
from ipmi_bench import IpmiBench, an_ipmi_bench, driving

pytestmark = pytest.mark.skipif(shutil.which("ipmitool") is None, reason="ipmitool is not installed")


@pytest.fixture
def bench() -> Iterator[IpmiBench]:
    with an_ipmi_bench() as opened:
        yield opened


def ipmitool(
    bench: IpmiBench,
    *words: str,
    suite: str = "3",
    username: str | None = None,
    password: SecretStr | None = None,
    level: str = "ADMINISTRATOR",
) -> subprocess.CompletedProcess[str]:
    where = [
        "-I",
        "lanplus",
        "-H",
        bench.host,
        "-p",
        str(bench.front.port),
        "-C",
        suite,
        "-L",
        level,
        "-N",
        "1",
        "-R",
        "1",
    ]
    secret = (password or bench.password).get_secret_value()
    return subprocess.run(
        ["ipmitool", *where, "-U", username or bench.username, "-E", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"IPMITOOL_PASSWORD": secret, "PATH": "/usr/bin:/usr/sbin:/bin"},
    )


def said(bench: IpmiBench, *words: str, suite: str = "3") -> str:
    done = ipmitool(bench, *words, suite=suite)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("suite", ["3", "17"])
def test_ipmitool_switches_the_machine_on_and_off(bench: IpmiBench, suite: str) -> None:
    assert "is off" in said(bench, "power", "status", suite=suite)
    said(bench, "power", "on", suite=suite)
    assert "is on" in said(bench, "power", "status", suite=suite)
    assert [boot.device for boot in bench.machine.boots] == ["disk"]
    said(bench, "power", "off", suite=suite)
    assert bench.machine.power is PowerState.OFF


def test_ipmitool_sets_the_boot_device_for_one_boot(bench: IpmiBench) -> None:
    said(bench, "chassis", "bootdev", "pxe", "options=efiboot")
    assert bench.machine.override.device is BootDevice.PXE
    assert bench.machine.override.mode is BootMode.UEFI
    assert "Force PXE" in said(bench, "chassis", "bootparam", "get", "5")
    said(bench, "power", "on")
    said(bench, "power", "reset")
    assert [boot.device for boot in bench.machine.boots] == ["pxe", "disk"]


def test_ipmitool_reads_the_device_id_and_the_fru(bench: IpmiBench) -> None:
    assert "3.74" in said(bench, "mc", "info")
    fru = said(bench, "fru", "print", "0")
    assert bench.machine.serial in fru
    assert bench.machine.hardware.board_serial in fru
    assert "Acme" in fru
    assert bench.machine.serial in said(bench, "fru")


def test_ipmitool_lists_users_and_sets_a_password(bench: IpmiBench) -> None:
    assert "ADMINISTRATOR" in said(bench, "user", "list", "1")
    new = secrets.token_hex(10)
    said(bench, "user", "set", "password", "2", new, "20")
    assert bench.password.get_secret_value() == new
    assert "is off" in said(bench, "power", "status")
    assert bench.effects("set-user-password") == ["2"]


def test_ipmitool_reads_sensors_and_power(bench: IpmiBench) -> None:
    bench.machine.set_power(PowerAction.ON)
    rows = [[cell.strip() for cell in line.split("|")] for line in said(bench, "sensor", "list").splitlines()]
    shown = {row[0]: row[1:] for row in rows}
    assert shown["CPU1 Temp"][:3] == ["41.000", "degrees C", "ok"]
    assert shown["CPU1 Temp"][3:] == ["na", "na", "na", "85.000", "95.000", "100.000"]
    assert shown["12V"][:2] == ["11.970", "Volts"]
    assert shown["FAN1"][:2] == ["5200.000", "RPM"]
    assert "240 Watts" in said(bench, "dcmi", "power", "reading")
    bench.machine.health = "Critical"
    assert "cr" in said(bench, "sdr", "get", "FAN1").lower()


def test_ipmitool_reads_and_clears_the_event_log(bench: IpmiBench) -> None:
    bench.front.commands.log.add(1, 1, THRESHOLD, bytes((0x59, 101, 95)))
    shown = said(bench, "sel", "elist")
    assert (
        "Temperature CPU1 Temp | Upper Critical going high | Asserted | Reading 101 > Threshold 95 degrees C" in shown
    )
    said(bench, "sel", "clear")
    assert "cleared" in said(bench, "sel", "list")
    assert len(bench.front.commands.log.entries) == 1


def test_ipmitool_reads_lan_settings_and_makes_a_user(bench: IpmiBench) -> None:
    shown = said(bench, "lan", "print", "1")
    assert "XXXaXXaXXXXXXXX" in shown
    assert bench.host in shown
    own = SecretStr(secrets.token_hex(8))
    said(bench, "user", "set", "name", "3", "oper")
    said(bench, "user", "set", "password", "3", own.get_secret_value())
    said(bench, "channel", "setaccess", "1", "3", "ipmi=on", "privilege=3")
    said(bench, "user", "enable", "3")
    assert "OPERATOR" in said(bench, "user", "list", "1")
    assert ipmitool(bench, "power", "status", username="oper", password=own, level="OPERATOR").returncode == 0


def test_ipmitool_lights_the_light_and_resets_the_bmc(bench: IpmiBench) -> None:
    said(bench, "chassis", "identify", "force")
    assert bench.machine.identify
    said(bench, "mc", "reset", "warm")
    assert bench.effects("warm-reset") == [""]
    assert bench.front.sessions() == 0


def test_ipmitool_logs_in_with_two_keys(bench: IpmiBench) -> None:
    kg = secrets.token_hex(8)
    bench.front.set("kg", SecretStr(kg))
    assert ipmitool(bench, "power", "status").returncode != 0
    assert ipmitool(bench, "-k", kg, "power", "status", suite="17").returncode == 0


def test_ipmitool_is_at_the_serial_console(bench: IpmiBench) -> None:
    """It wants a terminal: what is typed there comes back, `~.` ends it, and what it left is taken over by the driver."""
    ours, theirs = pty.openpty()
    where = ["-I", "lanplus", "-C", "17", "-H", bench.host, "-p", str(bench.front.port), "-U", bench.username, "-E"]
    process = subprocess.Popen(
        ["ipmitool", *where, "sol", "activate"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"IPMITOOL_PASSWORD": bench.password.get_secret_value(), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )
    try:
        assert b"login: " in read_until(ours, b"login: ")
        os.write(ours, b"root\r")
        assert b"root" in read_until(ours, b"root")
        assert b"root" in bytes(bench.front.serial.typed)
        with driving(bench) as bmc:
            console = bmc.open_console()
            console.write(b"x")
            console.close()
    finally:
        process.kill()
        process.wait(timeout=10)
        os.close(ours)
        os.close(theirs)
    assert bytes(bench.front.serial.typed).endswith(b"x")


def read_until(terminal: int, wanted: bytes) -> bytes:
    heard, ends = b"", time.monotonic() + 10
    while wanted not in heard and time.monotonic() < ends:
        if select.select([terminal], [], [], 0.1)[0]:
            heard += os.read(terminal, 4096)
    return heard


def test_ipmitool_finds_the_suite_by_itself(bench: IpmiBench) -> None:
    """Without -C it asks for the suites before it logs in; in a session it is told the same."""
    where = ["-I", "lanplus", "-H", bench.host, "-p", str(bench.front.port), "-U", bench.username, "-E"]
    env = {"IPMITOOL_PASSWORD": bench.password.get_secret_value(), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["ipmitool", *where, "power", "status"], env=env, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert "sha256_128" in said(bench, "channel", "getciphers", "ipmi", "1")


def test_cipher_suite_0_lets_anybody_in_until_it_is_closed(bench: IpmiBench) -> None:
    bench.front.set("suites", (17, 3, 0))
    guess = SecretStr(secrets.token_hex(8))
    assert ipmitool(bench, "power", "on", suite="0", password=guess).returncode == 0
    assert bench.machine.power is PowerState.ON
    with driving(bench) as bmc:
        bmc.close_network_way("cipher-0")
    assert ipmitool(bench, "power", "off", suite="0", password=guess).returncode != 0
    assert bench.machine.power is PowerState.ON
    assert "is on" in said(bench, "power", "status")


def test_cipher_suite_0_is_refused(bench: IpmiBench) -> None:
    done = ipmitool(bench, "power", "status", suite="0")
    assert done.returncode != 0
    assert "no matching cipher suite" in done.stderr
    assert bench.counts["rakp1"] == 0


def test_a_wrong_password_opens_no_session(bench: IpmiBench) -> None:
    done = ipmitool(bench, "power", "on", password=SecretStr(secrets.token_hex(8)))
    assert done.returncode != 0
    assert bench.machine.power is PowerState.OFF
    assert bench.front.sessions() == 0


def test_an_operator_sets_power_and_no_password(bench: IpmiBench) -> None:
    own = SecretStr(secrets.token_hex(8))
    bench.front.users.add("oper", own, OPERATOR)
    assert ipmitool(bench, "power", "on", username="oper", password=own, level="OPERATOR").returncode == 0
    refused = ipmitool(
        bench, "user", "set", "password", "2", secrets.token_hex(8), username="oper", password=own, level="OPERATOR"
    )
    assert refused.returncode != 0
    assert bench.effects("set-user-password") == []
    assert ipmitool(bench, "power", "status", username="oper", password=own).returncode != 0


def test_sessions_are_closed_and_the_port_is_free_after_stop() -> None:
    before = threading.active_count()
    with an_ipmi_bench() as bench:
        said(bench, "power", "status")
        with driving(bench) as bmc:
            bmc.power_state()
            assert bench.front.sessions() == 1
        assert bench.front.sessions() == 0
        port = bench.front.port
        bench.front.stop()
        bench.front.start()
        assert bench.front.port == port
        assert "is off" in said(bench, "power", "status")
    assert threading.active_count() == before


def test_accounts_outlive_a_restart_of_the_rack() -> None:
    own = SecretStr(secrets.token_hex(8))
    with an_ipmi_bench() as first:
        first.front.users.add("oper", own, OPERATOR)
        kept = first.front.snapshot()
    with an_ipmi_bench() as second:
        second.front.restore(kept)
        assert ipmitool(second, "power", "status", username="oper", password=own, level="OPERATOR").returncode == 0
