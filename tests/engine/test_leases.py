"""The times of a lease fit each other: a call that may start ends before its lease, and before somebody else takes over."""

from __future__ import annotations

from bcmetal.engine import LEASE_S, RENEW_S
from bcmetal.line import CALL_MARGIN_S
from bcmetal.store.claims import TAKEOVER_WAIT_S
from bcmetal_drivers.connection import Limits
from emulated_site import OnASite, Site
from emulated_site_config import POOL


def test_a_lease_that_was_just_renewed_lasts_any_call_of_a_driver() -> None:
    assert Limits().total_s + CALL_MARGIN_S < LEASE_S
    assert RENEW_S < LEASE_S / 2  # one renewal may fail


def test_a_takeover_waits_longer_than_any_call_of_a_daemons_lines(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await site.enroll(site.rack.add_redfish("m1"))
        line = site.lines.to(await site.peek(node_id), site.settings.pools[POOL], "")
        assert line.deadline_s == Limits().total_s + CALL_MARGIN_S
        assert line.deadline_s < TAKEOVER_WAIT_S

    on_each_database(scenario)
