"""The lines of an answer that does not end, such as server-sent events: bounded in length, number and time."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Final

from bcmetal_drivers.errors import Malformed, TimedOut
from bcmetal_drivers.tcp import Deadline
from bcmetal_drivers.wire import Line

LINE_LIMIT: Final = 256 * 1024
TOTAL_LIMIT: Final = 4 * 1024 * 1024


def stream_lines(line: Line, response: http.client.HTTPResponse, wait_s: float, url: str) -> Iterator[bytes]:
    """Until the time is up, the other side ends it, or too much came. Raises Malformed for a line that does not end."""
    end, size = Deadline(wait_s), 0
    line.listen(end)
    while size < TOTAL_LIMIT:
        try:
            got = response.readline(LINE_LIMIT + 1)
        except (TimedOut, OSError, http.client.HTTPException):
            return  # the time is up, or the BMC went away: what came before is what there is
        if not got:
            return
        if len(got) > LINE_LIMIT:
            raise Malformed(f"{url}: a line of the stream is longer than {LINE_LIMIT // 1024} KiB")
        size += len(got)
        yield got


class OpenStream:
    """One that is open, on a connection of its own. One thread reads and closes it; `hang_up` may come from another, and ends the reading."""

    def __init__(self, line: Line, response: http.client.HTTPResponse, url: str) -> None:
        self._line = line
        self._response = response
        self.url = url

    def lines(self, wait_s: float) -> Iterator[bytes]:
        """As `stream_lines`."""
        return stream_lines(self._line, self._response, wait_s, self.url)

    def hang_up(self) -> None:
        self._line.hang_up()

    def close(self) -> None:
        self._line.close()
