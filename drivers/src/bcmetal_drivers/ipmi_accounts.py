"""User slots, LAN settings and channel access of an IPMI BMC: what commission notes and release compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

from bcmetal_drivers.capabilities import Account, Credential
from bcmetal_drivers.errors import Malformed, MaybeSent, NotAsAsked, Refused, Transient, Unsupported
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.ipmi_session import PASSWORD_LIMIT, PRIVILEGES, USERNAME_LIMIT

GET_CHANNEL_ACCESS: Final = Command("Get Channel Access", 0x06, 0x41)
GET_CHANNEL_INFO: Final = Command("Get Channel Info", 0x06, 0x42)
GET_USER_ACCESS: Final = Command("Get User Access", 0x06, 0x44)
GET_USER_NAME: Final = Command("Get User Name", 0x06, 0x46)
SET_USER_PASSWORD: Final = Command("Set User Password", 0x06, 0x47)
GET_LAN_PARAMETER: Final = Command("Get LAN Configuration Parameters", 0x0C, 0x02)

THIS_CHANNEL: Final = 0x0E
SLOTS_LIMIT: Final = 63
ROLES: Final[Mapping[int, str]] = {1: "CALLBACK", 2: "USER", 3: "OPERATOR", 4: "ADMINISTRATOR", 5: "OEM"}
SET, TEST = 0x02, 0x03
TEST_FAILED: Final = (0x80, 0x81)  # wrong password; right password of another size
OLD_SIZE: Final = 16
SIZE_REFUSED: Final = (0xC7, 0xC8, 0xCC)

# parameter -> (name in the baseline, whether its bytes are an IPv4 address)
LAN_PARAMETERS: Final[Mapping[int, tuple[str, bool]]] = {
    3: ("ip", True),
    4: ("ipSource", False),
    5: ("mac", False),
    6: ("netmask", True),
    12: ("gateway", True),
    20: ("vlan", False),
    24: ("cipherSuitePrivileges", False),
}


def read_accounts(door: IpmiDoor) -> tuple[Account, ...]:
    """Every slot that has a name, may log in, or is enabled; the null user of slot 1 too, when it is open."""
    accounts = []
    slots = 1
    uid = 1
    while uid <= slots:
        answer = door.read(GET_USER_ACCESS, bytes((THIS_CHANNEL, uid)))
        if answer.code != 0 and uid > 1:  # some BMCs count slots that they then do not have
            uid += 1
            continue
        access = door.check(GET_USER_ACCESS, answer)
        if len(access) < 4:
            raise Malformed(f"{door.address}: {GET_USER_ACCESS.name} gave {len(access)} bytes")
        slots = min(access[0] & 0x3F, SLOTS_LIMIT)
        answer = door.read(GET_USER_NAME, bytes((uid,)))
        name = answer.data[:USERNAME_LIMIT].rstrip(b"\x00").decode("utf-8", "replace") if answer.code == 0 else ""
        enabled = access[1] >> 6 != 0x2 and bool(access[3] & 0x10)
        if name or enabled:
            accounts.append(Account(str(uid), name, ROLES.get(access[3] & 0x0F), enabled))
        uid += 1
    return tuple(accounts)


def set_password(door: IpmiDoor, username: str, password: SecretStr, chosen: str | None = None) -> None:
    """Set it, let the BMC test it, and log in with it: some BMCs keep 16 of 20 bytes and find them equal in their own test.

    A password that a login then disproves is taken back where the account is the one that this conversation logged in with.
    """
    secret = password.get_secret_value().encode()
    if len(secret) > PASSWORD_LIMIT:
        raise Refused(f"{door.address}: the new password is longer than the {PASSWORD_LIMIT} bytes that IPMI 2.0 takes")
    account = next((a for a in read_accounts(door) if a.username == username and chosen in (None, a.slot)), None)
    if account is None:
        raise Refused(f"{door.address}: no account has the name {username!r}")
    slot = int(account.slot)
    role = account.role if account.enabled and account.role in PRIVILEGES else None  # None: it cannot log in
    new = Credential(username, password)
    try:
        size = _write_password(door, slot, secret)
    except MaybeSent:
        # by a login and not by the BMC's own test: the old password, which a new session would need for it, may be gone
        if role is not None and door.proves(new, role) is True:
            return
        raise
    if _test_password(door, slot, secret, size) is False:
        raise NotAsAsked(f"{door.address}: acknowledged the new password of slot {slot}, and then does not know it")
    if role is None or door.proves(new, role) is not False:
        return
    what = f"{door.address}: acknowledged the new password of slot {slot}, and refuses a login with it"
    hint = f"; perhaps it keeps only {OLD_SIZE} bytes" if len(secret) > OLD_SIZE else ""
    if username == door.credential.username:
        _write_password(door, slot, door.credential.password.get_secret_value().encode())
        hint += "; the old one was put back"
    raise NotAsAsked(what + hint)


def _write_password(door: IpmiDoor, slot: int, secret: bytes) -> int:
    """Set it, and return the form in which the BMC took it: 20 bytes, or the 16 of IPMI 1.5."""
    size = PASSWORD_LIMIT
    answer = door.write(SET_USER_PASSWORD, _password_request(slot, SET, secret, size))
    if answer.code in SIZE_REFUSED and len(secret) <= OLD_SIZE:
        size = OLD_SIZE
        answer = door.write(SET_USER_PASSWORD, _password_request(slot, SET, secret, size))
    door.check(SET_USER_PASSWORD, answer)
    return size


def _test_password(door: IpmiDoor, slot: int, secret: bytes, size: int) -> bool | None:
    """Whether the BMC holds this password. None: it does not tell."""
    try:
        answer = door.read(SET_USER_PASSWORD, _password_request(slot, TEST, secret, size))
    except (Transient, Refused):
        return None
    if answer.code in TEST_FAILED:
        return False
    return True if answer.code == 0 else None


def _password_request(slot: int, operation: int, secret: bytes, size: int) -> bytes:
    wide = 0x80 if size == PASSWORD_LIMIT else 0
    return bytes((wide | slot, operation)) + secret.ljust(size, b"\x00")


def read_lan(door: IpmiDoor) -> Mapping[str, str | None]:
    """The LAN settings of the channel that we come in by; None for a parameter that the BMC does not give."""
    channel = _channel(door)
    settings: dict[str, str | None] = {}
    for parameter, (name, is_ip) in LAN_PARAMETERS.items():
        try:
            data = door.get(GET_LAN_PARAMETER, bytes((channel, parameter, 0, 0)))[1:]
        except (Unsupported, Refused):
            settings[name] = None
            continue
        if is_ip:
            settings[name] = ".".join(map(str, data[:4]))
        elif name == "mac":
            settings[name] = data[:6].hex(":")
        else:
            settings[name] = data.hex()
    return settings


def _channel(door: IpmiDoor) -> int:
    try:
        info = door.get(GET_CHANNEL_INFO, bytes((THIS_CHANNEL,)))
    except (Unsupported, Refused):
        return 1
    return info[0] & 0x0F if info else 1


def read_channel_access(door: IpmiDoor) -> str | None:
    """The stored access settings of our channel as hex: whether IPMI over LAN is on, and up to which privilege."""
    try:
        return door.get(GET_CHANNEL_ACCESS, bytes((THIS_CHANNEL, 0x40))).hex()
    except (Unsupported, Refused):
        return None
