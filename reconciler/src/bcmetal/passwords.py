"""Random passwords for BMCs: as long as they may be, from the system's randomness, by the rules of whoever keeps them.

What every maker known to us takes is the default: 20 bytes (IPMI's limit, 16 where that is kept), letters of both cases, digits and a few
signs; a letter first; no character twice in a row, no run such as `abc` or `321`, and no part of the user name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

from pydantic import SecretStr

Entropy = Callable[[int], bytes]

LONGEST: Final = 20  # IPMI 2.0, 22.30; Redfish BMCs keep one password for both
SHORT: Final = 16  # IPMI 1.5, and firmware that says 20 and keeps 16
SHORTEST: Final = 12  # 70 bits; a BMC that takes less gets none of ours
SIGNS: Final = "!#%+-_="  # those that no maker known to us refuses
TRIES: Final = 10_000


class NoSuchPassword(ValueError):
    """No password obeys these rules."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`longest` and `shortest` in characters, which are bytes here. `signs` "": letters and digits alone."""

    longest: int = LONGEST
    shortest: int = 0
    signs: str = SIGNS
    forbidden: str = ""

    def length(self) -> int:
        """As long as may be, at most what IPMI carries, unless the BMC wants more. Raises NoSuchPassword."""
        most = max(min(self.longest, LONGEST), self.shortest)
        if most > self.longest or most < SHORTEST:
            raise NoSuchPassword(f"a password of {self.shortest} to {self.longest} characters is not one of ours")
        return most

    def classes(self) -> tuple[str, ...]:
        wanted = (ascii_lowercase, ascii_uppercase, digits, self.signs)
        kept = ("".join(c for c in one if c not in self.forbidden) for one in wanted)
        return tuple(one for one in kept if one)


def ladder(rules: Rules) -> tuple[Rules, ...]:
    """What is tried where a BMC refuses without saying what it wants: shorter, other signs, none."""
    short = replace(rules, longest=min(rules.longest, SHORT))
    rungs = (rules, short, replace(short, signs="_-"), replace(short, signs=""))
    return tuple(dict.fromkeys(rungs))


def make_password(rules: Rules, username: str, entropy: Entropy) -> SecretStr:
    """Raises NoSuchPassword."""
    length, classes = rules.length(), rules.classes()
    alphabet = "".join(classes)
    if len(alphabet) < 36:
        raise NoSuchPassword("too few characters are allowed")
    for _ in range(TRIES):
        text = "".join(_pick(alphabet, entropy) for _ in range(length))
        if _fine(text, classes, username):
            return SecretStr(text)
    raise NoSuchPassword("no password obeys all of the rules")


def _pick(alphabet: str, entropy: Entropy) -> str:
    """Each character as likely as any other: bytes that would favour the first are thrown away."""
    fair = 256 - 256 % len(alphabet)
    while True:
        [byte] = entropy(1)
        if byte < fair:
            return alphabet[byte % len(alphabet)]


def _fine(text: str, classes: tuple[str, ...], username: str) -> bool:
    if not text[0].isalpha() or not all(any(c in text for c in one) for one in classes):
        return False
    for a, b in pairwise(text):
        if a == b:
            return False
    for a, b, c in zip(text, text[1:], text[2:], strict=False):
        if ord(b) - ord(a) == ord(c) - ord(b) and abs(ord(b) - ord(a)) == 1:
            return False
    name, low = username.casefold(), text.casefold()
    parts = {name[n : n + 3] for n in range(len(name) - 2)} if len(name) >= 3 else set()
    return not any(part in low or part[::-1] in low for part in parts)
