"""Issuers and roots in the store: one current issuer of a kind, and nothing is lost or trusted by accident."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy import insert as sql_insert

from bcmetal.decisions import Micros
from bcmetal.store import issuers, sealed
from bcmetal.store.issuers import CURRENT, NEXT, PREVIOUS, RETIRED, IssuerRow
from bcmetal.store.join_tables import certificates
from bcmetal.store.values import Sealed
from store.samples import NOW, Db, later

KIND = "node"


def an_issuer(state: str = CURRENT, *, kind: str = KIND, root: str = "r1", created_at: Micros = NOW) -> IssuerRow:
    return IssuerRow(os.urandom(32).hex(), kind, state, "PEM", "PEM", root, NOW, later(3600), "sealed", created_at, "x")


def a_sealed_key(row: IssuerRow) -> Sealed:
    return Sealed(issuers.OWNER, row.issuer_id, "key", "current", "k", b"n" * 12, b"blob")


def a_certificate(c: Connection, /, issuer_id: str, **columns: Any) -> None:
    values: dict[str, Any] = {
        "serial": os.urandom(16).hex(),
        "node_id": "nd_1",
        "pool_id": "p",
        "issuer_id": issuer_id,
        "kind": KIND,
        "csr_sha256": "c",
        "key_sha256": "k",
        "claim_sha256": "",
        "chain": "PEM",
        "not_before_at": NOW,
        "not_after_at": later(86400),
        "renew_after_at": later(43200),
        "issued_at": NOW,
    }
    c.execute(sql_insert(certificates).values(**{**values, **columns}))


def states(db: Db) -> dict[str, str]:
    return {row.issuer_id: row.state for row in db.read(issuers.list)}


def test_an_issuer_is_found_again_as_it_was_added(db: Db) -> None:
    row = an_issuer()
    assert db.write(issuers.add, row)
    assert db.read(issuers.list) == (row,)
    assert db.read(issuers.get, row.issuer_id) == row
    assert db.read(issuers.current, KIND) == row
    assert db.read(issuers.current, "server") is None
    assert db.read(issuers.get, "none") is None


def test_a_second_current_issuer_of_a_kind_is_not_written(db: Db) -> None:
    first = an_issuer()
    assert db.write(issuers.add, first)
    assert not db.write(issuers.add, an_issuer())
    assert not db.write(issuers.add, first)
    assert db.read(issuers.list) == (first,)
    assert db.write(issuers.add, an_issuer(kind="server"))
    assert db.write(issuers.add, an_issuer(NEXT))


def test_a_superseded_issuer_signs_no_more_and_its_key_is_forgotten(db: Db) -> None:
    old, other, new = an_issuer(), an_issuer(kind="server"), an_issuer(NEXT)
    for row in (old, other, new):
        db.write(issuers.add, row)
        db.write(sealed.put, [a_sealed_key(row)])
    db.write(issuers.supersede, KIND)
    assert db.write(issuers.promote, new.issuer_id)
    assert states(db) == {old.issuer_id: PREVIOUS, other.issuer_id: CURRENT, new.issuer_id: CURRENT}
    assert {row.owner_id for row in db.read(sealed.every)} == {other.issuer_id, new.issuer_id}
    before = db.read(issuers.get, old.issuer_id)
    assert before is not None
    assert before.key_ref is None
    assert not db.write(issuers.promote, old.issuer_id)


def test_only_what_does_not_sign_is_retired(db: Db) -> None:
    old, new, next_ = an_issuer(), an_issuer(), an_issuer(NEXT)
    db.write(issuers.add, old)
    assert not db.write(issuers.retire, old.issuer_id)
    db.write(issuers.supersede, KIND)
    db.write(issuers.add, new)
    db.write(issuers.add, next_)
    db.write(sealed.put, [a_sealed_key(next_)])
    assert db.write(issuers.retire, old.issuer_id)
    assert db.write(issuers.retire, next_.issuer_id)
    assert not db.write(issuers.retire, old.issuer_id)
    assert states(db) == {old.issuer_id: RETIRED, new.issuer_id: CURRENT, next_.issuer_id: RETIRED}
    assert db.read(sealed.every) == ()


def test_the_newest_root_comes_first_and_a_removed_one_not_at_all(db: Db) -> None:
    db.write(issuers.add_root, "a", "PEM a", NOW)
    db.write(issuers.add_root, "b", "PEM b", later(1))
    db.write(issuers.add_root, "a", "PEM a", later(2))
    assert [row.sha256 for row in db.read(issuers.roots)] == ["b", "a"]
    assert db.write(issuers.remove_root, "a", later(3))
    assert not db.write(issuers.remove_root, "a", later(4))
    assert [row.sha256 for row in db.read(issuers.roots)] == ["b"]
    assert [(row.sha256, row.removed_at) for row in db.read(issuers.every_root)] == [("b", None), ("a", later(3))]
    db.write(issuers.add_root, "a", "PEM a", later(5))
    assert [row.sha256 for row in db.read(issuers.roots)] == ["b", "a"]


def test_the_rows_of_the_authority_hold_no_other_secret(db: Db) -> None:
    row, by_file = an_issuer(), replace(an_issuer(kind="server"), key_ref="file:ca.key")
    db.write(issuers.add, row)
    db.write(issuers.add, by_file)
    db.write(issuers.add_root, "r1", "PEM", NOW)
    stranger = Sealed("bmc", row.issuer_id, "password", "current", "k", b"n" * 12, b"blob")
    db.write(sealed.put, [a_sealed_key(row), stranger])
    found = db.read(issuers.rows)
    assert {one.issuer_id for one in found.issuers} == {row.issuer_id, by_file.issuer_id}
    assert found.keys == (a_sealed_key(row),)
    assert [root.sha256 for root in found.roots] == ["r1"]


@pytest.mark.parametrize(
    ("columns", "live"),
    [({}, 1), ({"revoked_at": NOW}, 0), ({"not_after_at": later(10)}, 0), ({"issuer_id": "another"}, 0)],
    ids=["good", "revoked", "ended", "anothers"],
)
def test_certificates_that_are_still_good_are_counted(db: Db, columns: dict[str, Any], live: int) -> None:
    db.write(a_certificate, **{"issuer_id": "i1", **columns})
    assert db.read(issuers.live_leaves, "i1", later(10)) == live


def test_a_node_that_has_not_renewed_since_is_left_behind(db: Db) -> None:
    since = later(1000)
    long_ago = later(-40 * 86400)
    db.write(a_certificate, "i", node_id="nd_stale")
    db.write(a_certificate, "i", node_id="nd_renewed")
    db.write(a_certificate, "i", node_id="nd_renewed", issued_at=later(1000))
    db.write(a_certificate, "i", node_id="nd_revoked", revoked_at=NOW)
    db.write(a_certificate, "i", node_id="nd_gone", issued_at=long_ago, not_after_at=long_ago)
    db.write(a_certificate, "i", node_id="nd_in_grace", issued_at=later(-5 * 86400), not_after_at=later(-4 * 86400))
    assert db.read(issuers.left_behind, since, later(-30 * 86400)) == ("nd_in_grace", "nd_stale")
