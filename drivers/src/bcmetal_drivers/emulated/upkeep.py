"""What a Redfish BMC of the rack keeps of its own: its event log, who listens to it, and the ways from its host into it."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

KEPT: Final = 1024
HEARTBEAT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    at: str
    severity: str  # OK, Warning, Critical
    message: str
    sensor: str = ""


class Upkeep:
    """`tell` notes an event, and every open stream of events hears of it. Older ones give way to newer ones."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=KEPT)
        self.interface = True  # the Redfish host interface is on
        self.bootstrap = True  # the host may ask for an account
        self.kcs = True  # IPMI without a password, from the host
        self.resets = 0
        self._told = 0
        self._news = threading.Condition()
        self._closing = False

    # ------------------------------------------------------------ the log

    def tell(self, message: str, severity: str = "OK", sensor: str = "", at: str | None = None) -> Entry:
        with self._news:
            self._told += 1
            entry = Entry(
                self._told, at or datetime.now(UTC).isoformat(timespec="milliseconds"), severity, message, sensor
            )
            self.entries.append(entry)
            self._news.notify_all()
        return entry

    def clear(self) -> None:
        with self._news:
            self.entries.clear()

    # ------------------------------------------------------------ streams

    def close(self) -> None:
        """End every open stream."""
        with self._news:
            self._closing = True
            self._news.notify_all()

    def open(self) -> None:
        with self._news:
            self._closing = False

    def stream(self, after: int | None) -> Iterator[bytes]:
        """Server-sent events: what comes from now on, or after that number."""
        with self._news:
            last = self._told if after is None else after
        yield b": listening\n\n"
        while True:
            with self._news:
                fresh = [entry for entry in self.entries if entry.number > last]
                if not fresh and not self._closing:
                    self._news.wait(HEARTBEAT_S)
                    fresh = [entry for entry in self.entries if entry.number > last]
                if self._closing:
                    return
            for entry in fresh:
                last = entry.number
                yield f"id: {entry.number}\ndata: {json.dumps(event(entry))}\n\n".encode()
            if not fresh:
                yield b": still here\n\n"

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> dict[str, Any]:
        return {
            "entries": [asdict(entry) for entry in self.entries],
            "told": self._told,
            "ways": [self.interface, self.bootstrap, self.kcs],
            "resets": self.resets,
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.entries = deque((Entry(**entry) for entry in doc["entries"]), maxlen=KEPT)
        self._told, self.resets = doc["told"], doc["resets"]
        self.interface, self.bootstrap, self.kcs = doc["ways"]


def event(entry: Entry) -> dict[str, Any]:
    """As it is sent (Event v1.7)."""
    return {
        "@odata.type": "#Event.v1_7_0.Event",
        "Id": str(entry.number),
        "Name": "Event",
        "Events": [
            {
                "EventId": str(entry.number),
                "EventTimestamp": entry.at,
                "MessageSeverity": entry.severity,
                "MessageId": "Platform.1.0.PlatformError" if entry.severity != "OK" else "Platform.1.0.PlatformInfo",
                "Message": entry.message,
                "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
            }
        ],
    }
