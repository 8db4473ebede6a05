"""The configuration and the client profile that `bcmetal init` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answers:
    site: str
    bmc_nets: Sequence[str]
    media_url: str
    agent_url: str | None
    owner: str
    pool: str
    api_port: int


def quoted(text: object) -> str:
    """A TOML basic string; JSON's escapes are a part of TOML's."""
    return json.dumps(str(text), ensure_ascii=False)


def client_profile(address: str, fingerprint: str, tenant: str, pool: str) -> str:
    """Beside `admin.key`."""
    return f"""\
# How `bcmetal` on this host reaches the daemon. The certificate is pinned by its SHA-256 fingerprint.
address = {quoted(address)}
fingerprint = {quoted(fingerprint)}
key_file = "admin.key"
tenant = {quoted(tenant)}
pool = {quoted(pool)}
"""


def configuration(answers: Answers, database: Path, certificate: Path) -> str:
    media_port = urlsplit(answers.media_url).port or 80
    cidrs = ", ".join(quoted(net) for net in answers.bmc_nets)
    provisioning = ""
    if answers.agent_url:
        provisioning = f"""
[networks.provisioning]
cidrs = []                             # where the machines are: who boots over the network is answered only there
agent_url = {quoted(answers.agent_url)}
"""
    return f"""\
# bcmetal's configuration. `systemctl reload bcmetald` reads it again; an invalid one is refused whole and the old one goes on.
# No secret stands here: `credential:NAME` is a file of the folder `credentials` (systemd's LoadCredential),
# `sealed:NAME` is set with `bcmetal credential set NAME`.

[daemon]
database = {quoted(f"sqlite:///{database}")}
# database = "postgresql+psycopg://bcmetal@db.example/bcmetal"   # for more than one daemon
api_listen = "[::]:{answers.api_port}"
media_listen = "[::]:{media_port}"
tls_cert = {quoted(certificate)}
tls_key = "credential:tls-key"
vault_key = "credential:vault-key"
image_folder = {quoted(database.parent / "images")}
ramdisk_folder = {quoted(database.parent / "ramdisk")}   # bcmetal ramdisk build

[sites.{answers.site}]
owner = {quoted(answers.owner)}

[networks.bmc]
cidrs = [{cidrs}]
media_url = {quoted(answers.media_url)}       # what BMCs there reach
tls = "pin-first"                      # verify, ca:FILE, pin-first, off
plain_http = false
{provisioning}
[credentials.fleet]
username = "bcmetal"
password = "sealed:fleet"              # bcmetal credential set fleet
networks = ["bmc"]                     # sent nowhere else

# [images.installer]
# url = "https://mirror.example/installer.iso"
# sha256 = "…"
# format = "iso"                       # raw and qcow2 are written to a disk by the agent

[profiles.commission.standard]
boot_mode = "uefi"
erase = "none"                         # "not-erased" is said; ["bmc"] where the BMC can, and the pool trusts it; with agent = "bcd":
# erase = ["nvme-crypto", "ata-crypto", "ata-secure", "scsi-sanitize", "nvme-block", "overwrite"]

[profiles.release.standard]
erase = "none"

[pools.{answers.pool}]
owner = {quoted(answers.owner)}
site = {quoted(answers.site)}
agent = "none"                         # bcd: its machines boot our ramdisk (bcmetal ramdisk build), run bcmetal-agent, and may join
mode = "manage"                        # observe: never writes to a BMC
commission = "standard"
release = "standard"
erase_on_arrival = false               # true: --confirm-erase is not asked for
trust_bmc_erase = false                # true: an erase that only the BMC vouches for counts as clean
# rescue_iso = "rescue"                # an [images] entry
sign_of_life = "none"

[[grants]]
to = "key:admin"
role = "admin"                         # reader, operator, admin, or single actions
on = {quoted(f"site/{answers.site}")}

[[grants]]                             # who joins machines is granted on the pool itself, never by its site
to = "key:admin"
actions = ["join-tokens:create", "join-tokens:read", "join-tokens:revoke"]
on = {quoted(f"compute-pool/{answers.pool}")}
"""
