"""Whose BMC a Redfish service is, and with that its quirks.

The service's own words come first: a system's Manufacturer is the board's or the integrator's, and not its BMC's.
"""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.quirks import Quirks, quirks_of
from bcmetal_drivers.redfish_document import Doc, dig, link, text
from bcmetal_drivers.redfish_tree import Tree

HINTS: Final = {"idrac": "Dell", "ilo": "HPE", "irmc": "Fujitsu"}  # of a maker's own form of address


def maker_of(root: Doc, manager: Doc | None = None) -> str | None:
    """One name, for people: the root's Vendor, else the manager's Manufacturer, else the name of an Oem section."""
    oem = [*_oem(root), *_oem(manager)]
    return text(root, "Vendor") or text(manager, "Manufacturer") or (oem[0] if oem else None)


def manager_of(tree: Tree) -> Doc | None:
    """Of several, the BMC that has a network of its own: a baseboard of GPUs, and an enclosure, bring managers too."""
    docs = [doc for path in tree.manager_paths() if (doc := tree.find(path)) is not None]

    def rank(doc: Doc) -> tuple[bool, ...]:
        kind = text(doc, "ManagerType")
        return (
            kind in (None, "BMC"),
            link(doc, "NetworkProtocol") is not None,
            text(doc, "FirmwareVersion") is not None,
            link(doc, "HostInterfaces") is not None or link(doc, "VirtualMedia") is not None,
        )

    return max(docs, key=rank, default=None)


def quirks_for(tree: Tree) -> Quirks:
    """Found out once for each conversation: by the root, the manager, and the system where neither tells."""
    known: Quirks | None = tree.learned.get("quirks")
    if known is None:
        root = tree.root()
        system = tree.system()
        manager = manager_of(tree)
        model = f"{text(manager, 'Model') or ''} {text(system, 'Model') or ''}".strip()
        firmware = text(manager, "FirmwareVersion")
        known = quirks_of(_words(tree, root, manager, system), model, firmware)
        tree.known_as(maker_of(root, manager), text(manager, "Model"), firmware)
        tree.learned["quirks"] = known
        tree.door.pace.spacing_s = known.spacing_s
    return known


def words_of(root: Doc, manager: Doc | None = None) -> str:
    """All that the service says of its maker, for the table's expressions to look into."""
    said = [text(root, "Vendor"), *_oem(root), *_oem(manager), text(root, "Product"), text(manager, "Manufacturer")]
    return " ".join(word for word in said if word)


def _words(tree: Tree, root: Doc, manager: Doc | None, system: Doc) -> str:
    found = [words_of(root, manager)]
    if not any((text(root, "Vendor"), *_oem(root), *_oem(manager), text(manager, "Manufacturer"))):
        hint = (tree.address.maker or "").rstrip("0123456789")
        found += [HINTS.get(hint) or text(system, "Manufacturer") or ""]
    return " ".join(found).strip()


def _oem(doc: Doc | None) -> list[str]:
    oem = dig(doc, "Oem")
    names = (str(key)[:64] for key in list(oem)[:8]) if isinstance(oem, dict) else ()
    return [name for name in names if "@" not in name]  # OpenBMC 2.15 writes its Oem section as a resource of its own
