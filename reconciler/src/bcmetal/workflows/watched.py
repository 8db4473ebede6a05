"""A long upload to a BMC, watched while it goes on: how far it is is shown, and it is ended when it may not go on.

It may not once the lease on the node is lost, or somebody asked to abort. The thread that sends asks after each piece; it looks at the lease by
itself, so that it ends also where nothing else here gets a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bcmetal.errors import Stale, Unavailable
from bcmetal.store import claims
from bcmetal.text import size
from bcmetal.workflows.machine import HeldBack, Lease, Machine
from bcmetal_drivers.wire import CutShort

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Watch:
    lease: Lease
    share: float = 0.0
    ends: Exception | None = None  # why it may not go on

    def told(self, share: float) -> None:
        """In the thread that sends."""
        self.share = share
        over = self.lease.left_s() <= 0
        if self.ends is None and over:
            self.ends = Stale()
        if self.ends is not None:
            raise CutShort(hands_off=over or isinstance(self.ends, Stale))


@asynccontextmanager
async def watched(m: Machine, what: str, size_bytes: int) -> AsyncIterator[Callable[[float], None]]:
    """What the upload has to tell how far it is. Raises Stale, or HeldBack, in place of CutShort."""
    watch = _Watch(m.lease)
    watching = asyncio.create_task(_look(m, watch, what, size_bytes))
    try:
        yield watch.told
    except CutShort:
        raise watch.ends or Stale() from None
    finally:
        watching.cancel()
        (ended,) = await asyncio.gather(watching, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("node %s: an upload was not watched to its end", m.node.name, exc_info=ended)


async def _look(m: Machine, watch: _Watch, what: str, size_bytes: int) -> None:
    shown = -1.0
    while watch.ends is None:
        await asyncio.sleep(LOOK_EVERY_S)
        operation_id = m.operation.operation_id
        try:
            holds = await m.doors.store.read(claims.holds, m.lease.claim, operation_id)
            if not holds.ours:
                watch.ends = Stale()
            elif holds.abort and not m.operation.cleaning:
                watch.ends = HeldBack("somebody asked to abort")
            elif watch.share != shown:
                shown = watch.share
                text = f"{what}: {size(round(shown * size_bytes))} of {size(size_bytes)}"
                await m.doors.store.write(claims.show, m.lease.claim, operation_id, text, round(shown, 3), m.now)
        except Stale as stale:
            watch.ends = stale
        except Unavailable as error:  # the lease runs on, and ends it
            log.warning("node %s: %s", m.node.name, error)
