"""dnsmasq on the machines' network: addresses, router advertisements, and the first file of a network boot."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from machine.rack.wire import BRIDGE, Wire

IPXE: Final = Path("/usr/lib/ipxe/ipxe.efi")
READY_S: Final = 10.0
ENDS_WITHIN_S: Final = 10.0


def why_no_dhcp() -> str | None:
    """Why there is no network boot here; None when there is."""
    if shutil.which("dnsmasq") is None:
        return "not installed: dnsmasq"
    return None if IPXE.exists() else "no iPXE (package ipxe)"


class Dhcp:
    """`lines`: more of its configuration, such as what to boot. Without IPv4 there are router advertisements and no DHCP at all."""

    def __init__(self, wire: Wire, folder: Path, lines: Sequence[str] = ()) -> None:
        self._wire = wire
        self._folder = folder
        self._lines = lines
        self.log = folder / "dnsmasq.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        tftp = self._folder / "tftp"
        tftp.mkdir(parents=True)
        shutil.copy(IPXE, tftp / IPXE.name)
        config = self._folder / "dnsmasq.conf"
        config.write_text("\n".join((*self._own(tftp), *self._lines)) + "\n")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["nsenter", f"--net={self._wire.path}", "--", "setpriv", "--pdeathsig", "KILL", "--",
                 "dnsmasq", "--keep-in-foreground", f"--conf-file={config}", "--log-facility=-", "--pid-file"],
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

    def _own(self, tftp: Path) -> list[str]:
        lines = [
            f"interface={BRIDGE}", "bind-interfaces", "no-resolv", "no-hosts", "port=0", "user=root", "log-dhcp",
            f"dhcp-leasefile={self._folder / 'leases'}", "enable-ra", "dhcp-range=fd77::,ra-only,64,10m",
        ]  # fmt: skip
        if self._wire.ipv4:
            lines += ["dhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,10m", "enable-tftp", f"tftp-root={tftp}"]
        return lines


def network_boot(script: str) -> tuple[str, ...]:
    """Lines by which UEFI firmware gets iPXE, and iPXE the script at the URL."""
    return ("dhcp-userclass=set:ipxe,iPXE", f"dhcp-boot=tag:!ipxe,{IPXE.name}", f"dhcp-boot=tag:ipxe,{script}")
