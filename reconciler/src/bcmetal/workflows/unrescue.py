"""Unrescue: take the rescue medium away and let the machine boot its own system.

1. know_the_machine      the machine is the one that was inspected
2. power_off             seen off, before its medium is pulled
3. eject_media           seen empty
4. withdraw_the_medium   served no more
5. clear_boot_override   seen cleared
6. power_on              seen on
"""

from __future__ import annotations

from bcmetal.workflows.steps import (
    UNDO,
    clear_boot_override,
    eject_media,
    know_the_machine,
    power_off,
    power_on,
    withdraw_the_medium,
)

STEPS = (know_the_machine, power_off, eject_media, withdraw_the_medium, clear_boot_override, power_on)
CLEANUP = UNDO
