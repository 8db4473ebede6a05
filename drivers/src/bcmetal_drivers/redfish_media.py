"""Virtual media over Redfish: under the system, under its managers, or both; inserted by an action or by a PATCH of the slot.

Always eject, look, insert, look: a slot that shows the same URL again may have booted nothing, and an acknowledgement is no proof.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, TaskFailed, Unsupported
from bcmetal_drivers.redfish_document import Doc, action_target, dig, flag, key, link, links, text
from bcmetal_drivers.redfish_media_oem import OwnAction, own_action, switch_on
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import Slot

INSERT, EJECT = "#VirtualMedia.InsertMedia", "#VirtualMedia.EjectMedia"
URL_LIMIT: Final = 2048
CONNECTED: Final = ("uri", "applet", "oem")
OPTICAL: Final = re.compile(r"cd|dvd|optical", re.IGNORECASE)
NOT_OPTICAL: Final = re.compile(r"floppy|usb|\bhd|hard|disk|removable|rdoc", re.IGNORECASE)
SETTLES_S: Final = 2.0  # some BMCs show the new state a moment later
PAYLOADS: Final = 6  # tries of one slot
TRIES_AFTER_EJECT: Final = 3  # an insert fails with a 5xx while the eject still runs
NOT_EJECTED: Final = (sushy.exceptions.HTTPError, Refused, MaybeSent)  # unless the slot is seen empty
NOT_THIS_SLOT: Final = (400, 403, 404, 405, 409, 415, 501)


@dataclass(frozen=True, slots=True)
class Drive:
    """A slot with its document."""

    path: str
    doc: Doc

    @property
    def slot(self) -> Slot:
        return Slot(self.path, self.image if self.inserted else None, self.inserted, self.in_doubt)

    @property
    def image(self) -> str | None:
        """Its URL; where the BMC does not show that, the name of the image."""
        return text(self.doc, "Image", limit=URL_LIMIT) or text(self.doc, "ImageName", limit=URL_LIMIT)

    @property
    def connected(self) -> str:
        """How, in the BMC's word; "" where it does not say."""
        return (text(self.doc, "ConnectedVia") or "").lower()

    @property
    def inserted(self) -> bool:
        """What it says, unless the rest of it says otherwise. Supermicro keeps the last image's name on show after an eject."""
        said = flag(self.doc, "Inserted")
        if self.image is None:
            return said is True and self.connected in CONNECTED
        if said is None:
            return self.connected != "notconnected"
        return said or self.connected == "uri"

    @property
    def in_doubt(self) -> bool:
        """It says that it is filled, and neither with what nor how: taken for empty, unless the BMC hides the URL."""
        return self.image is None and not self.connected and flag(self.doc, "Inserted") is True


def _is_optical(doc: Doc) -> bool:
    kinds = dig(doc, "MediaTypes")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(kinds, list) and any(kinds):
        return any(OPTICAL.search(str(kind)) for kind in kinds)
    return OPTICAL.search(_names(doc)) is not None


def _may_be_optical(doc: Doc) -> bool:
    """A slot that can be filled, and says nothing of what it is (`Slot_0`)."""
    kinds = dig(doc, "MediaTypes")
    said = (any(kinds) if isinstance(kinds, list) else kinds) or NOT_OPTICAL.search(_names(doc))
    return not said and (action_target(doc, INSERT) is not None or own_action(doc) is not None)


def _names(doc: Doc) -> str:
    return f"{text(doc, 'Id')} {text(doc, 'Name')}"


def _collections(tree: Tree) -> Iterator[str]:
    system = tree.system()
    own = link(system, "VirtualMedia")
    if own:
        yield own
    managers = [doc for path in links(system, "Links", "ManagedBy") if (doc := tree.find(path)) is not None]
    for doc in managers or map(tree.find, tree.manager_paths()):
        shared = len(links(doc, "Links", "ManagerForServers")) > 1
        path = link(doc, "VirtualMedia")
        if path and not (own and shared):  # a slot of a manager of several systems may be another system's
            yield path


def drives(tree: Tree) -> tuple[Drive, ...]:
    """The slots for a CD, the system's own first; then others that hold an image, for a machine may boot a floppy or a stick as well.

    Raises Unsupported when there is none.
    """
    optical, others = _slots(tree)
    return (*optical, *others)


def _slots(tree: Tree) -> tuple[tuple[Drive, ...], tuple[Drive, ...]]:
    """Those for a CD, and the others that hold an image."""
    every: dict[str, Drive] = {}
    for collection in dict.fromkeys(_collections(tree)):
        for path, doc in tree.documents(collection, whole=False):
            every.setdefault(key(path), Drive(path, doc))
    optical = [drive for drive in every.values() if _is_optical(drive.doc)]
    optical = optical or [drive for drive in every.values() if _may_be_optical(drive.doc)]
    others = [drive for drive in every.values() if drive not in optical and drive.inserted and drive.image]
    if not optical and not others:
        raise Unsupported(f"{tree.address}: the BMC has no virtual CD")
    return tuple(optical), tuple(others)


def eject(tree: Tree) -> None:
    """Empty them all, and those in doubt as well: what becomes of that is not to be seen, and a refusal says nothing."""
    for known in _emptied(tree):
        if known.in_doubt:
            current = Drive(known.path, tree.get(known.path))  # two paths may lead to one slot
            with suppress(*NOT_EJECTED, TaskFailed, Unsupported):
                if current.in_doubt:
                    _send_eject(tree, current)


def _emptied(tree: Tree) -> tuple[Drive, ...]:
    """The slots for a CD that there are, after all that are seen to hold something were emptied."""
    optical, others = _slots(tree)
    for known in (*optical, *others):
        if known.inserted:
            _eject(tree, known)
    return optical


def _eject(tree: Tree, known: Drive) -> None:
    """A refusal counts only when the slot is still filled afterwards: some makers refuse to empty an empty one."""
    current = Drive(known.path, tree.get(known.path))  # two paths may lead to one slot
    if not current.inserted:
        return
    trouble: Exception | None = None
    try:
        _send_eject(tree, current)
    except NOT_EJECTED as error:
        trouble = error
    shown = _settled(tree, current.path, lambda drive: not drive.inserted)
    if shown is None or not shown.inserted:
        return
    if trouble is not None:
        raise trouble
    raise NotAsAsked(f"{tree.door.origin}{current.path}: ejected, and it still shows a medium")


def _send_eject(tree: Tree, known: Drive) -> None:
    target, own = action_target(known.doc, EJECT), own_action(known.doc)
    if target:
        tree.act(target)
    elif own is not None:
        tree.act(own.target, own.body(None))
    else:
        tree.patch(known.path, {"Image": None, "Inserted": False})


def insert(tree: Tree, url: str) -> Slot:
    """Eject, insert, look, over the slots until one takes it. Raises NotAsAsked when the slot shows something else."""
    switch_on(tree)
    slots = _emptied(tree)
    refused: Exception | None = None
    for known in sorted(slots, key=_last_tried):
        try:
            _insert(tree, known, url)
        except sushy.exceptions.HTTPError as error:
            if error.status_code not in NOT_THIS_SLOT or not isinstance(refusal(error.answer), Refused | Unsupported):
                raise
            refused = error
            continue
        shown = _settled(tree, known.path, lambda drive: drive.slot.shows(url)) or _elsewhere(tree, url)
        if shown is not None and shown.slot.shows(url):
            return shown.slot
        holds = "nothing" if shown is None or not shown.inserted else "another medium"
        raise NotAsAsked(f"{tree.door.origin}{known.path}: acknowledged, and the slot shows {holds}")
    raise refused or Unsupported(f"{tree.address}: no slot takes a medium")


def _last_tried(known: Drive) -> tuple[bool, bool]:
    """The standard's action first, then a maker's own, then slots that may take a PATCH."""
    return action_target(known.doc, INSERT) is None, own_action(known.doc) is None


def _elsewhere(tree: Tree, url: str) -> Drive | None:
    """The slot that holds this medium, where slots are numbered anew by each medium."""
    return next((drive for drive in drives(tree) if drive.slot.shows(url)), None)


def _settled(tree: Tree, path: str, right: Callable[[Drive], bool]) -> Drive | None:
    """The slot as it is, or as it is after a while; None where it is there no more."""
    end = time.monotonic() + SETTLES_S
    pause = 0.05
    while True:
        doc = tree.find(path)
        shown = Drive(path, doc) if doc is not None else None
        if shown is None or right(shown) or time.monotonic() > end:
            return shown
        time.sleep(tree.door.left_s(pause))
        pause = min(2 * pause, 0.4)


def _insert(tree: Tree, known: Drive, url: str) -> None:
    """One slot, down a bounded ladder of payloads. What worked is remembered for this BMC."""
    target, own = action_target(known.doc, INSERT), own_action(known.doc)
    if target is None and own is not None:
        _insert_by(tree, known, own, url)
        return
    extra: dict[str, Any] = dict(tree.learned.get("media") or {})
    if target is None:
        extra = {"Inserted": True, "WriteProtected": True} | extra
    failures = 0
    for attempt in range(PAYLOADS):
        body = {"Image": url, **extra}
        try:
            if target:
                tree.act(target, body)
            else:
                tree.patch(known.path, body)
        except (MaybeSent, TaskFailed):
            if Drive(known.path, tree.get(known.path)).slot.shows(url):
                return
            raise
        except sushy.exceptions.ServerSideError:
            failures += 1
            if failures >= TRIES_AFTER_EJECT:
                raise
            time.sleep(tree.door.left_s(0.3 * failures))
        except sushy.exceptions.HTTPError as error:
            wanted = _next(extra, all_words(error.answer), url) if error.status_code in (400, 422) else None
            if wanted is None or attempt == PAYLOADS - 1:
                raise
            extra = wanted
        else:
            tree.learned["media"] = extra
            return


def _insert_by(tree: Tree, known: Drive, own: OwnAction, url: str) -> None:
    """A Task that failed is begun a second time (iBMC: the first one of some fails in seconds, the next one runs through)."""
    for last in (False, True):
        try:
            tree.act(own.target, own.body(url))
        except (MaybeSent, TaskFailed) as error:
            if Drive(known.path, tree.get(known.path)).slot.shows(url):
                return
            if last or isinstance(error, MaybeSent):
                raise
        else:
            return


def _next(extra: dict[str, Any], said: str, url: str) -> dict[str, Any] | None:
    """The payload after a refusal: without what it names and we sent, with what it names and we did not; None when there is no other."""
    full = {
        "TransferProtocolType": "HTTPS" if url.startswith("https:") else "HTTP",
        "TransferMethod": "Stream",
        "Inserted": True,
        "WriteProtected": True,
    }
    named = [key for key in full if key in said]
    if not named and not extra:
        return full if "Image" not in said else None
    changed = {key: value for key, value in extra.items() if key not in named}
    changed |= {key: full[key] for key in named if key not in extra}
    return changed if changed != extra else None
