"""A rack in this process, and one daemon process on SQLite that is killed and started again on the same files."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
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
from bcmetal.install.certificate import self_signed
from bcmetal.install.files import write_new
from bcmetal.install.local import first_key
from bcmetal.vault import new_key
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from emulated_site import ISO, ISO_SHA256, RESCUE_ISO, RESCUE_SHA256, iso_server

TENANT: Final = "tenant-a"
POOL: Final = "pool-a"  # Redfish: erased by the BMC
IPMI_POOL: Final = "pool-b"  # IPMI: nothing can be erased out of band
READY: Final = re.compile(rb"bcmetald: ready, API (https://\S+)")
START_S: Final = 30.0
STOP_S: Final = 20.0

CONFIG: Final = """
[daemon]
database = "sqlite:///{folder}/db"
api_listen = "127.0.0.1:0"
media_listen = "127.0.0.1:{media_port}"
tls_cert = "{folder}/api.crt"
tls_key = "file:{folder}/tls.key"
vault_key = "file:{folder}/vault.key"
image_folder = "{folder}/images"
images_from = ["127.0.0.0/8"]

[sites.site-a]
owner = "{tenant}"

[networks.bmc]
cidrs = ["127.0.0.0/8"]
media_url = "http://127.0.0.1:{media_port}"
tls = "verify"

[images.os]
url = "{image_url}/os.iso"
sha256 = "{iso}"
format = "iso"

[images.rescue]
url = "{rescue_url}/rescue.iso"
sha256 = "{rescue}"
format = "iso"

[profiles.commission.erased]
boot_mode = "uefi"
erase = ["bmc"]

[profiles.commission.unerased]
erase = "none"

[profiles.release.erased]
erase = ["bmc"]

[profiles.release.unerased]
erase = "none"

[pools.{pool}]
owner = "{tenant}"
site = "site-a"
agent = "none"
commission = "erased"
release = "erased"
erase_on_arrival = true
trust_bmc_erase = true
rescue_iso = "rescue"
sign_of_life = "none"

[pools.{ipmi_pool}]
owner = "{tenant}"
site = "site-a"
agent = "none"
commission = "unerased"
release = "unerased"
sign_of_life = "none"

[[grants]]
to = "key:admin"
role = "admin"
on = "site/site-a"
"""


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


def _free_port() -> int:
    """BMCs are told this port, so that it must be the same after each start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def mortal_site(
    folder: Path, rack: Rack, redfish: tuple[EmulatedBmc, ...], ipmi: tuple[EmulatedBmc, ...]
) -> Iterator[MortalSite]:
    """The rack and the images are up, the daemon is not yet started; whatever runs is ended at the end."""
    new_key(folder / "vault.key")
    pair = self_signed(["127.0.0.1"])
    write_new(folder / "api.crt", pair.certificate_pem, private=False)
    write_new(folder / "tls.key", pair.key_pem, private=True)
    config = folder / "bcmetal.toml"
    with rack, iso_server(ISO) as image_url, iso_server(RESCUE_ISO) as rescue_url:
        text = CONFIG.format(
            folder=folder,
            tenant=TENANT,
            pool=POOL,
            ipmi_pool=IPMI_POOL,
            media_port=_free_port(),
            image_url=image_url,
            rescue_url=rescue_url,
            iso=ISO_SHA256,
            rescue=RESCUE_SHA256,
        )
        write_new(config, text, private=False)
        secret = first_key(config, "admin", TENANT)
        write_new(folder / "admin.key", secret.get_secret_value() + "\n", private=True)
        daemon = MortalDaemon(config, folder / "daemon.log")
        try:
            yield MortalSite(folder, rack, redfish, ipmi, daemon, pair.fingerprint)
        finally:
            daemon.stop()
