"""What speaks for and against letting a machine in, side by side: what it claims, and what BMCs reported of the nodes that have the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bcmetal.placeholders import normal_mac, normal_serial, normal_uuid

WORDS: Final = {"uuid": "product UUID", "serial": "serial", "mac": "MAC", "gpu": "GPU", "sku": "SKU", "ek": "TPM EK"}
ORDER: Final = tuple(WORDS)
HEAD: Final = ("identifier", "the machine claims", "usable", "also claimed by")

Identifier = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differing`: how many lines are marked."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    differing: int


def compare(evidence: Mapping[str, Any]) -> Comparison:
    """A line for each identifier; a column for each node that a BMC reported, whose differences end in `≠`."""
    claimed: Sequence[Identifier] = evidence.get("identifiers") or []
    nodes: Sequence[Mapping[str, Any]] = evidence.get("reported") or []
    names = {str(node.get("nodeId")): str(node.get("name")) for node in nodes}
    rows: list[tuple[str, ...]] = []
    differing = 0
    for kind in _kinds(claimed, nodes):
        of_kind = [one for one in claimed if one.get("kind") == kind]
        keys = {_normal(one): one for one in of_kind}
        reported = [{_normal(one): one for one in _of(node) if one.get("kind") == kind} for node in nodes]
        alone = kind not in ("mac", "gpu")  # a machine has one of it, so that two values stand in one line
        if alone and len(keys) == 1:
            ((key, one),) = keys.items()
            cells = [_single(key, found) for found in reported]
            rows.append(_row(kind, one, names, cells))
            differing += _marked(cells)
            continue
        for key, one in keys.items():
            cells = [_one_of(key, found) for found in reported]
            rows.append(_row(kind, one, names, cells))
            differing += _marked(cells)
        rest = dict.fromkeys(key for found in reported for key in found if key not in keys)
        for key in rest:
            shown = next(str(found[key].get("value")) for found in reported if key in found)
            cells = [f"{shown} ≠" if key in found else "" for found in reported]
            rows.append((WORDS.get(kind, kind), "not claimed", "", "", *cells))
            differing += 1
    heads = tuple(f"{node.get('name')} ({node.get('state')}): its BMC" for node in nodes)
    return Comparison((*HEAD, *heads), tuple(rows), differing)


def _kinds(claimed: Iterable[Identifier], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    found = dict.fromkeys(str(one.get("kind")) for one in claimed)
    found |= dict.fromkeys(str(one.get("kind")) for node in nodes for one in _of(node))
    return sorted(found, key=lambda kind: (ORDER.index(kind) if kind in ORDER else len(ORDER), kind))


def _of(node: Mapping[str, Any]) -> Sequence[Identifier]:
    return node.get("identifiers") or []


def _normal(one: Identifier) -> str:
    text, kind = str(one.get("value")), one.get("kind")
    if kind == "uuid":
        return normal_uuid(text) or text.casefold()
    if kind == "mac":
        return normal_mac(text) or text.casefold()
    return normal_serial(text)


def _row(kind: str, one: Identifier, names: Mapping[str, str], cells: Sequence[str]) -> tuple[str, ...]:
    holders = ", ".join(names.get(str(node), str(node)) for node in one.get("conflicts") or [])
    usable = "yes" if one.get("usable") else "NO: a placeholder"
    return (WORDS.get(kind, kind), str(one.get("value")), usable, holders, *cells)


def _single(key: str, found: Mapping[str, Identifier]) -> str:
    if key in found:
        return f"{found[key].get('value')} ="
    return " ".join(str(one.get("value")) for one in found.values()) + " ≠" if found else "not reported"


def _one_of(key: str, found: Mapping[str, Identifier]) -> str:
    if key in found:
        return f"{found[key].get('value')} ="
    return "not among them ≠" if found else "not reported"


def _marked(cells: Sequence[str]) -> int:
    return int(any(cell.endswith("≠") for cell in cells))


def tpm_pairs(evidence: Mapping[str, Any]) -> list[tuple[str, object]]:
    proven = evidence.get("tpm")
    if not proven:
        return [("TPM", "none shown")]
    return [
        ("TPM's EK", f"sha256:{proven.get('ekSha256')}"),
        ("signed by", proven.get("vendor") or "no TPM maker that is known here"),
        ("allowed", "yes: it is in the pool's ek_allow" if proven.get("allowed") else "NO: not in the pool's ek_allow"),
    ]
