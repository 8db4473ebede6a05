"""The rack: BMCs on loopback addresses of their own, the rules they obey, the record of every write that reached one, the oracle.

See the package's docstring for how to use it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from pydantic import SecretStr

from bcmetal_drivers.emulated import hardware, serve
from bcmetal_drivers.emulated.faults import FAILED_LOGIN, LiveRule, Rule, Rules
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.machine import Boot, EmulatedDrive, Machine
from bcmetal_drivers.emulated.vmedia import LOOPBACK

__all__ = ["Boot", "EmulatedBmc", "EmulatedDrive", "Machine", "Rack", "Rule", "Write"]

REDFISH, IPMI = "redfish", "ipmi"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MACHINE_SETTINGS: Final = ("power_lag_s", "ignores_soft_off", "health")


@dataclass(frozen=True, slots=True)
class Write:
    """A write that reached a BMC and was applied, or accepted as a Task. `kind`: "session" for logins and logouts, else "effect"."""

    n: int
    bmc: str
    machine: str | None
    method: str
    path: str
    at: float
    kind: str


class Front(Protocol):
    """What speaks for a BMC."""

    @property
    def port(self) -> int: ...
    @property
    def failed_logins(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def sessions(self) -> int: ...
    def drop_sessions(self) -> None: ...
    def set(self, name: str, value: object) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, doc: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class Setup:
    """How a BMC was added; kept in its snapshot."""

    name: str
    kind: str
    index: int
    systems: int
    username: str
    tls: bool
    drives: int
    maker: str
    port: int = 0
    host: str = ""  # "": an address in 127.77.0.0/16 of its own
    reach: str = ""  # the network that media may be fetched from; "": loopback


class EmulatedBmc:
    """One BMC of the rack."""

    def __init__(
        self, setup: Setup, password: SecretStr, machines: Mapping[str, Machine], certificate: Path | None
    ) -> None:
        self.name = setup.name
        self.setup = setup
        self.username = setup.username
        self.password = password  # the present one of `username`
        self.host = setup.host or f"127.77.{setup.index // 250}.{setup.index % 250 + 1}"
        self.certificate = certificate
        self.by_system: Mapping[str, Machine] = machines
        self.front: Front

    @property
    def kind(self) -> str:
        return self.setup.kind

    @property
    def port(self) -> int:
        """0 until the first start."""
        front = getattr(self, "front", None)
        return front.port if front is not None else self.setup.port

    @property
    def address(self) -> str:
        """As an admin would write it; names the system where there is one only."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.kind == IPMI:
            return f"ipmi://{host}:{self.port}"
        scheme = "redfish" if self.setup.tls else "redfish+http"
        path = f"/redfish/v1/Systems/{next(iter(self.by_system))}" if len(self.by_system) == 1 else ""
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its TLS leaf in hex; "" without TLS."""
        return serve.fingerprint(self.certificate) if self.certificate else ""

    @property
    def ca_pem(self) -> str:
        return serve.certificate_pem(self.certificate) if self.certificate else ""

    @property
    def machines(self) -> list[Machine]:
        return list(self.by_system.values())

    @property
    def machine(self) -> Machine:
        return self.machines[0]

    def set(self, **settings: Any) -> None:
        """Change how it behaves while it runs: `quirks.Quirks` or `ipmi.IpmiFront.set`, and power_lag_s, ignores_soft_off, health."""
        for name, value in settings.items():
            if name in MACHINE_SETTINGS:
                for machine in self.machines:
                    setattr(machine, name, value)
            else:
                self.front.set(name, value)

    def change_password(self, password: SecretStr) -> None:
        """As somebody else would, behind the client's back. Redfish only."""
        if not isinstance(self.front, RedfishFront):
            raise TypeError(f"{self.name} is no Redfish BMC")
        self.front.change_password(self.username, password)


class Rack:
    """All BMCs of one emulated site. A rack made again on the same `state_dir` has the BMCs of the one before."""

    def __init__(
        self, state_dir: Path | None = None, seed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seed = seed
        self.clock = clock
        self.rules = Rules()
        self.writes: list[Write] = []
        self.on_write: Callable[[Write], None] | None = None
        self.bmcs: dict[str, EmulatedBmc] = {}
        self._kept = state_dir
        self._dir = state_dir or Path(tempfile.mkdtemp(prefix="rack-"))
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if state_dir is None:
            weakref.finalize(self, shutil.rmtree, self._dir, ignore_errors=True)
        self._lock = threading.RLock()
        self._counts: dict[str, Counter[str]] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._running: set[str] = set()
        for path in sorted(self._dir.glob("bmc-*.json")):
            self._load(json.loads(path.read_text()))
        self.bmcs = dict(sorted(self.bmcs.items(), key=lambda item: item[1].setup.index))

    # ------------------------------------------------------------ BMCs

    def add_redfish(
        self,
        name: str,
        *,
        systems: int = 1,
        username: str = "admin",
        password: SecretStr | None = None,
        tls: bool = True,
        drives: int = 2,
        maker: str = "generic",
        erase: bool = True,
        power_lag_s: float = 0.0,
        host: str = "",
        reach: str = "",
        machine: Machine | None = None,
        **quirks: Any,
    ) -> EmulatedBmc:
        """A BMC with `systems` machines of `drives` clean drives each, all off. One that `state_dir` knows is given back as it is.

        `machine`: the one that it stands for, in the place of made ones; not with a `state_dir`. `host`, `reach`: see `Setup`.
        """
        if name in self.bmcs:
            return self._known(name, REDFISH)
        setup = Setup(name, REDFISH, len(self.bmcs), systems, username, tls, drives, maker, 0, host, reach)
        bmc = self._build(setup, password or SecretStr(secrets.token_urlsafe(12)), machine)
        bmc.set(erase=erase, power_lag_s=power_lag_s, **quirks)
        return self._added(bmc)

    def add_ipmi(
        self,
        name: str,
        *,
        username: str = "admin",
        password: SecretStr | None = None,
        power_lag_s: float = 0.0,
        host: str = "",
        machine: Machine | None = None,
    ) -> EmulatedBmc:
        if name in self.bmcs:
            return self._known(name, IPMI)
        setup = Setup(name, IPMI, len(self.bmcs), 1, username, False, 2, "supermicro", 0, host)
        bmc = self._build(setup, password or SecretStr(secrets.token_urlsafe(12)), machine)
        bmc.set(power_lag_s=power_lag_s)
        return self._added(bmc)

    def bmc(self, name: str) -> EmulatedBmc:
        return self.bmcs[name]

    def machines(self) -> list[Machine]:
        return [machine for bmc in self.bmcs.values() for machine in bmc.machines]

    def _known(self, name: str, kind: str) -> EmulatedBmc:
        bmc = self.bmcs[name]
        if bmc.kind != kind:
            raise ValueError(f"{name} is there already, as {bmc.kind}")
        return bmc

    def _build(self, setup: Setup, password: SecretStr, given: Machine | None = None) -> EmulatedBmc:
        if not NAME.fullmatch(setup.name):
            raise ValueError(f"not a name for a BMC: {setup.name!r}")
        maker = hardware.MAKERS[setup.maker]
        if given is not None and self._kept is not None:
            raise ValueError("a rack with a state folder makes its machines itself")
        machines = {} if given is None else {given.hardware.system_id: given}
        for n in range(1, setup.systems + 1) if given is None else ():
            system, name = str(n), setup.name if setup.systems == 1 else f"{setup.name}.{n}"
            made = hardware.hardware(self.seed, setup.name, system, name, maker)
            drives = hardware.drives(self.seed, setup.name, system, setup.drives, maker)
            machines[system] = Machine(made, drives, self.clock)
        certificate = self._dir / f"{setup.name}.pem" if setup.kind == REDFISH and setup.tls else None
        bmc = EmulatedBmc(setup, password, machines, certificate)
        if certificate is not None:
            serve.certificate(certificate, bmc.host, setup.name)
        bmc.front = self._front(bmc, maker)
        self._counts[setup.name] = Counter()
        return bmc

    def _front(self, bmc: EmulatedBmc, maker: hardware.Maker) -> Front:
        if bmc.kind == IPMI:
            from bcmetal_drivers.emulated.ipmi import IpmiFront  # pyghmi is needed only where there is an IPMI BMC

            return IpmiFront(bmc, self)
        return RedfishFront(
            bmc.name, bmc.host, bmc.setup.port, bmc.certificate, maker, bmc.by_system, bmc.username, bmc.password, self,
            (ipaddress.ip_network(bmc.setup.reach),) if bmc.setup.reach else LOOPBACK,
        )  # fmt: skip

    def _added(self, bmc: EmulatedBmc) -> EmulatedBmc:
        with self._lock:
            self.bmcs[bmc.name] = bmc
            if self._running:
                self._start(bmc)
            self._keep(bmc)
        return bmc

    # ------------------------------------------------------------ running

    def start(self) -> None:
        """Bind every BMC that is not yet running."""
        try:
            for bmc in self.bmcs.values():
                self._start(bmc)
        except OSError:
            self.stop()
            raise
        self.snapshot()

    def _start(self, bmc: EmulatedBmc) -> None:
        if bmc.name not in self._running:
            bmc.front.start()
            self._running.add(bmc.name)

    def stop(self) -> None:
        """Close all ports, keep the state; `start` goes on from there."""
        running = [self.bmcs[name] for name in sorted(self._running)]
        self._running.clear()
        if running:
            with ThreadPoolExecutor(max_workers=16) as threads:
                list(threads.map(lambda bmc: bmc.front.stop(), running))
        self.snapshot()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    # ------------------------------------------------------------ rules, counts

    def rule(self, rule: Rule) -> int:
        return self.rules.add(rule)

    def clear(self, rule_id: int | None = None) -> None:
        """One rule, or all."""
        self.rules.clear(rule_id)

    def fired(self, rule_id: int) -> int:
        return self.rules.fired(rule_id)

    def requests(self, bmc: EmulatedBmc | str) -> Counter[str]:
        """How many requests of each HTTP method, or of each IPMI command, a BMC got."""
        with self._lock:
            return Counter(self._counts[_name(bmc)])

    def sessions(self, bmc: EmulatedBmc | str) -> int:
        return self.bmcs[_name(bmc)].front.sessions()

    def failed_logins(self, bmc: EmulatedBmc | str) -> int:
        return self.bmcs[_name(bmc)].front.failed_logins

    # ------------------------------------------------------------ for the fronts

    def fire(self, bmc: str, method: str, path: str) -> LiveRule | None:
        """For IPMI: the first rule that applies, counted as fired. A lock-out fires at the failure that reaches its number."""
        if method == FAILED_LOGIN:
            self._failures[bmc, path] += 1
            lock = self.rules.standing(bmc, "lock_after")
            if lock is None or self._failures[bmc, path] < lock.rule.n or not lock.fire():
                return None
            self._failures.pop((bmc, path), None)
            return lock
        return next((rule for rule in self.rules.matching(bmc, method, path) if rule.fire()), None)

    def wrote(self, bmc: str, machine: str | None, method: str, path: str, kind: str) -> None:
        """Record it, keep the BMC's state, tell `on_write`; all before the answer is sent."""
        with self._lock:
            write = Write(len(self.writes) + 1, bmc, machine, method, path, self.clock(), kind)
            self.writes.append(write)
            if kind == "session":
                self._failures.pop((bmc, path), None)
            elif bmc in self.bmcs:
                self._keep(self.bmcs[bmc])
        if self.on_write is not None:
            self.on_write(write)

    def counted(self, bmc: str, what: str) -> None:
        with self._lock:
            self._counts[bmc][what] += 1

    def password_changed(self, bmc: str, username: str, password: SecretStr) -> None:
        known = self.bmcs[bmc]
        if username == known.username:
            known.password = password

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> None:
        """Write every BMC's state to `state_dir`; without one, nothing."""
        with self._lock:
            for bmc in self.bmcs.values():
                self._keep(bmc)

    def _keep(self, bmc: EmulatedBmc) -> None:
        if self._kept is None:
            return
        setup = {field: getattr(bmc.setup, field) for field in Setup.__slots__} | {"port": bmc.port}
        doc = {
            "setup": setup,
            "password": bmc.password.get_secret_value(),
            "front": bmc.front.snapshot(),
            "machines": {system: machine.snapshot() for system, machine in bmc.by_system.items()},
        }
        path = self._kept / f"bmc-{bmc.name}.json"
        scratch = path.with_suffix(".new")
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(doc, f)
        scratch.replace(path)

    def _load(self, doc: Mapping[str, Any]) -> None:
        bmc = self._build(Setup(**doc["setup"]), SecretStr(doc["password"]))
        bmc.front.restore(doc["front"])
        for system, machine in bmc.by_system.items():
            machine.restore(doc["machines"][system])
        self.bmcs[bmc.name] = bmc


def _name(bmc: EmulatedBmc | str) -> str:
    return bmc if isinstance(bmc, str) else bmc.name
