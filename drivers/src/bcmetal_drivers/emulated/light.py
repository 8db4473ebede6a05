"""The identify light of a system, in the forms that makers give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Refusal
from bcmetal_drivers.emulated.quirks import Quirks

LED_WORDS: Final = {"led": {"Off": False, "Lit": True, "Blinking": True}, "lit": {"Lit": False, "Blinking": True}}


def shown(machine: Machine, quirks: Quirks) -> dict[str, Any]:
    """For the system's document."""
    if quirks.light == "active":
        return {"LocationIndicatorActive": machine.identify}
    if quirks.light == "none":
        return {}
    return {"IndicatorLED": "Blinking" if machine.identify else "Lit" if quirks.light == "lit" else "Off"}


def change(machine: Machine, quirks: Quirks, wanted: Mapping[str, Any]) -> None:
    """Raises Refusal for a property or a word that this light does not have."""
    if "LocationIndicatorActive" in wanted:
        if quirks.light != "active" or not isinstance(wanted["LocationIndicatorActive"], bool):
            raise Refusal(400, "PropertyValueTypeError", "LocationIndicatorActive cannot be set to that here.")
        machine.identify = wanted["LocationIndicatorActive"]
    if "IndicatorLED" in wanted:
        words = LED_WORDS.get("led" if quirks.light == "active" else quirks.light, {})
        if wanted["IndicatorLED"] not in words:
            raise Refusal(400, "PropertyValueNotInList", f"The value {wanted['IndicatorLED']!r} is not acceptable.")
        machine.identify = words[wanted["IndicatorLED"]]
