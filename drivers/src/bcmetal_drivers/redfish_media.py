"""Virtual media over Redfish: under the system, under its managers, or both; inserted by an action or by a PATCH of the slot.

Always eject, look, insert, look: a slot that shows the same URL again may have booted nothing, and an acknowledgement is no proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.errors import MaybeSent, NotAsAsked, Refused, TaskFailed, Unsupported
from bcmetal_drivers.redfish_document import Doc, action_target, dig, link, links, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import Slot

INSERT, EJECT = "#VirtualMedia.InsertMedia", "#VirtualMedia.EjectMedia"
URL_LIMIT: Final = 2048
OPTICAL: Final = ("cd", "dvd")
SETTLES_S: Final = 2.0  # some BMCs show the new state a moment later
PAYLOADS: Final = 6  # tries of one slot
TRIES_AFTER_EJECT: Final = 3  # an insert fails with a 5xx while the eject still runs
NOT_THIS_SLOT: Final = (400, 403, 404, 405, 409, 415, 501)


@dataclass(frozen=True, slots=True)
class Drive:
    """A slot with its document."""

    path: str
    doc: Doc

    @property
    def slot(self) -> Slot:
        return Slot(self.path, self.image if self.inserted else None, self.inserted)

    @property
    def image(self) -> str | None:
        """Its URL; where the BMC does not show that, the name of the image."""
        return text(self.doc, "Image", limit=URL_LIMIT) or text(self.doc, "ImageName", limit=URL_LIMIT)

    @property
    def inserted(self) -> bool:
        said = dig(self.doc, "Inserted")
        return said if isinstance(said, bool) else self.image is not None


def _is_optical(doc: Doc) -> bool:
    kinds = dig(doc, "MediaTypes")
    if isinstance(kinds, list) and kinds:
        return any(str(kind).lower() in OPTICAL for kind in kinds)
    name = f"{text(doc, 'Id')} {text(doc, 'Name')}".lower()
    return any(word in name for word in OPTICAL)


def _collections(tree: Tree) -> Iterator[str]:
    system = tree.system()
    own = link(system, "VirtualMedia")
    if own:
        yield own
    for manager in links(system, "Links", "ManagedBy") or tree.manager_paths():
        doc = tree.find(manager)
        shared = len(links(doc, "Links", "ManagerForServers")) > 1
        path = link(doc, "VirtualMedia")
        if path and not (own and shared):  # a slot of a manager of several systems may be another system's
            yield path


def drives(tree: Tree) -> tuple[Drive, ...]:
    """The slots for a CD, the system's own first; then others that hold an image, for a machine may boot a floppy or a stick as well.

    Raises Unsupported when there is none.
    """
    found: dict[str, Drive] = {}
    others: dict[str, Drive] = {}
    for collection in dict.fromkeys(_collections(tree)):
        for path, doc in tree.documents(collection):
            drive = Drive(path, doc)
            if _is_optical(doc):
                found.setdefault(path, drive)
            elif drive.inserted and drive.image:
                others.setdefault(path, drive)
    if not found and not others:
        raise Unsupported(f"{tree.address}: the BMC has no virtual CD")
    return (*found.values(), *others.values())


def eject(tree: Tree) -> tuple[Drive, ...]:
    """Empty them all; the slots for a CD that there are."""
    slots = drives(tree)
    for known in slots:
        if known.inserted:
            _eject(tree, known)
    return tuple(known for known in slots if _is_optical(known.doc))


def _eject(tree: Tree, known: Drive) -> None:
    """A refusal counts only when the slot is still filled afterwards: some makers refuse to empty an empty one."""
    current = Drive(known.path, tree.get(known.path))  # two paths may lead to one slot
    if not current.inserted:
        return
    trouble: Exception | None = None
    try:
        target = action_target(current.doc, EJECT)
        if target:
            tree.act(target)
        else:
            tree.patch(current.path, {"Image": None, "Inserted": False})
    except (sushy.exceptions.HTTPError, Refused, MaybeSent) as error:
        trouble = error
    shown = _settled(tree, current.path, lambda drive: not drive.inserted)
    if not shown.inserted:
        return
    if trouble is not None:
        raise trouble
    raise NotAsAsked(f"{tree.door.origin}{current.path}: ejected, and it still shows a medium")


def insert(tree: Tree, url: str) -> Slot:
    """Eject, insert, look, over the slots until one takes it. Raises NotAsAsked when the slot shows something else."""
    slots = eject(tree)
    refused: Exception | None = None
    for known in sorted(slots, key=lambda drive: action_target(drive.doc, INSERT) is None):
        try:
            _insert(tree, known, url)
        except sushy.exceptions.HTTPError as error:
            if error.status_code not in NOT_THIS_SLOT or not isinstance(refusal(error.answer), Refused | Unsupported):
                raise
            refused = error
            continue
        shown = _settled(tree, known.path, lambda drive: drive.slot.shows(url))
        if shown.slot.shows(url):
            return shown.slot
        holds = "nothing" if not shown.inserted else "another medium"
        raise NotAsAsked(f"{tree.door.origin}{known.path}: acknowledged, and the slot shows {holds}")
    raise refused or Unsupported(f"{tree.address}: no slot takes a medium")


def _settled(tree: Tree, path: str, right: Callable[[Drive], bool]) -> Drive:
    """The slot as it is, or as it is after a while."""
    end = time.monotonic() + SETTLES_S
    pause = 0.05
    while True:
        shown = Drive(path, tree.get(path))
        if right(shown) or time.monotonic() > end:
            return shown
        time.sleep(tree.door.left_s(pause))
        pause = min(2 * pause, 0.4)


def _insert(tree: Tree, known: Drive, url: str) -> None:
    """One slot, down a bounded ladder of payloads. What worked is remembered for this BMC."""
    target = action_target(known.doc, INSERT)
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
