"""What differs between two inventories of one BMC: parts, not the words of one look."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from bcmetal.comparing.changes import Change, carried, changes, missing, stable

THEN = "2026-01-01T00:00:00Z"
DOC: dict[str, Any] = {
    "bmc": {"firmware": "1.0", "clock": "2026-01-01T00:00:00Z"},
    "bios_version": "2.1",
    "cpus": [{"id": "1", "model": "X", "cores": 8}, {"id": "2", "model": "X", "cores": 8}],
    "dimms": [{"serial": "M1", "slot": "A1", "capacityBytes": 32}, {"slot": "A2", "capacityBytes": 32}],
    "memory_bytes": 64,
    "drives": [{"serial": "D1", "model": "S", "health": "ok", "life_left_percent": 90}, {"serial": "D2", "model": "S"}],
    "nics": [{"mac": "00:1b:21:00:00:01", "linkStatus": "up"}, {"mac": "00:1b:21:00:00:02"}],
    "tpm": {"type": "TPM2_0"},
    "firmware": {"BIOS": "2.1", "BMC": "1.0"},
    "sections": dict.fromkeys(("cpus", "memory", "drives", "nics", "tpm", "firmware", "identity"), "ok"),
    "read_at": {"cpus": THEN},
}


def changed(**parts: Any) -> dict[str, Any]:
    return deepcopy(DOC) | parts


def told(after: dict[str, Any], before: dict[str, Any] = DOC) -> list[str]:
    return [str(one) for one in changes(before, after)]


def test_the_same_machine_has_no_changes_however_it_is_listed_and_whatever_its_links_do() -> None:
    after = changed(
        drives=[
            {"serial": "d2", "model": "S"},
            {"serial": "D1", "model": "S", "health": "ok", "life_left_percent": 89},
        ],
        nics=[{"mac": "00:1b:21:00:00:02"}, {"mac": "00:1b:21:00:00:01", "linkStatus": "down"}],
        read_at={"cpus": "later"},
    )
    assert told(after) == []
    assert stable(changed(read_at={}, sources={}, sections={})) == stable(DOC)
    assert stable(changed(bmc={"firmware": "1.0", "clock": "later"})) == stable(DOC)
    assert stable(changed(bios_version="2.2")) != stable(DOC)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"drives": DOC["drives"][:1]}, "drive D2 is gone"),
        ({"drives": [*DOC["drives"], {"serial": "D3"}]}, "drive D3 came"),
        (
            {"drives": [{"serial": "D1", "health": "critical"}, DOC["drives"][1]]},
            "drive D1 health was ok, and is now critical",
        ),
        ({"dimms": DOC["dimms"][:1]}, "memory module A2 is gone"),
        ({"cpus": DOC["cpus"][:1]}, "CPU 2 is gone"),
        ({"nics": DOC["nics"][1:]}, "network port 00:1b:21:00:00:01 is gone"),
        ({"firmware": {"BIOS": "2.2", "BMC": "1.0"}}, "firmware BIOS was 2.1, and is now 2.2"),
        ({"bios_version": "2.2"}, "BIOS version was 2.1, and is now 2.2"),
        ({"bmc": {"firmware": "1.1"}}, "BMC firmware was 1.0, and is now 1.1"),
        ({"tpm": None}, "TPM was type TPM2_0, and is now not told"),
        ({"memory_bytes": 32}, "memory was 64, and is now 32"),
    ],
)
def test_each_change_is_a_sentence(parts: dict[str, Any], sentence: str) -> None:
    assert told(changed(**parts)) == [sentence]


def test_what_an_older_inventory_did_not_hold_has_not_come() -> None:
    assert told(changed(psus=[{"serial": "P1"}], fans=[{"name": "F"}])) == []


def test_parts_that_nothing_tells_apart_are_counted() -> None:
    alike = [{"name": "DIMM", "capacityBytes": 8}] * 4
    assert told(changed(dimms=alike[:3]), changed(dimms=alike)) == ["memory module without a name is gone"]


@pytest.mark.parametrize("status", ["HTTP 500", "partial: one is missing", "unknown: the machine is off"])
def test_a_section_that_could_not_be_read_keeps_what_was_told_and_says_since_when(status: str) -> None:
    after = changed(drives=DOC["drives"][1:] if "partial" in status else [])
    after["sections"]["drives"] = status
    kept = carried(DOC, after, THEN)
    assert {drive["serial"] for drive in kept["drives"]} == {"D1", "D2"}
    assert kept["stale"] == {"drives": THEN}
    assert changes(DOC, kept) == ()
    again = carried(kept, after, "2026-01-02T00:00:00Z")
    assert again["stale"] == {"drives": THEN}
    assert stable(again) == stable(DOC)


def test_firmware_and_tpm_that_could_not_be_read_are_kept_too() -> None:
    after = changed(firmware={}, tpm=None, bmc={})
    after["sections"] |= {"firmware": "HTTP 503", "tpm": "HTTP 503", "bmc": "HTTP 503"}
    kept = carried(DOC, after, THEN)
    assert changes(DOC, kept) == ()
    assert stable(kept) == stable(DOC)


def test_an_empty_section_that_was_read_is_empty() -> None:
    after = changed(drives=[])
    after["sections"]["drives"] = "absent"
    assert told(carried(DOC, after, THEN)) == ["drive D1 is gone", "drive D2 is gone"]


def test_what_is_missing_is_remembered_until_it_is_back() -> None:
    after = changed(drives=DOC["drives"][:1])
    gone = missing(DOC, changes(DOC, after), after, THEN)
    assert gone == {"drive D2": THEN}
    later = after | {"missing": gone}
    assert missing(later, changes(later, after), after, "later") == {"drive D2": THEN}
    assert missing(later, changes(later, DOC), DOC, "later") == {}


def test_a_change_is_told_by_what_it_has() -> None:
    assert Change("drives", "added", "drive D1", after="S").doc() == {
        "section": "drives", "what": "added", "part": "drive D1", "to": "S",
    }  # fmt: skip
