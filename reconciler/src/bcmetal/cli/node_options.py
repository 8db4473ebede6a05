"""Options that enrolling a node and changing one have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

PEM_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
PASSWORD_FILE: Final = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def labels_of(pairs: tuple[str, ...]) -> dict[str, str] | None:
    out = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not of the form KEY=VALUE", param_hint="--label")
        out[key] = value
    return out or None


def _pem(path: Path | None) -> str | None:
    return None if path is None else path.read_text(encoding="ascii", errors="replace")


def given(**fields: Any) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if v is not None}


def tls_of(fingerprint: str | None, ca: Path | None, no_verify: bool) -> dict[str, Any] | None:
    if sum((fingerprint is not None, ca is not None, no_verify)) > 1:
        raise click.UsageError("--fingerprint, --ca and --no-verify exclude each other")
    return given(fingerprint=fingerprint, caPem=_pem(ca), verify=False if no_verify else None) or None
