"""The demonstration's daemon: a process of its own, as in earnest."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final

READY: Final = re.compile(r"bcmetald: ready, API (https://\S+)")
START_S: Final = 60.0
STOP_S: Final = 20.0


class DaemonFault(Exception):
    """The daemon did not start, or ended by itself."""


class DaemonProcess:
    """`bcmetal serve --config`, its output in a file. `address` is the API's, from the line that says it is ready."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config = config
        self.log = log
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DaemonProcess:
        command = [sys.executable, "-m", "bcmetal.cli", "serve", "--config", str(self._config)]
        with self.log.open("wb") as out:
            # A session of its own: Ctrl-C reaches the demonstration alone, which then ends the daemon in order.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        try:
            self.address = self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = READY.search(self.log.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found[1]
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise DaemonFault(f"the daemon did not get ready:\n{self.last_words()}")

    def last_words(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it in order, if it still runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
