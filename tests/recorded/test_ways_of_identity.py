"""Who a machine is, in the ways that makers' trees tell it."""

from __future__ import annotations

import pytest

from recorded import trees
from recorded.bench import bmc_of
from recorded.trees import CHASSIS, SYSTEM


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
