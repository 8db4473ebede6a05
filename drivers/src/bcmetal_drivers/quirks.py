"""How makers' BMCs differ, as data: each row of TABLE says for whom, what, and where that is known from.

A quirk is what cannot be found out by asking: the BMC says yes to both and means one. What a refusal or a look can tell is learned
instead (`learned`), and no row is needed for it. Drivers ask for a field, and never for a maker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from bcmetal_drivers.resources import BootDevice, BootMode, JobState

SAFE_MARKS: Final = "!#%+-_="  # of the special characters, those that no maker here refuses


@dataclass(frozen=True, slots=True)
class PasswordRules:
    """What a password must be like for this maker, beside what the BMC's AccountService says. The defaults pass at every maker here.

    `classes` of: lower case, upper case, digits, others. `marks`: the others that may be used.
    """

    shortest: int = 8
    longest: int = 20
    classes: int = 4
    marks: str = SAFE_MARKS


@dataclass(frozen=True, slots=True)
class OemSetting:
    """One value somewhere at the manager. `at`: the keys from the manager's document to the reference of the resource that holds it
    (of a list of references the first); empty where the manager itself does. `key`: the keys to the value there."""

    name: str
    at: tuple[str, ...]
    key: tuple[str, ...]
    value: str | bool  # what it must be for the purpose
    otherwise: str | bool | None = None  # what it is set to when the purpose is over; None: it is left alone


@dataclass(frozen=True, slots=True)
class PushForm:
    """The form by which a maker takes an image at its HttpPushUri, where that is not the image alone."""

    session_field: str  # the field, and the cookie, that hold the session's token
    options_field: str
    options: Mapping[str, str | bool | int]
    file: str  # the field of the image
    state: tuple[str, ...]  # the keys to how it goes in the UpdateService
    percent: tuple[str, ...]
    words: Mapping[JobState, tuple[str, ...]]  # what is said there, in lower case


@dataclass(frozen=True, slots=True)
class Quirks:
    """One BMC's. The defaults are the standard's, so that an unknown maker is taken at the standard's word."""

    # boot
    virtual_cd: tuple[str, ...] = ("Cd", "UsbCd")  # what the virtual CD is called in a boot override, likeliest first
    all_boot_keys: bool = False  # fewer keys than target, enabled and mode reset the others, with a 200
    # devices that the standard override does not reach
    boot_by_setting: Mapping[BootDevice, tuple[OemSetting, ...]] | None = None
    # IPMI: of the boot flags, tried before the standard's
    boot_selectors: Mapping[tuple[BootDevice, BootMode], int] | None = None

    # accounts
    password: PasswordRules = PasswordRules()

    # the host's ways into the BMC: what closes each, by the name that `HostWays` gives it
    host_ways: tuple[OemSetting, ...] = ()

    # serial console
    ssh_console: str = ""  # what a person types at the BMC's SSH prompt

    # firmware
    push_form: PushForm | None = None

    # pace
    spacing_s: float = 0.0  # at least, between the end of a request and the next one


@dataclass(frozen=True, slots=True)
class Row:
    """For whom: regular expressions, searched in any case; "" is everyone. `source`: who says so, or the test that shows it."""

    maker: str
    differs: Mapping[str, Any]
    source: str
    model: str = ""
    firmware: str = ""

    def fits(self, maker: str, model: str, firmware: str) -> bool:
        asked = ((self.maker, maker), (self.model, model), (self.firmware, firmware))
        return all(re.search(pattern, said, re.IGNORECASE) for pattern, said in asked if pattern)


SUPERMICRO, DELL, HPE, LENOVO = r"super ?micro", r"\bdell\b", r"\bhpe?\b|hewlett", r"lenovo"
AMI, ASROCK_RACK = r"\bami\b|american megatrends", r"asrock ?rack"
_IDRAC: Final = ("Links", "Oem", "Dell", "DellAttributes")


# Later rows win over earlier ones, field by field.
TABLE: Final[tuple[Row, ...]] = (
    Row(
        f"{SUPERMICRO}|{AMI}|{ASROCK_RACK}",
        {"all_boot_keys": True},
        "a PATCH of the target alone is answered 200 and sets mode and enabled back (Supermicro AMI, ASRock Rack)",
    ),
    Row(
        SUPERMICRO,
        {
            "virtual_cd": ("UsbCd", "Cd"),
            "password": PasswordRules(8, 20, 3),
        },
        "X11 to X13: `Cd` is the physical drive, and boots nothing; AccountService of BMC 11.01 on X13: 8 to 20 characters",
    ),
    Row(
        SUPERMICRO,
        {"host_ways": (OemSetting("kcs", ("Oem", "Supermicro", "KCSInterface"), ("Privilege",), "Callback"),)},
        "recorded tree of BMC 11.01 on X13: Managers/1/Oem/Supermicro/KCSInterface",
    ),
    Row(
        SUPERMICRO,
        {"ssh_console": "cd system1/sol1; start"},
        "recorded tree of BMC 11.01 on X13: SerialConsole.SSH.ConsoleEntryCommand",
    ),
    Row(
        SUPERMICRO,
        {"boot_selectors": {(BootDevice.DISK, BootMode.UEFI): 9}},
        "its own tool writes e0 24 for the disk of a UEFI machine; X9 to X11 boot nothing with the standard's e0 08",
    ),
    Row(
        DELL,
        {
            "boot_by_setting": {
                BootDevice.CD: (
                    OemSetting("device", _IDRAC, ("Attributes", "ServerBoot.1.FirstBootDevice"), "VCD-DVD", "Normal"),
                    OemSetting("once", _IDRAC, ("Attributes", "ServerBoot.1.BootOnce"), "Enabled"),
                )
            },
        },
        "iDRAC: `Cd` is the physical drive; the virtual one is reached by the manager's attributes (recorded tree of iDRAC9 6.00)",
    ),
    Row(
        DELL,
        {
            "host_ways": (
                OemSetting("usb-lan", _IDRAC, ("Attributes", "OS-BMC.1.AdminState"), "Disabled"),
                OemSetting("local-racadm", _IDRAC, ("Attributes", "LocalSecurity.1.LocalConfig"), "Enabled"),
            ),
            "ssh_console": "console com2",
            "password": PasswordRules(8, 20, 4),
        },
        "recorded tree of iDRAC9 6.00, DellAttributes; LocalConfig enabled means that local configuration is switched off",
    ),
    Row(
        HPE,
        {
            "host_ways": (
                OemSetting("kcs", (), ("Oem", "Hpe", "RequireHostAuthentication"), True),
                OemSetting("usb-lan", (), ("Oem", "Hpe", "VirtualNICEnabled"), False),
            ),
            "ssh_console": "vsp",
            "password": PasswordRules(8, 39, 3),
        },
        "recorded tree of iLO 5 2.72: Managers/1, Oem.Hpe; iLO takes 39 characters at most",
    ),
    Row(
        HPE,
        {
            "push_form": PushForm(
                session_field="sessionKey",
                options_field="parameters",
                options={"UpdateRepository": False, "UpdateTarget": True, "ETag": "bcmetal", "Section": 0},
                file="file",
                state=("Oem", "Hpe", "State"),
                percent=("Oem", "Hpe", "FlashProgressPercent"),
                words={
                    JobState.RUNNING: ("uploading", "verifying", "writing", "updating"),
                    JobState.FAILED: ("error",),
                },
            )
        },
        "recorded tree of iLO 5 2.72: HttpPushUri is /cgi-bin/uploadFile, a form that HPE's own REST tool fills in",
    ),
    Row(
        LENOVO,
        {
            "host_ways": (OemSetting("kcs", (), ("Oem", "Lenovo", "KCSEnabled"), False),),
            "ssh_console": "console 1",
            "password": PasswordRules(10, 32, 4),
        },
        "recorded tree of XCC 2.83: Managers/1, Oem.Lenovo; AccountService: 10 to 32 characters",
    ),
)


@lru_cache(maxsize=1024)
def quirks_of(maker: str | None, model: str | None = None, firmware: str | None = None) -> Quirks:
    """What all rows that fit say together. What is not known of a BMC fits no expression but the empty one."""
    return merged(TABLE, maker, model, firmware)


def merged(table: tuple[Row, ...], maker: str | None, model: str | None = None, firmware: str | None = None) -> Quirks:
    """The same by another table."""
    found = Quirks()
    for row in table:
        if row.fits(maker or "", model or "", firmware or ""):
            found = replace(found, **row.differs)
    return found
