"""What a signed erasure record says, and its one spelling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bcmetal.decisions import Micros
from bcmetal.store.identifiers import serial_of
from bcmetal.store.values import AddErasureRecord, NodeRow, OperationRow
from bcmetal.store.views import stamp

FORMAT: Final = "bcmetal-erasure-record/1"
TIMES: Final = ("startedAt", "endedAt", "verifiedAt")
# What a reader looks for: where a record has nothing of it to say, it says null.
EXPECTED: Final = (
    *("serial", "model", "method", "standard", "startedAt", "endedAt", "verifier", "result", "samplesSha256"),
    "notCovered",
)


def document(
    fact: AddErasureRecord, node: NodeRow, operation: OperationRow, key_id: str, now: Micros
) -> dict[str, Any]:
    """All that the record says, in values of JSON. Times: RFC 3339, UTC."""
    said = {name: fact.doc.get(name) for name in EXPECTED}
    times = {name: stamp(fact.doc[name]) for name in TIMES if isinstance(fact.doc.get(name), int)}
    back = fact.doc.get("readBack")
    samples = back.get("samples") if isinstance(back, Mapping) else None
    if samples:
        said["samplesSha256"] = samples_digest(samples)
    return {
        **said,
        **fact.doc,
        **times,
        "format": FORMAT,
        "keyId": key_id,
        "recordId": fact.record_id,
        "at": stamp(now),
        "nodeId": node.node_id,
        "nodeName": node.name,
        "machineSerial": serial_of(node.identifiers),
        "tenantId": node.tenant_id,
        "poolId": node.pool_id,
        "siteId": node.site_id,
        "operationId": operation.operation_id,
    }


def canonical(doc: Mapping[str, Any]) -> str:
    """ASCII, sorted, without spaces: the same text whatever it passes through. Raises ValueError for what JSON has no word for."""
    return json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def samples_digest(samples: Sequence[str]) -> str:
    """`samplesSha256`: of what the drive gave back at each sector, as the agent tells it (a SHA-256, or `zero`), a line for each."""
    return hashlib.sha256("".join(f"{sample}\n" for sample in samples).encode()).hexdigest()
