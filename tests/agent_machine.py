"""A machine for the agent's tests: a made /sys, a state folder, a token file, and a clock that only sleeping moves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from bcmetal_agent.bearer import TokenSource
from bcmetal_agent.join import Joiner, Plan
from bcmetal_agent.notify import Notifier
from bcmetal_agent.run import Agent, SecretsPlan
from bcmetal_agent.state import Identity, StateFolder
from bcmetal_agent.trust import Endpoint, Pin
from fake_control_plane import a_token

UUID = "9f1c4a52-6a3e-4c1b-8a57-0d8f6a1b2c3d"


class Enough(BaseException):
    """The clock has been slept past its end."""


@dataclass
class SleptClock:
    """Begins now. Raises Enough when it would pass `end_s`."""

    end_s: float = 1e9
    slept: list[float] = field(default_factory=list)
    ahead: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        self._began = datetime.now(UTC)
        self._us = 0  # whole numbers: a sleep too short for a float would never end

    def now(self) -> datetime:
        return self._began + self.ahead + timedelta(microseconds=self._us)

    def monotonic(self) -> float:
        return self._us / 1_000_000

    def sleep(self, seconds: float) -> None:
        if self.monotonic() + seconds > self.end_s:
            raise Enough
        self._us += max(1, math.ceil(seconds * 1_000_000))
        self.slept.append(seconds)


def a_sys(root: Path) -> Path:
    """One server with one network card."""
    dmi = root / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "product_uuid").write_text(f"{UUID}\n")
    (dmi / "product_serial").write_text("SN-4711\n")
    a_card(root, "eno1", "3c:ec:ef:00:11:22")
    return root


def a_card(root: Path, name: str, address: str, *, device: bool = True, **files: str) -> Path:
    card = root / "sys/class/net" / name
    card.mkdir(parents=True)
    (card / "address").write_text(f"{address}\n")
    for file, text in {"type": "1", "addr_assign_type": "0", **files}.items():
        (card / file).write_text(f"{text}\n")
    if device:
        (card / "device").mkdir()
    return card


class Listening(Protocol):
    """Where a control plane listens, and what its root is."""

    @property
    def url(self) -> str: ...

    @property
    def node_url(self) -> str: ...

    @property
    def pin(self) -> str: ...


@dataclass
class Machine:
    plane: Listening
    folder: Path
    token: str = field(default_factory=a_token)
    clock: SleptClock = field(default_factory=SleptClock)

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        if not self.root.exists():
            a_sys(self.root)
        self.token_file = self.folder / "token"
        self.token_file.write_text(self.token + "\n")
        self.token_file.chmod(0o600)
        self.state = StateFolder(self.folder / "state")

    def plan(self, **changes: Any) -> Plan:
        plan = Plan(
            server=Endpoint.parse(self.plane.url),
            node_server=Endpoint.parse(self.plane.node_url),
            pin=Pin.parse(self.plane.pin),
            token=TokenSource(str(self.token_file)),
            root=self.root,
            gpu_tool="no-such-tool",
            call_s=10,
        )
        return replace(plan, **changes)

    def agent(self, *, secrets: SecretsPlan | None = None, notifier: Notifier | None = None, **changes: Any) -> Agent:
        joiner = Joiner(self.plan(**changes), self.state, lambda: 0.5, self.clock)
        return Agent(self.state, joiner, self.clock, lambda: 0.5, notifier or Notifier(), secrets, joiner.plan.call_s)

    def join(self, **changes: Any) -> Identity:
        with self.state.locked():
            found = self.agent(**changes).join()
        assert isinstance(found, Identity)
        return found

    def run_for(self, seconds: float, **changes: Any) -> None:
        """The agent's `run`, until its clock has been slept that far."""
        self.clock.end_s = self.clock.monotonic() + seconds
        with self.state.locked():
            try:
                self.agent(**changes).run()
            except Enough:
                return

    def arguments(self, verb: str, *more: str) -> list[str]:
        """Of the command line."""
        where = ["--server", self.plane.url, "--node-server", self.plane.node_url, "--ca", self.plane.pin]
        files = ["--token-file", str(self.token_file), "--root", str(self.root), "--state-dir", str(self.state.path)]
        return [verb, *where, *files, *more]
