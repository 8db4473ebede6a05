"""Images on their way to agents: a few at once for each, and none for whoever takes no bytes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from bcmetal.errors import RateLimited

log = logging.getLogger(__name__)

AT_ONCE: Final = 4  # of one session: it reads one, and some may be left over from lines that broke
STALL_S: Final = 60.0  # the agent gives up after half of it


class Images:
    """Who reads how many now."""

    def __init__(self, stall_s: float = STALL_S) -> None:
        self._open: Counter[str] = Counter()
        self._stall_s = stall_s

    def answer(self, file: Path, session_id: str) -> Response:
        """The file, or one range of it. Raises RateLimited."""
        if self._open[session_id] >= AT_ONCE:
            raise RateLimited("this agent reads its image several times at once", retryAfterS=5)
        return _Image(file, session_id, self._open, self._stall_s)


class _Image(FileResponse):
    """Several ranges at once are not answered as such: the whole file is (RFC 9110, 14.2)."""

    def __init__(self, file: Path, session_id: str, opened: Counter[str], stall_s: float) -> None:
        super().__init__(file, media_type="application/octet-stream", headers={"Cache-Control": "no-store"})
        self._session_id, self._opened, self._stall_s = session_id, opened, stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(self._stall_s):
                await send(message)

        headers = [(name, value) for name, value in scope["headers"] if name != b"range" or b"," not in value]
        self._opened[self._session_id] += 1
        try:
            await super().__call__({**scope, "headers": headers}, receive, in_time)
        except TimeoutError:  # the answer is not whole, at which the server cuts the line
            log.warning("session %s takes no more of its image: the line is cut", self._session_id)
        finally:
            self._opened[self._session_id] -= 1
            self._opened += Counter()  # forgets whoever reads none
