"""What a machine of the rack is made of: identities that depend on the seed and the name alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bcmetal_drivers.emulated.machine import EmulatedDrive, Hardware


@dataclass(frozen=True, slots=True)
class Maker:
    """`oui` is universally administered and assigned to the maker, or to the maker of its NICs."""

    vendor: str
    product: str
    manufacturer: str
    model: str
    bmc_model: str
    firmware: str
    oui: str
    drive_model: str = "MZ7LH960HAJR"


MAKERS: Final = {
    "generic": Maker("Contoso", "Contoso BMC", "Contoso", "3500RX", "BMC 200", "1.45.455b66-rev4", "00:1b:21"),
    "dell": Maker("Dell", "Integrated Dell Remote Access Controller", "Dell Inc.", "PowerEdge R650", "16G Monolithic", "7.10.30.00", "b0:26:28"),
    "hpe": Maker("HPE", "ProLiant DL360 Gen10 Plus", "HPE", "ProLiant DL360 Gen10 Plus", "iLO 5", "iLO 5 v2.78", "94:40:c9"),
    "supermicro": Maker("Supermicro", "Supermicro BMC", "Supermicro", "SYS-1029P-WTR", "ASPEED", "01.74.09", "0c:c4:7a"),
    "lenovo": Maker("Lenovo", "ThinkSystem SR650", "Lenovo", "ThinkSystem SR650", "Lenovo XClarity Controller", "CDI3A4E", "08:94:ef"),
    "ami": Maker("AMI", "AMI Redfish Server", "Giga Computing", "R283-S90", "AST2600", "13.06.14", "74:56:3c"),
    "openbmc": Maker("OpenBMC", "bmcweb", "Contoso", "Yosemite V3", "OpenBmc", "2.14.0-dev", "b8:ce:f6"),
}  # fmt: skip


def hardware(seed: int, bmc: str, system_id: str, name: str, maker: Maker) -> Hardware:
    rng = random.Random(f"{seed}/{bmc}/{system_id}")  # noqa: S311  # identities, not secrets

    def letters(count: int) -> str:
        return "".join(rng.choices("0123456789ABCDEFGHJKLMNPQRSTUVWXYZ", k=count))

    first = rng.randrange(0, 1 << 24, 2)
    return Hardware(
        name=name,
        system_id=system_id,
        uuid=UUID(int=rng.getrandbits(128), version=4),
        serial=letters(10),
        board_serial=letters(14),
        sku=letters(7),
        part_number=f"{letters(6)}-B21",
        manufacturer=maker.manufacturer,
        model=maker.model,
        macs=tuple(maker.oui + _tail(first + n) for n in range(2)),
    )


def drives(seed: int, bmc: str, system_id: str, count: int, maker: Maker) -> dict[str, EmulatedDrive]:
    """Clean ones, by serial number; two systems never share one."""
    rng = random.Random(f"{seed}/{bmc}/{system_id}/drives")  # noqa: S311  # identities, not secrets
    made = {}
    for _ in range(count):
        serial = "S4" + "".join(rng.choices("0123456789ABCDEFGHJKLMNPQRSTUVWXYZ", k=12))
        wwn = f"5002538{rng.getrandbits(36):09x}"
        made[serial] = EmulatedDrive(serial, maker.drive_model, 960_197_124_096, "SSD", wwn)
    return made


def _tail(number: int) -> str:
    return "".join(f":{byte:02x}" for byte in number.to_bytes(3, "big"))
