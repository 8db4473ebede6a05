"""BMCs that speak IPMI."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import IPMI, Behaviour
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.resources import BootDevice

OPERATOR: Final = 3


def _ipmi(name: str, about: str, *rules: Rule, **quirks: object) -> Behaviour:
    return Behaviour(name=name, about=about, protocol=IPMI, quirks=quirks, rules=rules)


def _refuses(command: str, code: int, **more: int) -> Rule:
    return Rule(action="refuse", method=command, code=code, **more)  # type: ignore[arg-type]  # counts, as a rule has them


BEHAVIOURS: Final = (
    # boot flags
    _ipmi("ipmi-flag-expires", "Boot flags lapse after a minute, and parameter 3 is refused (OpenBMC).", flags_lapse_s=60.0, parameter_3=False),
    _ipmi("ipmi-forgets-uefi", "The UEFI bit of the boot flags is lost.", forgets_uefi=True),
    _ipmi(
        "ipmi-loses-flags-once",
        "The first write of the boot flags is acknowledged and lost.",
        Rule(action="ignore", method="set-boot-options", path="^(?!parameter-)", times=1),
    ),
    _ipmi("ipmi-forgets-persistence", "A lasting boot device is taken for one boot.", forgets_persistence=True),
    _ipmi(
        "ipmi-supermicro-selectors",
        "The disk of a UEFI machine has a selector of its own (Supermicro: 9), the standard's is refused.",
        selectors={0: BootDevice.NONE, 1: BootDevice.PXE, 5: BootDevice.CD, 6: BootDevice.BIOS_SETUP, 9: BootDevice.DISK},
    ),
    # suites, privilege, names
    _ipmi("ipmi-suite-3-only", "Cipher suite 17 is refused.", suites=(3,)),
    _ipmi("ipmi-suite-17-ignored", "Cipher suite 17 is met with silence.", suites=(3,), ignores_suites=True),
    _ipmi("ipmi-suite-17-only", "Cipher suite 3 is refused.", suites=(17,)),
    _ipmi("ipmi-no-encryption", "Only cipher suites without encryption are known.", suites=(2, 1, 0)),
    _ipmi("ipmi-1.5-only", "The BMC says that it knows IPMI 1.5 only.", ipmi_2=False),
    _ipmi("ipmi-cipher-0", "Cipher suite 0 is open: anybody who knows a name comes in.", suites=(17, 3, 0)),
    _ipmi("ipmi-operator-account", "The account is an operator's.", privilege=OPERATOR),
    _ipmi("ipmi-password-of-16-bytes", "Passwords have 16 bytes at most.", password_bytes=16),
    # busy, slow, restarting
    _ipmi(
        "ipmi-busy",
        "Commands are answered with busy codes (C0, C3, DF) now and then.",
        _refuses("get-chassis-status", 0xC0, times=2),
        _refuses("chassis-control", 0xDF, times=1),
        _refuses("get-device-id", 0xC3, times=1),
        _refuses("set-boot-options", 0xC0, times=1),
    ),
    _ipmi("ipmi-a-second-between-commands", "A command is busy (C0) when the one before was less than a second ago.", min_interval_s=1.0),
    _ipmi("ipmi-already-there-d5", "Power commands to the present state are refused (D5).", already_there_d5=True),
    _ipmi("ipmi-power-lags", "A power command shows half a minute later.", power_lag_s=30.0),
    _ipmi(
        "ipmi-answers-lost",
        "The answer to a power command is lost.",
        Rule(action="drop_after", method="chassis-control", times=1),
    ),
    _ipmi("ipmi-logins-fail-after-power-on", "For a while after power-on every login is refused.", logins_fail_after_power_on=1),
    _ipmi(
        "ipmi-forgets-sessions",
        "Sessions are forgotten, and their commands met with silence.",
        Rule(action="expire_sessions", method="get-chassis-status", times=1),
    ),
    # FRU, console
    _ipmi("ipmi-fru-checksum", "A checksum of the FRU is wrong.", fru="checksum"),
    _ipmi("ipmi-fru-garbled", "The FRU is garbled.", fru="garbled"),
    _ipmi("ipmi-fru-absent", "There is no FRU.", fru="absent"),
    _ipmi("ipmi-stale-console", "Somebody left a serial console open.", sol_stale=True),
)  # fmt: skip
