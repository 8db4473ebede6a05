"""What many machines have in place of an identity, told from what one machine has."""

from __future__ import annotations

import pytest

from bcmetal.placeholders import normal_serial, normal_uuid, swapped, usable_serial, usable_uuid


@pytest.mark.parametrize(
    "uuid",
    [
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "00112233-4455-6677-8899-AABBCCDDEEFF",
        "11223344-5566-7788-99AA-BBCCDDEEFF00",
        "01020304-0506-0708-090A-0B0C0D0E0F10",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "01234567-89ab-cdef-0123-456789abcdef",
        "fedcba98-7654-3210-fedc-ba9876543210",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "12345678-90ab-cdef-1234-567890abcdef",
        "20202020-2020-2020-2020-202020202020",
    ],
)
def test_a_uuid_that_counts_or_that_a_maker_left_tells_no_machine_in_either_byte_order(uuid: str) -> None:
    for order in (uuid, swapped(uuid.replace("-", "").lower())):
        normal = normal_uuid(order)
        assert normal is not None
        assert not usable_uuid(normal)


@pytest.mark.parametrize(
    "uuid",
    [
        "4c4c4544-0035-3410-8050-c6c04f314733",
        "00000000-0000-0000-0000-7cc255793f8e",  # of a MAC, and so one machine's
        "6f0e2b8e-63a5-4a3c-9a52-0f3f7d1c2b00",
    ],
)
def test_other_uuids_tell_machines_apart(uuid: str) -> None:
    assert usable_uuid(normal_uuid(uuid) or "")


@pytest.mark.parametrize(
    "serial",
    [
        "To be filled by O.E.M.", "To Be Filled By O.E.M", "Default string", "Not Specified", "NULL", "(null)", "nil", "N/A",
        "0123456789", "1234567890", "0123456789ABCDEF", "000000", "............", "XXXXXXXX", " . ", "System Serial Number",
        "System Serial#", "Empty", "Not Present", "not_available", "unspecified",
    ],
)  # fmt: skip
def test_a_word_in_the_place_of_a_serial_tells_no_machine(serial: str) -> None:
    assert not usable_serial(normal_serial(serial))


@pytest.mark.parametrize("serial", ["2102311XBJ10J1000123", "CZ 2D1A 00F1", "YM6G001234", "none-1", "20231234"])
def test_other_serials_do(serial: str) -> None:
    assert usable_serial(normal_serial(serial))
