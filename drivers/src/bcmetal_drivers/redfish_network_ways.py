"""Weak ways into a Redfish BMC from its network: IPMI beside Redfish, which nobody needs where Redfish serves."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.redfish_baseline import set_service
from bcmetal_drivers.redfish_document import dig, link
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import HostWay

IPMI_OVER_LAN: Final = "ipmi-over-lan"


def network_ways(tree: Tree) -> tuple[HostWay, ...]:
    """IPMI over LAN, where a manager shows it (ManagerNetworkProtocol.IPMI)."""
    managers = map(tree.find, tree.manager_paths())
    shown = [dig(tree.find(link(manager, "NetworkProtocol")), "IPMI", "ProtocolEnabled") for manager in managers]
    said = [on for on in shown if isinstance(on, bool)]
    return (HostWay(IPMI_OVER_LAN, any(said), closable=True),) if said else ()


def close(tree: Tree, name: str) -> None:
    if name != IPMI_OVER_LAN:
        raise Unsupported(f"{tree.address}: Redfish knows no way {name!r} to close")
    set_service(tree, "IPMI", False)
