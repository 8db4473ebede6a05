"""One emulated BMC with a driver on it, the same for every driver: what the contract suite is written against."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

from bcmetal_drivers.address import parse
from bcmetal_drivers.capabilities import Bmc, Jobs, Power, need
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from bcmetal_drivers.registry import open_bmc
from bcmetal_drivers.resources import Job, JobState, PowerAction

LIMITS = Limits(connect_s=3, read_s=2, total_s=15)


@dataclass(frozen=True)
class Bench:
    """A driver under test. `requests` gives the method and the path by which its BMC gets what the suite wants to disturb."""

    name: str
    add: Callable[[Rack], EmulatedBmc]
    requests: Mapping[str, tuple[str, str]]  # "power", "boot", "look"
    failed_logins: int = 1  # that the BMC counts for one wrong password
    scheme: str | None = None  # of the driver, where it is not the one that the emulated BMC's own address names


@dataclass
class Seat:
    """The rack, its one BMC, and the drivers that a test opened; they are closed at its end."""

    bench: Bench
    rack: Rack
    bmc: EmulatedBmc
    closing: ExitStack = field(default_factory=ExitStack)

    @property
    def address(self) -> BmcAddress:
        address = parse(self.bmc.address)
        return address if self.bench.scheme is None else replace(address, scheme=self.bench.scheme)

    @property
    def credential(self) -> Credential:
        return Credential(self.bmc.username, self.bmc.password)

    @property
    def trust(self) -> Trust:
        return Trust(TrustKind.FINGERPRINT, self.bmc.fingerprint) if self.bmc.fingerprint else Trust(TrustKind.NONE)

    def open(
        self,
        limits: Limits = LIMITS,
        credential: Credential | None = None,
        trust: Trust | None = None,
        address: BmcAddress | None = None,
    ) -> Bmc:
        opened = open_bmc(address or self.address, credential or self.credential, trust or self.trust, limits)
        self.closing.callback(opened.close)
        return opened

    def boot(self) -> None:
        """Off and on again."""
        power = need(self.open(), Power)
        power.set_power(PowerAction.OFF)
        power.set_power(PowerAction.ON)

    def disturb(self, what: str, action: str, times: int | None = 1, **args: object) -> int:
        """A rule on the request by which the driver does `what`; its id."""
        method, path = self.bench.requests[what]
        rule = Rule(action=action, method=method, path=path, times=times)
        return self.rack.rule(replace(rule, **args))  # type: ignore[arg-type]  # a rule's fields, as its action needs them

    def effects(self) -> list[tuple[str, str]]:
        """Writes that reached the BMC, logins and logouts aside."""
        return [(write.method, write.path) for write in self.rack.writes if write.kind == "effect"]

    def closed_port(self) -> BmcAddress:
        kind = socket.SOCK_DGRAM if self.address.scheme == "ipmi" else socket.SOCK_STREAM
        with socket.socket(socket.AF_INET, kind) as gone:
            gone.bind((self.bmc.host, 0))
            return replace(self.address, port=gone.getsockname()[1])


def a_secret(size: int = 16) -> SecretStr:
    """Of so many characters."""
    return SecretStr(secrets.token_hex(size // 2))


def a_wrong_credential(username: str = "admin") -> Credential:
    return Credential(username, a_secret())


def ended(bmc: object, job: Job) -> Job:
    """The job once it runs no more; as it is after 5 s."""
    deadline = time.monotonic() + 5
    while job.state is JobState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.02)
        job = need(bmc, Jobs).job(job.ref)
    return job
