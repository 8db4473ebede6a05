"""The demonstration's own parts: an ISO that is one, a verdict that can be against it, and a site that ends with its process."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bcmetal.client import Profile
from bcmetal.demo.faults import PlantedFault
from bcmetal.demo.images import Image
from bcmetal.demo.iso import FILE, ROOT, SECTOR, make_iso
from bcmetal.demo.journey import Journey
from bcmetal.demo.judge import complaints
from bcmetal.demo.process import DaemonProcess
from bcmetal.demo.site import POOL, Site
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from bcmetal_drivers.resources import BootDevice, PowerAction
from cli.running import invoke

IMAGES = {name: Image(name, make_iso("TEST", name.encode())) for name in ("demo", "rescue")}


def test_the_iso_is_iso_9660_and_holds_its_file() -> None:
    content = b"a line\n" * 1000
    iso = make_iso("BCMETAL_DEMO", content)
    assert len(iso) % SECTOR == 0
    volume = iso[16 * SECTOR : 17 * SECTOR]
    assert volume[:7] == b"\1CD001\1"
    assert volume[40:72].rstrip() == b"BCMETAL_DEMO"
    assert struct.unpack("<I", volume[80:84])[0] * SECTOR == len(iso)
    assert struct.unpack("<I", volume[158:162])[0] == ROOT
    directory = iso[ROOT * SECTOR : (ROOT + 1) * SECTOR]
    at = directory.index(b"README.TXT;1") - 33
    assert struct.unpack("<I", directory[at + 2 : at + 6])[0] == FILE
    assert struct.unpack("<I", directory[at + 10 : at + 14])[0] == len(content)
    assert iso[FILE * SECTOR :].startswith(content)


def start_from(bmc: EmulatedBmc, image: Image | None) -> None:
    machine = bmc.machine
    if image is not None:
        machine.insert("http://127.0.0.1/x.iso", image.sha256)
        machine.arm(BootDevice.CD, once=True)
    machine.set_power(PowerAction.ON)
    machine.set_power(PowerAction.OFF)
    machine.eject()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A machine that went its whole way, without any daemon: the verdict asks the rack alone."""
    rack = Rack(seed=3)
    bmc = rack.add_redfish("demo-01")
    start_from(bmc, IMAGES["demo"])
    start_from(bmc, IMAGES["rescue"])
    start_from(bmc, None)
    nowhere = tmp_path / "none"
    return Site(
        tmp_path, rack, (bmc,), (), IMAGES, DaemonProcess(nowhere, nowhere), Profile("https://127.0.0.1:1", nowhere)
    )


def journey(site: Site, state: str = "retired", fault: str | None = None) -> Journey:
    return Journey(site.redfish[0], POOL, iter(()), 0, view={"state": state}, fault=fault)


def test_the_verdict_is_silent_when_all_is_well(site: Site) -> None:
    assert complaints(site, [journey(site)], []) == []


def test_the_verdict_names_each_thing_that_is_wrong(site: Site) -> None:
    machine = site.redfish[0].machine
    machine.plant(next(iter(machine.drives)))
    machine.insert("http://127.0.0.1/left.iso", "0" * 64)
    machine.set_power(PowerAction.ON)
    said = "\n".join(complaints(site, [journey(site, "release-failed", "release ended badly")], []))
    for word in ("still hold data", "left inserted", "power is on", "not retired", "release ended badly"):
        assert word in said


def test_a_machine_that_never_booted_its_image_is_found_out(site: Site) -> None:
    other = {"demo": Image("demo", b"another"), "rescue": IMAGES["rescue"]}
    assert hashlib.sha256(b"another").hexdigest() == other["demo"].sha256
    cheated = Site(site.folder, site.rack, site.redfish, (), other, site.daemon, site.profile)
    assert any("never booted the image" in said for said in complaints(cheated, [journey(site)], []))


def test_a_fault_that_never_came_to_bear_fails_the_demonstration(site: Site) -> None:
    idle = site.rack.rule(Rule(bmc="demo-01", action="delay", seconds=1.0))
    assert any(
        "never came to bear" in said for said in complaints(site, [journey(site)], [PlantedFault("demo-01", "x", idle)])
    )


@pytest.mark.slow
def test_the_kept_site_is_found_by_the_client_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    env.pop("BCMETAL_PROFILE", None)
    bcmetal = [sys.executable, "-m", "bcmetal.cli"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        keeping = subprocess.Popen([*bcmetal, "serve", "--demo"], stdout=out, stderr=out, env=env)
    try:
        deadline = time.monotonic() + 90
        while "Ctrl-C ends" not in log.read_text() and keeping.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        listed = subprocess.run(
            [*bcmetal, "node", "list", "--all-pools"], env=env, capture_output=True, text=True, timeout=30, check=False
        )
        assert listed.returncode == 0, listed.stderr + log.read_text()
        assert len(re.findall(r"^ ?demo-\S+ +inspected", listed.stdout, re.MULTILINE)) == 16
    finally:
        keeping.send_signal(signal.SIGINT)
        ended = keeping.wait(30)
    assert ended == 0
    assert not (tmp_path / "bcmetal" / "demo.toml").exists()


def test_the_behaviours_of_a_demonstration_are_listed_and_checked() -> None:
    listed = invoke("serve", "--demo", "--behaviours", "help")
    assert listed.code == 0
    assert "supermicro " in listed.out
    unknown = invoke("serve", "--demo", "--behaviours", "flaky,explode")
    assert unknown.code == 2
    assert "no such behaviour: explode" in unknown.err
    alone = invoke("serve", "--behaviours", "flaky")
    assert alone.code == 2
    assert "with --demo" in alone.err
