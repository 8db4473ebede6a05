"""A boot override goes where the BMC takes it: to the Settings resource that the system names, or that its refusal does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.resources import BootDevice
from raw_bmc import DOCS, LIMITS, ROOT, SYSTEM, Asked, RawBmc, a_credential, a_raw_bmc, answer, error

BOOT = {"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI"}


class Bmc:
    """Refuses the override at the system, with this answer, and takes it below, at `place`."""

    def __init__(self, refusal: bytes, place: str | None) -> None:
        self.refusal, self.place = refusal, place
        self.boot: dict[str, Any] = dict(BOOT)

    def __call__(self, asked: Asked) -> Iterable[bytes]:
        if asked.method == "PATCH":
            if self.place is None or asked.path != self.place:
                return [self.refusal]
            self.boot |= json.loads(asked.body)["Boot"]
            return [answer(None, 204)]
        docs = {
            **DOCS,
            "/redfish/v1": DOCS[ROOT],
            SYSTEM: {**DOCS[SYSTEM], "Boot": BOOT},
            **({self.place: {"Boot": self.boot}} if self.place else {}),
        }
        doc = docs.get(asked.path)
        return [answer(doc) if doc is not None else error("Base.1.0.ResourceMissingAtURI", status=404)]


def driver(bmc: RawBmc, learned: dict[str, Any] | None = None) -> RedfishBmc:
    address = BmcAddress("redfish+http", "127.0.0.1", bmc.port, SYSTEM)
    return RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS, learned)


HINT = f"The property is read-only here. Write it to {SYSTEM}/SD instead."


@pytest.mark.parametrize(
    ("refusal", "place"),
    [
        (error("Base.1.0.PropertyNotWritable", HINT), f"{SYSTEM}/SD"),
        (error("Base.1.0.PropertyNotWritable", f"See {SYSTEM}/Future."), f"{SYSTEM}/Future"),
        (answer(None, 405), f"{SYSTEM}/Settings"),
        (answer(None, 405), f"{SYSTEM}/Pending"),
    ],
    ids=["named-in-the-refusal", "of-another-name", "405-and-Settings", "405-and-Pending"],
)
def test_a_refusal_tells_where_the_override_belongs(refusal: bytes, place: str) -> None:
    script = Bmc(refusal, place)
    with a_raw_bmc(script) as bmc:
        first = driver(bmc)
        first.boot_once(BootDevice.PXE)
        assert script.boot["BootSourceOverrideTarget"] == "Pxe"
        assert first.boot_override().device is BootDevice.PXE
        learned = dict(first.learned())
        first.close()
        assert learned["settings"] == {SYSTEM: place}
        before = len(bmc.seen("PATCH"))
        second = driver(bmc, learned)
        assert second.boot_override().device is BootDevice.PXE
        second.boot_once(BootDevice.DISK)
        second.close()
        assert {asked.path for asked in bmc.seen("PATCH")[before:]} == {place}


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (error("Base.1.0.PropertyNotWritable", "See /redfish/v1/Systems/2/SD."), Refused),
        (error("Base.1.0.PropertyNotWritable", "See http://elsewhere/redfish/v1/Systems/1/SD"), Refused),
        (error("Base.1.0.PropertyNotWritable", HINT), Refused),
        (answer(None, 405), Unsupported),
    ],
    ids=["another-system", "another-host", "nothing-there", "405"],
)
def test_a_refusal_that_leads_nowhere_is_one(refusal: bytes, kind: type[Exception]) -> None:
    with a_raw_bmc(Bmc(refusal, None)) as bmc:
        opened = driver(bmc)
        with pytest.raises(kind):
            opened.boot_once(BootDevice.PXE)
        opened.close()
        assert {asked.path for asked in bmc.seen("PATCH")} == {SYSTEM}
