"""The one way to run a program: an argument list, a deadline, a bound on what it prints, and no shell."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO, Final

from bcmetal_agent.tasks.doing import Doing, TaskFailed

LIMIT: Final = 4 * 2**20
_STEP_S: Final = 0.5  # how often a stop is looked for
_CHUNK: Final = 64 * 1024
_ENV: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TERM": "dumb", "HOME": "/"}


class ToolMissing(TaskFailed):
    def __init__(self, name: str) -> None:
        super().__init__("tool-missing", f"the ramdisk has no program {name}")


class ToolFailed(TaskFailed):
    """It ended with a code that was not expected, or by a signal (then `ran.code` is negative)."""

    def __init__(self, name: str, ran: Ran) -> None:
        said = (ran.err or ran.out).decode("utf-8", "replace").strip().splitlines()
        super().__init__(
            "tool-failed", f"{name} ended with {ran.code}: {said[-1][:300] if said else 'it said nothing'}"
        )
        self.ran = ran


class ToolTimedOut(TaskFailed):
    def __init__(self, name: str, deadline_s: float) -> None:
        super().__init__("tool-timeout", f"{name} did not end within {deadline_s:.0f} s and was killed")


@dataclass(frozen=True, slots=True)
class Ran:
    """`out` and `err` are cut at the limit; `cut` says so."""

    code: int
    out: bytes
    err: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    stdin: bytes = b"",
    expect: Collection[int] | None = (0,),
    limit: int = LIMIT,
    doing: Doing | None = None,
) -> Ran:
    """Run it to its end, with all that it started in a group of its own. `expect` None: any code will do.

    PATH is the ramdisk's, or the value of BCMETAL_AGENT_PATH. Raises ToolMissing, ToolFailed, ToolTimedOut; Stopped from `doing`, after
    the program was killed.
    """
    name = argv[0]
    env = {**_ENV, "PATH": _path()}
    program = find(name)
    try:
        process = subprocess.Popen(  # noqa: S603 - a list, and no shell
            [program, *argv[1:]],
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise ToolMissing(name) from None
    with process:
        try:
            return _gather(process, name, stdin, deadline_s, limit, expect, doing)
        finally:
            _end(process)


def find(name: str) -> str:
    """The program's path, for one that `run` is not for. Raises ToolMissing."""
    if "/" in name:
        return name
    for folder in _path().split(":"):
        candidate = f"{folder}/{name}"
        if os.access(candidate, os.X_OK):
            return candidate
    raise ToolMissing(name)


def _path() -> str:
    return os.environ.get("BCMETAL_AGENT_PATH") or _ENV["PATH"]


def _gather(
    process: subprocess.Popen[bytes],
    name: str,
    stdin: bytes,
    deadline_s: float,
    limit: int,
    expect: Collection[int] | None,
    doing: Doing | None,
) -> Ran:
    until = time.monotonic() + deadline_s
    kept: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    cut = False
    to_write = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for pipe, word in ((process.stdout, "out"), (process.stderr, "err")):
            selector.register(_open(pipe), selectors.EVENT_READ, word)
        if stdin:
            os.set_blocking(_open(process.stdin).fileno(), False)
            selector.register(_open(process.stdin), selectors.EVENT_WRITE, "in")
        while selector.get_map():
            for key, _ in selector.select(_step(name, until, deadline_s, doing)):
                if key.data == "in":
                    to_write = to_write[_written(key.fd, to_write) :]
                    if not to_write:
                        selector.unregister(key.fileobj)
                        _open(process.stdin).close()
                    continue
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                room = limit - len(kept[key.data])
                kept[key.data] += chunk[:room]
                cut = cut or len(chunk) > room
    while process.poll() is None:  # it closed its output, and goes on
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_step(name, until, deadline_s, doing))
    ran = Ran(process.returncode, bytes(kept["out"]), bytes(kept["err"]), cut)
    if expect is not None and ran.code not in expect:
        raise ToolFailed(name, ran)
    return ran


def _step(name: str, until: float, deadline_s: float, doing: Doing | None) -> float:
    """How long to wait now. Raises Stopped, ToolTimedOut."""
    if doing is not None:
        doing.check()
    left = until - time.monotonic()
    if left <= 0:
        raise ToolTimedOut(name, deadline_s)
    return min(left, _STEP_S)


def _written(pipe: int, data: memoryview) -> int:
    """How much of it the program took; all, where it takes no more."""
    try:
        return os.write(pipe, data[:_CHUNK])
    except BrokenPipeError:
        return len(data)


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill its group unless it ended well, with what it left behind it at its output, so that no program outlives its task."""
    if process.returncode is None:  # not waited for yet, even where it has ended: the group's number is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
