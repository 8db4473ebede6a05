"""User slots of an IPMI BMC: listed, and their passwords set. What else is done to them is in `ipmi_users`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import Malformed, MaybeSent, NotAsAsked, Refused, Transient
from bcmetal_drivers.ipmi_door import Command, IpmiDoor
from bcmetal_drivers.ipmi_values import PASSWORD_LIMIT, PASSWORD_LIMIT_1_5, PRIVILEGES, USERNAME_LIMIT
from bcmetal_drivers.resources import Account

GET_USER_ACCESS: Final = Command("Get User Access", 0x06, 0x44)
GET_USER_NAME: Final = Command("Get User Name", 0x06, 0x46)
SET_USER_PASSWORD: Final = Command("Set User Password", 0x06, 0x47)

THIS_CHANNEL: Final = 0x0E
SLOTS_LIMIT: Final = 63
ROLES: Final[Mapping[int, str]] = {1: "CALLBACK", 2: "USER", 3: "OPERATOR", 4: "ADMINISTRATOR", 5: "OEM"}
SET, TEST = 0x02, 0x03
TEST_FAILED: Final = (0x80, 0x81)  # wrong password; right password of another size
SIZE_REFUSED: Final = (0xC7, 0xC8, 0xCC)


@dataclass(frozen=True, slots=True)
class Slot:
    """A user slot as it is. `said_enabled` None: the BMC does not tell (IPMI 2.0 errata of Get User Access), only whether it may log in."""

    number: int
    name: str
    privilege: int
    messaging: bool
    said_enabled: bool | None

    @property
    def enabled(self) -> bool:
        return self.said_enabled is not False and self.messaging

    @property
    def used(self) -> bool:
        return bool(self.name) or self.enabled

    def account(self) -> Account:
        return Account(str(self.number), self.name, ROLES.get(self.privilege), self.enabled)


def read_accounts(door: IpmiDoor) -> tuple[Account, ...]:
    """Every slot that has a name, may log in, or is enabled; the null user of slot 1 too, when it is open."""
    return tuple(slot.account() for slot in read_slots(door) if slot.used)


def read_slots(door: IpmiDoor) -> tuple[Slot, ...]:
    """Every slot, used or not."""
    found: list[Slot] = []
    slots = number = 1
    while number <= slots:
        answer = door.read(GET_USER_ACCESS, bytes((THIS_CHANNEL, number)))
        if answer.code != 0 and number > 1:  # some BMCs count slots that they then do not have
            number += 1
            continue
        access = door.check(GET_USER_ACCESS, answer)
        if len(access) < 4:
            raise Malformed(f"{door.address}: {GET_USER_ACCESS.name} gave {len(access)} bytes")
        slots = min(access[0] & 0x3F, SLOTS_LIMIT)
        answer = door.read(GET_USER_NAME, bytes((number,)))
        raw = answer.data[:USERNAME_LIMIT].rstrip(b"\x00") if answer.code == 0 else b""
        name = "".join(c for c in raw.decode("utf-8", "replace") if c.isprintable())
        said = {1: True, 2: False}.get(access[1] >> 6)
        found.append(Slot(number, name, access[3] & 0x0F, bool(access[3] & 0x10), said))
        number += 1
    return tuple(found)


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
        size = write_password(door, slot, secret)
    except MaybeSent:
        # by a login and not by the BMC's own test: the old password, which a new session would need for it, may be gone
        if role is not None and door.proves(new, role) is True:
            return
        raise
    if test_password(door, slot, secret, size) is False:
        raise NotAsAsked(f"{door.address}: acknowledged the new password of slot {slot}, and then does not know it")
    if role is None or door.proves(new, role) is not False:
        return
    what = f"{door.address}: acknowledged the new password of slot {slot}, and refuses a login with it"
    hint = f"; perhaps it keeps only {PASSWORD_LIMIT_1_5} bytes" if len(secret) > PASSWORD_LIMIT_1_5 else ""
    if username == door.credential.username:
        write_password(door, slot, door.credential.password.get_secret_value().encode())
        hint += "; the old one was put back"
    raise NotAsAsked(what + hint)


def write_password(door: IpmiDoor, slot: int, secret: bytes) -> int:
    """Set it, and return the form in which the BMC took it: 20 bytes, or the 16 of IPMI 1.5."""
    size = PASSWORD_LIMIT
    answer = door.write(SET_USER_PASSWORD, _password_request(slot, SET, secret, size))
    if answer.code in SIZE_REFUSED and len(secret) <= PASSWORD_LIMIT_1_5:
        size = PASSWORD_LIMIT_1_5
        answer = door.write(SET_USER_PASSWORD, _password_request(slot, SET, secret, size))
    door.check(SET_USER_PASSWORD, answer)
    return size


def test_password(door: IpmiDoor, slot: int, secret: bytes, size: int) -> bool | None:
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
