"""A Redfish service as a tree of documents: collections with pages, the system that we mean, and writes that look first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.connection import BmcAddress
from bcmetal_drivers.door import Door, tolerated
from bcmetal_drivers.errors import AmbiguousSystem, Malformed, NoSuchSystem, NotThisService, Refused, Unsupported
from bcmetal_drivers.learned import forget_another, lasting
from bcmetal_drivers.origin import PATH_LIMIT
from bcmetal_drivers.redfish_document import (
    MEMBERS,
    PAGES,
    Doc,
    has_bios,
    is_host,
    is_root,
    key,
    length,
    link,
    links,
    number,
    text,
)
from bcmetal_drivers.redfish_etag import GuardedPatch
from bcmetal_drivers.redfish_reading import Reading
from bcmetal_drivers.redfish_tasks import wait_for
from bcmetal_drivers.session import ROOT
from bcmetal_drivers.wire import Answer

PROCESSORS: Final = 64  # of a system that may be a baseboard
ACCELERATORS: Final = {"gpu", "accelerator", "fpga", "dsp"}
SYSTEMS: Final = 32  # how many are looked at to find the one that is a host


@dataclass(slots=True)
class Tree:
    """What is learned about one BMC is kept here for as long as the conversation is open; what `learned.FIELDS` names, for longer."""

    door: Door
    address: BmcAddress
    learned: dict[str, Any] = field(default_factory=dict)
    _reading: Reading | None = None

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Until its end, each resource is read at most once. Not for what is written meanwhile."""
        outer = self._reading
        self._reading = outer or Reading(self.door, self.learned, self.root)
        try:
            yield self._reading
        finally:
            self._reading = outer

    @property
    def now_reading(self) -> Reading | None:
        return self._reading

    def get(self, path: str) -> dict[str, Any]:
        if self._reading is not None:
            return self._reading.get(path)
        return self.door.document(path)

    def find(self, path: str | None) -> dict[str, Any] | None:
        """The document; None where there is no path, or nothing at its end (404, 405, 501, 400)."""
        if path is None:
            return None
        with tolerated(Refused, Unsupported):
            return self.get(path)
        return None

    def root(self) -> Doc:
        """The service root, read once. Raises NotThisService when what answers there is no Redfish service."""
        known: Doc | None = self.learned.get("root")
        if known is None:
            answer = self.door.anonymous(ROOT)
            known = self._root_of(answer) if answer.status_code != 401 else self.get(ROOT)
            self.learned["root"] = known
        return known

    def _root_of(self, answer: Answer) -> Doc:
        if answer.status_code in (404, 405):
            raise NotThisService(f"{answer.url}: the host answers, but it has no Redfish service")
        if answer.status_code != 200:
            return self.get(ROOT)
        try:
            doc = answer.json()
        except Malformed as error:
            raise NotThisService(f"{answer.url}: the host answers, but it is no Redfish service") from error
        if not is_root(doc):
            raise NotThisService(f"{answer.url}: the host answers, but it is no Redfish service")
        return doc

    def members(self, path: str, *, whole: bool = True) -> tuple[str, ...]:
        """The paths of a collection's members, over all its pages, each once.

        `whole`: raises Malformed when pages run in a circle or some are missing; else what there is does.
        """
        found: dict[str, str] = {}
        listed = 0  # with what is no reference, and what is there twice
        count: float | None = None
        following: str | None = path
        seen: set[str] = set()
        while following is not None:
            if key(following) in seen or len(seen) >= PAGES or len(found) > MEMBERS:
                if not whole:
                    break
                raise Malformed(f"{self.door.origin}{path}: the pages of this collection do not end")
            seen.add(key(following))
            page = self.get(following)
            for member in links(page, "Members"):
                found.setdefault(key(member), member)
            listed += length(page, "Members")
            count = number(page, "Members@odata.count") if count is None else count
            following = text(page, "Members@odata.nextLink", limit=PATH_LIMIT)
        if whole and count is not None and listed < count:
            raise Malformed(f"{self.door.origin}{path}: it counts {count:g} members and lists {listed}")
        return tuple(found.values())

    def documents(self, path: str | None, *, whole: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each member of a collection with its document; those that answer 404 or the like are left out, and so is a collection that does.

        `whole` as of `members`.
        """
        if path is None:
            return
        try:
            listed = self.members(path, whole=whole)
        except sushy.exceptions.ResourceNotFoundError:
            if self.find(path) is not None:
                raise  # a page of it is missing
            return
        for member in listed:
            doc = self.find(member)
            if doc is not None:
                yield member, doc

    def known_as(self, maker: str | None, model: str | None, firmware: str | None) -> None:
        """Who the BMC says it is: what was learned of another ends."""
        for memory in (self.learned, self.door.memory):
            forget_another(memory, maker, model, firmware)

    def lasting(self) -> dict[str, Any]:
        """What is worth knowing the next time, as plain JSON."""
        return lasting(self.door.memory | self.learned)

    # ------------------------------------------------------------ the system

    def system_path(self) -> str:
        """The one that the address names, else the only one, else the only one that is a host. Raises NoSuchSystem, AmbiguousSystem."""
        known: str | None = self.learned.get("system")
        if known is None:
            known = self.address.system_path or self._only_system()
            self.learned["system"] = known
        return known

    def _only_system(self) -> str:
        """The one that there is, or of several the one that can be started and told what to boot: others are baseboards of GPUs, or witnesses."""
        systems = self._systems()
        if not systems:
            raise NoSuchSystem(f"{self.address}: the BMC lists no system")
        if len(systems) > 1:
            found = {path: self.find(path) for path in systems[:SYSTEMS]}
            able = self._hosts(found)
            if len(able) == 1 and None not in found.values():  # what cannot be read now may be a host
                return able[0]
            named = ", ".join(able or systems)
            raise AmbiguousSystem(f"{self.address}: the BMC has several systems, name one: {named}")
        return systems[0]

    def others(self) -> tuple[str, ...] | None:
        """The systems beside ours, none of which is a host, such as a baseboard of GPUs; None where one is, or cannot be read."""
        own = key(self.system_path())
        if link(self.root(), "Systems") is None:
            return ()
        beside = [path for path in self._systems()[:SYSTEMS] if key(path) != own]
        found = {path: self.find(path) for path in beside}
        return None if None in found.values() or self._hosts(found) else tuple(beside)

    def _hosts(self, found: Mapping[str, Doc | None]) -> list[str]:
        """The machines among these systems. Some baseboards of GPUs can be reset, and have boot settings, as a machine has."""
        able = {path: doc for path, doc in found.items() if doc is not None and is_host(doc)}
        return [path for path, doc in able.items() if not self._is_baseboard(doc)]

    def _is_baseboard(self, system: Doc) -> bool:
        """Whether it has accelerators and neither a BIOS nor CPUs, or CPUs that are told without an SMBIOS UUID."""
        if has_bios(system):
            return False
        collection = link(system, "Processors")
        kinds: set[str] = set()
        for member in (self.members(collection) if collection else ())[:PROCESSORS]:
            kinds.add((text(self.find(member), "ProcessorType") or "CPU").lower())
            if "cpu" in kinds and text(system, "UUID") is not None:
                return False
        return bool(kinds & ACCELERATORS)

    def _systems(self) -> tuple[str, ...]:
        collection = link(self.root(), "Systems")
        if collection is None:
            raise NotThisService(f"{self.address}: this Redfish service has no systems")
        return self.members(collection)

    def system(self) -> dict[str, Any]:
        """The system's document, read now: the one at the path, or where another UUID than before is there, the one that has it now.

        Raises NoSuchSystem with the ids that there are.
        """
        path = self.system_path()
        pinned: str | None = (self.learned.get("systems") or {}).get(path)
        try:
            doc = self.get(path)
        except sushy.exceptions.ResourceNotFoundError as error:
            moved = self._with_uuid(pinned, path)
            if moved is not None:
                return moved
            self.learned.pop("system", None)
            there = ", ".join(self._systems()) or "none"
            raise NoSuchSystem(f"{self.door.origin}{path}: the BMC has no such system; it has: {there}") from error
        uuid = text(doc, "UUID")
        if uuid is not None and uuid != pinned:
            moved = self._with_uuid(pinned, path)
            if moved is not None:
                return moved
            self._pin(path, uuid)
        return doc

    def _pin(self, path: str, uuid: str) -> None:
        self.learned["systems"] = {**(self.learned.get("systems") or {}), path: uuid}

    def _with_uuid(self, uuid: str | None, elsewhere_than: str) -> dict[str, Any] | None:
        """The system that has this UUID now, since the order of a chassis' members changed; None when none, or more than one has it."""
        if uuid is None:
            return None
        others = [path for path in self._systems() if path != elsewhere_than]
        found = [(path, doc) for path in others if (doc := self.find(path)) and text(doc, "UUID") == uuid]
        if len(found) != 1:
            return None
        path, doc = found[0]
        self.learned["system"] = path
        self._pin(path, uuid)
        return doc

    def manager_paths(self) -> tuple[str, ...]:
        """The managers of this system; all of them where the system names none that is there."""
        named = links(self.find(self.system_path()), "Links", "ManagedBy")
        if any(self.find(path) is not None for path in named):
            return named
        collection = link(self.root(), "Managers")
        return self.members(collection, whole=False) if collection else ()

    # ------------------------------------------------------------ writes

    def act(self, path: str, body: Doc | None = None) -> Answer:
        """POST; a Task that it is answered with is followed to its end. Raises TaskFailed."""
        return wait_for(self.door, self.door.post(path, data=dict(body or {})))

    def patch(self, path: str, body: Doc, follow: bool = True) -> Answer:
        """PATCH with the ETag that the BMC gives, and down a short ladder when it will not have it. Raises Busy when another writer was quicker.

        `follow` False leaves the Task that it is answered with to the caller: one that waits for a boot ends at no other time.
        """
        return GuardedPatch(self.door, self.learned, path, body, follow).send()
