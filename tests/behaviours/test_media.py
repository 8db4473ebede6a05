"""Virtual media: the machine boots this operation's medium, from whichever slot, and nothing is left in one."""

from __future__ import annotations

import pytest

from bcmetal.states import Verb
from behaviours.frame import Case, Row, Shared


async def each_medium_had_a_url_of_its_own(case: Case) -> None:
    urls = [boot.url for boot in case.bmc.machine.boots if boot.url]
    assert len(urls) == 2  # the system's, and the rescue's
    assert len(set(urls)) == 2


async def never_hung(case: Case) -> None:
    assert not case.bmc.machine.hung
    assert case.writes("EjectMedia")


async def inserted_into_one_slot(case: Case) -> None:
    assert [write.path for write in case.writes("InsertMedia")] == [
        f"/redfish/v1/Systems/{case.bmc.machine.hardware.system_id}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia"
    ]


ROWS = (
    Row("media-under-managers", until=Verb.DEPLOY),
    Row("media-under-both", until=Verb.DEPLOY),
    Row("slots-without-actions", until=Verb.DEPLOY, judge=inserted_into_one_slot, fires=False),
    Row("slot-that-answers-405", until=Verb.DEPLOY, judge=inserted_into_one_slot),
    Row("insert-by-patch", until=Verb.DEPLOY),
    Row("insert-wants-protocol", until=Verb.DEPLOY),
    Row("insert-wants-method", until=Verb.DEPLOY),
    Row("insert-refuses-inserted", until=Verb.DEPLOY),
    Row("eject-lingers", until=Verb.RELEASE),
    Row("insert-shows-late", until=Verb.DEPLOY, tolerates=("InsertMedia",)),
    Row("same-url-boots-nothing", until=Verb.RESCUE, judge=each_medium_had_a_url_of_its_own),
    Row("shows-the-image-name-only", until=Verb.DEPLOY),
    Row("eject-of-nothing-refused", until=Verb.DEPLOY, fires=False),
    Row("eject-wants-a-body", until=Verb.DEPLOY, fires=False),
    Row("insert-while-the-eject-runs", until=Verb.DEPLOY),
    Row("plain-urls-only", until=Verb.DEPLOY, fires=False),
    Row("eject-hangs-a-running-machine", until=Verb.UNRESCUE, judge=never_hung),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)
