"""One GET over any number of redirects: every hop goes through the door in `outbound`, every read keeps its deadline."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from bcmetal.boot.outbound import (
    AddressRefused,
    NoConnection,
    Resolver,
    Target,
    connect,
    parse_target,
    permitted_addresses,
    resolve,
)

MAX_REDIRECTS: Final = 5
CHUNK: Final = 256 * 1024
SLICE_S: Final = 0.25  # how long a read may go on before it looks whether it was cancelled


class FetchCancelled(Exception):
    """The fetch was told to stop; what has arrived is kept for the next one."""


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What a site allows. `allowed`: host names, `*.suffix`, networks; see `outbound`. `ca_file` is trusted beside the system's.

    `connect_s` is for the connection and handshake of one hop, and again from its request to the end of the answer's head.
    """

    allowed: Sequence[str]
    limit_bytes: int
    ca_file: Path | None = None
    connect_s: float = 10.0
    stall_s: float = 30.0  # a body that brings less than `stall_bytes` in this time has stalled
    stall_bytes: int = 16 * 1024
    resolver: Resolver = resolve


class Wire(io.RawIOBase):
    """The socket as a reader that never blocks past its deadline, and soon sees that it was cancelled.

    A deadline on each read alone is none: a server that sends a byte a second would never miss it.
    """

    def __init__(self, line: socket.socket, policy: FetchPolicy, cancelled: Callable[[], bool]) -> None:
        self._line = line
        self._policy = policy
        self._cancelled = cancelled
        self._until = time.monotonic() + policy.connect_s
        self._came: int | None = None  # bytes since the deadline was set; None: still in the head

    def body_begins(self) -> None:
        self._came = 0
        self._until = time.monotonic() + self._policy.stall_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._cancelled():
                raise FetchCancelled
            left = self._until - time.monotonic()
            if left <= 0:
                raise NoConnection("the server has stalled")
            self._line.settimeout(min(left, SLICE_S))
            try:
                count = self._line.recv_into(buffer)
            except TimeoutError:
                continue
            except OSError as error:
                raise NoConnection("the connection was lost") from error
            if self._came is not None:
                self._came += count
                if self._came >= self._policy.stall_bytes:
                    self.body_begins()
            return count


class Answer(http.client.HTTPResponse):
    """The answer to one GET, read through a `Wire`. Closing it closes the connection."""

    def __init__(self, line: socket.socket, policy: FetchPolicy, cancelled: Callable[[], bool]) -> None:
        super().__init__(line, method="GET")
        self.fp.close()
        self.wire = Wire(line, policy, cancelled)
        self.fp = io.BufferedReader(self.wire, CHUNK)
        self.line = line

    def close(self) -> None:
        super().close()
        self.line.close()


def _ask(target: Target, extra: dict[str, str], policy: FetchPolicy, cancelled: Callable[[], bool]) -> Answer:
    """One GET, up to the end of the answer's head."""
    if cancelled():
        raise FetchCancelled
    addresses = permitted_addresses(target, policy.allowed, policy.resolver)
    line = connect(target, addresses, policy.connect_s, policy.ca_file)
    fields = {
        "Host": target.authority,
        "User-Agent": "bcmetal",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **extra,
    }
    head = f"GET {target.path} HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in fields.items()) + "\r\n"
    with ExitStack() as undo:
        undo.callback(line.close)
        try:
            line.sendall(head.encode("ascii"))
            answer = Answer(line, policy, cancelled)
            undo.callback(answer.close)
            answer.begin()
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise NoConnection("the server does not speak HTTP as it should") from error
        undo.pop_all()
    answer.wire.body_begins()
    return answer


def follow(url: str, extra: dict[str, str], policy: FetchPolicy, cancelled: Callable[[], bool]) -> Answer:
    """The first answer that is no redirect. Each hop is parsed, resolved and checked like the first.

    From https to http is allowed, mirrors do it: the checksum vouches for the image, not the wire.
    """
    for _ in range(MAX_REDIRECTS + 1):
        answer = _ask(parse_target(url), extra, policy, cancelled)
        if answer.status not in (301, 302, 303, 307, 308):
            return answer
        with answer:
            location = answer.getheader("Location", "")
        if not location:
            raise AddressRefused("the server redirects to nowhere")
        try:
            url = urljoin(url, location)
        except ValueError:
            raise AddressRefused("the address is not a plain URL") from None
    raise AddressRefused(f"the server redirects more than {MAX_REDIRECTS} times")
