"""A tree of documents: collections in pages, and writes guarded by whatever ETags the BMC has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import Busy, Malformed
from bcmetal_drivers.redfish_tree import Tree
from raw_bmc import DOCS, LIMITS, SYSTEM, Asked, RawBmc, a_credential, a_raw_bmc, answer, documents, error

PLACE = "/redfish/v1/Systems"
MEMBERS = [{"@odata.id": f"{PLACE}/{n}"} for n in range(4)]


@contextmanager
def a_tree(bmc: RawBmc, learned: dict[str, Any] | None = None) -> Iterator[Tree]:
    address = BmcAddress("redfish+http", "127.0.0.1", bmc.port)
    door = Door(address, a_credential(), Trust(TrustKind.NONE), LIMITS)
    try:
        with door.call():
            yield Tree(door, address, {} if learned is None else learned)
    finally:
        door.close()


def pages(*docs: dict[str, Any]) -> Callable[[Asked], Iterable[bytes]]:
    """The collection's pages: the first at its own place, then `?page=1` and so on."""
    named = {PLACE if n == 0 else f"{PLACE}?page={n}": doc for n, doc in enumerate(docs)}
    return documents({**DOCS, **named})


def test_a_collection_is_read_over_all_its_pages() -> None:
    first = {"Members": MEMBERS[:3], "Members@odata.count": 4, "Members@odata.nextLink": f"{PLACE}?page=1"}
    with a_raw_bmc(pages(first, {"Members": MEMBERS[3:]})) as bmc, a_tree(bmc) as tree:
        assert tree.members(PLACE) == tuple(member["@odata.id"] for member in MEMBERS)


@pytest.mark.parametrize(
    "first",
    [
        {"Members": MEMBERS, "Members@odata.nextLink": PLACE},
        {"Members": MEMBERS, "Members@odata.nextLink": "http://elsewhere/redfish/v1/Systems?page=1"},
        {"Members": MEMBERS, "Members@odata.nextLink": "//elsewhere/redfish/v1/Systems"},
        {"Members": MEMBERS[:2], "Members@odata.count": 4},
    ],
    ids=["circle", "another-origin", "another-host", "fewer-than-counted"],
)
def test_a_collection_that_cannot_be_whole_is_malformed(first: dict[str, Any]) -> None:
    with a_raw_bmc(pages(first)) as bmc, a_tree(bmc) as tree:
        with pytest.raises(Malformed):
            tree.members(PLACE)
        assert not bmc.seen("GET", "page=")


# ---------------------------------------------------------------- ETags


class Tagged:
    """A system with an asset tag, whose PATCH is taken when `takes` says so of its If-Match; else it is answered with `otherwise`."""

    def __init__(self, tag: str | None, takes: Callable[[str | None], bool], otherwise: bytes) -> None:
        self.tag, self.takes, self.otherwise = tag, takes, otherwise
        self.asset = "old"

    def __call__(self, asked: Asked) -> Iterable[bytes]:
        if asked.method == "PATCH":
            if not self.takes(asked.headers.get("if-match")):
                return [self.otherwise]
            self.asset = json.loads(asked.body)["AssetTag"]
            return [answer(None, 204)]
        if asked.path == SYSTEM:
            return [answer({"AssetTag": self.asset}, 200, **({"ETag": self.tag} if self.tag is not None else {}))]
        return documents(DOCS)(asked)


STALE, REQUIRED = error("Base.1.0.PreconditionFailed", status=412), error("Base.1.0.PreconditionRequired", status=428)
DROPPED = answer(None, 204)


@pytest.mark.parametrize(
    ("tag", "takes", "otherwise", "learned"),
    [
        ('"1"', lambda match: match == '"1"', REQUIRED, None),
        ('W/"1"', lambda match: match == 'W/"1"', REQUIRED, None),
        ('W/"1"', lambda match: match == '"1"', STALE, "strong"),
        ('"1-gzip"', lambda match: match == "*", STALE, "any"),
        (None, lambda match: match == "*", REQUIRED, "any"),
        ("", lambda match: match == "*", REQUIRED, "any"),
        ('"1"', lambda match: match is None, STALE, "none"),
        (None, lambda match: match == "*", DROPPED, "any"),
        (None, lambda match: match is None, STALE, None),
    ],
    ids=["strong", "weak", "strong-of-weak", "any", "any-without", "any-of-empty", "none-at-all", "dropped-with-a-2xx", "unguarded"],
)  # fmt: skip
def test_a_write_is_guarded_as_the_bmc_wants_it_and_the_next_one_at_once(
    tag: str | None, takes: Callable[[str | None], bool], otherwise: bytes, learned: str | None
) -> None:
    script = Tagged(tag, takes, otherwise)
    with a_raw_bmc(script) as bmc:
        with a_tree(bmc) as tree:
            tree.patch(SYSTEM, {"AssetTag": "new"})
            assert script.asset == "new"
            found = tree.lasting()
            assert found.get("etag") == learned
        before = len(bmc.seen("PATCH"))
        with a_tree(bmc, dict(found)) as tree:
            tree.patch(SYSTEM, {"AssetTag": "newer"})
        assert script.asset == "newer"
        assert len(bmc.seen("PATCH")) == before + 1


def test_what_was_learned_of_etags_and_is_true_no_more_is_learned_anew() -> None:
    script = Tagged('"1"', lambda match: match == '"1"', STALE)
    with a_raw_bmc(script) as bmc, a_tree(bmc, {"etag": "any"}) as tree:
        tree.patch(SYSTEM, {"AssetTag": "new"})
        assert script.asset == "new"
        assert tree.lasting()["etag"] is None


def test_a_password_that_no_resource_shows_is_not_written_twice() -> None:
    script = Tagged(None, lambda match: False, DROPPED)
    with a_raw_bmc(script) as bmc, a_tree(bmc) as tree:
        tree.patch(SYSTEM, {"Password": "not shown"})
        assert len(bmc.seen("PATCH")) == 1


def test_another_writer_in_between_is_left_alone() -> None:
    script = Tagged('"1"', lambda match: False, STALE)

    def meddled(asked: Asked) -> Iterable[bytes]:
        if asked.method == "PATCH":
            script.asset = "somebody's"
        return script(asked)

    with a_raw_bmc(meddled) as bmc, a_tree(bmc) as tree:
        with pytest.raises(Busy, match="another writer"):
            tree.patch(SYSTEM, {"AssetTag": "new"})
        assert len(bmc.seen("PATCH")) == 1
