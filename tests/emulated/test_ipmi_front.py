"""The emulated IPMI BMC, driven by `ipmitool`: a client that is not ours."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from bcmetal_drivers.capabilities import BootDevice, BootMode, PowerState
from bcmetal_drivers.emulated.ipmi_wire import OPERATOR
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
