"""What each recorded tree says of its sensors, its BMC's clock, network, consoles, accounts and ways in, as a reader of its JSON finds it.

Sensors: the Sensors collection of the chassis (Dell, Lenovo), or Thermal and Power (HPE, Supermicro), without what is absent or disabled;
a power supply counts once for each of its input, output and line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upkeep:
    sensors: dict[str, int]  # by kind
    temperature: tuple[str, float, dict[str, float]]  # of the air that comes in, or of a CPU, with its thresholds
    watts: float
    clock: str
    network: dict[str, tuple[tuple[str, ...], str | None, bool | None]]  # by MAC: IPv4 addresses, gateway, DHCP
    consoles: dict[str, tuple[int, str]]  # by kind: port, what to type
    host_ways: dict[str, bool]  # whether open
    ipmi: bool
    accounts: dict[str, bool]  # whether enabled
    password: tuple[int | None, int | None]  # shortest, longest
    slots: int  # virtual CDs, those under the system and those under the manager
    bios: int
    secure_boot_mode: str
    lit: bool | None


TREES = {
    "dell-r750-idrac9-6.00": Upkeep(
        sensors={"voltage": 8, "temperature": 6, "fan": 6, "power": 5, "current": 2, "other": 6},
        temperature=(
            "System Board Inlet Temp",
            25.0,
            {"lower-critical": -7, "lower-caution": 3, "upper-caution": 38, "upper-critical": 42},
        ),
        watts=614,
        clock="2024-08-08T18:48:10-05:00",
        network={"b0:7b:25:d6:51:82": (("192.168.247.199/26",), "192.168.247.193", True)},
        consoles={"ssh": (22, "type: console com2"), "web": (80, "")},
        host_ways={"redfish-host-interface": False, "usb-lan": False, "local-racadm": True},
        ipmi=True,
        accounts={"root": True, "tests_admin": True, "fwupd": False},
        password=(0, 40),
        slots=3,
        bios=455,
        secure_boot_mode="deployed",
        lit=None,
    ),
    "hpe-dl385-ilo5-2.72": Upkeep(
        sensors={"temperature": 47, "fan": 6, "power": 3, "voltage": 2},
        temperature=("01-Inlet Ambient", 20.0, {"upper-critical": 42, "upper-fatal": 47}),
        watts=531,
        clock="2024-08-15T21:43:28+00:00",
        network={
            "5c:ed:8c:34:c2:94": (("192.168.198.84/26",), "192.168.198.65", True),
            "5c:ed:8c:34:c2:95": ((), None, True),
            "0a:ca:fe:f0:0d:04": ((), None, None),
        },
        consoles={"ssh": (22, "type: vsp"), "web": (80, "")},
        host_ways={"redfish-host-interface": False, "kcs": True, "usb-lan": False},
        ipmi=False,
        accounts={"root": True, "tests_admin": True},
        password=(8, None),
        slots=1,
        bios=277,
        secure_boot_mode="user",
        lit=False,
    ),
    "lenovo-sr670v2-xcc-2.83": Upkeep(
        sensors={"temperature": 12, "power": 12, "fan": 10, "voltage": 8, "other": 187},
        temperature=("Ambient Temp", 19.0, {"upper-caution": 43, "upper-critical": 46, "upper-fatal": 50}),
        watts=708,
        clock="2024-08-02T17:12:53+00:00",
        network={
            "08:8f:c3:a5:8a:6f": (("192.168.155.147/26",), "192.168.155.129", True),
            "08:8f:c3:a5:8a:70": ((), None, False),
        },
        consoles={"ssh": (22, "type: console 1"), "web": (80, "")},
        host_ways={"redfish-host-interface": False, "credential-bootstrapping": True, "kcs": False},
        ipmi=False,
        accounts={"root": True},
        password=(10, 32),
        slots=20,
        bios=348,
        secure_boot_mode="user",
        lit=False,
    ),
    "supermicro-sys821ge-11.01": Upkeep(
        sensors={"temperature": 36, "fan": 6, "power": 13, "voltage": 18},
        temperature=(
            "CPU1 Temp",
            29.0,
            {"lower-fatal": 5, "lower-critical": 5, "upper-critical": 99, "upper-fatal": 99},
        ),
        watts=2161,
        clock="2023-11-30T21:01:15+00:00",
        network={
            "7c:c2:55:50:a8:ff": (("192.168.133.92/26",), "192.168.133.65", True),
            "be:b5:71:8c:cc:4f": (("169.254.3.254/24",), "169.254.3.254", False),
        },
        consoles={
            "ssh": (22, "type: cd system1/sol1; start · press <Enter>, <Esc>, and then <T> to terminate session"),
            "ipmi-sol": (623, "Press ~.  - terminate connection"),
            "web": (80, ""),
        },
        host_ways={"redfish-host-interface": True, "credential-bootstrapping": True, "kcs": True},
        ipmi=True,
        accounts={"root": True, "tests_admin": True},
        password=(8, 20),
        slots=3,
        bios=379,
        secure_boot_mode="setup",
        lit=False,
    ),
}
