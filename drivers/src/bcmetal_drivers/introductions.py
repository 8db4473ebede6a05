"""What a BMC says of itself to everybody: the texts of its service root, before any login. Nobody vouches for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bcmetal_drivers.connection import BmcAddress, Limits, Trust
from bcmetal_drivers.door import Door
from bcmetal_drivers.redfish_document import printable
from bcmetal_drivers.schemes import REDFISH, family_of
from bcmetal_drivers.session import ROOT

TEXTS: Final = 200
TEXT_LIMIT: Final = 256
DEPTH: Final = 8


def introduces_itself(address: BmcAddress, trust: Trust, limits: Limits) -> tuple[str, ...]:
    """Serials, MACs and host names are among them at some makers (Dell iDRAC 9: Oem.Dell.ServiceTag; HPE iLO: Oem.Hpe.Manager). Empty for IPMI.

    Sends no credential. Raises as any call to a BMC does.
    """
    if family_of(address.scheme) != REDFISH:
        return ()
    door = Door(address, None, trust, limits)
    try:
        with door.call():
            answer = door.anonymous(ROOT)
            return tuple(_texts(answer.json()))[:TEXTS] if answer.status_code == 200 else ()
    finally:
        door.close()


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield printable(value[:TEXT_LIMIT])
    elif depth < DEPTH and isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one, depth + 1)
