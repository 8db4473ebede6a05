"""Accounts of a Redfish BMC made, switched, removed, and the rules that it holds them to.

Two kinds of account collection exist: one that takes a POST, and one of fixed slots, where an account is an empty slot that is written
(Dell's sixteen). Which one it is shows in the collection itself: only the second lists members without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import SecretStr

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.redfish_accounts import account_of, collection_of, named, service, slots
from bcmetal_drivers.redfish_document import Doc, flag, number
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import Account, AccountPolicy

POLICY: Final[Mapping[str, str]] = {
    "password_shortest": "MinPasswordLength",
    "password_longest": "MaxPasswordLength",
    "lockout_threshold": "AccountLockoutThreshold",
    "lockout_s": "AccountLockoutDuration",
    "lockout_reset_s": "AccountLockoutCounterResetAfter",
    "password_expires_days": "PasswordExpirationDays",
}
SLOTS_TRIED: Final = 3
# Slot 1 is IPMI's user without a name where slots serve both protocols (Dell iDRAC 9 refuses it).
NULL_USER: Final = "1"


# ---------------------------------------------------------------- rules


def policy(tree: Tree) -> AccountPolicy:
    """Raises Unsupported where the BMC has no AccountService."""
    return _policy_of(service(tree)[1])


def _policy_of(doc: Doc) -> AccountPolicy:
    return AccountPolicy(**{name: _count(doc, key) for name, key in POLICY.items()})


def _count(doc: Doc, key: str) -> int | None:
    found = number(doc, key)
    return int(found) if found is not None and 0 <= found < 2**31 else None


def set_policy(tree: Tree, wanted: AccountPolicy) -> None:
    """Only what is not None. Raises Unsupported before anything is written when the BMC has no such rule, NotAsAsked when one is as before."""
    path, doc = service(tree)
    asked = {key: getattr(wanted, name) for name, key in POLICY.items() if getattr(wanted, name) is not None}
    if wanted.username_longest is not None:
        raise Unsupported(f"{tree.address}: Redfish has no limit for the length of names that could be set")
    unknown = sorted(key for key in asked if key not in doc)
    if unknown:
        raise Unsupported(f"{tree.address}: this BMC has no {', '.join(unknown)}")
    changes = {key: value for key, value in asked.items() if _count(doc, key) != value}
    if not changes:
        return
    tree.patch(path, changes)
    after = service(tree)[1]
    kept = sorted(key for key, value in asked.items() if _count(after, key) != value)
    if kept:
        raise NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and not changed: {', '.join(kept)}")


# ---------------------------------------------------------------- accounts


def create(tree: Tree, username: str, password: SecretStr, role: str) -> Account:
    """`role`: the Id of a Role of this BMC. Raises Refused where the name is taken, NotAsAsked when the account has another role, or is off."""
    found = list(slots(tree))
    if any(account.username == username for _, account in named(found)):
        raise Refused(f"{tree.address}: the BMC has an account of this name already")
    body = {"UserName": username, "Password": password.get_secret_value(), "RoleId": role}
    empty = [(path, doc) for path, doc in found if account_of(path, doc) is None]
    try:
        if empty:
            _fill(tree, empty, body)
        else:
            tree.act(collection_of(tree), body)
    except MaybeSent:
        if not any(account.username == username for _, account in named(slots(tree))):
            raise
    path, account = _the_one(tree, username)
    if not account.enabled:
        tree.patch(path, {"Enabled": True})
        account = _the_one(tree, username)[1]
    if not account.enabled or account.role != role:
        state = "" if account.enabled else ", and switched off"
        raise NotAsAsked(f"{tree.door.origin}{path}: asked for the role {role}, and it shows {account.role}{state}")
    return account


def _the_one(tree: Tree, username: str) -> tuple[str, Account]:
    for path, account in named(slots(tree)):
        if account.username == username:
            return path, account
    raise NotAsAsked(f"{tree.address}: acknowledged a new account, and does not list it")


def _fill(tree: Tree, empty: Iterable[tuple[str, Doc]], body: Mapping[str, str]) -> None:
    """The first empty slot that takes it. One that is refused is followed by the next: makers reserve some."""
    order = sorted(empty, key=lambda slot: slot[0].rpartition("/")[2] == NULL_USER)[:SLOTS_TRIED]
    for path, doc in order:
        try:
            with tolerated():
                tree.patch(path, {**body, **({"Enabled": True} if flag(doc, "Enabled") is not None else {})})
        except (Refused, Unsupported):
            if path == order[-1][0]:
                raise
        else:
            return


def enable(tree: Tree, own: Credential, slot: str, on: bool) -> None:
    """Raises Refused for an empty slot, and for our own account when it is to be switched off."""
    path, doc, account = _in_slot(tree, slot)
    if account is None:
        raise Refused(f"{tree.address}: slot {slot} is empty")
    if flag(doc, "Enabled") is None:
        raise Unsupported(f"{tree.address}: this BMC's accounts cannot be switched off")
    if account.enabled is on:
        return
    if not on:
        _not_our_own(tree, own, account)
    tree.patch(path, {"Enabled": on})
    if flag(tree.get(path), "Enabled") is not on:
        raise NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and it is still {'off' if on else 'on'}")


def delete(tree: Tree, own: Credential, slot: str) -> None:
    """An empty slot, and an account that is gone, are success."""
    try:
        path, doc, account = _in_slot(tree, slot)
    except Refused:
        return
    if account is None:
        return
    _not_our_own(tree, own, account)
    fixed: tuple[Mapping[str, Any], ...] = ({"Enabled": False, "UserName": ""}, {"Enabled": False})
    refused: DriverError | None = None
    for body in (None, *(fixed if flag(doc, "Enabled") is not None else ())):
        try:
            with tolerated():
                if body is None:
                    tree.door.delete(path)
                else:
                    tree.patch(path, body)
        except (Refused, Unsupported, MaybeSent) as error:
            refused = error
        after = tree.find(path)
        left = None if after is None else account_of(path, after)
        if left is None or left.username != account.username or (body == fixed[-1] and not left.enabled):
            return
    raise refused or NotAsAsked(f"{tree.door.origin}{path}: acknowledged, and the account is still there")


def _in_slot(tree: Tree, slot: str) -> tuple[str, dict[str, Any], Account | None]:
    """Raises Refused where there is none of that id."""
    for path, doc in slots(tree):
        account = account_of(path, doc)
        if slot == (account.slot if account else path.rpartition("/")[2]):
            return path, doc, account
    raise Refused(f"{tree.address}: the BMC has no account {slot}")


def _not_our_own(tree: Tree, own: Credential, account: Account) -> None:
    if account.username == own.username:
        raise Refused(f"{tree.address}: this is the account that we log in with")
