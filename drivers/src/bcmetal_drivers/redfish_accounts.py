"""Accounts of a Redfish BMC, and the baseline: what must be the same when a tenant hands the machine back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import SecretStr

from bcmetal_drivers import redfish_identity as parts
from bcmetal_drivers.capabilities import Account, Credential
from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import (
    MaybeSent,
    NotAsAsked,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    Unsupported,
)
from bcmetal_drivers.redfish_boot import mode_of, secure_boot_of
from bcmetal_drivers.redfish_inventory import Sections
from bcmetal_drivers.redfish_tree import Doc, Tree, dig, link, links, text

SERVICES: Final = ("HTTP", "HTTPS", "IPMI", "SSH", "SNMP", "Telnet", "KVMIP", "VirtualMedia", "SSDP", "RFB")


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
        enabled=dig(doc, "Enabled") is not False,
        locked=flag(doc, "Locked"),
        password_expired=flag(doc, "PasswordChangeRequired"),
        expires=text(doc, "AccountExpiration") or text(doc, "PasswordExpiration"),
    )


def flag(doc: Doc, key: str) -> bool | None:
    value = dig(doc, key)
    return value if isinstance(value, bool) else None


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
                tree.patch(path, body)
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


def _path_of(tree: Tree, username: str, slot: str | None) -> str:
    for path, account in named(slots(tree)):
        if account.username == username and slot in (None, account.slot):
            return path
    where = "" if slot is None else f" in slot {slot}"
    raise Refused(f"{tree.address}: the BMC has no such account{where}")


# ---------------------------------------------------------------- baseline


def baseline(tree: Tree) -> Mapping[str, object]:
    """Plain JSON. A section that could not be read is None, and `sections` says why."""
    system = tree.system()
    sections = Sections(tree)
    managers = sections.read("managers", lambda: [doc for doc in map(tree.find, tree.manager_paths()) if doc]) or []
    found: dict[str, object] = {
        "accounts": sections.read("accounts", lambda: [_kept(account) for account in accounts(tree)]),
        "directories": sections.read("directories", lambda: _directories(tree)),
        "network": sections.read("network", lambda: [_network(tree, doc) for doc in managers]),
        "services": sections.read("services", lambda: [_services(tree, doc) for doc in managers]),
        "subscriptions": sections.read("subscriptions", lambda: _subscriptions(tree)),
        "firmware": sections.read("firmware", lambda: dict(parts.firmware(tree))),
        "bmc": [{"model": text(doc, "Model"), "firmware": text(doc, "FirmwareVersion")} for doc in managers],
        "boot": _boot(system),
        "secureBoot": sections.read("secureBoot", lambda: secure_boot_of(tree.find(link(system, "SecureBoot")))),
        "certificate": tree.door.certificate_fp,
    }
    return {**found, "sections": sections.status}


def _kept(account: Account) -> Mapping[str, object]:
    """What must be the same: not whether it is locked now, nor when its password ends."""
    return {name: getattr(account, name) for name in ("slot", "username", "role", "enabled")}


def _directories(tree: Tree) -> Mapping[str, object]:
    accounts_service = tree.find(link(tree.root(), "AccountService"))
    found: dict[str, object] = {}
    for name in ("LDAP", "ActiveDirectory", "OAuth2", "TACACSplus"):
        section = dig(accounts_service, name)
        if isinstance(section, dict):
            addresses = dig(section, "ServiceAddresses")
            listed = [str(address)[:256] for address in addresses[:20]] if isinstance(addresses, list) else []
            found[name] = {"enabled": dig(section, "ServiceEnabled") is True, "addresses": listed}
    return found


def _network(tree: Tree, manager: Doc) -> list[dict[str, Any]]:
    return [
        {
            "mac": parts.mac_of(text(doc, "PermanentMACAddress") or text(doc, "MACAddress")),
            "hostname": text(doc, "HostName"),
            "ipv4": _addresses(doc, "IPv4Addresses"),
            "ipv6": _addresses(doc, "IPv6Addresses"),
        }
        for _, doc in tree.documents(link(manager, "EthernetInterfaces"))
    ]


def _addresses(doc: Doc, key: str) -> list[str]:
    listed = dig(doc, key)
    found = (text(entry, "Address") for entry in (listed if isinstance(listed, list) else []))
    return [address for address in found if address and address not in ("0.0.0.0", "::")]  # noqa: S104  # not bound: empty slots


def _services(tree: Tree, manager: Doc) -> Mapping[str, object]:
    protocol = tree.find(link(manager, "NetworkProtocol"))
    return {name: dig(protocol, name, "ProtocolEnabled") for name in SERVICES if isinstance(dig(protocol, name), dict)}


def _subscriptions(tree: Tree) -> list[str]:
    events = tree.find(link(tree.root(), "EventService"))
    found = [text(doc, "Destination", limit=1024) for _, doc in tree.documents(link(events, "Subscriptions"))]
    return [destination for destination in found if destination]


def _boot(system: Doc) -> Mapping[str, object]:
    order = dig(system, "Boot", "BootOrder")
    mode = mode_of(system)
    return {
        "mode": mode.value if mode else None,
        "order": [str(entry)[:256] for entry in order[:100]] if isinstance(order, list) else None,
        "options": len(links(system, "Boot", "BootOptions")) or None,
    }
