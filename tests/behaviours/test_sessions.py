"""Logins, sessions, accounts."""

from __future__ import annotations

import pytest

from bcmetal.states import State, Verb
from behaviours.frame import Case, Row, Shared
from emulated_site import Site


async def never_locked(case: Case) -> None:
    """However often it is asked, the budget holds; the right password is taken at once."""
    for _ in range(4):
        assert await case.live(Verb.INSPECT) is State.INSPECT_FAILED
    assert await case.code() == "login-budget"
    assert case.site.rack.failed_logins(case.bmc) == 2
    await case.site.give_credentials(case.node_id, case.bmc.username, case.bmc.password)
    await case.site.settle()
    assert await case.live(Verb.INSPECT) is State.INSPECTED


async def goes_on_with_the_new_password(case: Case) -> None:
    """The condition names what is wrong, nothing was written, and a person's new password mends it."""
    assert (await case.site.conditions(case.node_id))["credentials"][0] == "error"
    assert case.writes() == []
    await case.site.give_credentials(case.node_id, case.bmc.username, case.bmc.password)
    await case.site.settle()
    assert await case.live(Verb.COMMISSION) is State.AVAILABLE
    assert "credentials" not in await case.site.conditions(case.node_id)


async def leaves_room(case: Case) -> None:
    """One failed login and no more: there is room for the owner's right password."""
    assert case.site.rack.failed_logins(case.bmc) == 1
    await case.site.give_credentials(case.node_id, case.bmc.username, case.bmc.password)
    await case.site.settle()
    assert await case.live(Verb.INSPECT) is State.INSPECTED


async def by_basic(case: Case) -> None:
    assert case.site.rack.sessions(case.bmc) == 0
    assert case.site.rack.requests(case.bmc)["POST"] <= 2  # the login is tried once, and remembered


ROWS = (
    Row("session-table-full"),
    Row("session-table-full-400"),
    Row("session-table-of-one", until=Verb.DEPLOY),
    Row("failed-logins-fill-the-table", wrong_password=True, fails="bmc-credentials-rejected", judge=leaves_room, sessions_left=1),
    Row("token-expires", until=Verb.RELEASE),
    Row("token-expires-at-writes", until=Verb.DEPLOY),
    Row("lockout-after-3", wrong_password=True, fails="bmc-credentials-rejected", judge=never_locked),
    Row("locked-out"),
    Row("spurious-401", until=Verb.DEPLOY),
    Row("spurious-401-at-login", until=Verb.COMMISSION),
    Row("password-rotated", until=Verb.COMMISSION, fails="bmc-credentials-rejected", judge=goes_on_with_the_new_password),
    Row("basic-only", judge=by_basic),
    Row("basic-only", until=Verb.COMMISSION, note="commissioned"),
    Row("no-session-service", until=Verb.COMMISSION),
    Row("sessions-only", until=Verb.COMMISSION),
    Row("token-never-taken", until=Verb.COMMISSION),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)


def test_two_nodes_behind_one_bmc_share_its_one_session(shared: Shared) -> None:
    async def scenario(site: Site) -> None:
        bmc = site.rack.add_redfish("pair", behaviours=("several-systems", "session-table-of-one"))
        site.rack.start()
        nodes = [
            await site.enroll(bmc, system_path=f"/redfish/v1/Systems/{n}", name=f"pair-{n}") for n in bmc.by_system
        ]
        for node_id in nodes:
            await site.start(node_id, Verb.INSPECT)
        await site.settle()
        assert [await site.state(node_id) for node_id in nodes] == [State.INSPECTED] * 2
        assert site.rack.sessions(bmc) == 1

    shared.run(scenario)
