"""One emulated IPMI BMC with a machine and rules of its own: what the rack gives its BMCs, for tests of this front alone."""

from __future__ import annotations

import re
import secrets
import select
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.machine import Hardware, Machine
from bcmetal_drivers.ipmi import IpmiBmc

LIMITS = Limits(connect_s=3, read_s=1, total_s=20)


@dataclass(slots=True)
class BenchRule:
    method: str
    action: str
    path: str = ".*"
    times: int | None = 1
    args: Mapping[str, Any] = field(default_factory=dict)
    fired: int = 0


@dataclass(frozen=True, slots=True)
class Wrote:
    method: str
    path: str
    kind: str


class IpmiBench:
    """The BMC's seat and its surroundings in one."""

    def __init__(self, power_lag_s: float = 0.0) -> None:
        n = secrets.token_hex(4).upper()
        self.name = f"bmc-{n}"
        self.host, self.port = "127.0.0.1", 0
        self.username, self.password = "admin", SecretStr(secrets.token_hex(8))
        hardware = Hardware(
            name=f"machine-{n}",
            system_id="1",
            uuid=uuid.uuid4(),
            serial=f"S{n}",
            board_serial=f"B{n}",
            sku=f"K{n}",
            part_number="P-1",
            manufacturer="Acme",
            model="Rocket 1",
            macs=(),
        )
        self.machine = Machine(hardware, {}, time.monotonic, power_lag_s)
        self.rules: list[BenchRule] = []
        self.writes: list[Wrote] = []
        self.counts: Counter[str] = Counter()
        self.on_write: Callable[[Wrote], None] | None = None
        self.front = IpmiFront(self, self)

    # what the front asks for

    def fire(self, bmc: str, method: str, path: str) -> BenchRule | None:
        for rule in self.rules:
            if rule.method == method and re.search(rule.path, path) and (rule.times is None or rule.fired < rule.times):
                rule.fired += 1
                return rule
        return None

    def wrote(self, bmc: str, machine: str | None, method: str, path: str, kind: str) -> None:
        write = Wrote(method, path, kind)
        self.writes.append(write)
        if self.on_write is not None:
            self.on_write(write)

    def counted(self, bmc: str, what: str) -> None:
        self.counts[what] += 1

    def password_changed(self, bmc: str, username: str, password: SecretStr) -> None:
        if username == self.username:
            self.password = password

    # what the tests ask for

    def rule(self, method: str, action: str, path: str = ".*", times: int | None = 1, **args: object) -> BenchRule:
        self.rules.append(BenchRule(method, action, path, times, args))
        return self.rules[-1]

    def effects(self, method: str) -> list[str]:
        return [w.path for w in self.writes if w.kind == "effect" and w.method == method]

    @property
    def address(self) -> BmcAddress:
        return BmcAddress("ipmi", self.host, self.front.port)

    @property
    def credential(self) -> Credential:
        return Credential(self.username, self.password)

    def driver(self, limits: Limits = LIMITS, credential: Credential | None = None) -> IpmiBmc:
        return IpmiBmc(self.address, credential or self.credential, Trust(), limits)


@contextmanager
def an_ipmi_bench(power_lag_s: float = 0.0) -> Iterator[IpmiBench]:
    bench = IpmiBench(power_lag_s)
    bench.front.start()
    try:
        yield bench
    finally:
        bench.front.stop()


@contextmanager
def driving(bench: IpmiBench, limits: Limits = LIMITS, credential: Credential | None = None) -> Iterator[IpmiBmc]:
    bmc = bench.driver(limits, credential)
    try:
        yield bmc
    finally:
        bmc.close()


class Between:
    """Sits between a driver and its BMC: keeps what the driver sends, and passes on what `make_of` makes of each of the BMC's packets."""

    def __init__(self, there: BmcAddress, make_of: Callable[[bytes], list[bytes]]) -> None:
        self.heard: list[bytes] = []
        self._make_of = make_of
        self._there = (there.host, there.port)
        self._near, self._far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for end in (self._near, self._far):
            end.bind(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.address = replace(there, port=self._near.getsockname()[1])

    def _serve(self) -> None:
        client = None
        while not self._over.is_set():
            ready, _, _ = select.select([self._near, self._far], [], [], 0.05)
            for end in ready:
                packet, where = end.recvfrom(4096)
                if end is self._near:
                    client = where
                    self.heard.append(packet)
                    self._far.sendto(packet, self._there)
                elif client is not None:
                    for made in self._make_of(packet):
                        self._near.sendto(made, client)

    def __enter__(self) -> Between:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._near.close()
        self._far.close()
