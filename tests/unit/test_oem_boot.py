"""A boot device that only the maker's own settings reach, as an iDRAC's virtual CD."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.errors import NotAsAsked
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.resources import BootDevice
from raw_bmc import DOCS, LIMITS, ROOT, SYSTEM, Asked, RawBmc, a_credential, a_raw_bmc, answer, error

MANAGER = "/redfish/v1/Managers/iDRAC.Embedded.1"
ATTRIBUTES = f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"
DEVICE, ONCE = "ServerBoot.1.FirstBootDevice", "ServerBoot.1.BootOnce"


class Idrac:
    """Of which a PATCH changes what it names, or only says so."""

    def __init__(self, shows: bool = True, lies: bool = False) -> None:
        self.shows, self.lies = shows, lies
        self.boot: dict[str, Any] = {
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideMode": "UEFI",
        }
        self.attributes: dict[str, Any] = {DEVICE: "Normal", ONCE: "Enabled", "Users.2.UserName": "root"}

    def __call__(self, asked: Asked) -> Iterable[bytes]:
        if asked.method == "PATCH":
            if not self.lies:
                body = json.loads(asked.body)
                self.boot |= body.get("Boot", {})
                self.attributes |= body.get("Attributes", {})
            return [answer(None, 204)]
        root = {**DOCS[ROOT], "Vendor": "Dell"}
        attributes = {"DellAttributes": [{"@odata.id": ATTRIBUTES}]} if self.shows else {}
        docs = {
            ROOT: root,
            "/redfish/v1": root,
            SYSTEM: {**DOCS[SYSTEM], "Boot": self.boot, "Links": {"ManagedBy": [{"@odata.id": MANAGER}]}},
            MANAGER: {"Id": "iDRAC", "Links": {"Oem": {"Dell": attributes}}},
            ATTRIBUTES: {"Attributes": self.attributes},
        }
        doc = docs.get(asked.path)
        return [answer(doc) if doc is not None else error("Base.1.0.ResourceMissingAtURI", status=404)]


@contextmanager
def driver(bmc: RawBmc) -> Iterator[RedfishBmc]:
    opened = RedfishBmc(
        BmcAddress("redfish+http", "127.0.0.1", bmc.port, SYSTEM), a_credential(), Trust(TrustKind.NONE), LIMITS
    )
    try:
        yield opened
    finally:
        opened.close()


def test_the_virtual_cd_is_armed_shown_and_cleared_by_the_settings() -> None:
    script = Idrac()
    with a_raw_bmc(script) as bmc, driver(bmc) as idrac:
        idrac.boot_once(BootDevice.CD)
        assert (script.attributes[DEVICE], script.attributes[ONCE]) == ("VCD-DVD", "Enabled")
        assert script.boot["BootSourceOverrideTarget"] == "None"
        shown = idrac.boot_override()
        assert (shown.device, shown.once) == (BootDevice.CD, True)
        idrac.clear_boot_override()
        assert script.attributes[DEVICE] == "Normal"
        assert idrac.boot_override().device is BootDevice.NONE
        assert script.attributes["Users.2.UserName"] == "root"


def test_one_way_is_given_up_before_the_other_is_armed() -> None:
    script = Idrac()
    with a_raw_bmc(script) as bmc, driver(bmc) as idrac:
        for device in (BootDevice.PXE, BootDevice.CD, BootDevice.DISK):
            idrac.boot_once(device)
            assert idrac.boot_override().device is device
        assert script.attributes[DEVICE] == "Normal"


def test_other_devices_go_by_the_standard() -> None:
    script = Idrac()
    with a_raw_bmc(script) as bmc, driver(bmc) as idrac:
        idrac.boot_once(BootDevice.PXE)
        assert script.boot["BootSourceOverrideTarget"] == "Pxe"
        assert script.attributes[DEVICE] == "Normal"


def test_a_bmc_of_the_maker_without_those_settings_goes_by_the_standard() -> None:
    script = Idrac(shows=False)
    with a_raw_bmc(script) as bmc, driver(bmc) as idrac:
        idrac.boot_once(BootDevice.CD)
        assert script.boot["BootSourceOverrideTarget"] == "Cd"


def test_settings_that_are_acknowledged_and_not_set_are_not_as_asked() -> None:
    with a_raw_bmc(Idrac(lies=True)) as bmc, driver(bmc) as idrac, pytest.raises(NotAsAsked):
        idrac.boot_once(BootDevice.CD)
