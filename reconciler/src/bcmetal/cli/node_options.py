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


ROOT_HINTS: Final = ("serial", "wwn", "model", "by-path", "transport", "rotational", "min-gib", "max-gib")


def root_device_of(hints: tuple[str, ...]) -> dict[str, Any] | None:
    """`serial=…`, `rotational=no` and so on, as the API wants them; `none` alone: no hints any more."""
    if hints == ("none",):
        return {}
    found: dict[str, Any] = {}
    for hint in hints:
        name, equals, value = hint.partition("=")
        if name not in ROOT_HINTS or not equals or not value:
            known = ", ".join(f"{one}=…" for one in ROOT_HINTS)
            raise click.BadParameter(f"{hint!r} is none of {known}", param_hint="--root-device")
        if name == "rotational":
            if value not in ("yes", "no"):
                raise click.BadParameter("rotational is yes or no", param_hint="--root-device")
            found[name] = value == "yes"
        elif name.endswith("-gib"):
            if not value.isdecimal():
                raise click.BadParameter(f"{name} is a whole number", param_hint="--root-device")
            found[f"{name[:3]}SizeBytes"] = int(value) * 2**30
        else:
            found["byPath" if name == "by-path" else name] = value
    return found or None


ROOT_DEVICE: Final = click.option(
    "--root-device",
    "root_device",
    multiple=True,
    metavar="HINT",
    help=f"Which disk gets the system: {', '.join(ROOT_HINTS)}, each as NAME=VALUE; several must all agree.",
)


def _pem(path: Path | None) -> str | None:
    return None if path is None else path.read_text(encoding="ascii", errors="replace")


def given(**fields: Any) -> dict[str, Any]:
    return {k: v for k, v in fields.items() if v is not None}


def tls_of(fingerprint: str | None, ca: Path | None, no_verify: bool) -> dict[str, Any] | None:
    if sum((fingerprint is not None, ca is not None, no_verify)) > 1:
        raise click.UsageError("--fingerprint, --ca and --no-verify exclude each other")
    return given(fingerprint=fingerprint, caPem=_pem(ca), verify=False if no_verify else None) or None
