"""The configuration of an emulated site, with places for what a test adds to it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

TENANT = "tenant-a"
POOL = "pool-a"

ISO = b"\x00" * 32768 + b"\x01CD001\x01\x00" + b"bcmetal test image".ljust(4096, b".")
ISO_SHA256 = hashlib.sha256(ISO).hexdigest()
RESCUE_ISO = b"\x00" * 32768 + b"\x01CD001\x01\x00" + b"bcmetal rescue image".ljust(4096, b".")
RESCUE_SHA256 = hashlib.sha256(RESCUE_ISO).hexdigest()

TEMPLATE = """
[daemon]
database = "{database}"
api_listen = "127.0.0.1:0"
media_listen = "127.0.0.1:0"
vault_key = "file:{folder}/vault.key"
image_folder = "{folder}/images"

images_from = ["127.0.0.0/8"]
<daemon>

[sites.site-a]
owner = "{tenant}"

[networks.bmc]
cidrs = ["127.0.0.0/8"]
media_url = "{media_url}"
tls = "verify"
<network>

[images.os]
url = "{image_url}/os.iso"
sha256 = "{iso}"
format = "iso"

[images.rescue]
url = "{rescue_url}/rescue.iso"
sha256 = "{rescue}"
format = "iso"

[profiles.commission.standard]
boot_mode = "uefi"
erase = {erase}
<commission>

[profiles.release.standard]
erase = {erase}
<release>

[pools.{pool}]
owner = "{tenant}"
site = "site-a"
agent = "<agent>"
trust_bmc_erase = true
rescue_iso = "rescue"
commission = "standard"
release = "standard"
sign_of_life = "none"

<more>
"""
RAMDISK = """
ramdisk_folder = "{folder}"
plain_boot_wait_s = 20
"""
AGENT_URL = "https://127.0.0.1:8445"
_PLACES = {"agent": "none", "daemon": "", "network": "", "commission": "", "release": "", "more": ""}


def with_places(text: str, places: Mapping[str, str]) -> str:
    """The configuration with these tables and lines in its places."""
    for place, what in {**_PLACES, **places}.items():
        text = text.replace(f"<{place}>", what)
    return text


CONFIG = with_places(TEMPLATE, {})


def with_agent(ramdisk: Path) -> dict[str, str]:
    """What stands in the places where machines run the agent of this ramdisk's folder."""
    return {"agent": "bcd", "daemon": RAMDISK.format(folder=ramdisk), "network": f'agent_url = "{AGENT_URL}"'}
