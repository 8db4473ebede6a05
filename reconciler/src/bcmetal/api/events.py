"""`GET /events`: the feed as server-sent events, CloudEvents 1.0 in JSON, from `Last-Event-ID` on; filtered by grant for each event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bcmetal.api.access import Identity, actions_on_pool
from bcmetal.api.auth import Gate
from bcmetal.api.calls import Services
from bcmetal.api.faults import HEADERS
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import BcmetalError, Fault, InvalidInput, NotFound, RateLimited
from bcmetal.events import Feed
from bcmetal.settings_grants import Action
from bcmetal.store import outbox
from bcmetal.store.outbox import EventRow
from bcmetal.store.views import stamp

STREAMS: Final = 8  # at once for one identity
QUIET_S: Final = 10.0  # a comment at least this often, and a look whether the identity still holds
SPEC: Final = "1.0"


class EventStreams:
    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self._open: dict[str, int] = {}

    async def answer(self, request: Request, address: str) -> Response:
        who = await self._gate.identify(request.scope, address)
        feed = self._services.feed
        if feed is None:
            raise NotFound
        after = await self._after(request.headers.get("last-event-id"))
        if self._open.get(who.name, 0) >= STREAMS:
            raise RateLimited(f"{who.name} has {STREAMS} streams open already", retryAfterS=10)
        lines = self._lines(feed, who, after, request.scope, address, self._services.clock())
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    async def _after(self, last: str | None) -> int:
        """The position to go on from; without one, from now on."""
        if last is None:
            _, newest = await self._services.store.read(outbox.bounds)
            return newest
        if not last.isdecimal() or len(last) > 18:
            raise InvalidInput([Fault("Last-Event-ID", "must be the id of an event of this feed")])
        return int(last)

    async def _lines(
        self, feed: Feed, who: Identity, after: int, scope: Mapping[str, Any], address: str, checked: Micros
    ) -> AsyncIterator[str]:
        self._open[who.name] = self._open.get(who.name, 0) + 1
        try:
            oldest, _ = await self._services.store.read(outbox.bounds)
            if after + 1 < oldest:
                yield f"id: {oldest - 1}\nevent: feed.gap\ndata: {json.dumps({'from': after + 1, 'to': oldest - 1})}\n\n"
                after = oldest - 1
            async for row in feed.follow(after, QUIET_S):
                now = self._services.clock()
                if row is None or now - checked > QUIET_S * SECOND:
                    if not await self._still(who, scope, address):
                        return
                    checked = now
                if row is None:
                    yield ": still here\n\n"
                elif self._may_see(who, row):
                    yield f"id: {row.position}\nevent: {row.type}\ndata: {json.dumps(cloud_event(row))}\n\n"
        finally:
            left = self._open[who.name] - 1
            if left:
                self._open[who.name] = left
            else:
                del self._open[who.name]

    async def _still(self, who: Identity, scope: Mapping[str, Any], address: str) -> bool:
        """A revoked key's stream ends."""
        try:
            return await self._gate.identify(scope, address) == who
        except BcmetalError:
            return False

    def _may_see(self, who: Identity, row: EventRow) -> bool:
        settings = self._services.settings()
        pool = settings.pool(row.pool_id)
        return pool is not None and Action.READ in actions_on_pool(settings, who, pool)


def cloud_event(row: EventRow) -> dict[str, Any]:
    return {
        "specversion": SPEC,
        "id": row.event_id,
        "source": f"/sites/{row.site_id}/pools/{row.pool_id}",
        "type": row.type,
        "subject": row.node_id,
        "time": stamp(row.at),
        "datacontenttype": "application/json",
        "tenantid": row.tenant_id,
        "data": dict(row.data),
    }
