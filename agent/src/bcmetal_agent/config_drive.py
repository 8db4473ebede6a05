"""What the config drive of a deployed machine says of joining: `bcmetal/join.json` and, beside it, `bcmetal/token`.

    {"server": "https://HOST:PORT", "nodeServer": "https://HOST:PORT", "ca": "sha256:…"}

The token is a join token for this one node. It stays on the drive for whoever reads it there, and is worth nothing once used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bcmetal_agent.bearer import TokenSource
from bcmetal_agent.join import NotConfigured
from bcmetal_agent.trust import Endpoint, Pin

JOIN_FILE: Final = "bcmetal/join.json"
TOKEN_FILE: Final = "bcmetal/token"  # noqa: S105 - where it lies
_LIMIT: Final = 64 * 1024


@dataclass(frozen=True)
class ConfigDrive:
    """`token` is read when it is needed, and not before."""

    server: Endpoint
    node_server: Endpoint
    pin: Pin
    token: TokenSource

    @classmethod
    def read(cls, mount: Path) -> ConfigDrive:
        """What a newer daemon says beside these three is left alone. Raises NotConfigured."""
        path = mount / JOIN_FILE
        try:
            with path.open("rb") as file:
                raw = file.read(_LIMIT + 1)
        except OSError as error:
            raise NotConfigured(f"the config drive does not say whom to join: {path}: {error.strerror}") from None
        try:
            doc = json.loads(raw) if len(raw) <= _LIMIT else None
        except (ValueError, RecursionError):
            doc = None
        if not isinstance(doc, dict):
            raise NotConfigured(f"{path} is no JSON object")
        return cls(
            _read(path, doc, "server", Endpoint.parse),
            _read(path, doc, "nodeServer", Endpoint.parse),
            _read(path, doc, "ca", Pin.parse),
            TokenSource(str(mount / TOKEN_FILE)),
        )


def _read(path: Path, doc: dict[str, Any], name: str, parse: Any) -> Any:
    value = doc.get(name)
    if not isinstance(value, str):
        raise NotConfigured(f"{path} has no {name}")
    try:
        return parse(value)
    except ValueError as error:
        raise NotConfigured(f"{path}, {name}: {error}") from None
