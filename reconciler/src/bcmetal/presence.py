"""This daemon among those that share its database: its heartbeat, and whether it may work beside the others.

Daemons of one database must agree on everything but `[daemon]`: two opinions on who owns a pool, or on what a release erases, would both
be carried out. A daemon whose configuration differs from one that was there first does not start; one that read another configuration
while it ran serves and claims nothing until the others have it as well, or are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bcmetal.errors import StartRefused, Unavailable
from bcmetal.store import daemons
from bcmetal.store.migrate import CODE
from bcmetal.store.values import Store

log = logging.getLogger(__name__)


class Presence:
    """`differs`: why this daemon must not work now; None: it may."""

    def __init__(self, store: Store, daemon_id: str, digest: Callable[[], str]) -> None:
        self._store = store
        self._daemon_id = daemon_id
        self._digest = digest
        self.differs: str | None = None

    async def begin(self) -> None:
        """The first heartbeat. Raises StartRefused."""
        await self.beat()
        if self.differs is not None:
            why = self.differs
            await self.end()
            raise StartRefused(why)

    async def beat(self) -> None:
        """Say that this daemon lives, and see whether it agrees with the others. Called by a tick, and after a reload."""
        try:
            fellows = await self._store.write(daemons.beat, self._daemon_id, CODE, self._digest())
        except Unavailable as error:
            log.warning("no heartbeat: %s", error)
            return
        rivals = [one.daemon_id for one in fellows if one.first and one.config_digest != self._digest()]
        before, self.differs = self.differs, _differs(rivals) if rivals else None
        if self.differs != before:
            if self.differs is not None:
                log.error("nothing is served and nothing is claimed: %s", self.differs)
            else:
                log.info("the daemons agree on the configuration again: it goes on")

    async def end(self) -> None:
        """The daemon stops, and counts no more."""
        try:
            await self._store.write(daemons.leave, self._daemon_id)
        except Unavailable as error:
            log.warning("this daemon counts as alive for %s s more: %s", daemons.STALE_S, error)


def _differs(rivals: list[str]) -> str:
    return (
        f"the configuration differs from that of {', '.join(rivals)}, which is at work on the same database. Give all daemons the same "
        f"file but for [daemon] and reload (SIGHUP) the others too, or stop them (one that died counts for {daemons.STALE_S} s)"
    )
