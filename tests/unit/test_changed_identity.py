"""Which machine is behind a BMC: what decides, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bcmetal.workflows.identity import changed_identity, identifiers_of
from bcmetal_drivers.resources import Identity

UUID = "4c4c4544-0035-3410-8050-c6c04f314733"
SWAPPED = "44454c4c-3500-1034-8050-c6c04f314733"
MAC = "7c:c2:55:79:3f:8e"
PLAIN = Identity(product_uuid=UUID, serial="CN1", sku="F54", macs=(MAC,))
OF_A_MAC = replace(PLAIN, product_uuid="00000000-0000-0000-0000-7cc255793f8e")


@pytest.mark.parametrize(
    ("known", "seen", "same"),
    [
        (PLAIN, PLAIN, True),
        (PLAIN, replace(PLAIN, product_uuid=SWAPPED), True),
        (PLAIN, replace(PLAIN, macs=("7c:c2:55:00:00:01",)), True),
        (PLAIN, replace(PLAIN, serial="CN2"), True),
        (PLAIN, replace(PLAIN, product_uuid="4c4c4544-0035-3410-8050-c6c04f314799"), False),
        (PLAIN, replace(PLAIN, product_uuid=None), True),
        (PLAIN, replace(PLAIN, product_uuid=None, serial="CN2"), False),
        (OF_A_MAC, replace(OF_A_MAC, product_uuid="00000000-0000-0000-0000-7cc255000001", macs=()), True),
        (OF_A_MAC, replace(OF_A_MAC, serial="CN2"), True),
        (OF_A_MAC, replace(OF_A_MAC, serial="CN2", product_uuid=UUID), False),
        (replace(OF_A_MAC, serial=None), replace(OF_A_MAC, serial=None, product_uuid=UUID), False),
        (
            replace(PLAIN, product_uuid=f"6173ecec-6ef5-11ee-834a-{MAC.replace(':', '')}"),
            replace(PLAIN, product_uuid="6173ecec-6ef5-11ee-834a-7cc255000001"),
            True,
        ),
    ],
)
def test_what_tells_one_machine_from_another(known: Identity, seen: Identity, same: bool) -> None:
    assert (changed_identity(identifiers_of(known, "bmc"), seen) is None) is same
