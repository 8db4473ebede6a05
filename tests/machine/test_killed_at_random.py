"""The whole way of a machine while the agent is killed, the machine is reset and the daemon dies, each at a random moment of every verb."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from machine.disks import MIB, Disk, DiskKind, holds
from machine.qmp import QmpFault
from machine.rack.dhcp import why_no_dhcp
from machine.rack.site import IMAGE, QemuSite, qemu_site
from machine.rack.wire import why_no_wire
from machine.virtual_machine import why_no_machine
from machine_images import os_image
from machine_images import why_no_machine as why_no_images

WHY_NOT = why_no_machine() or why_no_images() or why_no_wire() or why_no_dhcp()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.timeout(3600)]
SEEDS: Final = [int(seed) for seed in os.environ.get("KILL_SEEDS", "1,2").split(",")]
KILL_ALL: Final = "KILL_ALL" in os.environ
SYSTEM: Final = Disk(DiskKind.NVME, "NVME0001", 256 * MIB)
DATA: Final = Disk(DiskKind.SCSI, "SCSI0001", 64 * MIB, wwn="5000c500a1b2c3d5")
SECRET: Final = b"a tenant's data, which nobody may find again " * 12
WITHIN_S: Final = 45.0  # a start takes half of it, a task a few seconds
ENDS_WITHIN_S: Final = 1500.0


@dataclass
class Killer:
    """Kills in each verb one of the three, or with `KILL_ALL` all of them, at moments that the seed says; in a whole way each of them twice."""

    site: QemuSite
    dice: random.Random
    done: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def at_work(self, verb: str) -> Iterator[None]:
        acts = {"agent": self._agent, "machine": self._machine, "daemon": self._daemon}
        if not self.turns:
            self.turns = [*acts] * 2
            self.dice.shuffle(self.turns)
        chosen = list(acts) if KILL_ALL else [self.turns.pop()]
        kills: list[tuple[float, str, Callable[[], None]]] = [
            (self.dice.uniform(0.5, WITHIN_S), name, acts[name]) for name in chosen
        ]
        over = threading.Event()
        thread = threading.Thread(target=self._work, args=(verb, sorted(kills, key=lambda kill: kill[0]), over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if not self.site.daemon.alive():
                self.site.daemon.start()

    def _work(self, verb: str, kills: Sequence[tuple[float, str, Callable[[], None]]], over: threading.Event) -> None:
        began_s = time.monotonic()
        for at_s, name, act in kills:
            if over.wait(max(0.0, began_s + at_s - time.monotonic())):
                return
            with contextlib.suppress(QmpFault):  # it is off just now
                act()
                self.done.append(f"{verb} {at_s:.1f} s: {name}")

    def _agent(self) -> None:
        self.site.rack.vm("one").kill_all()

    def _machine(self) -> None:
        self.site.rack.vm("one").press_reset_button()

    def _daemon(self) -> None:
        self.site.daemon.kill()
        self.site.daemon.start()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return os_image(tmp_path_factory.mktemp("image"))


@pytest.mark.parametrize("seed", SEEDS)
def test_it_ends_right_whoever_is_killed_meanwhile(
    seed: int, tmp_path: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Odd seeds by Redfish and virtual media, even ones by IPMI and the network."""
    with qemu_site(tmp_path / "site", image) as site:
        add = site.rack.add_redfish if seed % 2 else site.rack.add_ipmi
        bmc = add("one", (SYSTEM, DATA))
        _scatter(site, SYSTEM)
        _scatter(site, DATA)
        hints = ("--root-device", f"serial={SYSTEM.serial}", "--boot-mac", bmc.machine.macs[0], "--no-inspect")
        enrolled = site.enroll(bmc, *hints)
        assert enrolled.code == 0, enrolled.err
        killer = Killer(site, random.Random(seed))
        serial = site.rack.vm("one").spec.serial
        key = tmp_path / "key.pub"
        key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHGckZrQY7pXo0Hc1tFzq0iJ0OQWKb4S1yq2fW3Zp0wQ nobody\n")
        life: tuple[tuple[tuple[str, ...], str], ...] = (
            (("inspect", "one", "--deep"), "inspected"),
            (("commission", "one", "--confirm-erase", serial), "available"),
            (("deploy", "one", "--image", IMAGE), "deployed"),
            (("rescue", "one", "--ssh-key", str(key)), "rescued"),
            (("unrescue", "one"), "deployed"),
            (("release", "one"), "available"),
            (("retire", "one", "--keep-credentials"), "retired"),
        )
        for words, state in life:
            if words[0] == "release":
                _scatter(site, DATA)
            with killer.at_work(words[0]):
                _through(site, words, state)
            if state in ("available", "retired"):
                for disk in (SYSTEM, DATA):
                    assert not holds(site.rack.vm("one").disk_file(disk.serial), SECRET[:45]), (
                        disk.serial,
                        killer.done,
                    )
        assert site.view("one")["agent"]["joined"] is False
        with capsys.disabled():
            print(f"\nseed {seed}: {len(killer.done)} kills: {'; '.join(killer.done)}")


def _through(site: QemuSite, words: Sequence[str], state: str) -> None:
    """Ask, whoever answers, and look until the machine is there. A verb that failed for a reason may be asked for once more, as a person would."""
    ends_s = time.monotonic() + ENDS_WITHIN_S
    _insist(site, words, ends_s)
    retried = False
    while True:
        assert time.monotonic() < ends_s, (words, site.told("one"))
        shown = site.run("node", "show", "one", "--json")
        if shown.code != 0:  # the daemon is dead just now
            time.sleep(0.5)
            continue
        (view,) = shown.doc["results"]
        if view["operation"] is None and view["state"] == state:
            return
        if view["operation"] is None:
            assert not retried, (words, view["state"], view["lastError"], site.told("one"))
            assert view["lastError"]["code"] == "ground-lost", (words, view["lastError"], site.told("one"))
            retried = True
            _insist(site, ("retry", "one") if view["state"].endswith("-failed") else words, ends_s)
        time.sleep(0.5)


def _insist(site: QemuSite, words: Sequence[str], ends_s: float) -> None:
    key = f"{words[0]}-{time.monotonic_ns()}"
    while True:
        done = site.run(*words, "--idempotency-key", key, "--json")
        if done.code == 0:
            return
        assert done.code == 3, (words, done.out, done.err)
        assert time.monotonic() < ends_s, (words, done.err)
        time.sleep(0.5)


def _scatter(site: QemuSite, disk: Disk) -> None:
    with site.rack.vm("one").disk_file(disk.serial).open("r+b") as file:
        for at in range(0, disk.size_bytes - len(SECRET), 4 * MIB):
            file.seek(at + 12_345)
            file.write(SECRET)
