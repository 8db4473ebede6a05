"""What an action of a resource takes: inline annotations (`Name@Redfish.AllowableValues`) or its ActionInfo (DSP0266, "Actions property")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bcmetal_drivers.redfish_document import Doc, dig, link, text
from bcmetal_drivers.redfish_tree import Tree

ACTION_INFO: Final = "@Redfish.ActionInfo"
APPLY_TIME: Final = "@Redfish.OperationApplyTime"
NEXT_FORM: Final = (400, 415, 422)  # refused as it stands, and not begun: another form may be tried


@dataclass(frozen=True, slots=True)
class Action:
    """`target` is where it is posted to."""

    name: str
    target: str
    doc: Doc

    def allowed(self, tree: Tree, parameter: str) -> tuple[str, ...] | None:
        """The values that the parameter takes; None where the BMC does not say. Reads the ActionInfo where there is one."""
        inline = _words(self.doc.get(f"{parameter}@Redfish.AllowableValues"))
        if inline is not None:
            return inline
        return _words(dig(self.parameter(tree, parameter), "AllowableValues"))

    def parameter(self, tree: Tree, name: str) -> Doc | None:
        """What the ActionInfo says of one parameter."""
        where = text(self.doc, ACTION_INFO, limit=1024) or link(self.doc, ACTION_INFO)  # some write a reference
        listed = dig(tree.find(where), "Parameters")
        for found in listed if isinstance(listed, list) else []:
            if text(found, "Name") == name:
                return found if isinstance(found, dict) else None
        return None


def action(doc: Doc | None, *name: str) -> Action | None:
    """The resource's action of that name, such as `#Bios.ResetBios`; a maker's own is ("Oem", name)."""
    found = dig(doc, "Actions", *name)
    target = dig(found, "target")
    return Action(name[-1], target, found) if isinstance(target, str) and target else None


def apply_times(holder: Any) -> tuple[str, ...]:
    """When an operation there may take place (`@Redfish.OperationApplyTimeSupport`): Immediate, OnReset, …; () where it is not said."""
    return _words(dig(holder, "@Redfish.OperationApplyTimeSupport", "SupportedValues")) or ()


def _words(value: Any) -> tuple[str, ...] | None:
    """None for a list without words, too: it says no more than none does."""
    return tuple(word for word in value if isinstance(word, str)) or None if isinstance(value, list) else None
