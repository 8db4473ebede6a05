"""Virtual media: where the slots are, how they are filled, and what they do not tell."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import NULL, Reply

SYSTEM: Final = "/redfish/v1/Systems/<system>"
COLLECTION: Final = r"/redfish/v1/Systems/[^/]+/VirtualMedia"
SLOT: Final = rf"{COLLECTION}/[^/]+$"
INSERT: Final = r"VirtualMedia\.InsertMedia$"
EJECT: Final = r"VirtualMedia\.EjectMedia$"
DUMMIES: Final = tuple(f"{SYSTEM}/VirtualMedia/RemoteImage{n}" for n in range(1, 11))


def _missing(name: str) -> Reply:
    return Reply(
        status=400, code="Base.1.8.ActionParameterMissing",
        message=f"The action InsertMedia requires the parameter {name} to be present in the request body.",
    )  # fmt: skip


def _unknown(name: str) -> Reply:
    return Reply(
        status=400, code="Base.1.8.ActionParameterUnknown",
        message=f"The action InsertMedia was submitted with the invalid parameter {name}.",
    )  # fmt: skip


def _dummy(path: str) -> dict[str, object]:
    return {
        "@odata.id": path, "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia", "Id": path.rpartition("/")[2], "Name": "Remote image",
        "MediaTypes": ["CD", "DVD"], "Inserted": False, "Image": NULL,
    }  # fmt: skip


BEHAVIOURS: Final = (
    Behaviour(
        name="media-under-managers",
        about="The virtual media are under the manager only.",
        quirks={"media_at": "managers"},
    ),
    Behaviour(
        name="media-under-both",
        about="The virtual media are listed under the system and under the manager.",
        quirks={"media_at": "both"},
    ),
    Behaviour(
        name="slots-without-actions",
        about="Ten slots without actions stand before the one that works, and answer 405 to whatever is tried (Lenovo XCC).",
        overlay={
            COLLECTION: {
                "Members": [{"@odata.id": path} for path in (*DUMMIES, f"{SYSTEM}/VirtualMedia/Cd")],
                "Members@odata.count": len(DUMMIES) + 1,
            },
            **{path.replace("<system>", "[^/]+"): _dummy(path) for path in DUMMIES},
        },
        rules=(Rule(method="PATCH", path=r"/RemoteImage\d+$", answer=Reply(status=405, code="Base.1.8.OperationNotAllowed")),),
    ),
    Behaviour(
        name="slot-that-answers-405",
        about="The first slot offers the action, and answers 405 to it; the second works.",
        overlay={
            COLLECTION: {
                "Members": [{"@odata.id": DUMMIES[0]}, {"@odata.id": f"{SYSTEM}/VirtualMedia/Cd"}],
                "Members@odata.count": 2,
            },
            DUMMIES[0].replace("<system>", "[^/]+"): {
                **_dummy(DUMMIES[0]),
                "Actions": {"#VirtualMedia.InsertMedia": {"target": f"{DUMMIES[0]}/Actions/VirtualMedia.InsertMedia"}},
            },
        },
        rules=(Rule(method="POST", path=r"/RemoteImage1/", answer=Reply(status=405, code="Base.1.8.OperationNotAllowed")),),
    ),
    Behaviour(
        name="insert-by-patch",
        about="A slot has no actions: a medium is inserted by a PATCH (Lenovo XCC).",
        quirks={"media_insert": "patch"},
    ),
    Behaviour(
        name="insert-wants-protocol",
        about="InsertMedia wants a TransferProtocolType.",
        rules=(Rule(method="POST", path=INSERT, when=When(lacks=("body/TransferProtocolType",)), answer=_missing("TransferProtocolType")),),
    ),
    Behaviour(
        name="insert-wants-method",
        about="InsertMedia wants a TransferMethod.",
        rules=(Rule(method="POST", path=INSERT, when=When(lacks=("body/TransferMethod",)), answer=_missing("TransferMethod")),),
    ),
    Behaviour(
        name="insert-refuses-inserted",
        about="InsertMedia wants a TransferMethod without saying so, and refuses Inserted and WriteProtected.",
        rules=(
            Rule(method="POST", path=INSERT, when=When(has=("body/Inserted",)), answer=_unknown("Inserted")),
            Rule(method="POST", path=INSERT, when=When(has=("body/WriteProtected",)), answer=_unknown("WriteProtected")),
            Rule(
                method="POST", path=INSERT, when=When(lacks=("body/TransferMethod",)),
                answer=Reply(status=400, code="Base.1.8.GeneralError", message="A general error has occurred."),
            ),
        ),
    ),
    Behaviour(
        name="eject-lingers",
        about="A slot goes on to show its medium for eight seconds after it was ejected.",
        rules=(
            Rule(
                method="GET", path=SLOT, when=When(lacks=("medium/Cd",), under={"since/VirtualMedia.EjectMedia": 8.0}),
                answer=Reply(merge={"Inserted": True, "Image": "http://127.0.0.1/ejected.iso"}),
            ),
        ),
    ),
    Behaviour(
        name="insert-shows-late",
        about="A slot goes on to look empty for eight seconds after a medium was inserted.",
        rules=(
            Rule(
                method="GET", path=SLOT, when=When(has=("medium/Cd",), under={"since/VirtualMedia.InsertMedia": 8.0}),
                answer=Reply(merge={"Inserted": False, "Image": NULL}),
            ),
        ),
    ),
    Behaviour(
        name="same-url-boots-nothing",
        about="A medium at a URL that was inserted before is taken, and nothing is booted from it.",
        quirks={"same_url_boots_nothing": True},
    ),
    Behaviour(
        name="shows-the-image-name-only",
        about="A filled slot shows the name of its image, not its URL.",
        quirks={"image_shown": "name"},
    ),
    Behaviour(
        name="eject-of-nothing-refused",
        about="The eject of an empty slot is answered 409.",
        rules=(
            Rule(
                method="POST", path=EJECT, when=When(lacks=("medium/Cd",)),
                answer=Reply(status=409, code="Base.1.8.ResourceInUse", message="There is no medium."),
            ),
        ),
    ),
    Behaviour(
        name="eject-wants-a-body",
        about="An eject without a body is answered 415.",
        rules=(
            Rule(
                method="POST", path=EJECT, when=When(lacks=("header/Content-Type",)),
                answer=Reply(status=415, code="Base.1.8.UnsupportedMediaType", message="A body is expected."),
            ),
        ),
    ),
    Behaviour(
        name="insert-while-the-eject-runs",
        about="The first two inserts are answered 500: the eject before them still runs.",
        rules=(Rule(method="POST", path=INSERT, times=2, answer=Reply(status=500, code="Base.1.8.InternalError", message="Busy.")),),
    ),
    Behaviour(
        name="plain-urls-only",
        about="A URL with `?` or `=` in it, or that does not end in .iso, is refused.",
        rules=(
            Rule(
                method="POST", path=INSERT, when=When(matches={"body/Image": r"[?=]|(?<!\.iso)$"}),
                answer=Reply(status=400, code="Base.1.8.ActionParameterValueFormatError", message="The image must end in .iso."),
            ),
        ),
    ),
    Behaviour(
        name="medium-not-mapped",
        about="A medium is inserted and shown, and not mapped to the host: virtual media are detached (Dell's attach mode).",
        quirks={"media_mapped": False},
    ),
    Behaviour(
        name="eject-hangs-a-running-machine",
        about="A machine that runs from its medium hangs when the medium is taken out.",
        quirks={"hangs_without_medium": True},
    ),
)  # fmt: skip
