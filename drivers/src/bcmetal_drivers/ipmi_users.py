"""User slots of an IPMI BMC written: a new account, on and off, emptied. Slots are fixed in number, and slot 1 has no name for good."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from pydantic import SecretStr

from bcmetal_drivers.errors import DriverError, MaybeSent, NotAsAsked, Permanent, Refused, Unsupported
from bcmetal_drivers.ipmi_accounts import SET_USER_PASSWORD, Slot, read_slots, test_password, write_password
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.ipmi_lan import channels
from bcmetal_drivers.ipmi_values import PASSWORD_LIMIT, PASSWORD_LIMIT_1_5, PRIVILEGES, USERNAME_LIMIT
from bcmetal_drivers.resources import Account, AccountPolicy

SET_USER_ACCESS: Final = Command("Set User Access", 0x06, 0x43)
SET_USER_NAME: Final = Command("Set User Name", 0x06, 0x45)

NULL_USER: Final = 1
DISABLE, ENABLE = 0x00, 0x01
CHANGE: Final = 0x80
MESSAGING: Final = 0x10
NO_ACCESS: Final = 0x0F
WRONG_LENGTH: Final = 0xC7
ROLES: Final[Mapping[str, str]] = {"READONLY": "USER"}  # Redfish's word; its others are IPMI's but for capitals


def policy() -> AccountPolicy:
    """The protocol's own limits; how a BMC locks accounts, IPMI cannot ask."""
    return AccountPolicy(password_longest=PASSWORD_LIMIT, username_longest=USERNAME_LIMIT)


def create(door: IpmiDoor, username: str, password: SecretStr, role: str) -> Account:
    """In the first free slot; enabled last, when all else was read back. What fails on the way is emptied again."""
    secret = password.get_secret_value().encode()
    privilege = PRIVILEGES.get(ROLES.get(role.upper(), role.upper()))
    if privilege is None:
        raise Refused(f"{door.address}: {role!r} is no IPMI privilege level; use one of {', '.join(PRIVILEGES)}")
    if not username or len(username.encode()) > USERNAME_LIMIT:
        raise Refused(f"{door.address}: a user name has 1 to {USERNAME_LIMIT} bytes in IPMI")
    if not secret or len(secret) > PASSWORD_LIMIT:
        raise Refused(f"{door.address}: a password has 1 to {PASSWORD_LIMIT} bytes in IPMI")
    slots = read_slots(door)
    if any(slot.name == username for slot in slots):
        raise Refused(f"{door.address}: an account has the name {username!r} already")
    free = next((slot for slot in slots if slot.number > NULL_USER and not slot.used), None)
    if free is None:
        raise Refused(f"{door.address}: all of its {len(slots)} user slots are taken")
    try:
        _name(door, free.number, username)
        write_password(door, free.number, secret)
        _access(door, free.number, privilege, messaging=True)
        _switch(door, free.number, on=True)
        made = _slot(door, free.number)
        if (made.name, made.privilege, made.enabled) != (username, privilege, True):
            raise NotAsAsked(f"{door.address}: slot {made.number} was given to {username!r}, and does not show it")
    except DriverError:
        with suppress(DriverError):
            _empty(door, free.number)
        raise
    return made.account()


def enable(door: IpmiDoor, number: int, on: bool) -> None:
    """Switch a slot's user on or off, and read it back. Raises Refused for switching off the one that we came in with."""
    slot = _slot(door, number)
    if not on and _is_own(door, slot):
        raise Refused(f"{door.address}: slot {number} is the account that we came in with")
    _switch(door, number, on)
    after = _slot(door, number)
    if after.enabled is on:
        return
    _access(door, number, after.privilege, messaging=on)  # some look at this alone
    if _slot(door, number).enabled is not on:
        raise NotAsAsked(f"{door.address}: slot {number} was {'en' if on else 'dis'}abled, and does not show it")


def delete(door: IpmiDoor, number: int) -> None:
    """Disabled, without privilege, its password made unknown, and its name emptied where the BMC takes that."""
    slot = _slot(door, number)
    if _is_own(door, slot):
        raise Refused(f"{door.address}: slot {number} is the account that we came in with")
    _empty(door, number)
    after = _slot(door, number)
    if after.enabled:
        raise NotAsAsked(f"{door.address}: slot {number} was emptied, and is still enabled")


def null_users(door: IpmiDoor) -> tuple[Slot, ...]:
    """Enabled slots without a name: whoever names nobody gets in by them."""
    return tuple(slot for slot in read_slots(door) if not slot.name and slot.enabled)


def close_null_users(door: IpmiDoor) -> None:
    """Switch off whoever logs in without a name. Raises Refused when that is how we came in."""
    if not door.credential.username:
        raise Refused(f"{door.address}: a user without a name is what we come in as")
    for slot in null_users(door):
        _switch(door, slot.number, on=False)
        if _slot(door, slot.number).enabled:
            _access(door, slot.number, NO_ACCESS, messaging=False)
    left = null_users(door)
    if left:
        raise NotAsAsked(f"{door.address}: slot {left[0].number} without a name was disabled, and shows enabled")


def _empty(door: IpmiDoor, number: int) -> None:
    with suppress(Permanent):
        write_password(door, number, secrets.token_hex(PASSWORD_LIMIT_1_5 // 2).encode())
    _switch(door, number, on=False)
    _access(door, number, NO_ACCESS, messaging=False)
    if number > NULL_USER:
        with suppress(Permanent, MaybeSent):  # many take no empty name: it stays, disabled
            door.put(SET_USER_NAME, bytes((number,)) + bytes(USERNAME_LIMIT))


def _slot(door: IpmiDoor, number: int) -> Slot:
    found = next((slot for slot in read_slots(door) if slot.number == number), None)
    if found is None:
        raise Refused(f"{door.address}: has no user slot {number}")
    return found


def _is_own(door: IpmiDoor, slot: Slot) -> bool:
    """By its name, and unless the BMC says that its password is another: somebody may have planted a second account of our name."""
    if slot.name != door.credential.username:
        return False
    secret = door.credential.password.get_secret_value().encode()
    sizes = [size for size in (PASSWORD_LIMIT, PASSWORD_LIMIT_1_5) if len(secret) <= size]
    return not all(test_password(door, slot.number, secret, size) is False for size in sizes)


def _name(door: IpmiDoor, number: int, username: str) -> None:
    door.put(SET_USER_NAME, bytes((number,)) + username.encode().ljust(USERNAME_LIMIT, b"\x00"))


def _switch(door: IpmiDoor, number: int, on: bool) -> None:
    request = bytes((number, ENABLE if on else DISABLE))
    answer = door.write(SET_USER_PASSWORD, request)
    if answer.code == WRONG_LENGTH:  # some want a password's room in it nevertheless
        answer = door.write(SET_USER_PASSWORD, request + bytes(PASSWORD_LIMIT_1_5))
    door.check(SET_USER_PASSWORD, answer)


def _access(door: IpmiDoor, number: int, privilege: int, *, messaging: bool) -> None:
    """On every LAN channel: an account that one of them lets in is in."""
    flags = CHANGE | (MESSAGING if messaging else 0)
    taken = 0
    for channel in channels(door):
        try:
            door.put(SET_USER_ACCESS, bytes((flags | channel, number, privilege, 0)))
            taken += 1
        except Unsupported:
            continue
    if not taken:
        raise Unsupported(f"{door.address}: the privilege of an account cannot be set")
