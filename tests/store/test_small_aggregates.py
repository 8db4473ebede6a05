"""Keys, audit, freezes, leases, rack slots, media, logins."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from bcmetal.decisions import Micros
from bcmetal.store import audit, freezes, keys, leases, logins, media, rack_slots, sealed
from bcmetal.store.ids import new_id
from bcmetal.store.values import MoveSealed, Sealed
from store.samples import NOW, Db, an_audit, later


def test_a_key_is_found_by_its_digest_and_revoked_at_once(db: Db) -> None:
    digest = hashlib.sha256(b"anything").digest()
    db.write(keys.insert, "ky_1", digest, "key:anna", "tenant-a", NOW, later(60))
    db.write(keys.insert, "ky_2", hashlib.sha256(b"other").digest(), "key:bert", "tenant-a", NOW)
    found = db.read(keys.find_by_sha256, digest)
    assert found is not None
    assert (found.identity, found.tenant_id, found.last_used_at) == ("key:anna", "tenant-a", None)
    assert found.is_live(later(59))
    assert not found.is_live(later(60))
    db.write(keys.touch_used, "ky_1", later(1))
    db.write(keys.touch_used, "ky_1", later(2))  # so soon again is not worth a write
    assert [row.last_used_at for row in db.read(keys.list)] == [later(1), None]
    db.write(keys.touch_used, "ky_1", later(62))
    assert db.read(keys.list)[0].last_used_at == later(62)
    assert db.write(keys.revoke, "key:anna", later(3)) == 1
    assert db.write(keys.revoke, "ky_1", later(4)) == 0
    found = db.read(keys.find_by_sha256, digest)
    assert found is not None
    assert found.revoked_at == later(3)
    assert not found.is_live(later(3))
    assert db.read(keys.find_by_sha256, b"none") is None


def test_the_audit_goes_page_by_page_newest_first(db: Db) -> None:
    for number in range(5):
        db.write(audit.add, an_audit("nd_1", audit_id=f"au_{number}", doc={"n": number}), later(number // 2))
    db.write(audit.add, an_audit(None, tenant_id="tenant-b", identity="key:bert"), NOW)
    first, cursor = db.read(audit.list_page, ["tenant-a"], 2)
    second, more = db.read(audit.list_page, ["tenant-a"], 2, cursor)
    third, end = db.read(audit.list_page, ["tenant-a"], 2, more)
    assert [row.doc["n"] for row in (*first, *second, *third)] == [4, 3, 2, 1, 0]
    assert end is None
    assert len(db.read(audit.list_page, None, 50)[0]) == 6
    assert len(db.read(audit.list_page, None, 50, node_id="nd_1")[0]) == 5
    assert len(db.read(audit.list_page, None, 50, identity="key:bert")[0]) == 1
    assert len(db.read(audit.list_page, None, 50, since=later(1), until=later(2))[0]) == 2
    assert db.read(audit.list_page, ["tenant-a"], 2, "nonsense") == ([], None)


def test_a_freeze_covers_its_site_pool_or_rack(db: Db) -> None:
    assert db.read(freezes.covering, "fra1", "gpu", "r1") is None
    db.write(freezes.set, "rack", freezes.rack_scope("fra1", "r1"), "rack", "key:anna", NOW)
    assert db.read(freezes.covering, "fra1", "gpu", "r1") == "rack"
    assert db.read(freezes.covering, "fra2", "gpu", "r1") is None
    assert db.read(freezes.covering, "fra1", "gpu", None) is None
    db.write(freezes.set, "pool", "gpu", "pool", "key:anna", later(1))
    assert db.read(freezes.covering, "fra1", "gpu", None) == "pool"
    db.write(freezes.set, "site", "fra1", "site", "key:anna", later(2))
    assert db.read(freezes.covering, "fra1", "cpu", None) == "site"
    db.write(freezes.set, "site", "fra1", "again", "key:bert", later(3))
    assert [(row.scope_kind, row.reason) for row in db.read(freezes.list)] == [
        ("pool", "pool"),
        ("rack", "rack"),
        ("site", "again"),
    ]
    assert db.write(freezes.lift, "site", "fra1")
    assert not db.write(freezes.lift, "site", "fra1")


def test_a_lease_is_one_daemons_until_it_lapses(db: Db) -> None:
    assert db.write(leases.take, "outbox", "daemon-1", 60)
    assert not db.write(leases.take, "outbox", "daemon-2", 60)
    assert db.write(leases.take, "outbox", "daemon-1", -1)
    assert db.write(leases.take, "outbox", "daemon-2", 60)
    assert not db.write(leases.take, "outbox", "daemon-1", 60)
    assert db.write(leases.take, "expiry", "daemon-1", 60)


def test_of_many_that_want_a_lease_one_gets_it(db: Db) -> None:
    async def race() -> list[bool]:
        return list(await asyncio.gather(*(db.store.write(leases.take, "sweep", f"daemon-{n}", 60) for n in range(20))))

    assert db.run(race()).count(True) == 1


def test_four_machines_of_a_rack_are_powered_on_in_any_ten_seconds(db: Db) -> None:
    taken: list[Micros] = []
    now = NOW
    while len(taken) < 12:
        at = db.write(rack_slots.take, "fra1", "r1", now)
        if at == now:
            taken.append(now)
            now = Micros(now + 1_000_000)
        else:
            assert at > now
            now = at
    for first, fifth in zip(taken, taken[4:], strict=False):
        assert fifth - first >= 10_000_000
    assert taken[-1] - NOW <= 25_000_000
    assert db.write(rack_slots.take, "fra1", "r2", NOW) == NOW


def test_of_many_that_want_a_place_in_the_rack_four_get_it(db: Db) -> None:
    async def race() -> list[Micros]:
        return list(await asyncio.gather(*(db.store.write(rack_slots.take, "fra1", "r1", NOW) for _ in range(20))))

    found = db.run(race())
    assert found.count(NOW) == 4
    assert all(at >= later(10) for at in found if at != NOW)


def test_a_medium_is_there_until_it_ends_or_expires(db: Db) -> None:
    db.write(media.add, "/m/a.iso", "nd_1", "op_1", "ab", "ab.iso", "192.0.2.7", None, NOW)
    db.write(media.add, "/m/b.iso", "nd_1", "op_2", "cd", "cd.iso", "192.0.2.7", later(60), NOW)
    found = db.read(media.by_path, "/m/a.iso", NOW)
    assert found is not None
    assert (found.node_id, found.sha256, found.file, found.bmc_host) == ("nd_1", "ab", "ab.iso", "192.0.2.7")
    assert db.read(media.served_count, "/m/a.iso") == 0
    db.write(media.served, "/m/a.iso", later(1))
    db.write(media.served, "/m/a.iso", later(2))
    assert db.read(media.served_count, "/m/a.iso") == 2
    assert db.read(media.files, NOW) == ("ab.iso", "cd.iso")
    assert db.read(media.by_path, "/m/b.iso", later(60)) is None
    assert db.write(media.expire, later(60)) == 1
    db.write(media.end, "op_1", later(61))
    assert db.read(media.by_path, "/m/a.iso", later(61)) is None
    assert db.read(media.served_count, "/m/a.iso") == 2
    assert db.read(media.served_count, "/m/none.iso") == 0
    assert db.write(media.expire, later(62)) == 0
    assert db.write(media.expire, later(61 + 3600)) == 1
    db.write(media.add, "/m/c.iso", "nd_2", "op_3", "ef", "ef.iso", "192.0.2.8", None, NOW)
    db.write(media.end_of_node, "nd_2", NOW)
    assert db.read(media.by_path, "/m/c.iso", NOW) is None


def test_refused_logins_are_counted_for_the_account_and_for_each_password(db: Db) -> None:
    db.write(logins.note_rejected, "bm_1", "a1", "p1", NOW, "engine")
    db.write(logins.note_rejected, "bm_1", "a1", "p1", later(60), "sweep")
    db.write(logins.note, "bm_1", "p1", "accepted", later(61), "engine")
    db.write(logins.note_rejected, "bm_1", "a1", "p2", later(62), "engine")
    db.write(logins.note_rejected, "bm_2", "a1", "p1", later(62), "engine")
    db.write(logins.note, "bm_1", "a1", "locked", later(600), "engine")
    first = db.read(logins.tries, "bm_1", "a1", "p1", NOW)
    assert (first.rejected_at, first.password_rejected, first.good) == ((NOW, later(60), later(62)), 2, True)
    second = db.read(logins.tries, "bm_1", "a1", "p2", later(1))
    assert (len(second.rejected_at), second.password_rejected, second.good) == (2, 1, False)
    assert (second.locks, second.locked_until) == (1, later(600))
    assert db.read(logins.tries, "bm_1", "a2", "p3", NOW) == logins.Tries()


def test_a_rotation_is_seen_until_it_is_over(db: Db) -> None:
    assert not db.read(logins.rotated_since, "bm_1", NOW)
    db.write(sealed.put, [Sealed("bmc", "bm_1", "password", "rotating", "k", b"n" * 12, b"blob")])
    assert db.read(logins.tries, "bm_1", "a1", "p1", NOW).rotating
    db.write(sealed.move, MoveSealed("bm_1", accept=True, slot="rotating"))
    assert [row.slot for row in db.read(sealed.get, "bmc", "bm_1")] == ["current"]
    after = db.read(logins.tries, "bm_1", "a1", "p1", NOW)
    assert (after.rotating, after.current) == (False, b"blob")
    db.write(logins.note, "bm_1", "op_1", "rotated", later(1), "engine")
    assert db.read(logins.rotated_since, "bm_1", NOW)
    assert not db.read(logins.rotated_since, "bm_1", later(2))


def test_old_logins_are_forgotten(db: Db) -> None:
    db.write(logins.note, "bm_1", "a1", "rejected", NOW, "engine")
    db.write(logins.note, "bm_1", "a1", "rejected", later(60), "engine")
    db.write(logins.note, "bm_1", "a1", "rejected", later(61), "engine")
    assert db.write(logins.prune, later(61)) == 2


def test_ids_are_prefixed_sort_by_time_and_are_made_of_what_comes_in() -> None:
    one = new_id("nd", NOW, bytes(10))
    assert one == new_id("nd", NOW, bytes(10))
    assert len(one) == 29
    assert one < new_id("nd", Micros(NOW + 1000), bytes(10))
    assert one < new_id("nd", NOW, b"\xff" * 10) < new_id("nd", Micros(NOW + 1000), bytes(10))
    assert not set(one.removeprefix("nd_")) - set("0123456789abcdefghjkmnpqrstvwxyz")
    with pytest.raises(ValueError, match="prefix"):
        new_id("xx", NOW, bytes(10))
    with pytest.raises(ValueError, match="ten bytes"):
        new_id("nd", NOW, bytes(9))
