"""A PATCH that no other writer's change is lost by: guarded with the resource's ETag (DSP0266, section "ETags"), as far as this BMC will have it.

Some firmware demands If-Match and some refuses it, some gives an ETag that is empty, weak or never the same, and some drops a write
without If-Match and answers 2xx: what works is found on a short ladder, and learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import Busy
from bcmetal_drivers.redfish_document import Doc, holds, same, shows, text
from bcmetal_drivers.redfish_tasks import wait_for
from bcmetal_drivers.wire import Answer

LEARNED: Final = "etag"
NOT_THIS_GUARD: Final = (412, 428)  # Precondition Failed, Precondition Required (RFC 9110, RFC 6585)


def _strong(etag: str | None) -> str | None:
    return etag.removeprefix("W/") if etag else etag


# What a PATCH is guarded with, by what was learned of the BMC; without that the ETag as it is given.
LADDER: Final[Mapping[str, Callable[[str | None], str | None]]] = {
    "strong": _strong,
    "any": lambda _: "*",
    "none": lambda _: None,
}


def _candidates(fresh: str | None, tried: str | None, *, unguarded: bool) -> Iterator[tuple[str | None, str | None]]:
    """What else to guard a PATCH with, and what is learned when that is taken."""
    seen = {tried}
    for name, guard in ((None, fresh), *((name, LADDER[name](fresh)) for name in ("strong", "any"))):
        if guard and guard not in seen:
            seen.add(guard)
            yield name, guard
    if unguarded and tried is not None:
        yield "none", None


@dataclass(frozen=True, slots=True)
class GuardedPatch:
    """One PATCH of one resource. `follow` False leaves the Task that it is answered with to the caller."""

    door: Door
    learned: dict[str, Any]
    path: str
    body: Doc
    follow: bool

    def send(self) -> Answer:
        """412 is answered by a look: is it as asked, all is well; did another writer change what we write, Busy; else its ETag is useless."""
        before, etag = self._look()
        known = self.learned.get(LEARNED)
        if known is not None:
            etag = LADDER[known](etag)
        try:
            answer = self._sent(etag)
        except sushy.exceptions.HTTPError as error:
            if error.status_code not in NOT_THIS_GUARD:
                raise
            return self._down_the_ladder(before, etag, error)
        if etag is not None or known is not None or answer.status_code == 202:
            return answer
        return self._again_if_dropped(before, answer)

    def _down_the_ladder(self, before: Doc, tried: str | None, rejected: Any) -> Answer:
        now, fresh = self._look()
        if rejected.status_code == 412 and not same(before, now, self.body):
            raise Busy(f"{self.door.origin}{self.path}: another writer changed it meanwhile") from rejected
        self.learned[LEARNED] = None
        for name, guard in _candidates(fresh, tried, unguarded=rejected.status_code == 412):
            try:
                answer = self._sent(guard)
            except sushy.exceptions.HTTPError as error:
                if error.status_code not in NOT_THIS_GUARD:
                    raise
                rejected = error
            else:
                if name is not None:
                    self.learned[LEARNED] = name
                return answer
        raise rejected

    def _again_if_dropped(self, before: Doc, answer: Answer) -> Answer:
        """Without an If-Match some firmware answers 2xx and changes nothing. What the resource does not show (passwords) is not looked for."""
        if not shows(before, self.body):
            return answer
        now, _ = self._look()
        if not same(before, now, self.body) or holds(now, self.body):
            return answer
        try:
            again = self._sent("*")
        except sushy.exceptions.HTTPError:
            return answer  # the caller's look says what is wrong
        if holds(self._look()[0], self.body):
            self.learned[LEARNED] = "any"
        return again

    def _sent(self, guard: str | None) -> Answer:
        answer = self.door.patch(self.path, data=dict(self.body), etag=guard)
        return wait_for(self.door, answer) if self.follow else answer

    def _look(self) -> tuple[dict[str, Any], str | None]:
        answer = self.door.get(self.path)
        doc = answer.json()
        return doc, answer.headers.get("ETag") or text(doc, "@odata.etag")
