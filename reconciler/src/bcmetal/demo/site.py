"""A whole site on loopback: an emulated rack, an image server, a configuration in a folder of its own, and one daemon process."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from bcmetal.client import Client, Profile
from bcmetal.demo.images import Image, ImageServer
from bcmetal.demo.iso import make_iso
from bcmetal.demo.process import DaemonProcess
from bcmetal.install.ca import init_ca
from bcmetal.install.certificate import self_signed
from bcmetal.install.configuration import client_profile, quoted
from bcmetal.install.files import write_new
from bcmetal.install.local import first_key
from bcmetal.vault import new_key
from bcmetal_drivers.emulated.behaviours import for_protocol
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack

TENANT: Final = "platform"
POOL: Final = "demo"  # Redfish machines, erased by their BMCs
JOIN_POOL: Final = "demo-agents"  # for machines that join by an agent, with or without a BMC
IPMI_POOL: Final = "demo-ipmi"  # IPMI machines: nothing can be erased out of band, and that is said
ADMIN: Final = "admin"
POWER_LAG_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Site:
    folder: Path
    rack: Rack
    redfish: tuple[EmulatedBmc, ...]
    ipmi: tuple[EmulatedBmc, ...]
    images: dict[str, Image]
    daemon: DaemonProcess
    profile: Profile

    @property
    def config(self) -> Path:
        return self.folder / "bcmetal.toml"

    @property
    def profile_file(self) -> Path:
        return self.folder / "client.toml"

    @property
    def bmcs(self) -> tuple[EmulatedBmc, ...]:
        return self.redfish + self.ipmi

    def client(self) -> Client:
        return Client(self.profile)


@contextlib.contextmanager
def emulated_site(folder: Path, redfish: int, ipmi: int, behaviours: Sequence[str] = ()) -> Iterator[Site]:
    """Everything up; down again in the reverse order at the end. Raises DaemonFault when the daemon does not start."""
    images = {
        "demo": Image("demo", make_iso("BCMETAL_DEMO", b"A machine that boots this is deployed.\n" * 4096)),
        "rescue": Image("rescue", make_iso("BCMETAL_RESCUE", b"A machine that boots this is being rescued.\n" * 2048)),
    }
    rack = Rack(seed=1)
    lag: dict[str, Any] = {} if behaviours else {"power_lag_s": POWER_LAG_S}
    for_redfish, for_ipmi = for_protocol(behaviours, "redfish"), for_protocol(behaviours, "ipmi")
    by_redfish = tuple(rack.add_redfish(f"demo-{n:02d}", behaviours=for_redfish, **lag) for n in range(1, redfish + 1))
    by_ipmi = tuple(rack.add_ipmi(f"demo-ipmi-{n:02d}", behaviours=for_ipmi, **lag) for n in range(1, ipmi + 1))
    for bmc in by_redfish:
        for serial in bmc.machine.drives:
            bmc.machine.plant(serial)  # a machine never arrives with clean drives
    with rack, ImageServer(images) as server:
        certificate, fingerprint = install(folder, images, server)
        with DaemonProcess(folder / "bcmetal.toml", folder / "daemon.log") as daemon:
            profile = client_profile(daemon.address, fingerprint, TENANT, POOL)
            write_new(folder / "client.toml", profile, private=False)
            here = Profile(daemon.address, folder / "admin.key", fingerprint, certificate, TENANT, POOL)
            yield Site(folder, rack, by_redfish, by_ipmi, images, daemon, here)


def install(folder: Path, images: Mapping[str, Image], server: ImageServer) -> tuple[Path, str]:
    """All files of the installation, `admin.key` among them; where the certificate is, and its fingerprint. `rescue` is one of the images."""
    credentials = folder / "credentials"
    credentials.mkdir(mode=0o700)
    new_key(credentials / "vault-key")
    pair = self_signed(["localhost", "127.0.0.1"])
    certificate = folder / "api.crt"
    write_new(certificate, pair.certificate_pem, private=False)
    write_new(credentials / "tls-key", pair.key_pem, private=True)
    write_new(folder / "bcmetal.toml", _configuration(folder, images, server), private=False)
    passphrase = SecretStr(secrets.token_urlsafe(24))  # nobody rolls a demonstration over
    init_ca(folder / "bcmetal.toml", "demo", folder / "root.pem", passphrase)
    secret = first_key(folder / "bcmetal.toml", ADMIN, TENANT)
    write_new(folder / "admin.key", secret.get_secret_value() + "\n", private=True)
    return certificate, pair.fingerprint


def _free_port() -> int:
    """BMCs are told this port, so that it must be known before the daemon binds it, and be the same after each start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _configuration(folder: Path, images: Mapping[str, Image], server: ImageServer) -> str:
    entries = "".join(
        f"""
[images.{image.name}]
url = {quoted(server.url(image.name))}
sha256 = "{image.sha256}"
format = "iso"
"""
        for image in images.values()
    )
    media_port, agent_port, node_port = _free_port(), _free_port(), _free_port()
    return f"""\
[daemon]
database = {quoted(f"sqlite:///{folder / 'db'}")}
api_listen = "127.0.0.1:0"
agent_listen = "127.0.0.1:{agent_port}"
node_listen = "127.0.0.1:{node_port}"
media_listen = "127.0.0.1:{media_port}"
tls_cert = {quoted(folder / "api.crt")}
tls_key = {quoted(f"file:{folder / 'credentials' / 'tls-key'}")}
vault_key = {quoted(f"file:{folder / 'credentials' / 'vault-key'}")}
image_folder = {quoted(folder / "images")}
images_from = ["127.0.0.0/8"]

[sites.demo]
owner = "{TENANT}"

[networks.bmc]
cidrs = ["127.0.0.0/8"]
media_url = "http://127.0.0.1:{media_port}"
agent_url = "https://127.0.0.1:{agent_port}"
tls = "verify"
{entries}
[profiles.commission.erased]
boot_mode = "uefi"
erase = ["bmc"]

[profiles.commission.unerased]
erase = "none"

[profiles.release.erased]
erase = ["bmc"]

[profiles.release.unerased]
erase = "none"

[pools.{POOL}]
owner = "{TENANT}"
site = "demo"
agent = "none"
commission = "erased"
release = "erased"
erase_on_arrival = true
trust_bmc_erase = true
rescue_iso = "rescue"
sign_of_life = "none"

[pools.{IPMI_POOL}]
owner = "{TENANT}"
site = "demo"
agent = "none"
commission = "unerased"
release = "unerased"
sign_of_life = "none"

[pools.{JOIN_POOL}]
owner = "{TENANT}"
site = "demo"
agent = "bcd"
commission = "erased"
release = "erased"
erase_on_arrival = true
trust_bmc_erase = true
rescue_iso = "rescue"
sign_of_life = "agent"
tokenless = ["discovery"]

[[grants]]
to = "key:{ADMIN}"
role = "admin"
on = "site/demo"

[[grants]]
to = "key:{ADMIN}"
role = "admin"
on = "compute-pool/{JOIN_POOL}"
"""
