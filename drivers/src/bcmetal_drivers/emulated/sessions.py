"""Sessions of a Redfish BMC: a bounded table of tokens that expire when they are not used."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from bcmetal_drivers.emulated.quirks import Quirks


class TableFull(Exception):
    """No room for another session."""


@dataclass(slots=True)
class Session:
    """`used_at`: on the rack's clock."""

    id: str
    token: str
    username: str
    used_at: float


class Sessions:
    """Their limit and their idle time are quirks, and may change while they are open."""

    def __init__(self, quirks: Quirks, clock: Callable[[], float]) -> None:
        self._quirks = quirks
        self._clock = clock
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._by_token: dict[str, Session] = {}

    def open(self, username: str) -> Session:
        """Raises TableFull."""
        with self._lock:
            self._expire()
            if len(self._by_token) >= self._quirks.session_limit:
                raise TableFull
            session = Session(str(next(self._ids)), secrets.token_hex(16), username, self._clock())
            self._by_token[session.token] = session
            return session

    def find(self, token: str) -> Session | None:
        """By its token, which counts as a use."""
        with self._lock:
            self._expire()
            session = self._by_token.get(token)
            if session is not None:
                session.used_at = self._clock()
            return session

    def listed(self) -> list[Session]:
        with self._lock:
            self._expire()
            return list(self._by_token.values())

    def close(self, session_id: str) -> bool:
        with self._lock:
            known = next((token for token, session in self._by_token.items() if session.id == session_id), None)
            if known is not None:
                del self._by_token[known]
            return known is not None

    def close_all(self, username: str | None = None, but: str | None = None) -> None:
        """Those of one account, or all; not the one whose token is `but`."""
        with self._lock:
            self._by_token = {
                token: session
                for token, session in self._by_token.items()
                if token == but or (username is not None and session.username != username)
            }

    def _expire(self) -> None:
        now = self._clock()
        for token, session in list(self._by_token.items()):
            if now - session.used_at > self._quirks.session_timeout_s:
                del self._by_token[token]
