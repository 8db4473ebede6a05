"""`bcmetal doctor` against a real daemon process and an emulated rack."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest

from bcmetal.cli.doctor import _show_next
from bcmetal.demo.images import Image, ImageServer
from bcmetal.demo.iso import make_iso
from bcmetal.demo.process import DaemonProcess
from bcmetal.demo.site import POOL, TENANT, Site, install
from bcmetal.install.configuration import client_profile
from bcmetal.install.files import write_new
from bcmetal_drivers.address import parse
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from cli.running import Ran, Run, invoke

pytestmark = pytest.mark.slow


def bare(bmc: EmulatedBmc) -> str:
    address = parse(bmc.address)
    return f"{address.host}:{address.port}"


def test_a_redfish_bmc_is_told_and_the_command_that_follows_enrols_it(site: Site, run: Run) -> None:
    bmc = site.redfish[2]
    told = run("doctor", bare(bmc))
    assert told.code == 0, told.err
    assert f"fingerprint  {bmc.fingerprint}".split() == next(
        line.split() for line in told.out.splitlines() if "fingerprint" in line
    )
    assert "Redfish: yes" in told.out
    assert "IPMI: no" in told.out
    assert "node enroll" not in told.out, "its network verifies, and no CA is known here"
    told = run("doctor", bare(bmc), "--fingerprint", bmc.fingerprint)
    following = next(line for line in told.out.splitlines() if line.startswith("next: "))
    words = shlex.split(following.removeprefix("next: bcmetal ").replace("--credential NAME", ""))
    password = bmc.password.get_secret_value() + "\n"
    enrolled = run(*words, "--name", "looked-at", "--username", bmc.username, "--password-file", "-", stdin=password)
    assert enrolled.code == 0, enrolled.err
    assert run("remove", "looked-at", "--yes").code == 0


def test_an_ipmi_bmc_is_told(site: Site, run: Run) -> None:
    told = run("doctor", site.ipmi[0].address)
    assert told.code == 0, told.err
    assert "IPMI: yes" in told.out
    assert "cipher suites    3, 17" in told.out
    doc = run("doctor", site.ipmi[0].address, "--json").doc
    assert (doc["ipmi"]["there"], doc["redfish"]["there"]) == (True, False)


def test_what_is_not_there_not_known_and_not_allowed_has_its_exit_code(site: Site, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    dead = run("doctor", f"127.0.0.1:{port}")
    assert dead.code == 1
    assert "Redfish: no (bmc-unreachable)" in dead.out
    assert "next:" not in dead.out
    elsewhere = run("doctor", "192.0.2.1")
    assert elsewhere.code == 2
    assert "bmc.address" in elsewhere.err
    assert "cidrs" in elsewhere.err
    unknown = run("doctor", f"127.0.0.1:{port}", "--credential", "no-such")
    assert unknown.code == 2
    assert "bmc.credentialRef" in unknown.err


def test_another_certificate_than_the_one_given_is_not_proposed_for_enrolment(site: Site, run: Run) -> None:
    told = run("doctor", bare(site.redfish[2]), "--fingerprint", "0" * 64)
    assert told.code == 0
    assert "warning: the certificate is not trusted" in told.out
    assert "node enroll" not in told.out


def test_a_certificate_of_another_ca_is_not_proposed_for_a_pin_and_the_right_ca_stays(
    site: Site, run: Run, tmp_path: Path
) -> None:
    bmc = site.redfish[2]
    right, wrong = tmp_path / "right.pem", tmp_path / "wrong.pem"
    right.write_text(bmc.ca_pem)
    wrong.write_text(site.redfish[1].ca_pem)
    refused = run("doctor", bare(bmc), "--ca", str(wrong))
    assert "warning: the certificate is not trusted" in refused.out
    assert "node enroll" not in refused.out
    told = run("doctor", bare(bmc), "--ca", str(right))
    assert f"next: bcmetal node enroll {bare(bmc)} --ca {right} --credential NAME --wait" in told.out


def test_what_follows_is_of_the_protocol_that_the_address_names(capsys: pytest.CaptureFixture[str]) -> None:
    redfish = {"there": True, "certificate": {"trusted": None, "fingerprint": "0" * 64}}
    _show_next({"redfish": redfish, "ipmi": {"there": True}}, "ipmi://10.20.3.18", "fleet", None, None)
    assert capsys.readouterr().out == "next: bcmetal node enroll ipmi://10.20.3.18 --credential fleet --wait\n"
    down = {"there": False, "certificate": None}
    _show_next({"redfish": down, "ipmi": {"there": True}}, "redfish://10.20.3.18", "fleet", None, None)
    assert capsys.readouterr().out == ""


def test_a_login_with_a_credential_of_the_configuration_is_told_and_a_refused_one_fails(tmp_path: Path) -> None:
    images = {name: Image(name, make_iso("BCMETAL", b"not booted")) for name in ("demo", "rescue")}
    rack = Rack(seed=1)
    good, other = (rack.add_redfish(name) for name in ("m1", "m2"))
    by_ipmi = rack.add_ipmi("m3", password=good.password)
    secret = tmp_path / "fleet.password"
    secret.write_text(good.password.get_secret_value())
    secret.chmod(0o600)
    table = f'\n[credentials.fleet]\nusername = "{good.username}"\npassword = "file:{secret}"\nnetworks = ["bmc"]\n'
    with rack, ImageServer(images) as server:
        _, fingerprint = install(tmp_path, images, server)
        config = tmp_path / "bcmetal.toml"
        config.write_text(config.read_text() + table)
        with DaemonProcess(config, tmp_path / "daemon.log") as daemon:
            profile = tmp_path / "client.toml"
            write_new(profile, client_profile(daemon.address, fingerprint, TENANT, POOL), private=False)

            def doctor(address: str, *more: str) -> Ran:
                return invoke("--profile", str(profile), "doctor", address, "--credential", "fleet", *more)

            told, refused = (doctor(bare(bmc), "--fingerprint", bmc.fingerprint) for bmc in (good, other))
            told_by_ipmi = doctor(by_ipmi.address)
        log = daemon.log.read_text()
    assert told.code == 0, told.err
    assert "login with fleet: yes" in told.out
    assert "claims   " in told.out
    assert told_by_ipmi.code == 0, told_by_ipmi.out
    assert "  lacks VirtualMedia: IPMI has none of it" in told_by_ipmi.out
    assert f"next: bcmetal node enroll {bare(good)} --fingerprint {good.fingerprint} --credential fleet" in told.out
    assert refused.code == 1
    assert "login with fleet: no (bmc-credentials-rejected)" in refused.out
    assert good.password.get_secret_value() not in told.out + told.err + refused.out + refused.err + log
