"""What a BMC that does not claim a capability lacks for it, in words for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from bcmetal_drivers.schemes import IPMI, family_of

# In the order of `capabilities.py`; those that every driver has by itself are left out.
REDFISH_NEEDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Power": "the system has no action ComputerSystem.Reset",
        "BootOnce": "the system has no Boot",
        "BootModes": "the system's Boot names no BootSourceOverrideMode",
        "SecureBoot": "the system links no SecureBoot",
        "VirtualMedia": "neither the system nor a manager links VirtualMedia",
        "Accounts": "the service root links no AccountService",
        "DriveErase": "no drive has an action by which it is erased",
        "BootAlways": "the system's Boot names no override that lasts",
        "SecureBootKeys": "SecureBoot has no action by which its keys are reset",
        "Jobs": "the service root links no Tasks",
        "Bios": "the system links no Bios that has settings",
        "Firmware": "there is no UpdateService that lists firmware or takes it",
        "Volumes": "no storage takes new volumes",
        "Sensors": "no chassis links sensors",
        "EventLog": "neither the system nor a manager links LogServices",
        "Indicator": "no light of the system or a chassis can be set",
        "BmcReset": "no manager has an action Manager.Reset",
        "BmcClock": "no manager tells its DateTime",
        "BmcNetwork": "no manager links EthernetInterfaces",
        "Console": "no serial console is named",
        "HostWays": "no manager links HostInterfaces",
        "NetworkWays": "no manager links NetworkProtocol",
    }
)
IPMI_NEEDS: Final = "IPMI has none of it, or this BMC refuses it"


def lacks(scheme: str, claimed: Collection[str]) -> dict[str, str]:
    """Capability → what there is not; for those that are not claimed."""
    ipmi = family_of(scheme) == IPMI
    return {name: IPMI_NEEDS if ipmi else why for name, why in REDFISH_NEEDS.items() if name not in claimed}
