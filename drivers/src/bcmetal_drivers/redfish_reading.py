"""One look at much of a tree: each resource is asked for at most once, what fails is noted and left out, and there is an end to it.

Whole collections are asked for with their members (`$expand`, DSP0266 section 7.3.1) where the service says that it can and the answer
shows it: a hundred requests become one. One that does not is asked member by member from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import STUMBLES, Door, translated
from bcmetal_drivers.errors import (
    DriverError,
    InsecureTransport,
    LockedOut,
    Malformed,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    Unreachable,
    Unsupported,
    UntrustedCertificate,
)
from bcmetal_drivers.origin import PATH_LIMIT
from bcmetal_drivers.redfish_document import MEMBERS, PAGES, Doc, key, length, links, number, text

REQUESTS: Final = 1000
NOTED: Final = 50
PLACES: Final = 8
IN_VAIN: Final = (RejectedCredentials, PasswordChangeRequired, UntrustedCertificate, InsecureTransport, LockedOut)
LOST: Final = 1  # connections in a row that may be lost: some firmware resets the line at one resource only
NOT_THERE: Final = (Refused, Unsupported)
EXPANDED: Final = 3  # properties that a member has at least when it is more than a link


class TooMuch(Malformed):
    """The BMC's tree has no end."""


class Reading:
    """`failed` and `places` tell of what was read since `begin`."""

    def __init__(self, door: Door, learned: dict[str, Any], root: Callable[[], Doc]) -> None:
        """`learned` keeps whether the service expands collections; `root` gives the service root."""
        self._door = door
        self._learned = learned
        self._root = root
        self._docs: dict[str, dict[str, Any] | Exception] = {}
        self._asked = 0
        self._lost = 0  # connections in a row
        self._singly = False  # no collection is asked for with its members any more
        self.failed: list[str] = []  # what could not be read since `begin`, in words
        self.places: dict[str, None] = {}  # the collections and documents that something came from since `begin`

    def begin(self) -> None:
        """A new section."""
        self.failed, self.places = [], {}

    # ------------------------------------------------------------ documents

    def get(self, path: str) -> dict[str, Any]:
        """The document, as it was when it was first asked for. Raises what the door raised then."""
        name = key(path)
        if name not in self._docs:
            self._docs[name] = self._ask(path)
        found = self._docs[name]
        if isinstance(found, Exception):
            raise found
        return found

    def known(self, path: str) -> bool:
        return key(path) in self._docs

    def put(self, path: str, doc: dict[str, Any]) -> None:
        """What came inside another document."""
        self._docs.setdefault(key(path), doc)

    def lenient(self, path: str | None) -> dict[str, Any] | None:
        """None where there is nothing; what could not be read is noted. Raises only what makes every further request vain."""
        if path is None:
            return None
        try:
            found = self.get(path)
        except (DriverError, sushy.exceptions.HTTPError, *STUMBLES) as error:
            ours = self._ours(error)
            if isinstance(ours, NOT_THERE):
                return None
            if isinstance(ours, (*IN_VAIN, TooMuch)) or self._lost > LOST:
                raise ours from error
            self._door.left_s(0)  # the whole time is up: say so, and not once for each resource
            self.note(str(ours))
            return None
        self._place(path)
        return found

    def _ours(self, error: Exception) -> DriverError:
        if isinstance(error, DriverError):
            return error
        if isinstance(error, sushy.exceptions.HTTPError):
            return translated(error)
        return Malformed(f"{self._door.origin}: {type(error).__name__} while an answer was read")

    def note(self, what: str) -> None:
        if len(self.failed) < NOTED and what not in self.failed:
            self.failed.append(what)

    def documents(self, path: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each member of a collection that could be read."""
        if path is None:
            return
        before = len(self.places)
        for member in self.members(path):
            doc = self.lenient(member)
            if doc is not None:
                yield member, doc
        for place in list(self.places)[before:]:
            del self.places[place]
        if isinstance(self._docs.get(key(path)), dict):
            self._place(path)

    def _place(self, path: str) -> None:
        if len(self.places) < PLACES + MEMBERS:
            self.places[path.partition("?")[0]] = None

    def _ask(self, path: str) -> dict[str, Any] | Exception:
        if self._asked >= REQUESTS:
            raise TooMuch(f"{self._door.origin}: {REQUESTS} resources were read, and there are more")
        self._asked += 1
        try:
            found = self._door.document(path)
        except Unreachable as error:
            self._lost += 1
            return error
        except (DriverError, sushy.exceptions.HTTPError, *STUMBLES) as error:
            return error
        self._lost = 0
        return found

    # ------------------------------------------------------------ collections

    def members(self, path: str) -> tuple[str, ...]:
        """The paths of a collection's members, over all its pages; noted when some are missing."""
        found: dict[str, str] = {}
        listed = 0  # some makers list a member twice, and count it so
        count: float | None = None
        following: str | None = path
        pages: set[str] = set()
        while following is not None:
            if key(following) in pages or len(pages) >= PAGES or len(found) > MEMBERS:
                self.note(f"{self._door.origin}{path}: the pages of this collection do not end")
                break
            pages.add(key(following))
            page = self._page(following)
            if page is None:
                break
            listed += length(page, "Members")
            for member in links(page, "Members"):
                found.setdefault(key(member), member)
            count = number(page, "Members@odata.count") if count is None else count
            following = text(page, "Members@odata.nextLink", limit=PATH_LIMIT)
        if count is not None and listed < count:
            self.note(f"{self._door.origin}{path}: it counts {count:g} members and lists {listed}")
        return tuple(found.values())

    def _page(self, path: str) -> dict[str, Any] | None:
        query = self._expand()
        if query is None or self.known(path) or "?" in path:
            return self.lenient(path)
        answer = self._ask(f"{path.rstrip('/')}?$expand={query}")
        if isinstance(answer, IN_VAIN):
            raise answer
        if isinstance(answer, Exception):
            self._singly = True
            if isinstance(self._ours(answer), (*NOT_THERE, Malformed)):  # not for what may pass: a busy BMC, a deadline
                self._learned["expand"] = False
            return self.lenient(path)
        self._docs[key(path)] = answer
        members = answer.get("Members")
        listed = members if isinstance(members, list) else []
        whole = [one for one in listed[:MEMBERS] if _is_whole(one)]
        if listed and not whole:
            self._learned["expand"] = False
        for one in whole:
            self.put(one["@odata.id"], one)
        return answer

    def _expand(self) -> str | None:
        """The value of the query: `.` is all but what is under Links, `*` all, and levels where the service knows them."""
        if self._singly or self._learned.get("expand") is False:
            return None
        features = self._root().get("ProtocolFeaturesSupported")
        can = features.get("ExpandQuery") if isinstance(features, dict) else None
        if not isinstance(can, dict):
            return None
        kind = "." if can.get("NoLinks") is True else "*" if can.get("ExpandAll") is True else None
        return None if kind is None else f"{kind}($levels=1)" if can.get("Levels") is True else kind


def _is_whole(member: Any) -> bool:
    return (
        isinstance(member, dict)
        and isinstance(member.get("@odata.id"), str)
        and member["@odata.id"].isprintable()
        and len(member) > EXPANDED
        and ("Id" in member or "Name" in member)
    )
