"""A TCP connection within a deadline that holds, whatever the other side or the resolver does."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from bcmetal_drivers.connection import Limits
from bcmetal_drivers.errors import TimedOut, Unreachable


class Deadline:
    """A moment that is not passed, whatever happens, unless what is done shows that it goes on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def extend(self, seconds: float) -> None:
        """No earlier than so many seconds from now."""
        self._end = max(self._end, time.monotonic() + seconds)

    def left(self, at_most: float, where: str) -> float:
        """Seconds that the next operation may take. Raises TimedOut when none is left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"{where}: the BMC did not answer within the total deadline")
        return min(left, at_most)


def connect(host: str, port: int, limits: Limits, deadline: Deadline) -> socket.socket:
    """A TCP connection, to the first of the host's addresses that takes it. Raises Unreachable, TimedOut."""
    where = f"{host}:{port}"
    end = Deadline(deadline.left(limits.connect_s, where))
    trouble: OSError | None = None
    for family, address in _resolve(host, port, end, where):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(end.left(limits.connect_s, where))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            sock.close()
            raise TimedOut(f"{where}: no connection within {limits.connect_s:g} s") from None
        except OSError as error:
            sock.close()
            trouble = error
        except TimedOut:
            sock.close()
            raise
        else:
            return sock
    raise Unreachable(f"{where}: {_words(trouble)}") from trouble


def _resolve(host: str, port: int, end: Deadline, where: str) -> list[tuple[int, Any]]:
    """In a thread of its own, for a resolver has no deadline."""
    found: list[tuple[int, Any]] = []
    failed: list[OSError] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failed.append(error)
        else:
            found.extend((answer[0], answer[4]) for answer in answers)

    if host[:1].isdigit() or ":" in host:
        look_up()  # a literal asks nobody
    else:
        thread = threading.Thread(target=look_up, daemon=True, name="resolve")
        thread.start()
        thread.join(end.left(60.0, where))
    if failed:
        raise Unreachable(f"{where}: the host's name is not found") from failed[0]
    if not found:
        raise TimedOut(f"{where}: the host's name was not resolved in time")
    return found


def _words(error: OSError | None) -> str:
    return (error.strerror or type(error).__name__).lower() if error is not None else "no address"
