"""One line in the table of schemes makes a driver's addresses typeable everywhere."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from bcmetal.api.places import length_faults, place_of
from bcmetal.models import BmcPlace, Tls
from bcmetal.settings import Settings, check
from bcmetal_drivers.address import parse
from bcmetal_drivers.connection import BmcAddress, Credential, TrustKind
from bcmetal_drivers.errors import BadAddress
from bcmetal_drivers.ipmi import IpmiBmc
from bcmetal_drivers.registry import open_bmc
from bcmetal_drivers.schemes import SCHEMES, Scheme, families, family_of

NEW = Scheme("bcmetal_drivers.ipmi:IpmiBmc", 1234, has_certificate=False, username_bytes=4)
SITE: dict[str, Any] = {
    "sites": {"s": {"owner": "t"}},
    "networks": {"bmc": {"cidrs": ["10.0.0.0/8"]}},
}


@pytest.fixture
def settings() -> Settings:
    return check(SITE)


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> str:
    """The one line of a new driver."""
    monkeypatch.setitem(SCHEMES, "new", NEW)
    return "new"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_driver_and_its_port(scheme: str) -> None:
    module, _, name = SCHEMES[scheme].driver.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name), type)
    assert parse(f"{scheme}://10.0.0.1") == BmcAddress(scheme, "10.0.0.1", SCHEMES[scheme].port)
    assert family_of(scheme) in SCHEMES


def test_a_new_scheme_is_typeable(new: str) -> None:
    assert parse("new://10.0.0.1") == BmcAddress("new", "10.0.0.1", 1234)
    assert families() == ("redfish", "ipmi", "new")
    with pytest.raises(BadAddress, match="no path"):
        parse("new://10.0.0.1/redfish/v1/Systems/1")
    with pytest.raises(BadAddress, match="new://HOST"):
        parse("other://10.0.0.1")


def test_a_new_scheme_is_taken_by_the_api(new: str, settings: Settings) -> None:
    asked = BmcPlace(address="10.0.0.1", driver="new")
    place, faults = place_of(settings, asked.address, asked.driver)
    assert faults == []
    assert place is not None
    assert (place.address, place.trust_kind) == (BmcAddress("new", "10.0.0.1", 1234), TrustKind.SYSTEM.value)
    _, faults = place_of(settings, "new://10.0.0.1", system_id="1", tls=Tls(verify=True))
    assert {fault.path for fault in faults} == {"bmc.systemId", "bmc.tls"}
    assert [fault.path for fault in length_faults("new", "admin", "p" * 99)] == ["username"]


def test_a_new_scheme_is_opened_by_its_driver(new: str) -> None:
    opened = open_bmc(parse("new://10.0.0.1"), Credential("user", SecretStr("p" * 8)))
    assert isinstance(opened, IpmiBmc)
    opened.close()


def test_a_driver_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValidationError, match="redfish, ipmi"):
        BmcPlace(address="10.0.0.1", driver="new")
