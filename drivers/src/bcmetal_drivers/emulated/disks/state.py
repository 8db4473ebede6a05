"""The state of one drive, in a JSON file that the programs share, and what happens to its data."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

_PIECE: Final = 1 << 20


@dataclass
class Security:
    """ATA's security feature set. `frozen_at_boot`: the firmware freezes it, each time. `deaf`: the sense data of a bridge that keeps the
    commands to itself. `keeps`: it still has its password after an erase that it calls good."""

    supported: bool = True
    enhanced: bool = True
    enabled: bool = False
    locked: bool = False
    frozen: bool = False
    frozen_at_boot: bool = False
    deaf: str = ""
    keeps: bool = False
    password: str = ""


@dataclass
class Drive:
    """`nodes`: block device by namespace id (1 where the drive has no namespaces). `sanitizes`: of crypto, block, overwrite.

    `lies`: says that it erased, and did not. `dies`: fails half-way. `refuses`: takes no erase command at all. `ignores`: takes a sanitize
    and never begins it. `slow_s`: what a security erase takes. `steps`: looks until a sanitize is done; `running`: the one under way, and
    `outcome` that of the last. `hidden_sectors`: in a host protected area. `overlaid_sectors`: by a configuration overlay.
    """

    serial: str
    model: str
    firmware: str = "1.0"
    nodes: dict[str, str] = field(default_factory=dict)
    sectors: int = 0
    sanitizes: list[str] = field(default_factory=lambda: ["crypto", "block", "overwrite"])
    steps: int = 2
    formats: bool = True
    format_crypto: bool = True
    format_is_all: bool = False
    hidden_namespaces: list[int] = field(default_factory=list)
    hidden_sectors: int = 0
    overlaid_sectors: int = 0
    lies: bool = False
    dies: bool = False
    slow_s: float = 0.0
    refuses: bool = False
    ignores: bool = False
    security: Security = field(default_factory=Security)
    running: str = ""
    step: int = 0
    outcome: str = "never"
    commands: list[str] = field(default_factory=list)

    def wipe(self, filler: str, share: float = 1.0, nsid: str | None = None) -> None:
        """Over the data, as the drive's own firmware would: `random` after its keys changed, else zeros."""
        if self.lies:
            return
        for space, node in self.nodes.items():
            if nsid is None or space == nsid:
                _fill(Path(node), filler, share)

    def start_sanitize(self, action: str) -> None:
        self.running, self.step = "" if self.ignores else action, 0

    def move_on(self) -> None:
        """One step of the sanitize; the data is gone with the last."""
        if not self.running:
            return
        self.step += 1
        if self.dies and self.step * 2 >= self.steps:
            self.wipe("zeros", 0.5)
            self.running, self.outcome = "", "failed"
        elif self.step >= self.steps:
            self.wipe("random" if self.running == "crypto" else "zeros")
            self.running, self.outcome = "", "done"

    @property
    def progress(self) -> int:
        """In 1/65536."""
        return 65536 * self.step // self.steps if self.running else 65535


def load(path: Path) -> Drive:
    said: dict[str, Any] = json.loads(path.read_text())
    return Drive(**{**said, "security": Security(**said["security"])})


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Drive]:
    """One program at a time, as a drive takes one command at a time; what was changed is kept, whatever the end."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        drive = load(path)
        try:
            yield drive
        finally:
            save(path, drive)


def save(path: Path, drive: Drive) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(drive), indent=1))
    fresh.replace(path)


def _fill(node: Path, filler: str, share: float) -> None:
    fd = os.open(node, os.O_RDWR)
    try:
        left = int(os.lseek(fd, 0, os.SEEK_END) * share)
        os.lseek(fd, 0, os.SEEK_SET)
        while left:
            piece = os.urandom(min(_PIECE, left)) if filler == "random" else bytes(min(_PIECE, left))
            left -= os.write(fd, piece)
        os.fsync(fd)
    finally:
        os.close(fd)
