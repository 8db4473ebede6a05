"""LAN channels of an IPMI BMC: addresses, access, cipher suites; and closing what must not be open to the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Final

from bcmetal_drivers.errors import Malformed, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.resources import BmcInterface, HostWay

SET_CHANNEL_ACCESS: Final = Command("Set Channel Access", 0x06, 0x40)
GET_CHANNEL_ACCESS: Final = Command("Get Channel Access", 0x06, 0x41)
GET_CHANNEL_INFO: Final = Command("Get Channel Info", 0x06, 0x42)
SET_LAN_PARAMETER: Final = Command("Set LAN Configuration Parameters", 0x0C, 0x01)
GET_LAN_PARAMETER: Final = Command("Get LAN Configuration Parameters", 0x0C, 0x02)

THIS_CHANNEL: Final = 0x0E
SYSTEM_INTERFACE: Final = 0x0F
CHANNELS: Final = range(1, 0x0C)
LAN_MEDIA: Final = (0x04, 0x06)
STORED, IN_FORCE = 0x40, 0x80
ACCESS_MODE: Final = 0x07
AUTH_TYPES, SUITE_COUNT, SUITES, SUITE_PRIVILEGES = 2, 22, 23, 24
IPV6_STATIC, IPV6_DYNAMIC = 56, 59
IPV6_ADDRESSES: Final = 4  # of each kind that are looked for
DHCP: Final = 2
# Suites whose confidentiality is AES-CBC-128 (IPMI 2.0, table 22-20); RAKP without a check value is 0 alone.
ENCRYPTED: Final = frozenset({3, 8, 12, 17})
OPEN_SUITE: Final = 0

# parameter -> (name in the baseline, whether its bytes are an IPv4 address)
LAN_PARAMETERS: Final[Mapping[int, tuple[str, bool]]] = {
    3: ("ip", True),
    4: ("ipSource", False),
    5: ("mac", False),
    6: ("netmask", True),
    12: ("gateway", True),
    20: ("vlan", False),
    SUITE_PRIVILEGES: ("cipherSuitePrivileges", False),
}
MORE_PARAMETERS: Final[Mapping[int, str]] = {
    AUTH_TYPES: "authTypes",
    10: "arp",
    16: "communityString",
    18: "alertDestinationType",
    19: "alertDestination",
    51: "ipv6Enabled",
}
BY_SET: Final = (18, 19)  # parameters with a set selector: of the first alert destination


def channels(door: IpmiDoor) -> tuple[int, ...]:
    """The LAN channels; 1 where the BMC does not tell of any."""
    found = []
    for channel in CHANNELS:
        answer = door.read(GET_CHANNEL_INFO, bytes((channel,)))
        if answer.code == 0 and len(answer.data) > 1 and answer.data[1] & 0x7F in LAN_MEDIA:
            found.append(answer.data[0] & 0x0F)
    return tuple(found) or (1,)


def own_channel(door: IpmiDoor) -> int:
    """The channel that we come in by; 1 where the BMC does not tell."""
    answer = door.read(GET_CHANNEL_INFO, bytes((THIS_CHANNEL,)))
    return answer.data[0] & 0x0F if answer.code == 0 and answer.data else 1


def read_lan(door: IpmiDoor, channel: int | None = None) -> Mapping[str, str | None]:
    """The LAN settings of a channel, the own one by default; None for a parameter that the BMC does not give."""
    channel = own_channel(door) if channel is None else channel
    settings: dict[str, str | None] = {}
    for parameter, (name, is_ip) in LAN_PARAMETERS.items():
        data = _parameter(door, channel, parameter)
        if data is None:
            settings[name] = None
        elif is_ip:
            settings[name] = ".".join(map(str, data[:4]))
        else:
            settings[name] = data[:6].hex(":") if name == "mac" else data.hex()
    return settings


def read_all_lan(door: IpmiDoor) -> Mapping[str, Mapping[str, object]]:
    """Every setting of every LAN channel, for a comparison: what is behind 5 of the standard's parameters is a way in."""
    return {str(channel): _everything(door, channel) for channel in channels(door)}


def _everything(door: IpmiDoor, channel: int) -> Mapping[str, object]:
    settings: dict[str, object] = dict(read_lan(door, channel))
    for parameter, name in MORE_PARAMETERS.items():
        data = _parameter(door, channel, parameter, 1 if parameter in BY_SET else 0)
        settings[name] = None if data is None else data.hex()
    settings["access"] = _access(door, channel)
    return settings


def read_channel_access(door: IpmiDoor) -> str | None:
    """The stored access settings of our channel as hex: whether IPMI over LAN is on, and up to which privilege."""
    return _access(door, THIS_CHANNEL)


def _access(door: IpmiDoor, channel: int) -> str | None:
    try:
        return door.get(GET_CHANNEL_ACCESS, bytes((channel, STORED))).hex()
    except (Unsupported, Refused):
        return None


def _parameter(door: IpmiDoor, channel: int, parameter: int, selector: int = 0, block: int = 0) -> bytes | None:
    """Without the revision byte; None where the BMC does not have it."""
    try:
        return door.get(GET_LAN_PARAMETER, bytes((channel, parameter, selector, block)))[1:]
    except (Unsupported, Refused):
        return None


# ---------------------------------------------------------------- for people


def interfaces(door: IpmiDoor) -> tuple[BmcInterface, ...]:
    """One for each LAN channel; what the BMC does not give is None or empty."""
    return tuple(_interface(door, channel) for channel in channels(door))


def _interface(door: IpmiDoor, channel: int) -> BmcInterface:
    ip, source, mac = (_parameter(door, channel, parameter) for parameter in (3, 4, 5))
    netmask, gateway, vlan = (_parameter(door, channel, parameter) for parameter in (6, 12, 20))
    return BmcInterface(
        name=f"channel {channel}",
        mac=mac[:6].hex(":") if mac and len(mac) >= 6 and any(mac[:6]) else None,
        ipv4=(f"{_ip(ip)}{_prefix(netmask)}",) if ip and len(ip) >= 4 and any(ip[:4]) else (),
        ipv6=_ipv6(door, channel),
        gateway=_ip(gateway) if gateway and len(gateway) >= 4 and any(gateway[:4]) else None,
        dhcp=source[0] & 0x0F == DHCP if source else None,
        vlan=int.from_bytes(vlan[:2], "little") & 0x0FFF if vlan and len(vlan) > 1 and vlan[1] & 0x80 else None,
    )


def _ip(data: bytes) -> str:
    return ".".join(map(str, data[:4]))


def _prefix(netmask: bytes | None) -> str:
    if netmask is None or len(netmask) < 4:
        return ""
    bits = f"{int.from_bytes(netmask[:4], 'big'):032b}"
    return f"/{bits.count('1')}" if "01" not in bits else ""


def _ipv6(door: IpmiDoor, channel: int) -> tuple[str, ...]:
    found = []
    for parameter in (IPV6_STATIC, IPV6_DYNAMIC):
        for selector in range(IPV6_ADDRESSES):
            data = _parameter(door, channel, parameter, selector)
            if data is None:
                break
            if len(data) >= 19 and any(data[2:18]) and data[18] <= 128:
                found.append(f"{IPv6Address(data[2:18])}/{data[18]}")
    return tuple(found)


# ---------------------------------------------------------------- closing

CIPHER_0, UNENCRYPTED, OLD_IPMI, NULL_USER, OVER_LAN = (
    "cipher-0",
    "unencrypted-suites",
    "ipmi-1.5",
    "null-user",
    "ipmi-over-lan",
)


def ways(door: IpmiDoor) -> tuple[HostWay, ...]:
    """What is open to the network on any LAN channel, but for accounts. `open` None: the BMC does not tell."""
    found: dict[str, HostWay] = {}
    for channel in channels(door):
        suites, privileges = _suites(door, channel), _parameter(door, channel, SUITE_PRIVILEGES)
        for name, weak in ((CIPHER_0, _is_open_suite), (UNENCRYPTED, _is_unencrypted)):
            is_open = None if privileges is None else any(weak(s) and level for s, level in _levels(suites, privileges))
            _note(found, name, is_open, closable=privileges is not None)
        auth = _parameter(door, channel, AUTH_TYPES)
        _note(found, OLD_IPMI, None if auth is None else any(auth[:5]), closable=auth is not None)
        access = _access(door, channel)
        mode = None if access is None else int(access[:2] or "0", 16) & ACCESS_MODE
        _note(found, OVER_LAN, None if mode is None else mode != 0, closable=mode is not None)
    return tuple(found.values())


def close_way(door: IpmiDoor, name: str) -> None:
    """On every LAN channel, read back. After `ipmi-over-lan` nobody comes in by IPMI any more, we neither.

    Raises Unsupported for a way that IPMI has not or this BMC does not show, Refused where closing would lock everybody out, NotAsAsked
    when it stays open.
    """
    closing: Mapping[str, Callable[[IpmiDoor, int], None]] = {
        CIPHER_0: lambda d, channel: _close_suites(d, channel, _is_open_suite),
        UNENCRYPTED: lambda d, channel: _close_suites(d, channel, _is_unencrypted),
        OLD_IPMI: _close_old_ipmi,
        OVER_LAN: _close_lan,
    }
    if name not in closing:
        raise Unsupported(f"{door.address}: IPMI knows no way {name!r} to close")
    own = own_channel(door)
    for channel in sorted(channels(door), key=lambda number: number == own):  # the one that we sit on last
        closing[name](door, channel)


def _note(found: dict[str, HostWay], name: str, is_open: bool | None, *, closable: bool) -> None:
    before = found.get(name)
    if before is None:
        found[name] = HostWay(name, is_open, closable)
    elif is_open or before.open is None:
        found[name] = HostWay(name, True if before.open else is_open, closable or before.closable)


def _is_open_suite(suite: int) -> bool:
    return suite == OPEN_SUITE


def _is_unencrypted(suite: int) -> bool:
    return suite not in ENCRYPTED and suite != OPEN_SUITE


def _suites(door: IpmiDoor, channel: int) -> tuple[int, ...]:
    """The suite of each entry of the privilege table; in their order from 0 where the BMC does not tell (IPMI 2.0, table 23-4)."""
    count, entries = _parameter(door, channel, SUITE_COUNT), _parameter(door, channel, SUITES)
    if not entries or len(entries) < 2:
        return tuple(range(16))
    known = count[0] & 0x1F if count else len(entries) - 1
    return tuple(entries[1 : 1 + min(known, 16)])


def _levels(suites: tuple[int, ...], privileges: bytes) -> list[tuple[int, int]]:
    """(suite, highest privilege) of each entry; 0: not usable."""
    nibbles = [nibble for byte in privileges[1:9] for nibble in (byte & 0x0F, byte >> 4)]
    return list(zip(suites, nibbles, strict=False))


def _close_suites(door: IpmiDoor, channel: int, weak: Callable[[int], bool]) -> None:
    suites, privileges = _suites(door, channel), _parameter(door, channel, SUITE_PRIVILEGES)
    if privileges is None:
        raise Unsupported(f"{door.address}: does not tell the privileges of its cipher suites")
    if len(privileges) < 9:
        raise Malformed(f"{door.address}: the privileges of its cipher suites are {len(privileges)} bytes, not 9")
    levels = [0 if weak(suite) else level for suite, level in _levels(suites, privileges)]
    if not any(level for suite, level in zip(suites, levels, strict=False) if suite in ENCRYPTED):
        raise Refused(f"{door.address}: no cipher suite with encryption is usable: closing the others would lock it")
    levels += [0] * (16 - len(levels))
    wanted = bytes((0, *(levels[n] | levels[n + 1] << 4 for n in range(0, 16, 2))))
    if privileges[1:9] != wanted[1:]:
        _put(door, channel, SUITE_PRIVILEGES, wanted)
    after = _parameter(door, channel, SUITE_PRIVILEGES) or b""
    still = sorted(suite for suite, level in _levels(suites, after) if weak(suite) and level)
    if still or len(after) < 9:
        names = ", ".join(map(str, still)) or "any"
        raise NotAsAsked(
            f"{door.address}: cipher suites were disabled on channel {channel}, and it shows {names} enabled"
        )


def _close_old_ipmi(door: IpmiDoor, channel: int) -> None:
    if door.speaks_old_ipmi:
        raise Refused(f"{door.address}: IPMI 1.5 is what we come in by")
    before = _parameter(door, channel, AUTH_TYPES)
    if before is None:
        raise Unsupported(f"{door.address}: does not tell its authentication types of IPMI 1.5")
    if any(before[:5]):
        _put(door, channel, AUTH_TYPES, bytes(5))
    if any((_parameter(door, channel, AUTH_TYPES) or b"\x01")[:5]):
        raise NotAsAsked(f"{door.address}: IPMI 1.5 was disabled on channel {channel}, and it shows it enabled")


def _close_lan(door: IpmiDoor, channel: int) -> None:
    """First what is stored, which can be read back; then what is in force, which may end our session before it is answered."""
    stored = door.get(GET_CHANNEL_ACCESS, bytes((channel, STORED)))
    if not stored:
        raise Malformed(f"{door.address}: {GET_CHANNEL_ACCESS.name} gave nothing")
    _set_access(door, channel, STORED, stored[0])
    after = door.get(GET_CHANNEL_ACCESS, bytes((channel, STORED)))
    if not after or after[0] & ACCESS_MODE:
        raise NotAsAsked(f"{door.address}: IPMI over LAN was disabled on channel {channel}, and it shows it enabled")
    if channel != own_channel(door):
        _set_access(door, channel, IN_FORCE, stored[0])
        return
    try:
        _set_access(door, channel, IN_FORCE, stored[0])
    except MaybeSent:
        pass  # nobody is there any more to answer, which is what was asked for
    finally:
        door.abandon()


def _set_access(door: IpmiDoor, channel: int, where: int, shown: int) -> None:
    """Mode 0, alerting, per-message and user level authentication as they are, the privilege limit too."""
    door.put(SET_CHANNEL_ACCESS, bytes((channel, where | shown & 0x38, 0)))


def _put(door: IpmiDoor, channel: int, parameter: int, data: bytes) -> None:
    """Once more where the answer is lost."""
    request = bytes((channel, parameter)) + data
    try:
        door.put(SET_LAN_PARAMETER, request)
    except MaybeSent:
        door.put(SET_LAN_PARAMETER, request)  # the same setting twice is the same as once


def host_ways(door: IpmiDoor) -> tuple[HostWay, ...]:
    """The system interface: root on the machine owns the BMC by it, and the standard has no lock for it."""
    answer = door.read(GET_CHANNEL_INFO, bytes((SYSTEM_INTERFACE,)))
    return (HostWay("kcs", True if answer.code == 0 else None, closable=False),)
