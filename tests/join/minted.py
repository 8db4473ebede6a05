"""A token as a deploy mints it: for one node."""

from __future__ import annotations

import os

from bcmetal.join.minting import mint_for_node
from join.site import OWNER, POOL, JoinSite


def minted_for(site: JoinSite, node_id: str, pool: str = POOL) -> str:
    """The bearer."""
    place = site.settings.pools[pool].site
    return site.write(mint_for_node, node_id, OWNER, pool, place, "deploy", os.urandom, site.now()).text()
