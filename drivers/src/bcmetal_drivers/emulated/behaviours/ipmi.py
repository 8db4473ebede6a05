"""BMCs that speak IPMI."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import IPMI, Behaviour

BEHAVIOURS: Final = (
    Behaviour(
        name="ipmi-flag-expires",
        about="Boot flags lapse after a minute.",
        protocol=IPMI,
        quirks={"flags_lapse_s": 60.0},
    ),
    Behaviour(
        name="ipmi-forgets-uefi",
        about="The UEFI bit of the boot flags is lost.",
        protocol=IPMI,
        quirks={"forgets_uefi": True},
    ),
)
