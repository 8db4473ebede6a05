"""Virtual media of a recorded tree, acted out: the standard's actions, Huawei's and xFusion's VmmControl, and AMI's switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bcmetal_drivers.emulated.messages import Answer, Refusal
from bcmetal_drivers.emulated.recorded import RecordedTree


def acted(tree: RecordedTree, where: str, action: str, asked: Mapping[str, Any]) -> Answer:
    """`where`: the slot, or for a switch the manager; `action` in lower case."""
    match action.rpartition("virtualmedia.")[2]:
        case "insertmedia":
            return _insert(tree, where, asked.get("Image"))
        case "vmmcontrol" if asked.get("VmmControlType") == "Connect":
            return _insert(tree, where, asked.get("Image"))
        case "ejectmedia":
            return _eject(tree, where)
        case "vmmcontrol" if asked.get("VmmControlType") == "Disconnect":
            return _eject(tree, where)
        case "enablermedia" if asked.get("RMediaState") == "Enable":
            return _switched_on(tree, where)
    raise Refusal(400, "ActionParameterNotSupported", f"A recorded tree does not act out this {action}.")


def _insert(tree: RecordedTree, where: str, image: object) -> Answer:
    if not isinstance(image, str) or not image:
        raise Refusal(400, "ActionParameterMissing", "Image is required.")
    if (tree.document(where) or {}).get("Inserted"):
        raise Refusal(400, "ResourceInUse", "The slot holds a medium.")
    tree.write(where, {"Image": image, "ImageName": image.rpartition("/")[2], "Inserted": True})
    return Answer(204)


def _eject(tree: RecordedTree, where: str) -> Answer:
    tree.write(where, {"Image": None, "ImageName": None, "Inserted": False})
    return Answer(204)


def _switched_on(tree: RecordedTree, manager: str) -> Answer:
    """The slots that were recorded are listed from now on."""
    slots = f"{manager}/virtualmedia"
    members = [{"@odata.id": path} for path in tree if path.rpartition("/")[0] == slots]
    tree.write(slots, {"Members": members, "Members@odata.count": len(members)})
    tree.write(manager, {"Oem": {"Ami": {"VirtualMedia": {"RMediaStatus": "Enabled"}}}})
    message = {"MessageId": "Base.1.5.Success", "Message": "Successfully Completed Request", "Severity": "OK"}
    return Answer(200, {"error": {"code": "Base.1.5.Success", "message": "Done", "@Message.ExtendedInfo": [message]}})
