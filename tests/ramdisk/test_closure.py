from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from bcmetal.ramdisk.closure import NotFound, Package, closure, stanzas

DIGEST = "ab" * 32


def a_stanza(name: str, depends: str = "", *, pre: str = "", version: str = "1-1", more: str = "") -> str:
    lines = [f"Package: {name}", f"Version: {version}", "Architecture: amd64"]
    lines += [f"Depends: {depends}"] if depends else []
    lines += [f"Pre-Depends: {pre}"] if pre else []
    lines += [f"Filename: pool/{name}.deb", "Size: 12", f"SHA256: {DIGEST}"]
    return "\n".join([*lines, more]).strip() + "\n"


class Archive:
    """Packages by what they need, and who provides what."""

    def __init__(self, needs: Mapping[str, str], provides: Mapping[str, Sequence[str]] | None = None) -> None:
        text = "\n".join(a_stanza(name, depends) for name, depends in needs.items())
        self.packages = {p.name: p for p in stanzas(text)}
        self.provides = provides or {}

    def show(self, names: Collection[str]) -> dict[str, Package]:
        return {name: self.packages[name] for name in names if name in self.packages}

    def providers(self, names: Collection[str]) -> dict[str, Sequence[str]]:
        return {name: self.provides[name] for name in names if name in self.provides}

    def closure(self, *wanted: str, left_out: Collection[str] = ()) -> list[str]:
        return [p.name for p in closure(wanted, self.show, self.providers, left_out)]


def test_what_is_needed_comes_with_what_needs_it() -> None:
    archive = Archive({"a": "b (>= 1), c:any", "b": "d", "c": "", "d": "a", "other": ""})
    assert archive.closure("a") == ["a", "b", "c", "d"]


def test_the_first_alternative_that_there_is_is_taken() -> None:
    assert Archive({"a": "gone | b | c", "b": "", "c": ""}).closure("a") == ["a", "b"]


def test_an_alternative_that_is_there_already_is_enough() -> None:
    assert Archive({"a": "b | c", "b": "", "c": ""}).closure("a", "c") == ["a", "c"]


def test_a_virtual_package_is_what_provides_it() -> None:
    archive = Archive({"a": "api (>= 3)", "real": ""}, {"api": ["real"]})
    assert archive.closure("a") == ["a", "real"]


def test_a_package_left_out_is_neither_taken_nor_missed() -> None:
    archive = Archive({"a": "dpkg, debconf | debconf-2.0, b", "b": "gone", "dpkg": "tar"})
    assert archive.closure("a", left_out={"dpkg", "debconf", "gone"}) == ["a", "b"]


def test_a_provider_that_is_left_out_counts_as_there() -> None:
    archive = Archive({"a": "mta", "postfix": ""}, {"mta": ["postfix"]})
    assert archive.closure("a", left_out={"postfix"}) == ["a"]


def test_a_package_that_is_not_offered_is_named_with_who_needs_it() -> None:
    with pytest.raises(NotFound, match=r"c \(for b\)") as missing:
        Archive({"a": "b", "b": "c"}).closure("a")
    assert missing.value.names == {"c": "b"}
    with pytest.raises(NotFound, match=r"^firmware-x$"):
        Archive({}).closure("firmware-x")


def test_a_stanza_says_name_version_digest_and_needs() -> None:
    text = a_stanza("a", "b (>= 1) | c, d:any", pre="libc6", more="Description: text\n with a line\n more: of it")
    (package,) = stanzas(f"\n\n{text}\n\nPackage: broken\n\n")
    assert package == Package("a", "1-1", "amd64", DIGEST, 12, (("libc6",), ("b", "c"), ("d",)), "a")
