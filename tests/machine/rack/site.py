"""A whole site on the tests' network: a daemon process, its authority and ramdisk, machines of qemu's, DHCP, an image server."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from bcmetal.client import Client, Profile
from bcmetal.install.ca import init_ca
from bcmetal.install.certificate import self_signed
from bcmetal.install.configuration import client_profile
from bcmetal.install.files import write_new
from bcmetal.install.local import first_key
from bcmetal.join.ca import pem_of
from bcmetal.settings import load
from bcmetal.vault import new_key
from bcmetal_drivers.emulated.rack import EmulatedBmc
from cli.running import Ran, invoke
from e2e.mortal_site import MortalDaemon
from machine.rack.dhcp import Dhcp, network_boot
from machine.rack.files import FileServer
from machine.rack.qemu_rack import QemuRack
from machine.rack.wire import BMCS, DAEMON_4, DAEMON_BMC, MACHINES, Wire
from machine_images import small_ramdisk

TENANT: Final = "platform"
POOL: Final = "metal"
IMAGE: Final = "small"
TESTERS: Final = ("smartmontools", "stress-ng")  # what the commission profile's tests call
POLL_S: Final = 0.5
CONFIG: Final = """
[daemon]
database = "sqlite:///{folder}/db"
api_listen = "127.0.0.1:8443"
agent_listen = "{daemon}:8445"
node_listen = "{daemon}:8444"
media_listen = "0.0.0.0:8480"
tls_cert = "{folder}/api.crt"
tls_key = "file:{folder}/tls.key"
vault_key = "file:{folder}/vault.key"
image_folder = "{folder}/images"
images_from = ["{machines}"]
ramdisk_folder = "{folder}/ramdisk"
plain_boot_wait_s = 3
hello_within_s = 100

[sites.site-a]
owner = "platform"

[networks.bmc]
cidrs = ["{bmcs}"]
media_url = "http://{daemon_bmc}:8480"

[networks.provisioning]
cidrs = ["{machines}"]
agent_url = "https://{daemon}:8445"
dhcp = "static"

[images.small]
url = "{image_url}"
sha256 = "{image_sha256}"
format = "raw"

[profiles.commission.std]
boot_mode = "uefi"
erase = ["nvme-crypto", "nvme-block", "ata-secure", "scsi-sanitize", "discard", "overwrite"]
tests = {{ cpu_s = 2, memory_s = 2, disks = "read", disk_read_s = 2, network = 1, clock = true, watch_s = 5 }}

[profiles.release.std]
erase = ["nvme-crypto", "nvme-block", "ata-secure", "scsi-sanitize", "discard", "overwrite"]

[pools.metal]
owner = "platform"
site = "site-a"
agent = "bcd"
commission = "std"
release = "std"
sign_of_life = "agent"

[[grants]]
to = "key:admin"
role = "admin"
on = "site/site-a"

[[grants]]
to = "key:admin"
role = "admin"
on = "compute-pool/metal"
"""


@dataclass(frozen=True, slots=True)
class QemuSite:
    """The daemon lives; `daemon` kills and starts it. All calls are made inside the wire."""

    folder: Path
    wire: Wire
    rack: QemuRack
    images: FileServer
    daemon: MortalDaemon
    fingerprint: str

    def run(self, *words: str, stdin: str | None = None) -> Ran:
        """`bcmetal …`, as a person types it."""
        return invoke("--profile", str(self.folder / "client.toml"), *words, stdin=stdin)

    def enroll(self, bmc: EmulatedBmc, *words: str) -> Ran:
        trust = ["--fingerprint", bmc.fingerprint] if bmc.fingerprint else []
        return self.run(
            "node", "enroll", bmc.address, "--name", bmc.name, "--username", bmc.username, "--password-file", "-",
            *trust, *words, stdin=bmc.password.get_secret_value() + "\n",
        )  # fmt: skip

    def client(self) -> Client:
        return Client(Profile(self.daemon.address, self.folder / "admin.key", self.fingerprint, None, TENANT, POOL))

    def view(self, name: str) -> Mapping[str, Any]:
        (found,) = self.run("node", "show", name, "--json").doc["results"]
        assert isinstance(found, dict)
        return found

    def until(
        self, name: str, what: str, so: Callable[[Mapping[str, Any]], bool], timeout_s: float = 300.0
    ) -> Mapping[str, Any]:
        """The node's view once it is so. Raises AssertionError with what the node, its console and the daemon say."""
        ends_s = time.monotonic() + timeout_s
        while not so(view := self.view(name)):
            assert time.monotonic() < ends_s, f"{what} did not come within {timeout_s:.0f} s: {self.told(name)}"
            time.sleep(POLL_S)
        return view

    def told(self, name: str) -> str:
        """Everything that explains a machine's state, for a failed assertion."""
        parts = [self.run(*words).out for words in (("why", name), ("timeline", name))]
        console = self.rack.vm(name).console.text()
        return "\n".join([*parts, "console:", console[-4000:], "daemon:", self.daemon.last_words()])


@contextlib.contextmanager
def qemu_site(folder: Path, image: Path) -> Iterator[QemuSite]:
    """Everything up, no machine there yet; down again in the reverse order. `image`: what the name `small` means."""
    with contextlib.ExitStack() as running:
        wire = running.enter_context(Wire())
        running.enter_context(wire.inside())
        images = running.enter_context(FileServer(DAEMON_4, {"/small.raw": image}))
        with wire.outside():
            fingerprint = _install(folder, f"{images.url}/small.raw", image)
        settings = load(folder / "bcmetal.toml")
        network = settings.networks["provisioning"]
        running.enter_context(Dhcp(wire, folder / "dhcp", network_boot(network, settings.daemon)))
        rack = running.enter_context(QemuRack(wire, folder / "rack"))
        daemon = MortalDaemon(folder / "bcmetal.toml", folder / "daemon.log")
        running.callback(daemon.stop)
        daemon.start()
        write_new(folder / "client.toml", client_profile(daemon.address, fingerprint, TENANT, POOL), private=False)
        yield QemuSite(folder, wire, rack, images, daemon, fingerprint)


def _install(folder: Path, image_url: str, image: Path) -> str:
    """The files of an installation; the fingerprint of the API's certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    new_key(folder / "vault.key")
    pair = self_signed(["127.0.0.1"])
    write_new(folder / "api.crt", pair.certificate_pem, private=False)
    write_new(folder / "tls.key", pair.key_pem, private=True)
    with image.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    config = CONFIG.format(
        folder=folder, daemon=DAEMON_4, daemon_bmc=DAEMON_BMC, machines=MACHINES, bmcs=BMCS,
        image_url=image_url, image_sha256=sha256,
    )  # fmt: skip
    write_new(folder / "bcmetal.toml", config, private=False)
    key = first_key(folder / "bcmetal.toml", "admin", TENANT)
    write_new(folder / "admin.key", key.get_secret_value() + "\n", private=True)
    installed = init_ca(folder / "bcmetal.toml", "e2e", folder / "root.key.pem", SecretStr(secrets.token_urlsafe(16)))
    small_ramdisk(folder / "ramdisk", f"https://{DAEMON_4}:8445", pem_of([installed.root]), packages=TESTERS)
    return pair.fingerprint
