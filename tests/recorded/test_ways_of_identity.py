"""Who a machine is, in the ways that makers' trees tell it."""

from __future__ import annotations

import pytest

from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import CHASSIS, SYSTEM, collection


@pytest.mark.parametrize(
    "word", ["Default string", "To be filled by O.E.M.", "NULL", "............", "0000000000", None]
)
def test_where_the_systems_serial_is_a_word_the_chassis_tells_it(word: str | None) -> None:
    docs = trees.everything()
    docs[SYSTEM]["SerialNumber"] = word
    with bmc_of(docs) as bmc:
        assert bmc.identity().serial == "CH-1"
    docs[CHASSIS]["SerialNumber"] = "Default string"
    with bmc_of(docs) as bmc:
        assert bmc.identity().serial == word, "as it is told: what it is worth is for others to say"


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("PciRoot(0x0)/Pci(0x1,0x0)/MAC(001B21000001,0x1)/IPv4(0.0.0.0)", True),
        ("PciRoot(0x0)/Pci(0x1,0x0)/mac(001b21000001000000000000,0x0)", True),
        ("PciRoot(0x0)/Pci(0x1,0x0)/USB(0x2,0x0)/MAC(001B21000001,0x1)/IPv4(0.0.0.0)", False),
        ("PciRoot(0x0)/Pci(0x1,0x0)/MAC(021B21000001,0x1)", False),
        ("PciRoot(0x0)/Pci(0x1,0x0)/MAC(00001B2100000102030405,0x20)", False),
        ("HD(1,GPT,6F0E2B8E-63A5-4A3C-9A52-0F3F7D1C2B00)", False),
    ],
)
def test_where_no_nic_is_listed_the_boot_options_tell_of_them(device: str, told: bool) -> None:
    docs = trees.bare()
    where = f"{SYSTEM}/BootOptions"
    options = {"Boot0001": {"UefiDevicePath": device, "DisplayName": "UEFI PXE"}, "Boot0002": {"UefiDevicePath": None}}
    docs[SYSTEM]["Boot"]["BootOptions"] = collection(docs, where, options, "BootOption")
    with bmc_of(docs) as bmc:
        assert bmc.identity().macs == (("00:1b:21:00:00:01",) if told else ())
    trees.set_parts(docs, SYSTEM, EthernetInterfaces={"1": {"MACAddress": "00:1b:21:00:00:09"}})
    with bmc_of(docs) as bmc:
        assert bmc.identity().macs == ("00:1b:21:00:00:09",)
