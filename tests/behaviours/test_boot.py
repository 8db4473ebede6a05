"""The boot override. That a machine booted the medium it was given is what `crash.life` asks of every deploy."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Row, Shared

ROWS = (
    Row("boot-in-settings", until=Verb.DEPLOY),
    Row("boot-in-sd", until=Verb.DEPLOY),
    Row("settings-without-boot", until=Verb.DEPLOY),
    Row("boot-reverts", until=Verb.DEPLOY),
    Row("boot-too-many-keys", until=Verb.DEPLOY, fires=False),
    Row("boot-too-few-keys", until=Verb.DEPLOY),
    Row("boot-mode-absent", until=Verb.DEPLOY),
    Row("boot-continuous-refused", until=Verb.RESCUE),
    Row("cd-is-usbcd", until=Verb.DEPLOY),
    Row("cd-is-cd", until=Verb.DEPLOY),
    Row("no-virtual-cd-in-the-list", until=Verb.DEPLOY, fails="bmc-unsupported"),
    Row("boot-refused-during-post", until=Verb.RESCUE),
    Row("boot-change-halts-an-installed-machine", until=Verb.DEPLOY),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
