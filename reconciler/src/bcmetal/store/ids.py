"""Ids: a prefix and 26 lower-case Crockford characters, 48 bits of milliseconds before 80 bits of entropy, so that they sort by time."""

from __future__ import annotations

from typing import Final

from bcmetal.decisions import Micros

PREFIXES: Final = frozenset({"nd", "op", "ev", "au", "iv", "er", "bm", "ky", "jr", "jc", "bt", "as", "at", "cs"})
ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
ENTROPY_BYTES: Final = 10


def new_id(prefix: str, now: Micros, entropy: bytes) -> str:
    """`entropy` is ten bytes of the system's randomness; the same input makes the same id."""
    if prefix not in PREFIXES or len(entropy) != ENTROPY_BYTES:
        raise ValueError("an id is made of a known prefix and ten bytes of entropy")
    number = (now // 1000 & (1 << 48) - 1) << 80 | int.from_bytes(entropy)
    return prefix + "_" + "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
