"""`bcmetal doctor` against a real daemon process and an emulated rack."""

from __future__ import annotations

import shlex
import socket

import pytest

from bcmetal.demo.site import Site
from bcmetal_drivers.address import parse
from bcmetal_drivers.emulated.rack import EmulatedBmc
from cli.running import Run

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
