"""Ways into the BMC, closed before a tenant is on its host: the host's own, for which root needs no password, and weak ones from the network."""

from __future__ import annotations

from typing import Final

from bcmetal.decisions import Again, Done
from bcmetal.settings import CommissionProfile
from bcmetal.states import Verb
from bcmetal.workflows.machine import Machine, Outcome
from bcmetal_drivers.capabilities import HostWays, NetworkWays, need, offers
from bcmetal_drivers.errors import NotAsAsked, Refused, Unsupported

KCS: Final = "kcs"  # every BMC has it; few tell whether it is open
OWN_WAYS: Final = {"ipmi": "ipmi-over-lan"}  # by the scheme of the BMC's address


async def close_the_host_ways(m: Machine) -> Outcome:
    """Each that the maker lets be closed, and read back; what stays open is told by the condition `host-interface`."""
    profile = _profile(m)
    if profile is not None and not profile.close_host_ways:
        _told(m, "left-open", "the commission profile leaves the host's ways into its BMC open")
        return Done()
    if not offers(m.bmc, HostWays):
        _told(m, "unknown", "this BMC does not tell by which ways its host can reach it without a password")
        return Done()
    try:
        ways = await m.look(need(m.bmc, HostWays).host_ways)
    except Unsupported:
        _told(m, "unknown", "this BMC does not tell by which ways its host can reach it without a password")
        return Done()
    tried: dict[str, str] = dict(m.memo.get("ways_tried") or {})
    for way in ways:
        if way.open is False or not way.closable or way.name in tried:
            continue
        try:
            await m.act(need(m.bmc, HostWays).close_host_way, way.name)
        except (Unsupported, Refused, NotAsAsked) as error:
            m.remember(ways_tried={**tried, way.name: str(error)[:200]})
        else:
            m.remember(ways_tried={**tried, way.name: "the BMC acknowledged, and shows it open"})
        return Again("looks whether the host's way into its BMC is closed", 0.0)
    still = [
        f"{way.name} ({tried[way.name]})" if way.name in tried else way.name for way in ways if way.open is not False
    ]
    if not any(way.name.startswith(KCS) for way in ways):
        still.append(f"{KCS} (of which this BMC tells nothing)")
    if still:
        _told(m, "open", f"root on this machine can reach its BMC without a password: {', '.join(still)}")
    else:
        m.condition("host-interface", "ok")
    return Done()


def _profile(m: Machine) -> CommissionProfile | None:
    """A release names one of its own kind: then it is the one that the machine was commissioned by."""
    if m.operation.verb == Verb.RELEASE:
        return m.settings.profiles.commission.get(m.node.profile or m.pool.commission)
    return m.asked.commission_profile


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
    ours = OWN_WAYS.get(m.address.scheme)
    weak = [way for way in ways if way.open and way.name != ours]
    tried: dict[str, str] = dict(m.memo.get("network_ways_tried") or {})
    for way in weak:
        if not way.closable or way.name in tried:
            continue
        try:
            await m.act(need(m.bmc, NetworkWays).close_network_way, way.name)
        except (Unsupported, Refused, NotAsAsked) as error:
            m.remember(network_ways_tried={**tried, way.name: str(error)[:200]})
        else:
            m.remember(network_ways_tried={**tried, way.name: "the BMC acknowledged, and shows it open"})
        return Again("looks whether the BMC's weak way in is closed", 0.0)
    if weak:
        still = ", ".join(f"{way.name} ({tried[way.name]})" if way.name in tried else way.name for way in weak)
        m.condition(
            "network-interface", "warning", "open", f"its BMC's network has weak ways in that stay open: {still}"
        )
    else:
        m.condition("network-interface", "ok")
    return Done()


def _told(m: Machine, reason: str, why: str) -> None:
    m.condition("host-interface", "warning", reason, why)
