"""What a connection may cost before its request is whole: uvicorn bounds neither the size of a request's head nor the time that it takes.

1. time     a request is whole within half a minute of its connection, or of the answer before it
2. size     neither its head nor what stands around its body is longer than a head may be
3. number   of the connections of a listener that ask for nothing the oldest makes room, so that nobody holds all of them
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

HEADER_LIMIT: Final = 32 * 1024
ASKED_WITHIN_S: Final = 30.0
AT_ONCE: Final = 1000
WAITING: Final = 800  # of those that are served at once

_waiting: Final[WeakKeyDictionary[ServerState, OrderedDict[PatientHttpTools, None]]] = WeakKeyDictionary()


class PatientHttpTools(HttpToolsProtocol):
    """A protocol whose patience ends."""

    asked_within_s: ClassVar[float] = ASKED_WITHIN_S
    at_most_waiting: ClassVar[int] = WAITING
    _due: asyncio.TimerHandle | None = None
    _unread = 0  # bytes since something was made of what came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._attend()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._unread > HEADER_LIMIT:
            self.transport.abort()
            return
        self._unread += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before all of it was here
            self._wait()
        else:
            self._attend()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():  # and nothing else was asked meanwhile
            self._wait()

    def _wait(self) -> None:
        """For a request."""
        self._attend()
        self._due = self.loop.call_later(self.asked_within_s, self.transport.abort)
        others = _waiting.setdefault(self.server_state, OrderedDict())
        others[self] = None
        if len(others) > self.at_most_waiting:
            next(iter(others)).give_way()

    def _attend(self) -> None:
        """To the request that is whole, or to nothing any more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
            _waiting.get(self.server_state, OrderedDict()).pop(self, None)

    def give_way(self) -> None:
        self._attend()
        self.transport.abort()
