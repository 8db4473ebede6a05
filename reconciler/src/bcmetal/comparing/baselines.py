"""What is different at a BMC since its machine was commissioned, and what would put it back. Pure.

A difference that we made ourselves, or that says nothing about anybody's access, is none: our own account, a lease that was renewed, a
certificate that was checked again, an address of a directory that is off. Everything else is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from bcmetal.text import clean

Doc = Mapping[str, Any]
SHOWN: Final = 120  # characters of a value that a sentence shows
DHCP_SOURCE: Final = "02"  # IPMI LAN parameter 4: the address is given by DHCP
ON_AN_ERASED_DISK: Final = ("HD(", "NVMe(", "Sata(", "Scsi(")  # a UEFI path ends at a file of a disk that was erased
ELSEWHERE: Final = re.compile(r"(?i)\b(uri|mac|ipv4|ipv6|dns|iscsi|usb\w*|fv|fvfile|memorymapped|ramdisk)\(")
SECRET: Final = re.compile(r"(?i)communit|passw|secret")  # settings whose values are not shown


class Mend(StrEnum):
    """What puts a difference back: by an update (FIRMWARE), at the machine's next boot (`AT_A_BOOT`), or at once."""

    DELETE_ACCOUNT = "delete-account"
    ENABLE_ACCOUNT = "enable-account"
    DIRECTORY = "directory"
    SUBSCRIPTION = "subscription"
    SERVICE = "service"
    BOOT_ORDER = "boot-order"
    BIOS = "bios"
    BOOT_MODE = "boot-mode"
    SECURE_BOOT = "secure-boot"
    SECURE_BOOT_KEYS = "secure-boot-keys"
    FIRMWARE = "firmware"


AT_A_BOOT: Final = (Mend.BIOS, Mend.BOOT_MODE, Mend.SECURE_BOOT, Mend.SECURE_BOOT_KEYS)
AT_ONCE: Final = tuple(mend for mend in Mend if mend not in (*AT_A_BOOT, Mend.FIRMWARE))


@dataclass(frozen=True, slots=True)
class Change:
    """`why` is a sentence for people. `name` and `to` are what the mend needs; `mend` None: nothing of ours puts it back."""

    why: str
    mend: Mend | None = None
    name: str = ""
    to: Any = None


@dataclass(frozen=True, slots=True)
class Ours:
    """What we know to be ours: the account that we log in with, whether the certificate that is shown was checked, what our firmware is."""

    username: str | None = None
    certificate_checked: bool = False
    disks_erased: bool = False
    firmware: Mapping[str, str] = field(default_factory=dict)  # component → the version that this operation brought


def changes(before: Doc, after: Doc, ours: Ours) -> tuple[Change, ...]:
    """In the order of the sections. A section that was not recorded says nothing; one that is not read any more is a difference."""
    found: list[Change] = []
    for section in sorted({*before, *after} - {"sections"}):
        old, new = before.get(section), after.get(section)
        if old is None:
            continue
        if new is None:
            found.append(Change(f"{section} was recorded, and the BMC shows it no more"))
            continue
        found.extend(_SECTIONS.get(section, _plain)(section, old, new, ours))
    return tuple(found)


def _shown(value: object) -> str:
    return clean(str(value))[:SHOWN]


def _mapping(value: object) -> Doc:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _plain(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    """Whatever differs, by its path."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _plain(f"{at}.{key}", old.get(key), new.get(key), ours)
    elif old != new and SECRET.search(at):
        yield Change(f"{at} is another than it was")
    elif old != new:
        yield Change(f"{at} was {_shown(old)}, and is {_shown(new)}")


# ---------------------------------------------------------------- accounts, directories, subscriptions, services


def _accounts(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    known = {str(one.get("slot")): one for one in map(_mapping, _sequence(old))}
    there = {str(one.get("slot")): one for one in map(_mapping, _sequence(new))}
    own = [slot for slot, one in there.items() if one.get("username") == ours.username]
    for slot, one in there.items():
        was = known.get(slot)
        if own == [slot] and one.get("enabled"):
            continue  # we log in with it: it is what our own credentials say it is
        who = f"account {_shown(one.get('username'))!r} in slot {_shown(slot)}"
        if was is None or was.get("username") != one.get("username"):
            yield Change(f"{who} ({_shown(one.get('role'))}) was not there", Mend.DELETE_ACCOUNT, slot)
            continue
        if bool(was.get("enabled")) is not bool(one.get("enabled")):
            now = "is enabled" if one.get("enabled") else "is disabled"
            yield Change(f"{who} {now}, and was not", Mend.ENABLE_ACCOUNT, slot, bool(was.get("enabled")))
        if was.get("role") != one.get("role"):
            yield Change(f"{who} had the role {_shown(was.get('role'))}, and has {_shown(one.get('role'))}")
    names = {one.get("username") for one in there.values()}
    for slot, was in known.items():
        if slot not in there and was.get("username") not in names | {ours.username}:
            yield Change(f"account {_shown(was.get('username'))!r} in slot {_shown(slot)} is gone")


def _directories(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    for name in sorted({*_mapping(old), *_mapping(new)}):
        was, now = _mapping(_mapping(old).get(name)), _mapping(_mapping(new).get(name))
        on_before, on_now = bool(was.get("enabled")), bool(now.get("enabled"))
        addresses, present = list(_sequence(was.get("addresses"))), list(_sequence(now.get("addresses")))
        if on_before is on_now and (not on_now or addresses == present):
            continue
        told = f"{'on' if on_now else 'off'} ({_shown(', '.join(map(str, present)) or 'no address')})"
        why = f"directory {_shown(name)} was {'on' if on_before else 'off'}, and is {told}"
        yield Change(why, Mend.DIRECTORY, name, (on_before, tuple(map(str, addresses))))


def _subscriptions(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    before, after = [str(one) for one in _sequence(old)], [str(one) for one in _sequence(new)]
    for destination in sorted(set(after)):
        if after.count(destination) > before.count(destination):
            why = f"events are sent to {_shown(destination)}, which was not so"
            yield Change(why, Mend.SUBSCRIPTION if destination not in before else None, destination)
    for destination in sorted(set(before) - set(after)):
        yield Change(f"the event subscription of {_shown(destination)} is gone")


def _services(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    before, after = [_mapping(one) for one in _sequence(old)], [_mapping(one) for one in _sequence(new)]
    if len(before) != len(after):
        yield Change(f"there were {len(before)} managers, and there are {len(after)}")
        return
    for was, now in zip(before, after, strict=True):
        for name in sorted({*was, *now}):
            if was.get(name) != now.get(name):
                wanted = was.get(name)
                mend = Mend.SERVICE if isinstance(wanted, bool) else None
                why = f"protocol {_shown(name)} was {_on(wanted)}, and is {_on(now.get(name))}"
                yield Change(why, mend, name, wanted)


def _on(value: object) -> str:
    return {True: "on", False: "off"}.get(value, "not there") if isinstance(value, bool) else "not there"


# ---------------------------------------------------------------- network


def _network(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    if isinstance(old, Mapping):
        yield from _lan(at, old, _mapping(new), ours)
        return
    known = {str(nic.get("mac")): nic for nic in _nics(old)}
    there = {str(nic.get("mac")): nic for nic in _nics(new)}
    for mac in sorted({*known, *there}):
        was, now = known.get(mac), there.get(mac)
        if was is None or now is None:
            yield Change(f"the BMC's interface {_shown(mac)} {'was not there' if was is None else 'is gone'}")
            continue
        yield from _plain(f"network {_shown(mac)}", was, now, ours)


def _nics(listed: object) -> Iterator[Doc]:
    for manager in _sequence(listed):
        yield from map(_mapping, _sequence(manager))


def _lan(at: str, old: Doc, new: Doc, ours: Ours) -> Iterator[Change]:
    """IPMI's LAN parameters: what DHCP gives may change while the source stays."""
    leased = old.get("ipSource") == new.get("ipSource") == DHCP_SOURCE
    for name in sorted({*old, *new}):
        if not (leased and name in ("ip", "netmask", "gateway")):
            yield from _plain(f"{at}.{name}", old.get(name), new.get(name), ours)


def _channels(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    """IPMI's LAN channels, each with its parameters."""
    before, after = _mapping(old), _mapping(new)
    for channel in sorted({*before, *after}):
        yield from _lan(
            f"LAN channel {_shown(channel)}", _mapping(before.get(channel)), _mapping(after.get(channel)), ours
        )


def _certificate(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    if old != new and not ours.certificate_checked:
        yield Change(f"the BMC shows another certificate ({_shown(new)}), and nothing here checks it")


# ---------------------------------------------------------------- settings by their paths

LABELS: Final = {
    "accountSettings": "account in slot",
    "accountRules": "rule of accounts",
    "roles": "role",
    "directorySettings": "directory",
    "networkSettings": "setting of the BMC's interface",
    "protocols": "setting of protocol",
    "managerSettings": "setting of the BMC:",
    "eventSettings": "setting of events",
    "bootSettings": "boot setting",
}


def _settings(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    """What is there now and was not, or was otherwise. What is gone lets nobody in: an account that was removed takes its own along."""
    before, after = (one if isinstance(one, list) else [one] for one in (old, new))  # of each manager
    for was, now in zip(before, after, strict=False):
        yield from _differing(LABELS[at], _mapping(was), _mapping(now))


def _differing(at: str, was: Doc, now: Doc) -> Iterator[Change]:
    for name in sorted(now):
        old, new = was.get(name), now[name]
        if isinstance(new, Mapping):
            if isinstance(old, Mapping):  # a whole account, directory or interface that is new is told elsewhere
                yield from _differing(f"{at} {name}", old, new)
        elif old != new and not (old is None and new is False):  # other firmware has a switch more, and it is off
            yield Change(f"{_shown(at)} {_shown(name)} was {_shown(old)}, and is {_shown(new)}")


# ---------------------------------------------------------------- firmware, boot, BIOS, keys


def _firmware(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    if not isinstance(old, Mapping):
        yield from _plain(at, old, new, ours)
        return
    before, after = _mapping(old), _mapping(new)
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was != now and (now is None or ours.firmware.get(name) != now):
            told = f"{_shown(was) if was is not None else 'not there'}, and is {_shown(now) if now is not None else 'gone'}"
            yield Change(f"firmware {_shown(name)} was {told}", Mend.FIRMWARE, name, was)


def _bmc(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    before, after = [_mapping(one) for one in _sequence(old)], [_mapping(one) for one in _sequence(new)]
    brought = set(ours.firmware.values())
    for n, (was, now) in enumerate(zip(before, after, strict=False)):
        if was != now and (was.get("model") != now.get("model") or now.get("firmware") not in brought):
            yield Change(
                f"BMC {n + 1} was {_shown(was.get('model'))} with firmware {_shown(was.get('firmware'))}, "
                f"and is {_shown(now.get('model'))} with {_shown(now.get('firmware'))}",
                Mend.FIRMWARE if was.get("model") == now.get("model") else None,
                "",
                was.get("firmware"),
            )
    if len(before) != len(after):
        yield Change(f"there were {len(before)} managers, and there are {len(after)}")


def _boot(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    was, now = _mapping(old), _mapping(new)
    if "device" in was:  # IPMI: the boot override, which is ours to set and to clear
        return
    if was.get("mode") != now.get("mode") and was.get("mode") is not None:
        why = f"the boot mode was {_shown(was.get('mode'))}, and is {_shown(now.get('mode'))}"
        yield Change(why, Mend.BOOT_MODE, "", was.get("mode"))
    entries, present = was.get("options"), now.get("options")
    added: list[str] = []
    if isinstance(entries, Mapping) and isinstance(present, Mapping):
        for name in sorted({*present} - {*entries}):
            added.append(str(name))
            path = str(present[name])
            if not (ours.disks_erased and _on_a_disk(path)):
                yield Change(f"boot entry {_shown(name)} ({_shown(path)}) was not there")
        for name in sorted({*entries} & {*present}):
            if entries[name] != present[name]:
                yield Change(f"boot entry {_shown(name)} was {_shown(entries[name])}, and is {_shown(present[name])}")
    order, shown = list(_sequence(was.get("order"))), list(_sequence(now.get("order")))
    kept = [entry for entry in shown if entry not in added]
    if was.get("order") is not None and kept != order and [one for one in order if one in kept] != kept:
        yield Change(f"the boot order was {_shown(order)}, and is {_shown(shown)}", Mend.BOOT_ORDER, "", tuple(order))


def _on_a_disk(path: str) -> bool:
    """Whether a UEFI path leads to a disk of the machine. Its text is the tenant's: `Uri(http://x/HD(1))` leads elsewhere."""
    nodes = path.split("/")
    return any(node.startswith(ON_AN_ERASED_DISK) for node in nodes) and not ELSEWHERE.search(path)


def _bios(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    was, now = _mapping(old), _mapping(new)
    for name in sorted({*was} & {*now}):
        if was[name] != now[name]:
            why = f"BIOS setting {_shown(name)} was {_shown(was[name])}, and is {_shown(now[name])}"
            yield Change(why, Mend.BIOS, name, was[name])


def _pending(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    was, now = _mapping(old), _mapping(new)
    for name in sorted(now):
        if name not in was or was[name] != now[name]:
            yield Change(f"BIOS setting {_shown(name)} waits to become {_shown(now[name])}", Mend.BIOS, name, None)


def _secure_boot(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    if old != new:
        yield Change(f"secure boot was {_on(old)}, and is {_on(new)}", Mend.SECURE_BOOT, "", old)


def _keys(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    for change in _plain("UEFI keys", old, new, ours):
        yield Change(change.why, Mend.SECURE_BOOT_KEYS)


def _key_certificates(at: str, old: object, new: object, ours: Ours) -> Iterator[Change]:
    before, after = _mapping(old), _mapping(new)
    for name in sorted({*before} & {*after}):
        if before[name] != after[name]:
            yield Change(f"UEFI keys: {_shown(name)} holds other certificates than it did", Mend.SECURE_BOOT_KEYS)


_SECTIONS: Final = {
    "accounts": _accounts,
    "directories": _directories,
    "subscriptions": _subscriptions,
    "services": _services,
    "network": _network,
    "channels": _channels,
    "certificate": _certificate,
    "firmware": _firmware,
    "bmc": _bmc,
    "boot": _boot,
    "bios": _bios,
    "biosPending": _pending,
    "secureBoot": _secure_boot,
    "secureBootKeys": _keys,
    "secureBootCertificates": _key_certificates,
    **dict.fromkeys(LABELS, _settings),
}
