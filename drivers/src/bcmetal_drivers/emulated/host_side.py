"""What root on the host can do to its BMC without a password: through KCS, or through the Redfish host interface.

    bmc.host_side.add_account("mallory")                     an administrator
    bmc.host_side.add_key("admin", "ssh-ed25519 …")
    bmc.host_side.use_directory("ldap://192.0.2.66")         whose users may log in
    bmc.host_side.subscribe("https://192.0.2.66/events")     told of everything
    bmc.host_side.open_protocol("IPMI")
    bmc.host_side.flash("BIOS", "9.9.9")
    bmc.host_side.put_first("Boot0002")                      efibootmgr
    bmc.host_side.change_bios("SriovGlobalEnable", "Enabled")

A way that was closed is closed: then it raises `Closed`. Nothing of it is in the rack's record of writes, for none came over the network.
"""

from __future__ import annotations

import secrets

from pydantic import SecretStr

from bcmetal_drivers.emulated.accounts import Account
from bcmetal_drivers.emulated.interior import Interior
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.resources import BiosValue


class Closed(Exception):
    """The BMC does not listen to its host."""


class HostSide:
    """Every method raises Closed where neither way is open, or `closed`."""

    def __init__(self, inside: Interior) -> None:
        self._inside = inside
        self.closed = False

    def add_account(self, username: str, role: str = "Administrator", password: SecretStr | None = None) -> str:
        """The account's slot."""
        slots = self._open().accounts.slots
        slot = next(str(n) for n in range(2, len(slots) + 3) if str(n) not in slots)
        slots[slot] = Account(slot, username, password or SecretStr(secrets.token_urlsafe(12)), role)
        return slot

    def add_key(self, username: str, key: str) -> None:
        """An SSH public key that logs in as this account. Raises KeyError."""
        account = self._open().accounts.named(username)
        if account is None:
            raise KeyError(username)
        account.keys.append(key)

    def log_in(self, username: str) -> str:
        """A token that needs no account: the host's own (DSP0270)."""
        return self._open().sessions.open(username).token

    def sessions(self) -> set[str]:
        """The user names of those that are open."""
        return {session.username for session in self._inside.sessions.listed()}

    def set_password(self, username: str, password: SecretStr) -> None:
        """Raises KeyError."""
        account = self._open().accounts.named(username)
        if account is None:
            raise KeyError(username)
        account.password = password
        self._inside.password_changed(username, password)

    def use_directory(self, address: str, name: str = "LDAP") -> None:
        directory = self._open().outlets.directories[name]
        directory.enabled, directory.addresses = True, [address]

    def subscribe(self, destination: str) -> str:
        return self._open().outlets.subscribe(destination)

    def open_protocol(self, name: str) -> None:
        self._open().outlets.protocols[name] = True

    def flash(self, component: str, version: str) -> None:
        self._open().firmware[component] = version

    def put_first(self, option: str) -> None:
        """Of the boot order, at the machine whose root it is."""
        self._open()
        board = self._machine.board
        board.boot_order = [option, *(known for known in board.boot_order if known != option)]

    def change_bios(self, name: str, value: BiosValue) -> None:
        self._open()
        self._machine.board.bios[name] = value

    @property
    def _machine(self) -> Machine:
        return next(iter(self._inside.machines.values()))

    def _open(self) -> Interior:
        upkeep = self._inside.upkeep
        if self.closed or not (upkeep.interface or upkeep.kcs):
            raise Closed
        return self._inside
