"""Who gets into a Redfish BMC, and where it speaks to, beside its accounts' names and roles: what a baseline compares with finer eyes.

Settings are taken by the standard's names; of makers' own parts (`Oem`) and of the network protocols whatever does not change by itself.
What may be a secret, or is long, is told by its digest: a baseline is stored, and its differences are shown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish_accounts import account_of, service, slots
from bcmetal_drivers.redfish_document import Doc, dig, flag, link, printable, text
from bcmetal_drivers.redfish_tree import Tree

DIRECTORIES: Final = ("LDAP", "ActiveDirectory", "OAuth2", "TACACSplus")
OF_AN_ACCOUNT: Final = ("AccountTypes", "OEMAccountTypes", "StrictAccountTypes", "SNMP", "MFABypass", "Oem")
OF_ITS_LISTS: Final = ("Keys", "Certificates")  # public keys for SSH, certificates that log in
OF_ACCOUNTS: Final = (
    "ServiceEnabled",
    "LocalAccountAuth",
    "HTTPBasicAuth",
    "MultiFactorAuth",
    "MinPasswordLength",
    "AccountLockoutThreshold",
    "AccountLockoutDuration",
)
OF_A_DIRECTORY: Final = ("Authentication", "LDAPService", "OAuth2Service", "TACACSplusService", "RemoteRoleMapping")
OF_AN_INTERFACE: Final = (
    *("IPv4StaticAddresses", "IPv6StaticAddresses", "IPv6StaticDefaultGateways", "StaticNameServers"),
    "DHCPv4",
)
OF_A_HOST_INTERFACE: Final = (
    *("ExternallyAccessible", "AuthNoneRoleId", "AuthenticationModes"),
    *("FirmwareAuthEnabled", "KernelAuthEnabled", "FirmwareAuthRoleId", "KernelAuthRoleId"),
)
OF_THE_BOOT: Final = ("HttpBootUri", "BootNext", "TrustedModuleRequiredToBoot")
DATABASES: Final = ("PK", "KEK", "db")

BY_ITSELF: Final = re.compile(
    r"(?i)time|date|status|state|health|(?<!ac)count|engine|openports|hostname|fqdn|supplied|expir|locked|last|session"
    r"|pending|configurationsettings"
)
SECRET: Final = re.compile(r"(?i)key|communit|passw|phrase|secret|token|certificate")
NOTHING: Final[tuple[Any, ...]] = (None, "", [], {}, "0.0.0.0", "::")  # noqa: S104  # not bound: what an empty slot shows
NO_CONTENT: Final = ("Id", "Name", "Description", "Links", "Actions", "Oem")
LEAVES: Final = 300
DEPTH: Final = 6
LONGEST: Final = 200
ROLES_LIMIT: Final = 24
LISTED: Final = 16
DIGITS: Final = 16


def digest(value: object) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGITS]}"


def settings(value: object) -> dict[str, Any]:
    """The leaves under a value by their paths; a list is one leaf. Without what is empty, and what changes by itself."""
    return dict(_leaves("", value, DEPTH))


def _leaves(at: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and depth:
        n = 0
        for name in sorted(map(str, value)):
            if "@" in name or name in ("Links", "Actions") or BY_ITSELF.search(name):
                continue
            for leaf in _leaves(f"{at}.{printable(name)}"[-200:].lstrip("."), value.get(name), depth - 1):
                yield leaf
                n += 1
                if n >= LEAVES:
                    return
        return
    kept = [one for one in value if one not in NOTHING and not _is_empty(one)] if isinstance(value, list) else value
    if kept in NOTHING:
        return
    shown = json.dumps(kept, sort_keys=True)
    hidden = SECRET.search(at) and not isinstance(kept, bool | int)
    yield at, digest(kept) if hidden or len(shown) > LONGEST else _printable(kept)


def _printable(value: object) -> object:
    if isinstance(value, Mapping):
        return {printable(str(name)): _printable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_printable(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def _is_empty(entry: object) -> bool:
    """Of a list of fixed length, an entry that nobody filled: a mapping without a group, an address of zeros."""
    if not isinstance(entry, Mapping):
        return False
    words = ("None", 0, 64, "255.255.255.0", "Static", False)
    return all(value in NOTHING or value in words for value in entry.values())


def _only(doc: Doc | None, names: tuple[str, ...]) -> dict[str, Any]:
    return settings({name: dig(doc, name) for name in names})


def _members(tree: Tree, path: str | None) -> list[str]:
    """The members of a list of keys or certificates, each by the digest of what it says."""
    found = []
    for _, doc in _listed(tree, path):
        found.append(digest({name: value for name, value in doc.items() if "@" not in name and name not in NO_CONTENT}))
        if len(found) >= LISTED:
            break
    return sorted(found)


def _listed(tree: Tree, path: str | None) -> Iterator[tuple[str, Doc]]:
    """Of a collection that is linked, and answers."""
    with tolerated(Refused, Unsupported):
        yield from tree.documents(path)


def _with_lists(tree: Tree, found: dict[str, Any], doc: Doc, *lists: tuple[str, ...]) -> dict[str, Any]:
    for keys in lists:
        listed = _members(tree, link(doc, *keys))
        if listed:
            found[".".join(keys)] = listed
    return found


# ---------------------------------------------------------------- accounts


def of_accounts(tree: Tree) -> dict[str, Any]:
    """By slot; empty slots have none."""
    return {
        account.slot: _with_lists(tree, _only(doc, OF_AN_ACCOUNT), doc, *((name,) for name in OF_ITS_LISTS))
        for path, doc in slots(tree)
        if (account := account_of(path, doc)) is not None
    }


def of_roles(tree: Tree) -> dict[str, Any]:
    """What each role may."""
    found: dict[str, Any] = {}
    for path, doc in _listed(tree, link(service(tree)[1], "Roles")):
        name = text(doc, "RoleId") or text(doc, "Id") or path.rpartition("/")[2]
        rights = (*_words(doc, "AssignedPrivileges"), *(f"Oem:{one}" for one in _words(doc, "OemPrivileges")))
        found[name] = sorted(rights)
        if len(found) >= ROLES_LIMIT:
            break
    return found


def _words(doc: Doc, key: str) -> list[str]:
    listed = dig(doc, key)
    return [printable(str(one)[:64]) for one in listed[:64]] if isinstance(listed, list) else []


def of_the_service(tree: Tree) -> dict[str, Any]:
    """What holds for every account: ways to log in, length of passwords, lock-outs."""
    doc = service(tree)[1]
    return _with_lists(tree, _only(doc, OF_ACCOUNTS), doc, ("MultiFactorAuth", "ClientCertificate", "Certificates"))


def of_directories(tree: Tree) -> dict[str, Any]:
    """Of those that are on: whom they let in, and as what."""
    doc = service(tree)[1]
    return {
        name: _with_lists(tree, _only(dig(doc, name), OF_A_DIRECTORY), dig(doc, name), ("Certificates",))
        for name in DIRECTORIES
        if flag(doc, name, "ServiceEnabled") is True
    }


# ---------------------------------------------------------------- network


def of_the_network(tree: Tree, manager: Doc) -> dict[str, Any]:
    """What somebody set at each interface; what the network gives is left out."""
    return {
        text(doc, "Id") or path.rpartition("/")[2]: _only(doc, OF_AN_INTERFACE)
        for path, doc in _listed(tree, link(manager, "EthernetInterfaces"))
    }


def of_protocols(tree: Tree, manager: Doc) -> dict[str, Any]:
    """Ports, communities, time servers, proxies, servers of mail and of logs; whether a protocol is on is told elsewhere."""
    doc = tree.find(link(manager, "NetworkProtocol")) or {}
    found = settings({name: value for name, value in doc.items() if name not in ("Id", "Name", "Description")})
    return {at: value for at, value in found.items() if at.count(".") != 1 or not at.endswith(".ProtocolEnabled")}


def of_the_manager(tree: Tree, manager: Doc) -> dict[str, Any]:
    """Whose certificates it trusts, and what its host may be without a password."""
    found = _with_lists(tree, {}, manager, ("Certificates",))
    for path, doc in _listed(tree, link(manager, "HostInterfaces")):
        name = text(doc, "Id") or path.rpartition("/")[2]
        found |= {f"host interface {name}.{at}": value for at, value in _only(doc, OF_A_HOST_INTERFACE).items()}
    return found


def of_events(tree: Tree) -> dict[str, Any]:
    """Whom the BMC mails to; subscriptions are told elsewhere."""
    return _only(tree.find(link(tree.root(), "EventService")), ("SMTP",))


# ---------------------------------------------------------------- boot


def of_the_boot(system: Doc) -> dict[str, Any]:
    """What may be booted beside the boot order."""
    return _only(dig(system, "Boot"), OF_THE_BOOT)


def of_keys(tree: Tree, system: Doc) -> dict[str, Any]:
    """The certificates of the databases that say what may boot: another one in the place of one of them leaves their number as it was."""
    found: dict[str, Any] = {}
    doc = tree.find(link(system, "SecureBoot"))
    for path, database in _listed(tree, link(doc, "SecureBootDatabases")):
        name = text(database, "DatabaseId") or text(database, "Id") or path.rpartition("/")[2]
        if name in DATABASES:
            found[name] = _members(tree, link(database, "Certificates"))
    return found
