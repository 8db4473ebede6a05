"""What a program leaves: its output and its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Answer:
    out: bytes = b""
    err: bytes = b""
    code: int = 0


def fault(text: str, code: int = 1) -> Answer:
    return Answer(err=text.encode() + b"\n", code=code)


def state_of(states: Path, device: str) -> Path:
    """The state file of what is called so in /dev. Raises SystemExit as a program would that cannot open it."""
    path = states / f"{Path(device).name}.json"
    if not path.exists():
        raise SystemExit(f"{device}: No such file or directory")
    return path
