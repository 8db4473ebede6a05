"""Where the command line has other words than the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

COMMANDS: Final = {
    "setPower": "power",
    "setBmcCredentials": "node credentials",
    "rotateBmcCredentials": "node rotate-credentials",
    "update": "node update",
    "identify": "node identify",
    "resetBmc": "node reset-bmc",
    "readSensors": "node sensors",
    "readEventLog": "node events",
    "clearEventLog": "node clear-events",
    "setMaintenance": "node maintenance",
    "setProtected": "node protect",
}
POWER: Final = {
    "on": "on",
    "off": "off",
    "soft-off": "softOff",
    "cycle": "cycle",
    "soft-restart": "softRestart",
    "power-cycle": "powerCycle",
    "push-button": "pushButton",
    "nmi": "nmi",
}
_OPTIONS: Final = {
    "confirmErase": "--confirm-erase SERIAL",
    "rebuild": "--rebuild",
    "abandon": "--abandon REASON",
    "eraseWaiver": "--waive-erase REASON",
}


def command_of(verb: object) -> str:
    return COMMANDS.get(str(verb), str(verb))


def said(details: Mapping[str, Any]) -> str | None:
    """The option that answers a refusal; None when none does."""
    if details.get("confirmErase"):
        return f"--confirm-erase {details['confirmErase']}"
    needs = str(details.get("reason")).startswith("needs-")
    return _OPTIONS.get(str(details.get("field"))) if needs else None


def verb_words(allowed: Sequence[Mapping[str, Any]]) -> list[str]:
    """`allowedVerbs` entries, `{verb, needs?}`, as one types them."""
    words = []
    for entry in allowed:
        needs = entry.get("needs")
        option = f" {_OPTIONS.get(str(needs), f'(needs {needs})')}" if needs else ""
        words.append(command_of(entry.get("verb")) + option)
    return words
