"""The join token of a deploy: for one node, one use, minted while it is handed out, and never stored in the clear.

Each hand-out takes the place of the one before: a machine that asks twice holds one token that works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.bearers import SECRET_BYTES, Bearer, crockford, new_bearer
from bcmetal.join.events import token_created
from bcmetal.join.leaving import withdraw_tokens
from bcmetal.store import join_tokens, outbox
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.join_tokens import NewToken

LASTS_S: Final = 3600  # longer than a deploy's boot, shorter than anybody's afternoon


def mint_for_node(
    c: Connection,
    node_id: str,
    tenant_id: str,
    pool_id: str,
    site_id: str,
    by: str,
    entropy: Callable[[int], bytes],
    now: Micros,
) -> Bearer:
    """A token that admits this node alone; those that were minted for it before are revoked."""
    withdraw_tokens(c, node_id, site_id, now)
    bearer = new_bearer("jt_" + crockford(entropy(SECRET_BYTES)), entropy(SECRET_BYTES))
    new = NewToken(
        token_id=bearer.token_id,
        tenant_id=tenant_id,
        pool_id=pool_id,
        secret_sha256=bearer.secret_sha256,
        max_uses=1,
        expires_at=Micros(now + LASTS_S * SECOND),
        expect=None,
        allow_reclaim=False,
        hosted=None,
        created_by=by,
        node_id=node_id,
    )
    join_tokens.add(c, new, now)
    outbox.add(c, [token_created(new, site_id, new_id("ev", now, entropy(ENTROPY_BYTES)))], now)
    return bearer
