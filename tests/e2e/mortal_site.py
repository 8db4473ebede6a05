"""A rack in this process, and one daemon process on SQLite that is killed and started again on the same files."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmetal.client import Client, Profile
from bcmetal.demo.images import Image, ImageServer
from bcmetal.demo.site import POOL, TENANT, install
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from emulated_site_config import ISO, RESCUE_ISO

READY: Final = re.compile(rb"bcmetald: ready, API (https://\S+)")
START_S: Final = 30.0
STOP_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An operation that was under way when the daemon died."""

    verb: str
    step: str | None


class MortalDaemon:
    """`bcmetal serve --config`; every life's output goes to one file. `address` is the present API's."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config = config
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "bcmetal.cli", "serve", "--config", str(self._config)]
        with self._log.open("ab") as out:
            already = out.tell()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._process = process
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            found = READY.search(self._log.read_bytes(), already)
            if found:
                self.address = found[1].decode()
                return
            time.sleep(0.01)
        raise AssertionError(f"the daemon did not get ready:\n{self.last_words()}")

    def kill(self) -> None:
        """As the kernel does it: no handler runs, nothing is flushed."""
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon had ended by itself:\n{self.last_words()}"
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL

    def stop(self) -> int | None:
        """End it in order, if it runs; its exit code, None when it did not run."""
        process = self._process
        if process is None or process.poll() is not None:
            return None
        process.terminate()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@dataclass(frozen=True, slots=True)
class MortalSite:
    folder: Path
    rack: Rack
    redfish: tuple[EmulatedBmc, ...]
    ipmi: tuple[EmulatedBmc, ...]
    daemon: MortalDaemon
    fingerprint: str

    def client(self) -> Client:
        """For the daemon that lives now: each one has a port of its own."""
        profile = Profile(self.daemon.address, self.folder / "admin.key", self.fingerprint, None, TENANT, POOL)
        return Client(profile)

    def interrupted(self) -> list[Interrupted]:
        """What a dead daemon left under way. Read from a copy: the next daemon finds the files as the dead one left them."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            copy = Path(name) / "db"
            for suffix in ("", "-wal"):
                source = self.folder / f"db{suffix}"
                if source.exists():
                    shutil.copy(source, copy.with_name(f"db{suffix}"))
            with contextlib.closing(sqlite3.connect(copy)) as db:
                rows = db.execute("SELECT verb, step FROM operations WHERE ended_at IS NULL").fetchall()
        return [Interrupted(verb, step) for verb, step in rows]


@contextlib.contextmanager
def mortal_site(
    folder: Path, rack: Rack, redfish: tuple[EmulatedBmc, ...], ipmi: tuple[EmulatedBmc, ...]
) -> Iterator[MortalSite]:
    """The rack and the images are up, the daemon is not yet started; whatever runs is ended at the end."""
    images = {"os": Image("os", ISO), "rescue": Image("rescue", RESCUE_ISO)}
    with rack, ImageServer(images) as server:
        _, fingerprint = install(folder, images, server)
        daemon = MortalDaemon(folder / "bcmetal.toml", folder / "daemon.log")
        try:
            yield MortalSite(folder, rack, redfish, ipmi, daemon, fingerprint)
        finally:
            daemon.stop()
