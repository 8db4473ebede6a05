"""Lists of labels: read whole, every fault with its line and column, and a line found by what is known of a BMC."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from bcmetal.errors import InvalidInput
from bcmetal.manifests import Label, find_labels, read_manifest
from bcmetal.settings import check

HEADER = "bmc_mac,serial,username,password\n"


def read(folder: Path, text: str, mode: int = 0o600) -> tuple[Label, ...]:
    path = folder / "labels.csv"
    path.touch()
    path.chmod(mode)
    path.write_text(text)
    return read_manifest(path)


def faults(folder: Path, text: str, mode: int = 0o600) -> list[str]:
    with pytest.raises(InvalidInput) as raised:
        read(folder, text, mode)
    return [fault.message for fault in raised.value.faults]


def test_a_line_is_one_machines_and_its_password_is_shown_nowhere(tmp_path: Path) -> None:
    secret = secrets.token_urlsafe(9)
    [one] = read(tmp_path, f'\ufeff{HEADER}3C:EC:EF:00:00:01, S1234 5 ,ADMIN,"{secret},""x"""\n\n')
    assert (one.line, one.mac, one.serial, one.username) == (2, "3cecef000001", "s1234 5", "ADMIN")
    assert one.password.get_secret_value() == f'{secret},"x"'
    assert secret not in repr(one)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("3c:ec:ef:00:00,S12345,ADMIN,{pw}", "line 3, bmc_mac: is no MAC address"),
        (",,ADMIN,{pw}", "line 3, bmc_mac: is missing, and serial too"),
        (",S1,ADMIN,{pw}", "line 3, serial: is no serial of 5 characters or more"),
        (",S12345,,{pw}", "line 3, username: is missing"),
        (",S12345,ADMIN,", "line 3, password: is missing"),
        (",S12345,ADMIN,{pw}\x07", "line 3, password: has control characters"),
        (",S12345,ADMIN", "line 3: has 3 cells, and the header 4"),
        ("3CECEF000001,,ADMIN,{pw}", "line 3, bmc_mac: is that of line 2 too"),
        (",first1,ADMIN,{pw}", "line 3, serial: is that of line 2 too"),
        ('"x,S12345,ADMIN,{pw}', "line 3: is no CSV"),
    ],
)
def test_a_fault_names_its_line_and_column_and_no_password(line: str, said: str, tmp_path: Path) -> None:
    secret = secrets.token_urlsafe(9)
    text = f"{HEADER}3c:ec:ef:00:00:01,FIRST1,ADMIN,{secret}\n{line.format(pw=secret)}\n"
    [found] = faults(tmp_path, text)
    assert said in found
    assert str(tmp_path) in found
    assert secret not in found


def test_a_list_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "chmod 600" in faults(tmp_path, HEADER, 0o640)[0]
    assert "must name the columns" in faults(tmp_path, "mac,serial\n")[0]
    assert faults(tmp_path, "\xff" * 3 + HEADER)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_manifest(tmp_path / "none.csv")


def labels(*keys: tuple[str | None, str | None]) -> list[Label]:
    password = read_password()
    return [Label(n, mac, serial, "ADMIN", password) for n, (mac, serial) in enumerate(keys, 2)]


def read_password() -> Any:
    from pydantic import SecretStr

    return SecretStr(secrets.token_urlsafe(9))


@pytest.mark.parametrize(
    ("hint", "line"),
    [
        ("3C-EC-EF-00-00-01", 2),
        ("3cecef000001", 2),
        ("bmc-3cecef000001.lab.example", 2),
        ("30303030-3030-3030-3030-3cecef000001", 2),  # many BMCs make their UUID of their MAC
        ("fd00:20::3eec:efff:fe00:1", 2),  # SLAAC
        ("S123456", 3),
        ("ilos123456.lab.example", 3),  # HPE iLO's host name
        ("idrac-S123456", 3),
        ("serial S123456.", 3),
        ("S1234567", None),
        ("3cecef00000199", None),
        ("fd00:20::1", None),
    ],
)
def test_a_line_is_found_by_mac_or_serial_in_whatever_form_and_by_nothing_longer(hint: str, line: int | None) -> None:
    found = find_labels(labels(("3cecef000001", None), (None, "s123456")), ["10.20.3.17", "redfish", hint])
    assert [one.line for one in found] == ([] if line is None else [line])


def test_the_configuration_names_either_a_password_or_a_list() -> None:
    doc: dict[str, Any] = {
        "sites": {"s": {"owner": "o"}},
        "networks": {"bmc": {"cidrs": ["10.0.0.0/8"]}},
        "credentials": {
            "fleet": {"username": "u", "password": "sealed:fleet", "networks": ["bmc"]},
            "factory": {"manifest": "/x.csv", "networks": ["bmc"], "on_enroll": "claim:fleet"},
        },
    }
    assert check(doc).credentials["factory"].claims == "fleet"

    def wrong(**change: Any) -> dict[str, str]:
        changed = {**doc, "credentials": {**doc["credentials"], "factory": {"networks": ["bmc"], **change}}}
        with pytest.raises(InvalidInput) as raised:
            check(changed)
        return {fault.path: fault.message for fault in raised.value.faults}

    assert "needs username and password, or a manifest" in wrong()["credentials.factory"]
    assert "leave username" in wrong(manifest="/x.csv", username="u")["credentials.factory"]
    assert (
        "is for a manifest" in wrong(username="u", password="file:/x", on_enroll="claim:fleet")["credentials.factory"]
    )
    assert "must be claim:NAME" in wrong(manifest="/x.csv", on_enroll="fleet")["credentials.factory.on_enroll"]
    assert "there is no" in wrong(manifest="/x.csv", on_enroll="claim:x")["credentials.factory.on_enroll"]
    assert "no username" in wrong(manifest="/x.csv", on_enroll="claim:factory")["credentials.factory.on_enroll"]
