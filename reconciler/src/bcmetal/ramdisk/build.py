"""A site's ramdisk: the base, the site's address and root, and what machines boot: UKI, ISO, kernel and initrd."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509

from bcmetal.boot.cpio import newc
from bcmetal.ramdisk.apt import Apt, Say, sha256_of
from bcmetal.ramdisk.base import Base, Contents, make_base
from bcmetal.ramdisk.faults import BuildFailed
from bcmetal.ramdisk.iso import find_file, make_iso
from bcmetal.ramdisk.uki import unified
from bcmetal_agent import boot_token

MANIFEST: Final = "ramdisk.json"
FORMAT: Final = "bcmetal-ramdisk/1"
SITE_FILE: Final = "/etc/bcmetal/site.json"
_TTY: Final = re.compile(r"tty[A-Za-z0-9]{1,12}(?:,[0-9]{3,7}[noe]?[78]?r?)?")
_SITE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_FILES: Final = ("vmlinuz", "initrd", "bcmetal.efi", "bcmetal.iso", "sbom.json")


@dataclass(frozen=True, slots=True)
class Site:
    """Whom the agent calls, and whom it believes. `ca_pem`: one or more certificates."""

    agent_url: str
    ca_pem: str
    name: str

    def __post_init__(self) -> None:
        """BuildFailed when any of it cannot be."""
        url = urlsplit(self.agent_url)
        try:
            port = url.port
        except ValueError:
            port = 0
        if url.scheme != "https" or not url.hostname or not port or url.username or url.path.strip("/") or url.query:
            raise BuildFailed(
                "the agent's address is https://HOST:PORT, as machines on the provisioning network see it"
            )
        if not _SITE.fullmatch(self.name):
            raise BuildFailed("a site's name has lower-case letters, digits and hyphens")
        try:
            certificates = x509.load_pem_x509_certificates(self.ca_pem.encode())
        except ValueError:
            raise BuildFailed("the CA file holds no certificate in PEM", "bcmetal ca trust-bundle writes it") from None
        if any(not _is_ca(one) for one in certificates):
            raise BuildFailed("the CA file holds a certificate that is no CA's", "bcmetal ca trust-bundle writes it")

    def document(self) -> dict[str, str]:
        return {"agentUrl": self.agent_url.rstrip("/"), "caPem": self.ca_pem, "site": self.name}


def command_line(serial: Sequence[str] = ("ttyS0,115200",)) -> str:
    """The kernel's: the screen and these serial consoles, and another start a minute after a panic. Raises BuildFailed."""
    for tty in serial:
        if not _TTY.fullmatch(tty):
            raise BuildFailed(f"no console: {tty!r}", "such as ttyS1 or ttyS0,115200n8")
    return " ".join([*(f"console={tty}" for tty in ("tty0", *serial)), "quiet", "loglevel=4", "panic=60"])


@dataclass(frozen=True, slots=True)
class Built:
    """What was written. `token_offset` and `token_length`: where the boot token's file lies in the ISO."""

    folder: Path
    token_offset: int
    token_length: int
    manifest: Mapping[str, Any]

    @property
    def iso(self) -> Path:
        return self.folder / "bcmetal.iso"

    @property
    def uki(self) -> Path:
        return self.folder / "bcmetal.efi"

    @property
    def vmlinuz(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"


def build(site: Site, contents: Contents, out: Path, *, cache: Path, apt: Apt, say: Say, command_line: str) -> Built:
    """Writes into `out`; the manifest last, so that a folder with a manifest is whole. Raises BuildFailed."""
    base = make_base(contents, apt, cache, say)
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".ramdisk-", dir=out))
    try:
        manifest = _write(work, base, site, contents, say, command_line)
        (out / MANIFEST).unlink(missing_ok=True)
        for name in (*_FILES, MANIFEST):
            (work / name).chmod(0o644)
            os.replace(work / name, out / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Built(out, manifest["tokenOffset"], manifest["tokenLength"], manifest)


def opened(folder: Path) -> Built:
    """A built ramdisk, its files compared with the manifest's sizes. Raises BuildFailed."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            raise BuildFailed(f"{folder / MANIFEST} is of a form that this release does not know")
        for name, facts in manifest["files"].items():
            if (folder / name).stat().st_size != facts["size"]:
                raise BuildFailed(f"{folder / name} is not what the manifest says")
        return Built(folder, manifest["tokenOffset"], manifest["tokenLength"], manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BuildFailed(f"no ramdisk in {folder}", "bcmetal ramdisk build makes one") from None


def verify(built: Built) -> None:
    """Each file's checksum against the manifest's. Raises BuildFailed."""
    for name, facts in built.manifest["files"].items():
        if sha256_of(built.folder / name) != facts["sha256"]:
            raise BuildFailed(f"{built.folder / name} is not what the manifest says")


def _write(work: Path, base: Base, site: Site, contents: Contents, say: Say, command_line: str) -> dict[str, Any]:
    kernel = base.vmlinuz.read_bytes()
    initrd = base.initrd.read_bytes() + newc({SITE_FILE: json.dumps(site.document()).encode()}, mode=0o644)
    (work / "vmlinuz").write_bytes(kernel)
    (work / "initrd").write_bytes(initrd)
    (work / "sbom.json").write_text(json.dumps(list(base.packages), indent=1) + "\n")
    say("making the UKI and the ISO")
    release = f'ID=bcmetal\nNAME="bcmetal ramdisk"\nPRETTY_NAME="bcmetal ramdisk"\nVERSION_ID={base.agent_version}\n'
    (work / "bcmetal.efi").write_bytes(
        unified(
            base.stub.read_bytes(),
            kernel=kernel,
            initrd=initrd,
            command_line=command_line,
            os_release=release,
            version=base.kernel_version,
        )
    )
    make_iso(work / "bcmetal.iso", work / "bcmetal.efi", [(boot_token.FILE_NAME, boot_token.placeholder())])
    offset, length = _token_at(work / "bcmetal.iso")
    manifest = {
        "format": FORMAT,
        "site": site.name,
        "agentUrl": site.document()["agentUrl"],
        "caSha256": hashlib.sha256(site.ca_pem.encode()).hexdigest(),
        "agentVersion": base.agent_version,
        "kernelVersion": base.kernel_version,
        "kernel": contents.kernel.value,
        "tools": contents.tools.value,
        "firmware": list(contents.firmware),
        "commandLine": command_line,
        "builtAt": base.born,
        "sbom": "sbom.json",
        "tokenOffset": offset,
        "tokenLength": length,
        "files": {n: {"size": (work / n).stat().st_size, "sha256": sha256_of(work / n)} for n in _FILES},
    }
    (work / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _token_at(iso: Path) -> tuple[int, int]:
    with iso.open("rb") as medium:
        offset, length = find_file(medium, boot_token.FILE_NAME)
        medium.seek(offset)
        if length != boot_token.SIZE or medium.read(length) != boot_token.placeholder():
            raise BuildFailed("the boot token's place in the ISO was not found")
    return offset, length


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
