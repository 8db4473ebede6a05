"""qemu's monitor protocol over a socket that qemu inherited: commands, and events in a thread of their own."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

TIMEOUT_S: Final = 30.0
Event = dict[str, Any]


class QmpFault(Exception):
    """qemu refused a command, or is gone; the message is its own."""


class Qmp:
    """One monitor. `on_event` may ask commands itself: it is not called by the thread that reads the answers."""

    def __init__(self, line: socket.socket, on_event: Callable[[Event], None]) -> None:
        self._line = line
        self._file = line.makefile("rb")
        self._on_event = on_event
        self._lock = threading.Lock()
        self._answers: queue.Queue[Event | None] = queue.Queue()
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (self._read, self._tell)]

    def open(self) -> None:
        """Wait for the greeting. Raises QmpFault where qemu ended instead."""
        self._line.settimeout(TIMEOUT_S)
        try:
            greeting = self._file.readline()
        except OSError as e:
            raise QmpFault("qemu did not greet") from e
        if b"QMP" not in greeting:
            raise QmpFault("qemu ended before it greeted")
        self._line.settimeout(None)
        for thread in self._threads:
            thread.start()
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: Any) -> Any:
        """What the command returns. Names with a dash are written with an underscore."""
        wanted = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self._lock:
            try:
                self._line.sendall(json.dumps({"execute": command, "arguments": wanted}).encode() + b"\n")
                answer = self._answers.get(timeout=TIMEOUT_S)
            except (OSError, queue.Empty) as e:
                raise QmpFault(f"{command}: qemu does not answer") from e
            if answer is None:
                self._answers.put(None)
                raise QmpFault(f"{command}: qemu is gone")
        if "error" in answer:
            raise QmpFault(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        if self._threads[0].is_alive():
            self._threads[0].join(timeout=5)
        self._file.close()
        self._line.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for raw in self._file:
                heard = json.loads(raw)
                (self._events if "event" in heard else self._answers).put(heard)
        self._answers.put(None)
        self._events.put(None)

    def _tell(self) -> None:
        while (event := self._events.get()) is not None:
            with contextlib.suppress(QmpFault):  # qemu may end while its event is dealt with
                self._on_event(event)
