"""Ways into the BMC, closed before a tenant is on its host: the host's own, for which root needs no password, and weak ones from the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bcmetal.decisions import Again, Done
from bcmetal.settings_profiles import CommissionProfile
from bcmetal.states import Verb
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import HostWays, NetworkWays, need, offers
from bcmetal_drivers.errors import NotAsAsked, Refused, Unsupported
from bcmetal_drivers.resources import HostWay

KCS: Final = "kcs"  # every BMC has it; few tell whether it is open
OWN_WAYS: Final = {"ipmi": "ipmi-over-lan"}  # by the scheme of the BMC's address
TRIED: Final = "ways_tried"  # in the memo: way → why it is open still


async def close_the_host_ways(m: Machine) -> Outcome:
    """Each that the maker lets be closed, and read back; what stays open is told by the condition `host-interface`."""
    profile = _profile(m)
    if profile is not None and not profile.close_host_ways:
        return _told(m, "left-open", "the commission profile leaves the host's ways into its BMC open")
    try:
        ways = await m.look(need(m.bmc, HostWays).host_ways)
    except Unsupported:
        return _told(m, "unknown", "this BMC does not tell by which ways its host can reach it without a password")
    left = [way for way in ways if way.open is not False]  # one of which nothing is known may be open
    if await _close_one(m, left, need(m.bmc, HostWays).close_host_way):
        return Again("looks whether the host's way into its BMC is closed", 0.0)
    still = _named(m, left)
    if not any(way.name.startswith(KCS) for way in ways):
        still.append(f"{KCS} (of which this BMC tells nothing)")
    if still:
        return _told(m, "open", f"root on this machine can reach its BMC without a password: {', '.join(still)}")
    m.condition("host-interface", "ok")
    return Done()


async def close_the_network_ways(m: Machine) -> Outcome:
    """IPMI's weak spots (cipher suite 0, suites without encryption, IPMI 1.5, users without a name), and IPMI itself where Redfish serves.

    Not the way that we come in by; what stays open is told by the condition `network-interface`.
    """
    profile = _profile(m)
    if not offers(m.bmc, NetworkWays) or (profile is not None and not profile.close_network_ways):
        return Done()
    try:
        ways = await m.look(need(m.bmc, NetworkWays).network_ways)
    except Unsupported:
        return Done()
    weak = [way for way in ways if way.open and way.name != OWN_WAYS.get(m.address.scheme)]
    if await _close_one(m, weak, need(m.bmc, NetworkWays).close_network_way):
        return Again("looks whether the BMC's weak way in is closed", 0.0)
    if weak:
        text = f"its BMC's network has weak ways in that stay open: {', '.join(_named(m, weak))}"
        m.condition("network-interface", "warning", "open", text)
    else:
        m.condition("network-interface", "ok")
    return Done()


async def _close_one(m: Machine, left: Iterable[HostWay], close: Callable[[str], None]) -> bool:
    """Each is tried once; False: there is none left to try."""
    tried: dict[str, str] = dict(m.memo.get(TRIED) or {})
    way = next((way for way in left if way.closable and way.name not in tried), None)
    if way is None:
        return False
    why = "the BMC acknowledged, and shows it open"
    try:
        await m.act(close, way.name)
    except (Unsupported, Refused, NotAsAsked) as error:
        why = str(error)[:200]
    m.remember(**{TRIED: {**tried, way.name: why}})
    return True


def _named(m: Machine, left: Iterable[HostWay]) -> list[str]:
    tried: dict[str, str] = m.memo.get(TRIED) or {}
    return [f"{way.name} ({tried[way.name]})" if way.name in tried else way.name for way in left]


def _profile(m: Machine) -> CommissionProfile | None:
    """A release has a profile of its own kind, which says nothing of this."""
    return m.asked.commissioned_by if m.operation.verb == Verb.RELEASE else m.asked.commission_profile


def _told(m: Machine, reason: str, why: str) -> Outcome:
    m.condition("host-interface", "warning", reason, why)
    return Done()
