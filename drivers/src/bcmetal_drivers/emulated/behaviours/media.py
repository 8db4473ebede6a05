"""Virtual media: where the slots are, how they are filled, and what they do not tell."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour

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
        name="insert-by-patch",
        about="A slot has no actions: a medium is inserted by a PATCH (Lenovo XCC).",
        quirks={"media_insert": "patch"},
    ),
)
