"""Which firmware runs where, by the UpdateService's inventory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bcmetal_drivers.redfish_document import Doc, text
from bcmetal_drivers.redfish_parts import order


def versions(documents: Iterable[tuple[str, Doc]]) -> Mapping[str, str]:
    """Component to version. Components of one name are told apart by their ids; the order of the list does not count."""
    told = [
        (text(doc, "Name") or path.rpartition("/")[2], text(doc, "Id") or path.rpartition("/")[2], version)
        for path, doc in sorted(documents, key=lambda one: order(one[0]))
        if (version := text(doc, "Version"))
    ]
    named = Counter(name for name, _, _ in told)
    return {(f"{name} ({id_})" if named[name] > 1 else name): version for name, id_, version in told}
