"""Makers' quirks are data: every row is for somebody, says something, and says where that is known from."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from bcmetal_drivers.quirks import TABLE, PasswordRules, Quirks, Row, merged, quirks_of
from bcmetal_drivers.resources import BootDevice, BootMode

NEUTRAL = Quirks()

# maker, model, firmware as BMCs say them; field; what it is for them. A new row of the table is one line here.
SHOWN: list[tuple[str, str, str, str, Any]] = [
    ("Supermicro", "ASPEED SYS-821GE-TNHR", "11.01.01", "virtual_cd", ("UsbCd", "Cd")),
    ("Super Micro Computer", "", "", "all_boot_keys", True),
    ("AMI AMI Redfish Server", "", "", "all_boot_keys", True),
    ("ASRockRack", "", "", "all_boot_keys", True),
    ("Supermicro", "", "", "password", PasswordRules(8, 20, 3)),
    ("Lenovo", "Lenovo XClarity Controller", "TGBT42S 2.83 2023-07-05", "password", PasswordRules(10, 32, 4)),
    ("HPE Hpe", "iLO 5", "iLO 5 v2.72", "ssh_console", "vsp"),
    ("Dell Integrated Dell Remote Access Controller", "15G Monolithic", "6.00.30.00", "ssh_console", "console com2"),
    ("Supermicro", "product 0x1b0f", "3.74", "boot_selectors", {(BootDevice.DISK, BootMode.UEFI): 9}),
    ("Contoso", "BMC 200", "1.45", "all_boot_keys", False),
    ("Miami Computers", "", "", "all_boot_keys", False),
]


@pytest.mark.parametrize(("maker", "model", "firmware", "field", "value"), SHOWN)
def test_a_bmc_has_the_quirks_of_its_maker(maker: str, model: str, firmware: str, field: str, value: object) -> None:
    assert getattr(quirks_of(maker, model, firmware), field) == value


def test_an_unknown_bmc_is_taken_at_the_standards_word() -> None:
    assert quirks_of(None) == quirks_of("", "", "") == quirks_of("Contoso", "BMC 200", "1") == NEUTRAL


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.maker[:20]}-{'-'.join(row.differs)}"[:60])
def test_each_row_is_data_for_somebody_and_says_where_it_is_known_from(row: Row) -> None:
    for pattern in (row.maker, row.model, row.firmware):
        re.compile(pattern)
    assert row.maker, "a row for everybody is no quirk, but a default"
    assert len(row.source) > 20
    assert set(row.differs) <= {field.name for field in fields(Quirks)}
    changed = merged((Row("", row.differs, row.source),), None)
    assert changed != NEUTRAL, "a row that changes nothing"
    for name, kind in get_type_hints(Quirks).items():
        TypeAdapter(kind).validate_python(getattr(changed, name), strict=True)
    assert not any(isinstance(part, list | dict) for value in row.differs.values() for part in _parts(value))


def _parts(value: object) -> list[object]:
    return list(value) if isinstance(value, tuple) else [] if isinstance(value, dict) else [value]


def test_what_is_found_for_one_bmc_cannot_be_changed_for_another() -> None:
    with pytest.raises(FrozenInstanceError):
        quirks_of("Supermicro").spacing_s = 9.0  # type: ignore[misc]  # that it is refused is the test


def test_a_later_row_wins_and_a_row_for_a_firmware_is_for_no_other() -> None:
    table = (
        Row("contoso", {"spacing_s": 1.0, "ssh_console": "sol"}, "first"),
        Row("contoso", {"spacing_s": 3.0}, "second", model="^B2", firmware=r"^1\."),
    )
    assert merged(table, "Contoso", "B200", "1.9") == Quirks(spacing_s=3.0, ssh_console="sol")
    assert merged(table, "Contoso", "B200", "2.0") == Quirks(spacing_s=1.0, ssh_console="sol")
    assert merged(table, "Contoso") == Quirks(spacing_s=1.0, ssh_console="sol")
    assert merged(table, "Fabrikam", "B200", "1.9") == NEUTRAL


def test_no_password_of_a_maker_is_weaker_than_the_policy_or_longer_than_ipmi_takes_by_default() -> None:
    assert (NEUTRAL.password.shortest, NEUTRAL.password.longest) == (8, 20)
    for row in TABLE:
        rules = merged((row,), row.maker.split("|", maxsplit=1)[0].replace("\\b", "").replace(" ?", " ")).password
        assert 8 <= rules.shortest <= 20 <= rules.longest
        assert not set(rules.marks) - set("!#%+-_=")


def test_a_boot_by_settings_names_what_it_reaches() -> None:
    ways = quirks_of("Dell").boot_by_setting
    assert ways is not None
    assert [setting.key[-1] for setting in ways[BootDevice.CD]] == [
        "ServerBoot.1.FirstBootDevice",
        "ServerBoot.1.BootOnce",
    ]
