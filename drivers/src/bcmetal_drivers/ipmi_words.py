"""What the specification calls sensors, their states and their events (IPMI 2.0, chapters 42 and 43), from pyghmi's tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from pyghmi.constants import Health
from pyghmi.ipmi import events
from pyghmi.ipmi.private import constants

THRESHOLD: Final = 0x01  # event/reading type
SENSOR_SPECIFIC: Final = 0x6F
SEVERITIES: Final[tuple[tuple[int, str], ...]] = (
    (Health.Failed | Health.Critical, "critical"),
    (Health.Warning, "warning"),
)
_NO_FRUS: Final = SimpleNamespace(fru={})  # where pyghmi looks for names of FRUs


@dataclass(frozen=True, slots=True)
class Meaning:
    """`severity`: ok, warning, critical."""

    words: str
    severity: str


def sensor_type(code: int) -> str:
    """The specification's word (IPMI 2.0, table 42-3), or the number of one that it does not know."""
    return str(constants.sensor_type_codes.get(code, f"sensor type 0x{code:02x}"))


def state(kind: int, reading_type: int, offset: int, asserted: bool = True) -> Meaning | None:
    """What an offset means; None for makers' own and for those that the specification does not know."""
    table: Mapping[int, Mapping[int, Mapping[str, Any]]]
    if reading_type == SENSOR_SPECIFIC:
        table, row = constants.sensor_type_offsets, kind
    else:
        table, row = constants.generic_type_offsets, reading_type
    found = table.get(row, {}).get(offset)
    if found is None:
        return None
    if asserted:
        return Meaning(str(found["desc"]), severity(int(found["severity"])))
    return Meaning(
        str(found.get("deassertion_desc", f"{found['desc']} deasserted")),
        severity(int(found.get("deassertion_severity", Health.Ok))),
    )


def more(kind: int, offset: int, data: bytes) -> str | None:
    """What the three data bytes of a sensor-specific event say beside its offset, such as which DIMM."""
    said = events.decode_eventdata(kind, offset, list(data), constants, _NO_FRUS)
    return str(said) if said else None


def severity(health: int) -> str:
    """pyghmi's bits as ok, warning or critical."""
    return next((word for bits, word in SEVERITIES if health & bits), "ok")
