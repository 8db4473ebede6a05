"""A real software TPM (swtpm, libtpms), made and run inside one folder: its maker's CA too. Nothing is read or written elsewhere."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

_TOOLS = ("swtpm", "swtpm_setup", "swtpm_localca")
_START_S = 10.0


@dataclass(frozen=True)
class SoftwareTpm:
    """`tcti` is how tpm2-tss reaches it; `vendor_bundle` what its maker's CA is known by: root, then issuer."""

    tcti: str
    vendor_bundle: tuple[x509.Certificate, ...]


def needs_a_tpm() -> None:
    """Skip where the Debian packages or the Python one are not installed."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: swtpm, swtpm-tools)")
    pytest.importorskip("tpm2_pytss", reason="tpm2-pytss is not installed (Debian: libtss2-dev, then make test)")


@contextmanager
def a_software_tpm(folder: Path, certified: bool = True) -> Iterator[SoftwareTpm]:
    """A TPM as its maker ships it, running. `certified`: with certificates of its RSA-2048 and its P-384 EK in it."""
    needs_a_tpm()
    state = _manufactured(folder, certified)
    with _running(state) as port:
        yield SoftwareTpm(f"swtpm:host=127.0.0.1,port={port}", _bundle(folder / "ca"))


def _manufactured(folder: Path, certified: bool) -> Path:
    ca, state = folder / "ca", folder / "state"
    for one in (ca, state):
        one.mkdir(parents=True)
    localca, options, setup = folder / "localca.conf", folder / "localca.options", folder / "setup.conf"
    localca.write_text(
        f"statedir = {ca}\nsigningkey = {ca}/signkey.pem\nissuercert = {ca}/issuercert.pem\ncertserial = {ca}/certserial\n"
    )
    options.write_text("")
    setup.write_text(
        f"create_certs_tool = {shutil.which('swtpm_localca')}\n"
        f"create_certs_tool_config = {localca}\ncreate_certs_tool_options = {options}\nactive_pcr_banks = sha256\n"
    )
    command = ["swtpm_setup", "--tpm2", "--config", str(setup), "--tpmstate", str(state), "--overwrite", "--lock-nvram"]
    command.append("--create-ek-cert" if certified else "--createek")
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, f"swtpm_setup failed: {done.stdout}{done.stderr}"
    return state


def _bundle(ca: Path) -> tuple[x509.Certificate, ...]:
    names = ("swtpm-localca-rootca-cert.pem", "issuercert.pem")
    return tuple(x509.load_pem_x509_certificate((ca / name).read_bytes()) for name in names if (ca / name).exists())


@contextmanager
def _running(state: Path) -> Iterator[int]:
    """swtpm takes no port 0, and needs two in a row: another process may be quicker, so that is looked at and tried again."""
    for _ in range(10):
        port = _two_free_ports()
        control, server = (f"type=tcp,bindaddr=127.0.0.1,port={one}" for one in (port + 1, port))
        where = ["--tpmstate", f"dir={state}", "--ctrl", control, "--server", server]
        process = subprocess.Popen(
            ["swtpm", "socket", "--tpm2", *where, "--flags", "not-need-init,startup-clear"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if _listens(process, port, port + 1):
                yield port
                return
        finally:
            process.terminate()
            process.wait(timeout=10)
    raise AssertionError("swtpm found no two free ports")


def _two_free_ports() -> int:
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _listens(process: subprocess.Popen[bytes], *ports: int) -> bool:
    """Whether this very process came to listen on all of them; False once it ended."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if set(ports) <= _listening_ports(process.pid):
            return True
        time.sleep(0.02)
    return False


def _listening_ports(pid: int) -> set[int]:
    """From /proc: the TCP ports of IPv4 on which a process listens."""
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(os.readlink(descriptor))
        except FileNotFoundError:  # closed meanwhile
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held}
