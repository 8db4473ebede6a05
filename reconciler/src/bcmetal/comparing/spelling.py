"""Whether two texts of a machine mean the same thing, whoever wrote them down."""

from __future__ import annotations

import re

from bcmetal.placeholders import normal_mac, usable_mac

_BARE_MAC = re.compile(r"[0-9a-f]{12}")
_MAKERS = {
    "intel": ("intel", "genuineintel"),
    "amd": ("amd", "advanced micro devices", "authenticamd"),
    "samsung": ("samsung",),
    "hynix": ("hynix", "sk hynix", "hyundai"),
    "micron": ("micron",),
    "hpe": ("hpe", "hewlett packard enterprise", "hp", "hewlett-packard"),
}
_SMALL_WORDS = frozenset({"cpu", "processor", "r", "tm", "inc", "corporation", "corp", "co", "ltd", "core"})


def folded(text: object) -> str:
    """Case, blanks and underscores aside."""
    return re.sub(r"[\s_\0]+", "", str(text)).casefold() if text is not None else ""


def same_serial(one: object, other: object) -> bool:
    return folded(one) == folded(other) != ""


def wwn_digits(text: object) -> str:
    """`naa.5000…`, `0x5000…`, `50:00:…` and `50-00-…` are one name; "" where it is none."""
    bare = re.sub(r"^(naa\.|eui\.|uuid\.|nguid\.|wwn-|0x)+", "", str(text or "").strip().lower())
    bare = re.sub(r"[-:. ]", "", bare)
    return bare if re.fullmatch(r"[0-9a-f]{16,32}", bare) else ""


def same_wwn(one: object, other: object) -> bool:
    return wwn_digits(one) == wwn_digits(other) != ""


def mac(text: object) -> str | None:
    """Lower-case with colons; None for what cannot tell one card from another (locally administered ones included)."""
    given = str(text or "").strip().lower().replace(".", "").replace("-", ":")
    if _BARE_MAC.fullmatch(given):
        given = ":".join(given[n : n + 2] for n in range(0, 12, 2))
    found = normal_mac(given)
    return found if found is not None and usable_mac(found) else None


def model_words(text: object) -> frozenset[str]:
    """What is left of a model's name without marks, clock rates and the words that one maker writes and the other leaves out."""
    plain = re.sub(r"\((r|tm|c)\)|[®™]", " ", str(text or "").casefold())
    plain = re.sub(r"@\s*[\d.]+\s*ghz", " ", plain)
    plain = re.sub(r"\b\d+-core\b", " ", plain)
    return frozenset(re.findall(r"[a-z0-9]+", plain)) - _SMALL_WORDS


def same_model(one: object, other: object) -> bool:
    """One holds all the words of the other, or begins with it: SCSI's INQUIRY has room for 16 characters."""
    if one and one == other:  # also where nothing of it is a letter or a digit
        return True
    first, second = model_words(one), model_words(other)
    short, long = sorted((folded(one), folded(other)), key=len)
    if not first or not second:
        return short == long != ""
    return first <= second or second <= first or (len(short) >= 12 and short in long)


def same_maker(one: object, other: object) -> bool:
    def key(text: object) -> str:
        plain = " ".join(re.findall(r"[a-z0-9-]+", str(text or "").casefold()))
        for name, spelt in _MAKERS.items():
            if any(plain == word or plain.startswith(word + " ") for word in spelt):
                return name
        return plain.partition(" ")[0]

    return key(one) == key(other) != "" or folded(one) == folded(other) != ""
