"""A network of the tests' own: a namespace with a bridge, taps for machines, and addresses for the daemon and for BMCs.

Nothing leads out of it. Sockets, threads and processes that are made `inside` belong to it for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

BRIDGE: Final = "br0"
DAEMON_4: Final = "10.77.0.1"
DAEMON_6: Final = "fd77::1"
MACHINES: Final = "10.77.0.0/24"
MACHINES_6: Final = "fd77::/64"
BMCS: Final = "10.78.0.0/24"
DAEMON_BMC: Final = "10.78.0.254"  # the daemon's address on the BMCs' network
_NAME: Final = re.compile(r"bcmetal-test-(\d+)-\d+")
_CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def why_no_wire() -> str | None:
    """Why no network can be had here; None when it can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    missing = [program for program in ("ip", "nsenter") if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = f"bcmetal-test-{os.getpid()}-0"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=10, check=False)
    if made.returncode:
        return f"no network namespace: {made.stderr.strip()}"
    _ip("netns", "delete", probe)
    return None


class Wire:
    """`ipv4` False: the bridge and whoever is on it have IPv6 alone."""

    _made = 0

    def __init__(self, *, ipv4: bool = True) -> None:
        Wire._made += 1
        self.name = f"bcmetal-test-{os.getpid()}-{Wire._made}"
        self.ipv4 = ipv4
        self._taps = 0
        self._bmcs = 0
        self._outside = -1  # the namespace of whoever made this one

    @property
    def daemon(self) -> str:
        """The daemon's address on the machines' network."""
        return DAEMON_4 if self.ipv4 else DAEMON_6

    @property
    def host(self) -> str:
        """The same, as it stands in a URL."""
        return DAEMON_4 if self.ipv4 else f"[{DAEMON_6}]"

    @property
    def path(self) -> Path:
        return Path("/run/netns", self.name)

    def __enter__(self) -> Self:
        _sweep()
        self._outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _ip("netns", "add", self.name)
        self._ip("link", "set", "lo", "up")
        self._ip("address", "add", f"{DAEMON_BMC}/32", "dev", "lo")
        self._ip("link", "add", BRIDGE, "type", "bridge")
        self._ip("address", "add", f"{DAEMON_6}/64", "dev", BRIDGE, "nodad")
        if self.ipv4:
            self._ip("address", "add", f"{DAEMON_4}/24", "dev", BRIDGE)
        self._ip("link", "set", BRIDGE, "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ip("netns", "delete", self.name)
        os.close(self._outside)

    def tap(self) -> str:
        """A new one on the bridge, for one machine's NIC."""
        name = f"tap{self._taps}"
        self._taps += 1
        self._ip("tuntap", "add", name, "mode", "tap")
        self._ip("link", "set", name, "master", BRIDGE, "up")
        return name

    def bmc_address(self) -> str:
        """A new one, which the machines' network does not hold."""
        self._bmcs += 1
        address = f"10.78.0.{self._bmcs}"
        self._ip("address", "add", f"{address}/32", "dev", "lo")
        return address

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and the threads and processes that it starts, are in the namespace."""
        with self.path.open() as there, _entered(there.fileno()):
            yield

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """This thread, inside until now, is where the wire was made: a package mirror is reached from there alone."""
        with _entered(self._outside):
            yield

    def _ip(self, *words: str) -> None:
        _ip("-n", self.name, *words)


@contextlib.contextmanager
def _entered(descriptor: int) -> Iterator[None]:
    with open("/proc/thread-self/ns/net") as before:
        _enter(descriptor)
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10, stdin=subprocess.DEVNULL)


def _sweep() -> None:
    """Namespaces of tests that were killed."""
    for path in Path("/run/netns").glob("bcmetal-test-*"):
        found = _NAME.fullmatch(path.name)
        if found and not Path("/proc", found[1]).exists():
            _ip("netns", "delete", path.name)
