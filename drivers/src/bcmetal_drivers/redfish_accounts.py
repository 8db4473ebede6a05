"""Accounts of a Redfish BMC, and their passwords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import (
    MaybeSent,
    NotAsAsked,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    Unsupported,
)
from bcmetal_drivers.redfish_document import Doc, action_target, flag, link, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import Account


def accounts(tree: Tree) -> tuple[Account, ...]:
    return tuple(account for _, account in named(slots(tree)))


def service(tree: Tree) -> tuple[str, dict[str, Any]]:
    """The AccountService, with its path. Raises Unsupported."""
    path = link(tree.root(), "AccountService")
    found = tree.find(path)
    if path is None or found is None:
        raise Unsupported(f"{tree.address}: the BMC shows no accounts")
    return path, found


def collection_of(tree: Tree) -> str:
    collection = link(service(tree)[1], "Accounts")
    if collection is None:
        raise Unsupported(f"{tree.address}: the BMC shows no accounts")
    return collection


def slots(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each account's path and document; makers with fixed slots list the empty ones too."""
    yield from tree.documents(collection_of(tree))


def named(found: Iterable[tuple[str, Doc]]) -> Iterator[tuple[str, Account]]:
    for path, doc in found:
        account = account_of(path, doc)
        if account is not None:
            yield path, account


def account_of(path: str, doc: Doc) -> Account | None:
    """None for an empty slot."""
    name = text(doc, "UserName")
    if name is None:
        return None
    return Account(
        slot=text(doc, "Id") or path.rpartition("/")[2],
        username=name,
        role=text(doc, "RoleId") or (link(doc, "Links", "Role") or "").rpartition("/")[2] or None,
        enabled=flag(doc, "Enabled") is not False,
        locked=flag(doc, "Locked"),
        password_expired=flag(doc, "PasswordChangeRequired"),
        expires=text(doc, "AccountExpiration") or text(doc, "PasswordExpiration"),
    )


def set_password(
    tree: Tree, own: Credential, username: str, password: SecretStr, slot: str | None = None
) -> Credential:
    """The credential to go on with. The own account's new password is proven by a login; another's shows at its next login only."""
    body = {"Password": password.get_secret_value()}
    lost: MaybeSent | None = None
    try:
        try:
            with tolerated():
                path = _path_of(tree, username, slot)
                _write_password(tree, path, own, body)
        except PasswordChangeRequired as error:
            # our own one, and the BMC shows nothing: only its account may be written, and some let it not even be read
            if username != own.username or error.account is None:
                raise
            path = error.account
            tree.door.patch(path, data=body)
    except MaybeSent as error:
        if username != own.username:
            raise
        lost = error
    if username != own.username:
        return own
    changed = Credential(username, password)
    try:
        tree.door.use(changed)
    except RejectedCredentials as error:
        if lost is not None:
            raise lost from error
        raise NotAsAsked(f"{tree.address}: acknowledged, and the new password is not taken") from error
    return changed


def _write_password(tree: Tree, path: str, own: Credential, body: Mapping[str, str]) -> None:
    """By a PATCH; where that is refused and the account has an action for it, by ManagerAccount.ChangePassword (since 1.13.0)."""
    try:
        with tolerated():
            tree.patch(path, body)
    except (Refused, Unsupported):
        target = action_target(tree.get(path), "#ManagerAccount.ChangePassword")
        if target is None:
            raise
        both = {"NewPassword": body["Password"], "SessionAccountPassword": own.password.get_secret_value()}
        tree.act(target, both)


def _path_of(tree: Tree, username: str, slot: str | None) -> str:
    for path, account in named(slots(tree)):
        if account.username == username and slot in (None, account.slot):
            return path
    where = "" if slot is None else f" in slot {slot}"
    raise Refused(f"{tree.address}: the BMC has no such account{where}")
