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
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pydantic import SecretStr

from bcmetal_drivers.emulated import hardware, serve
from bcmetal_drivers.emulated.behaviours import setup_of
from bcmetal_drivers.emulated.bmc import IPMI, REDFISH, EmulatedBmc, Front, Setup
from bcmetal_drivers.emulated.conditions import Notes, facts_of
from bcmetal_drivers.emulated.effects import OF_MACHINES, take_place
from bcmetal_drivers.emulated.faults import FAILED_LOGIN, LiveRule, Rule, Rules
from bcmetal_drivers.emulated.front import RedfishFront
from bcmetal_drivers.emulated.hall import Hall
from bcmetal_drivers.emulated.machine import Boot, EmulatedDrive, Machine
from bcmetal_drivers.emulated.source import Source
from bcmetal_drivers.emulated.vmedia import LOOPBACK

__all__ = ["Boot", "EmulatedBmc", "EmulatedDrive", "Machine", "Rack", "Rule", "Write"]

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


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


class Rack:
    """All BMCs of one emulated site. A rack made again on the same `state_dir` has the BMCs of the one before."""

    def __init__(
        self,
        state_dir: Path | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        *,
        shared: bool = False,
        certificates: Path | None = None,
    ) -> None:
        """`shared`: one pool of threads serves all BMCs (`hall`), for racks of hundreds; one that hangs may then hold up others.

        `certificates`: the folder that keeps them where there is no `state_dir`.
        """
        self.seed = seed
        self.clock = clock
        self.rules = Rules()
        self.writes: list[Write] = []
        self.on_write: Callable[[Write], None] | None = None
        self.bmcs: dict[str, EmulatedBmc] = {}
        self._kept = state_dir
        self._hall = Hall() if shared else None
        self._dir = state_dir or certificates or Path(tempfile.mkdtemp(prefix="rack-"))
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if state_dir is None and certificates is None:
            weakref.finalize(self, shutil.rmtree, self._dir, ignore_errors=True)
        self._lock = threading.RLock()
        self._counts: dict[str, Counter[str]] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self._notes: dict[str, Notes] = {}
        self._running: set[str] = set()
        for path in sorted(self._dir.glob("bmc-*.json")) if state_dir else ():
            self._load(json.loads(path.read_text()))
        self.bmcs = dict(sorted(self.bmcs.items(), key=lambda item: item[1].setup.index))

    # ------------------------------------------------------------ BMCs

    def add_redfish(
        self,
        name: str,
        *,
        behaviours: Iterable[str] = (),
        systems: int | None = None,
        username: str = "admin",
        password: SecretStr | None = None,
        tls: bool = True,
        drives: int = 2,
        maker: str | None = None,
        host: str = "",
        reach: str = "",
        machine: Machine | None = None,
        source: Source | None = None,
        **quirks: Any,
    ) -> EmulatedBmc:
        """A BMC with `systems` machines of `drives` clean drives each, all off. One that `state_dir` knows is given back as it is.

        `behaviours`: see the package of that name; what is given here beside them counts more. `machine`: the one that it stands for, in
        the place of made ones, and `source`: where its documents come from; not with a `state_dir`. `host`, `reach`: see `Setup`.
        """
        if name in self.bmcs:
            return self._known(name, REDFISH)
        names = tuple(behaviours)
        given = setup_of(names)
        setup = Setup(
            name,
            REDFISH,
            len(self.bmcs),
            systems or given.get("systems", 1),
            username,
            tls,
            drives,
            maker or given.get("maker", "generic"),
            0,
            host or given.get("host", ""),
            reach,
            given.get("certificate", ""),
        )
        bmc = self._build(setup, password or SecretStr(secrets.token_urlsafe(12)), machine, source)
        bmc.behave(*names)
        bmc.set(**quirks)
        return self._added(bmc)

    def add_ipmi(
        self,
        name: str,
        *,
        behaviours: Iterable[str] = (),
        username: str = "admin",
        password: SecretStr | None = None,
        host: str = "",
        machine: Machine | None = None,
        **quirks: Any,
    ) -> EmulatedBmc:
        """A BMC that speaks IPMI alone, with one machine that is off; see `add_redfish`. `quirks`: see `IpmiFront.set`."""
        if name in self.bmcs:
            return self._known(name, IPMI)
        setup = Setup(name, IPMI, len(self.bmcs), 1, username, False, 2, "supermicro", 0, host)
        bmc = self._build(setup, password or SecretStr(secrets.token_urlsafe(12)), machine)
        bmc.behave(*behaviours)
        bmc.set(**quirks)
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

    def _build(
        self, setup: Setup, password: SecretStr, given: Machine | None = None, source: Source | None = None
    ) -> EmulatedBmc:
        if not NAME.fullmatch(setup.name):
            raise ValueError(f"not a name for a BMC: {setup.name!r}")
        maker = hardware.MAKERS[setup.maker]
        if (given is not None or source is not None) and self._kept is not None:
            raise ValueError("a rack with a state folder makes its machines itself")
        machines = {} if given is None else {given.hardware.system_id: given}
        for n in range(1, setup.systems + 1) if given is None else ():
            system, name = str(n), setup.name if setup.systems == 1 else f"{setup.name}.{n}"
            made = hardware.hardware(self.seed, setup.name, system, name, maker)
            drives = hardware.drives(self.seed, setup.name, system, setup.drives, maker)
            machines[system] = Machine(made, drives, self.clock)
        certificate = self._dir / f"{setup.name}.pem" if setup.kind == REDFISH and setup.tls else None
        bmc = EmulatedBmc(setup, password, machines, certificate, self.rules)
        if certificate is not None:
            serve.certificate(certificate, bmc.host, setup.name, setup.certificate)
        bmc.front = self._front(bmc, maker, source)
        self._counts[setup.name] = Counter()
        return bmc

    def _front(self, bmc: EmulatedBmc, maker: hardware.Maker, source: Source | None) -> Front:
        if bmc.kind == IPMI:
            from bcmetal_drivers.emulated.ipmi import IpmiFront  # pyghmi is needed only where there is an IPMI BMC

            return IpmiFront(bmc, self)
        return RedfishFront(
            bmc.name,
            bmc.host,
            bmc.setup.port,
            bmc.certificate,
            maker,
            bmc.by_system,
            bmc.username,
            bmc.password,
            self,
            (ipaddress.ip_network(bmc.setup.reach),) if bmc.setup.reach else LOOPBACK,
            source,
            old_tls=bmc.setup.certificate == "old-tls",
            listen=self._hall.listener if self._hall else serve.Listener,
        )

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
        """Holds from now on; its id, for `clear` and `fired`."""
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
        """For IPMI: the first rule that applies, counted as fired, its effects on the machine done.

        A lock-out fires at the failure that reaches its number.
        """
        if method == FAILED_LOGIN:
            self._failures[bmc, path] += 1
            lock = self.rules.standing(bmc, "lock_after")
            if lock is None or self._failures[bmc, path] < lock.rule.n or not lock.fire():
                return None
            self._failures.pop((bmc, path), None)
            return lock
        machine = self.bmcs[bmc].machine
        facts = facts_of(None, machine, self._notes.setdefault(bmc, Notes(self.clock)))
        live = next((rule for rule in self.rules.matching(bmc, method, path, facts) if rule.fire()), None)
        if live is not None:
            effects = {**live.rule.before, **live.rule.effect}
            take_place({name: args for name, args in effects.items() if name in OF_MACHINES}, machine)
        return live

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
        setup = Setup(**doc["setup"])
        bmc = self._build(setup, SecretStr(doc["password"]))
        bmc.behave(*setup.behaviours)
        bmc.front.restore(doc["front"])
        for system, machine in bmc.by_system.items():
            machine.restore(doc["machines"][system])
        self.bmcs[bmc.name] = bmc


def _name(bmc: EmulatedBmc | str) -> str:
    return bmc if isinstance(bmc, str) else bmc.name
