"""The event log: the log service that tells of the hardware, its newest entries, and its clearing.

A BMC has several logs, at its manager, system or chassis: of the hardware (SEL, IML, …), of its own doings, of logins. Which one is
meant shows in LogEntryType and in the names that makers use; the choice is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import Malformed, MaybeSent, NotAsAsked, Refused, Unsupported
from bcmetal_drivers.origin import PATH_LIMIT
from bcmetal_drivers.redfish_actions import action
from bcmetal_drivers.redfish_around import chassis, managers
from bcmetal_drivers.redfish_document import Doc, dig, link, links, number, objects, severity_word, text
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import LogEntry

CLEAR: Final = "#LogService.ClearLog"
MESSAGE_LIMIT: Final = 512
PAGES: Final = 40
ENTRIES: Final = 4000
ONE_BY_ONE: Final = 200
LOGS_TRIED: Final = 5
LEARNED: Final = "log"
OF_SOMETHING_ELSE: Final = 10  # the rank of a log that is none of the hardware

# likeliest first; what fits none of them comes after them, and what NOT_MEANT names is no log of the hardware
MEANT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"\bsel\b|system ?event ?log", r"\biml\b|integrated management|platform ?log|health event", r"event|\blog1?\b")
)  # fmt: skip
NOT_MEANT: Final = re.compile(
    r"audit|security|debug|\bbios\b|\bxid\b|\bfdr\b|post ?codes?|\bsl\b|diagnos|dump|journal|host ?logger|crash|fault ?log|maintenance|life ?cycle|\blclog\b|\biel\b|\bsalog\b",
    re.IGNORECASE,
)


def event_log(tree: Tree, limit: int) -> tuple[LogEntry, ...]:
    """The newest `limit`, oldest first."""
    return tuple(entry for _, entry in _newest(tree, _entries_path(tree), max(0, min(limit, ENTRIES))))


def clear(tree: Tree) -> None:
    """Sent once, and read back: what was there before is gone, whatever the BMC noted about the clearing."""
    path, service = _service(tree)
    found = action(service, CLEAR)
    if found is None:
        raise Unsupported(f"{tree.door.origin}{path}: this log cannot be cleared")
    entries = _entries_path(tree)
    before = {_mark(entry) for _, entry in _newest(tree, entries, 50)}
    lost: MaybeSent | None = None
    try:
        with tolerated():
            tree.act(found.target, {})
    except MaybeSent as error:
        lost = error
    left = before & {_mark(entry) for _, entry in _newest(tree, entries, 50)}
    if left:
        raise lost or NotAsAsked(
            f"{tree.door.origin}{path}: acknowledged, and {len(left)} of its entries are still there"
        )


def _mark(entry: LogEntry) -> tuple[str, str | None, str]:
    return entry.ref, entry.at, entry.message


# ---------------------------------------------------------------- which log


def _service(tree: Tree) -> tuple[str, Doc]:
    """The likeliest one that has entries: some have a SEL for IPMI's sake that nothing writes to, beside an Event Log (Cray EX).

    It stays the one, also when it is cleared; where all are empty, it is the likeliest until one is not.
    """
    known: str | None = tree.learned.get(LEARNED)
    doc = tree.find(known)
    if known is not None and doc is not None:
        return known, doc
    ranked = sorted(_services(tree), key=lambda found: _rank(found[1]))[:LOGS_TRIED]
    readable: list[tuple[str, Doc]] = []
    for path, service in ranked:
        entries = tree.find(link(service, "Entries"))
        if entries is None or (readable and _rank(service) == OF_SOMETHING_ELSE):
            continue
        readable.append((path, service))
        if _has_entries(entries):
            tree.learned[LEARNED] = path
            return path, service
    if not readable:
        raise Unsupported(
            f"{tree.address}: the BMC shows no event log" + (" whose entries can be read" if ranked else "")
        )
    return readable[0]


def _has_entries(entries: Doc) -> bool:
    return bool(dig(entries, "Members")) or bool(number(entries, "Members@odata.count"))


def _entries_path(tree: Tree) -> str:
    path, doc = _service(tree)
    entries = link(doc, "Entries")
    if entries is None:
        raise Malformed(f"{tree.door.origin}{path}: a log without entries")
    return entries


def _services(tree: Tree) -> Iterator[tuple[str, Doc]]:
    """Those that can be read, each once; several resources may name the same ones."""
    system, seen = tree.system(), set[str]()
    around = (system, *(doc for _, doc in managers(tree)), *(doc for _, doc in chassis(tree, system)))
    for doc in around:
        collection = link(doc, "LogServices")
        if collection is None or collection in seen:
            continue
        seen.add(collection)
        with tolerated(Refused, Unsupported):
            for path, service in tree.documents(collection):
                if link(service, "Entries") is not None and dig(service, "ServiceEnabled") is not False:
                    yield path, service


def _rank(service: Doc) -> int:
    said = f"{text(service, 'Id')} {text(service, 'Name')}"
    is_sel = text(service, "LogEntryType") == "SEL"  # AMI says so of the logs of its BIOS and its chassis too
    if is_sel and MEANT[0].search(said):
        return 0
    if NOT_MEANT.search(said):
        return OF_SOMETHING_ELSE
    return next((n for n, pattern in enumerate(MEANT, 2) if pattern.search(said)), 1 if is_sel else len(MEANT) + 2)


# ---------------------------------------------------------------- its newest entries

Placed = tuple[tuple[datetime, int, str], LogEntry]


def _newest(tree: Tree, path: str, limit: int) -> list[Placed]:
    """Makers list the newest first or last, in pages of any size: the end that matters is asked for, else all pages are, within bounds."""
    first = tree.get(path)
    count = number(first, "Members@odata.count")
    following = _next(first)
    listed = _placed(tree, first, limit)
    if following is not None and count is not None and not _newest_first(listed):
        skip = int(max(0, count - limit))
        with tolerated(Refused, Unsupported, Malformed):
            last = _placed(tree, tree.get(f"{path}?$skip={skip}&$top={limit}"), limit)
            if last and listed and last[0][1].ref != listed[0][1].ref:  # else it takes no notice of the query
                return sorted(last)[-limit:] if limit else []
    pages = 1
    while following is not None and pages < PAGES and len(listed) < ENTRIES:
        if len(listed) >= limit and _newest_first(listed):
            break
        page = tree.get(following)
        marks = {_mark(entry) for _, entry in listed}
        fresh = [one for one in _placed(tree, page, limit) if _mark(one[1]) not in marks]
        if not fresh:
            break  # it takes no notice of the query, and gives the same page for ever
        listed += fresh
        following, pages = _next(page), pages + 1
    return sorted(listed)[-limit:] if limit else []


def _next(page: Doc) -> str | None:
    return text(page, "Members@odata.nextLink", limit=PATH_LIMIT) or text(page, "@odata.nextLink", limit=PATH_LIMIT)


def _newest_first(listed: list[Placed]) -> bool:
    return len(listed) > 1 and listed[0][0] > listed[-1][0]


def _placed(tree: Tree, page: Doc, limit: int) -> list[Placed]:
    """The page's entries; where it holds links only, those at the end where the newest are."""
    members = objects(page, "Members", limit=ENTRIES)
    whole = [one for one in members if not set(one) <= {"@odata.id"}]
    if whole or not members:
        return [_entry(doc, place) for place, doc in enumerate(whole)]
    paths, room = links(page, "Members"), min(limit, ONE_BY_ONE)
    if len(paths) > room:
        ends = [
            _entry(doc, place) for place, doc in enumerate(map(tree.find, (paths[0], paths[-1]))) if doc is not None
        ]
        paths = paths[:room] if _newest_first(ends) else paths[len(paths) - room :]
    found = ((place, tree.find(path)) for place, path in enumerate(paths))
    return [_entry(doc, place) for place, doc in found if doc is not None]


def _entry(doc: Doc, place: int) -> Placed:
    ref = text(doc, "Id") or (link({"one": doc}, "one") or "").rpartition("/")[2] or str(place)
    at, moment = _time(doc)
    severity = severity_word(text(doc, "Severity") or text(doc, "MessageSeverity"))
    message = text(doc, "Message", limit=MESSAGE_LIMIT) or text(doc, "MessageId") or text(doc, "Name") or ""
    entry = LogEntry(ref, at, severity, message, text(doc, "SensorType"))
    order = int(ref) if ref.isdigit() and len(ref) < 19 else 0
    return (moment, order, ref), entry


def _time(doc: Doc) -> tuple[str | None, datetime]:
    """As RFC 3339, and for ordering; an entry without a time is the oldest."""
    said = text(doc, "EventTimestamp") or text(doc, "Created")
    if said is not None:
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            return None, datetime.min.replace(tzinfo=UTC)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return moment.isoformat(), moment
    return None, datetime.min.replace(tzinfo=UTC)


# ---------------------------------------------------------------- following it


def since(listed: tuple[LogEntry, ...], after: str | None) -> tuple[LogEntry, ...]:
    """What came after that entry; all of it where the entry is gone (the log was cleared, or wrapped)."""
    refs = [entry.ref for entry in listed]
    return listed[refs.index(after) + 1 :] if after is not None and after in refs else listed
