"""The keys of secure boot over Redfish: SecureBoot.ResetKeys, or the same action of each database where only those offer it."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.errors import Refused, Unsupported
from bcmetal_drivers.redfish_actions import Action, action
from bcmetal_drivers.redfish_document import Doc, link, text
from bcmetal_drivers.redfish_tasks import until
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import KeyReset, SecureBootMode

WORDS: Final = {
    KeyReset.FACTORY: "ResetAllKeysToDefault",
    KeyReset.DELETE_ALL: "DeleteAllKeys",
    KeyReset.DELETE_PK: "DeletePK",
}
MODES: Final = {
    "SetupMode": SecureBootMode.SETUP,
    "UserMode": SecureBootMode.USER,
    "AuditMode": SecureBootMode.AUDIT,
    "DeployedMode": SecureBootMode.DEPLOYED,
}
# Without the platform key the others may be written; it closes the door again, so that it goes first and comes last.
OPENING: Final = ("pk", "kek", "db", "dbx", "dbr", "dbt")
DELETES: Final = {KeyReset.DELETE_ALL: OPENING, KeyReset.DELETE_PK: ("pk",)}


def offered(secure_boot: Doc | None) -> bool:
    """Whether keys can be reset, by the SecureBoot document."""
    return (
        action(secure_boot, "#SecureBoot.ResetKeys") is not None or link(secure_boot, "SecureBootDatabases") is not None
    )


def mode_of(secure_boot: Doc | None) -> SecureBootMode | None:
    return MODES.get(text(secure_boot, "SecureBootMode") or "")


def mode(tree: Tree) -> SecureBootMode | None:
    return mode_of(tree.find(link(tree.system(), "SecureBoot")))


def reset_keys(tree: Tree, to: KeyReset) -> None:
    doc = tree.find(link(tree.system(), "SecureBoot"))
    if doc is None:
        raise Unsupported(f"{tree.address}: the BMC has no secure boot setting")
    whole = action(doc, "#SecureBoot.ResetKeys")
    if whole is not None and WORDS[to] in (whole.allowed(tree, "ResetKeysType") or WORDS.values()):
        _reset(tree, whole, WORDS[to])
        return
    databases = _databases(tree, doc)
    if to is KeyReset.FACTORY:
        wanted, word = tuple(reversed(OPENING)), "ResetAllKeysToDefault"
    else:
        wanted, word = DELETES[to], "DeleteAllKeys"
    chosen = {name: databases[name] for name in wanted if name in databases and _offers(tree, databases[name], word)}
    if "pk" not in chosen:
        raise Unsupported(f"{tree.address}: the BMC does not offer to reset the keys of secure boot ({WORDS[to]})")
    for database in chosen.values():
        _reset(tree, database, word)


def _offers(tree: Tree, reset: Action, word: str) -> bool:
    """Looked at before anything is done: some databases have nothing to go back to (BlueField 3: DeleteAllKeys only)."""
    allowed = reset.allowed(tree, "ResetKeysType")
    return allowed is None or word in allowed


def _databases(tree: Tree, doc: Doc) -> dict[str, Action]:
    """Those that offer a reset, by name in lower case; the maker's own (PKDefault, …) are not among them."""
    found: dict[str, Action] = {}
    for _, database in tree.documents(link(doc, "SecureBootDatabases")):
        name, reset = (
            text(database, "DatabaseId") or text(database, "Id"),
            action(database, "#SecureBootDatabase.ResetKeys"),
        )
        if name and reset:
            found[name.lower()] = reset
    return found


def _reset(tree: Tree, reset: Action, word: str) -> None:
    allowed = reset.allowed(tree, "ResetKeysType")
    if allowed is not None and word not in allowed:
        raise Refused(f"{tree.door.origin}{reset.target}: it offers {', '.join(allowed) or 'nothing'}, not {word}")
    until(tree.door, tree.door.post(reset.target, data={"ResetKeysType": word}), list)
