"""dnsmasq on the machines' network, by the product's own configuration, or with router advertisements alone."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bcmetal.boot.dnsmasq import Serving, dnsmasq_config
from bcmetal.settings import Daemon, Network
from machine.rack.wire import BRIDGE, Wire

READY_S: Final = 10.0
ENDS_WITHIN_S: Final = 10.0
ADVERTISEMENTS: Final = (
    f"interface={BRIDGE}\nexcept-interface=lo\nbind-dynamic\nport=0\nenable-ra\ndhcp-range=fd77::,ra-only,64,1h\n"
)


def why_no_dhcp() -> str | None:
    """Why there is no network boot here; None when there is."""
    if shutil.which("dnsmasq") is None:
        return "not installed: dnsmasq"
    program = Path(Serving().tftp_root, Serving().efi_program)
    return None if program.exists() else "no iPXE (package ipxe)"


def network_boot(network: Network, daemon: Daemon) -> str:
    """What `bcmetal pxe dnsmasq` writes for the network."""
    return dnsmasq_config(network, daemon, Serving(interface=BRIDGE))


class Dhcp:
    """It serves until it is left. `config`: dnsmasq's; made inside the wire."""

    def __init__(self, wire: Wire, folder: Path, config: str) -> None:
        self._wire = wire
        self._folder = folder
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self._folder / "dnsmasq.log"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        config = self._folder / "dnsmasq.conf"
        config.write_text(self._config)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["nsenter", f"--net={self._wire.path}", "--", "setpriv", "--pdeathsig", "KILL", "--",
                 "dnsmasq", "--keep-in-foreground", f"--conf-file={config}", "--log-facility=-", "--pid-file",
                 "--user=root", "--no-resolv", "--no-hosts", f"--dhcp-leasefile={self._folder / 'leases'}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        ends_s = time.monotonic() + READY_S
        while b"started" not in self.log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > ends_s:
                self.__exit__(None, None, None)
                raise AssertionError(f"dnsmasq did not start: {self.log.read_text()}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(ENDS_WITHIN_S)
