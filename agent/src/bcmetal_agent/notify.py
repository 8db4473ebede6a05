"""What systemd hears of the agent: sd_notify(3), without its library."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bcmetal_agent.pace import Clock

TICK_S: Final = 60.0  # the longest sleep at a stretch: the wall clock may step, and renewals go by it


@dataclass(frozen=True)
class Notifier:
    """`address`: NOTIFY_SOCKET, empty without systemd. `tick_s`: how often the watchdog is to be told that we live."""

    address: str = ""
    tick_s: float = TICK_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        tick_s = TICK_S
        with contextlib.suppress(ValueError):
            microseconds = int(environment.get("WATCHDOG_USEC", ""))
            if microseconds > 0 and environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
                tick_s = min(TICK_S, microseconds / 2_000_000)
        return cls(environment.get("NOTIFY_SOCKET", ""), tick_s)

    def ready(self) -> None:
        self._send("READY=1")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def doing(self, text: str) -> None:
        self._send(f"STATUS={' '.join(text.split())}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def sleep(self, clock: Clock, seconds: float) -> None:
        """Sleep in ticks, and live on between them."""
        end = clock.monotonic() + seconds
        self.alive()
        while (left := end - clock.monotonic()) > 0:
            clock.sleep(min(left, self.tick_s))
            self.alive()

    def _send(self, message: str) -> None:
        if not self.address.startswith(("/", "@")):
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.sendto(
                message.encode(), self.address.replace("@", "\0", 1) if self.address[0] == "@" else self.address
            )
