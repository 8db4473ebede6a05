"""Signs the erasure records that a step noted, before they are written: outside of the transaction, which only stores the bytes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from bcmetal.decisions import Micros
from bcmetal.errors import VaultError
from bcmetal.proof import keys
from bcmetal.proof.document import canonical, document
from bcmetal.store.values import AddErasureRecord, Fact, NodeRow, OperationRow, SignedText, Store
from bcmetal.vault import Vault

log = logging.getLogger(__name__)


async def signed(
    store: Store, vault: Vault, facts: Sequence[Fact], node: NodeRow, operation: OperationRow, now: Micros
) -> list[Fact]:
    """The same facts, each erasure record of them signed.

    Where the key does not open they stay unsigned, and the log says so: what was done to a drive is true, and must be kept, either way.
    """
    if not any(isinstance(fact, AddErasureRecord) for fact in facts):
        return list(facts)
    try:
        key = await keys.current(store, vault, now)
    except VaultError as error:
        log.error("node %s: its erasure records are not signed: %s", node.name, error)
        return list(facts)
    return [_signed(fact, node, operation, key, now) if isinstance(fact, AddErasureRecord) else fact for fact in facts]


def _signed(
    fact: AddErasureRecord, node: NodeRow, operation: OperationRow, key: keys.SigningKey, now: Micros
) -> AddErasureRecord:
    doc = document(fact, node, operation, key.key_id, now)
    text = canonical(doc)
    return replace(fact, doc=doc, signed=SignedText(text, key.sign(text.encode("ascii"))))
