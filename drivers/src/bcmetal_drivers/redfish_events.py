"""What a BMC tells by itself: server-sent events where it offers them (DSP0266, "Server-sent events"), else its log, looked at again.

A push needs a listener that BMCs reach, and answers to whoever finds it: there is none here. A listener of ours asks, and ends with
its call. `after` is the `ref` of the last event that was taken: refs of the stream and of the log are told apart by their first word.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

from bcmetal_drivers import redfish_logs
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Malformed, Refused, Unsupported
from bcmetal_drivers.redfish_document import Doc, dig, link, objects, severity_word, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BmcEvent, LogEntry
from bcmetal_drivers.stream import OpenStream

STREAM, LOG = "sse:", "log:"
ACCEPT: Final = {"Accept": "text/event-stream"}
STREAM_S: Final = 900.0  # then it is opened anew: a BMC that fell silent is noticed by that
WAIT_AT_MOST_S: Final = 30.0
LOOK_S: Final = 3.0
LOG_LIMIT: Final = 100
EVENTS: Final = 500
DATA_LIMIT: Final = 1024 * 1024


def events(tree: Tree, wait_s: float, after: str | None) -> tuple[BmcEvent, ...]:
    wait = max(0.0, min(wait_s, WAIT_AT_MOST_S))
    path = None if tree.learned.get("sse") is False else _stream(tree)
    if path is not None:
        with tolerated(Refused, Unsupported, Malformed):
            return _listened(tree, path, wait, after)
        tree.learned["sse"] = False  # it is named, and does not work
    return _looked(tree, wait, after)


def offered(tree: Tree) -> bool:
    """Whether the BMC tells of events itself."""
    return _stream(tree) is not None


class EventStream:
    """The BMC's stream, open. It ends by itself now and then: what came meanwhile is not told."""

    def __init__(self, opened: OpenStream) -> None:
        self._opened = opened

    def events(self) -> Iterator[BmcEvent]:
        """As they come. Raises DriverError for what is no stream of events."""
        try:
            for ref, data in _messages(self._opened.lines(STREAM_S)):
                yield from _events(ref, data)
        except ValueError as error:  # http.client's, for chunks of no length
            raise Malformed(f"{self._opened.url}: no stream of events") from error

    def hang_up(self) -> None:
        self._opened.hang_up()

    def close(self) -> None:
        self._opened.close()


def open_stream(tree: Tree) -> EventStream | None:
    path = None if tree.learned.get("sse") is False else _stream(tree)
    if path is None:
        return None
    with tolerated(Refused, Unsupported, Malformed):
        return EventStream(tree.door.stream(path, ACCEPT))
    tree.learned["sse"] = False  # it is named, and does not work
    return None


def _stream(tree: Tree) -> str | None:
    service = tree.find(link(tree.root(), "EventService"))
    if dig(service, "ServiceEnabled") is False:
        return None
    return text(service, "ServerSentEventUri", limit=1024)


# ---------------------------------------------------------------- the stream


def _listened(tree: Tree, path: str, wait: float, after: str | None) -> tuple[BmcEvent, ...]:
    """Ends when the time is up; with the first events that came it ends at once, so that nobody waits for more."""
    last = after.removeprefix(STREAM) if after is not None and after.startswith(STREAM) else None
    headers = {**ACCEPT, **({"Last-Event-ID": last} if last and last.isprintable() else {})}
    found: list[BmcEvent] = []
    for ref, data in _messages(tree.door.lines(path, wait, headers)):
        if after is None or f"{STREAM}{ref}" != after:
            found += _events(ref, data)
        if found:
            break
    return tuple(found[:EVENTS])


def _messages(lines: Iterator[bytes]) -> Iterator[tuple[str, Doc]]:
    """The stream's messages as (id, document); what is no JSON object is passed over (HTML Living Standard, 9.2.6)."""
    ref, size = "", 0
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                ref = "".join(c for c in value if c.isprintable())[:256]
            elif field == "data" and size < DATA_LIMIT:
                data.append(value)
                size += len(value)
            continue
        if data:
            document = _document("\n".join(data))
            if document is not None:
                yield ref, document
        data, size = [], 0


def _document(written: str) -> Doc | None:
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _events(ref: str, document: Doc) -> Iterator[BmcEvent]:
    for one in objects(document, "Events", limit=EVENTS):
        origin = link(one, "OriginOfCondition") or text(one, "OriginOfCondition", limit=1024)
        yield BmcEvent(
            f"{STREAM}{ref}" if ref else "",
            text(one, "EventTimestamp"),
            severity_word(text(one, "MessageSeverity") or text(one, "Severity")),
            text(one, "Message", limit=redfish_logs.MESSAGE_LIMIT) or text(one, "MessageId") or "",
            text(one, "MessageId"),
            origin[:1024] if origin else None,
        )


# ---------------------------------------------------------------- the log


def _looked(tree: Tree, wait: float, after: str | None) -> tuple[BmcEvent, ...]:
    """What came is told at once. Without `after` it is what came since this conversation first looked."""
    end = time.monotonic() + wait
    listed = redfish_logs.event_log(tree, LOG_LIMIT)
    ground = tree.learned.setdefault("log_seen", listed[-1].ref if listed else "")
    if after is not None and after.startswith(LOG):
        ground = after.removeprefix(LOG)
    while True:
        fresh = redfish_logs.since(listed, ground)
        left = end - time.monotonic()
        if fresh or left <= 0:
            tree.learned["log_seen"] = listed[-1].ref if listed else ""
            return tuple(_of_log(entry) for entry in fresh)
        time.sleep(tree.door.left_s(min(LOOK_S, left)))
        listed = redfish_logs.event_log(tree, LOG_LIMIT)


def _of_log(entry: LogEntry) -> BmcEvent:
    return BmcEvent(f"{LOG}{entry.ref}", entry.at, entry.severity, entry.message, None, None)
