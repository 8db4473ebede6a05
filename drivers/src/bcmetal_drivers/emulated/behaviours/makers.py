"""What makers' BMCs do all at once, and what every BMC does on a bad day."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.faults import Rule

BEHAVIOURS: Final = (
    Behaviour(
        name="supermicro",
        about="A Supermicro board of the X11 to X13 generations.",
        setup={"maker": "supermicro"},
        includes=("cd-is-usbcd", "boot-reverts", "media-under-managers"),
    ),
    Behaviour(
        name="hpe",
        about="A ProLiant with iLO 5.",
        setup={"maker": "hpe"},
        includes=("boot-refused-during-post", "spurious-401", "media-under-managers"),
    ),
    Behaviour(
        name="dell",
        about="A PowerEdge with iDRAC 9.",
        setup={"maker": "dell"},
        includes=("serial-is-the-boards", "media-under-both"),
    ),
    Behaviour(
        name="lenovo",
        about="A ThinkSystem with XCC.",
        setup={"maker": "lenovo"},
        includes=("insert-by-patch", "media-under-managers", "etag-required"),
    ),
    Behaviour(
        name="ami",
        about="A board with AMI MegaRAC.",
        setup={"maker": "ami"},
        includes=("boot-in-sd", "session-table-full-400", "etag-weak", "media-under-managers"),
    ),
    Behaviour(
        name="openbmc",
        about="A board with OpenBMC.",
        setup={"maker": "openbmc"},
        includes=("boot-continuous-refused", "media-under-managers"),
    ),
    Behaviour(
        name="flaky",
        about="A BMC on a bad day: late, 5xx, dropped lines and sessions, lost answers, now and then.",
        rules=(
            Rule(action="delay", seconds=0.02, every=5),
            Rule(action="refuse", status=503, method="GET", every=31),
            Rule(action="html", status=502, method="GET", every=43),
            Rule(action="drop_before", method="GET", every=37),
            Rule(action="expire_sessions", method="GET", every=53),
            Rule(action="drop_after", method="POST", path="/Actions/", every=5),
        ),
    ),
)
