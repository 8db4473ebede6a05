"""Join tokens abused: stolen, guessed, raced for, revoked in the midst of it, asked for across tenants, and flooded with."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import Any

import pytest
from sqlalchemy import Connection

from bcmetal.api.auth import FAILURES
from bcmetal.decisions import SECOND, Micros
from bcmetal.join import bearers
from bcmetal.join.admission import LIVE_OF_POOL, LIVE_OF_TOKEN
from bcmetal.join.bearers import NO_SECRET, Bearer, new_bearer, parse_bearer
from bcmetal.join.leaving import expire_overdue
from bcmetal.store import join_requests, join_tokens
from bcmetal.store.join_requests import NewRequest
from join.minted import minted_for
from join.site import OWNER, POOL, Box, JoinSite, a_box

ONE_401 = "The join token is not valid."
ONE_403 = "The join is refused."
NOBODYS = "03000200-0400-0500-0006-000700080009"


def a_blank(n: int) -> Box:
    return Box(NOBODYS, None, (f"3c:ec:ef:77:{n >> 8:02x}:{n & 255:02x}",))


def parsed(bearer: str) -> Bearer:
    found = parse_bearer(bearer)
    assert found is not None
    return found


def wrong(bearer: str) -> str:
    """The same id with another secret."""
    return new_bearer(parsed(bearer).token_id, secrets.token_bytes(32)).text()


def the_token(site: JoinSite, bearer: str) -> join_tokens.TokenRow:
    row = site.read(join_tokens.get, parsed(bearer).token_id)
    assert row is not None
    return row


# ---------------------------------------------------------------- one answer for all that is wrong


def test_whatever_is_wrong_with_a_bearer_is_the_same_401(one_site: JoinSite) -> None:
    site = one_site
    used, expired, revoked, good = site.token(), site.token(ttlSeconds=60), site.token(), site.token()
    site.admitted_by(used, a_box())
    site.call("joinTokens/revoke", tokenId=parsed(revoked).token_id)
    site.skip(61)
    secret = good.partition(".")[2]
    unknown = [new_bearer("jt_" + "0" * 52, secrets.token_bytes(32)).text(), f"bcjt_jt_{'z' * 26}.{secret}"]
    malformed = [
        "",
        "x",
        good.partition(".")[0],
        good + "A",
        good.upper(),
        f"bcjt_.{secret}",
        good + " x",
        site.keys["owner"],
    ]
    told = set()
    for n, bearer in enumerate([used, expired, revoked, wrong(good), *unknown, *malformed]):
        for csr in (a_box().csr, "no CSR at all"):  # nothing else is judged before the bearer is proven
            answer = site.join(bearer, a_box(3 + n), address=f"198.51.100.{n}", csr=csr)
            told.add(
                (
                    answer.status,
                    answer.error["message"],
                    str(answer.error["details"]),
                    answer.headers["www-authenticate"],
                )
            )
    assert told == {(401, ONE_401, "{}", "Bearer")}
    assert site.admitted_by(good, a_box(2)).node_id


def test_a_bearer_counts_in_its_header_alone_and_once(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    bearer = site.token()
    body = f'{{"csr": {box.csr!r}}}'.replace("'", '"').encode()
    kind = {"Content-Type": "application/json"}
    for headers in (
        {"Cookie": f"token={bearer}"},
        {"X-Join-Token": bearer},
        {"Authorization": f"Basic {bearer}"},
        {"Authorization": bearer},
        {"Proxy-Authorization": f"Bearer {bearer}"},
    ):
        answer = site.run(site.send(site.joins, "/api/compute/join", body, kind | headers))
        assert (answer.status, answer.error["message"]) == (401, ONE_401)
    assert site.join(None, box, token=bearer).status == 401
    assert the_token(site, bearer).uses == 0


def test_for_an_id_that_there_is_not_a_digest_is_compared_all_the_same(
    one_site: JoinSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock is read: what is compared with what says that both ways cost the same."""
    compared: list[tuple[bytes, bytes]] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(bearers, "hmac", _Hmac(noted))  # the library's function, watched
    good = one_site.token()
    missing = new_bearer("jt_" + "0" * 52, secrets.token_bytes(32))
    for bearer in (missing.text(), wrong(good), good):
        one_site.join(bearer, a_box())
    assert [(len(one), len(other)) for one, other in compared] == [(32, 32)] * 3
    assert compared[0] == (missing.secret_sha256, NO_SECRET)
    assert compared[1][1] == compared[2][1] == the_token(one_site, good).secret_sha256


class _Hmac:
    def __init__(self, compare: Any) -> None:
        self.compare_digest = compare
        self.digest = hmac.digest


def test_the_digest_of_no_token_is_proven_by_nothing() -> None:
    """Not even by the secret whose digest it is."""
    assert not Bearer("jt_" + "0" * 52, new_bearer("jt_", bytes(32)).secret).proves(None)


# ---------------------------------------------------------------- guessing


def test_guessing_from_one_address_is_held_up_and_a_right_bearer_is_not(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token(maxUses=2)
    guesses = [site.join(wrong(bearer), a_box()) for _ in range(FAILURES + 3)]
    assert [one.status for one in guesses] == [401] * FAILURES + [429] * 3
    assert guesses[-1].code == "RATE_LIMITED"
    assert 0 < int(guesses[-1].headers["retry-after"]) <= 60
    assert site.admitted_by(bearer, a_box()).node_id
    row = the_token(site, bearer)
    assert (row.revoked_at, row.uses) == (None, 1), "guessing never revokes"
    site.skip(61)
    assert site.join(wrong(bearer), a_box()).status == 401


def test_guessing_one_id_from_many_addresses_is_held_up_whether_or_not_it_is_there(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token()
    missing = new_bearer("jt_" + "0" * 52, secrets.token_bytes(32)).text()
    for one in (bearer, missing):
        guesses = [site.join(wrong(one), a_box(), address=f"198.51.{n}.1").status for n in range(FAILURES + 1)]
        assert guesses == [401] * FAILURES + [429]
        other = site.join(wrong(site.token()), a_box(), address="203.0.113.9").status
        assert other == 401, "another id is not held up by it"
    assert site.join(bearer, a_box(), address="198.51.100.200").status == 200


def test_one_address_that_calls_without_end_is_slowed_down(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    bearer = site.token()
    site.hold_the_clock()
    statuses = [site.join(bearer, box).status for _ in range(301)]
    assert statuses == [200] * 300 + [429]
    assert site.join(bearer, box, address="192.0.2.8").status == 200
    assert the_token(site, bearer).uses == 1


def test_refusals_do_not_flood_the_feed(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token()
    for _ in range(15):
        site.join(wrong(bearer), a_box())
    assert site.reasons() == ["wrong-secret"]
    site.skip(11)
    site.join(wrong(bearer), a_box())
    assert site.reasons() == ["wrong-secret"] * 2


# ---------------------------------------------------------------- races


def test_nobody_joins_after_a_revoke(site: JoinSite) -> None:
    bearer = site.token(maxUses=5)
    box = a_box()
    site.admitted_by(bearer, box)
    site.call("joinTokens/revoke", tokenId=parsed(bearer).token_id)
    assert site.join(bearer, a_box(2)).status == 401
    assert site.join(bearer, box).status == 401, "nor is a lost answer given again"
    assert the_token(site, bearer).uses == 1


def test_a_revoke_racing_joins_wins_or_loses_and_nothing_between(site: JoinSite) -> None:
    bearer = site.token(maxUses=100)
    token_id = parsed(bearer).token_id
    revoked = asyncio.Event()
    late: list[int] = []

    async def one(n: int) -> int:
        if n >= 16:
            await revoked.wait()
        answer = await site.joining(bearer, a_box(n), address=f"192.0.2.{n}")
        if n >= 16:
            late.append(answer.status)
        return answer.status

    async def revoke() -> int:
        answer = await site.calling("joinTokens/revoke", tokenId=token_id)
        revoked.set()
        return answer.status

    async def race() -> list[int]:
        return await asyncio.gather(*(one(n) for n in range(8)), revoke(), *(one(n) for n in range(8, 24)))

    statuses = site.run(race())
    assert late == [401] * 8
    joined = statuses[:8] + statuses[9:]
    assert set(joined) <= {200, 401}
    admitted = joined.count(200)
    assert the_token(site, bearer).uses == admitted == len(site.call("nodes/list").doc["nodes"])
    order = [type_ for type_, _ in site.events() if type_ in ("security.join.admitted", "security.join-token.revoked")]
    assert order == ["security.join.admitted"] * admitted + ["security.join-token.revoked"]


def test_the_last_use_is_given_once_to_twice_the_same_machine(site: JoinSite) -> None:
    """The agent's own retry overtakes it: one use, one node, one certificate."""
    bearer, box = site.token(maxUses=9), a_box()

    async def race() -> list[Any]:
        return await asyncio.gather(*(site.joining(bearer, box) for _ in range(8)))

    answers = site.run(race())
    assert {one.status for one in answers} == {200}
    assert len({one.doc["certificate"] for one in answers}) == 1
    assert the_token(site, bearer).uses == 1


def test_what_fails_costs_no_use(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token(expect={"serial": "SN17X"})
    for box, more in (
        (a_box(), {"csr": "nonsense"}),
        (a_box(), {"identifiers": {"macs": ["x"]}}),
        (a_box(), {"attestor": "magic"}),
        (a_box(), {}),  # the pin does not match
    ):
        assert site.join(bearer, box, **more).status in (400, 403)
    assert (the_token(site, bearer).uses, the_token(site, bearer).reserved) == (0, 0)
    assert site.join(bearer, Box(a_box().uuid, "sn17x")).status == 200


# ---------------------------------------------------------------- across pools and tenants


def test_a_token_is_good_for_its_own_pool_whatever_the_message_names(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    bearer = site.token()
    answer = site.join(bearer, box, tenantId="tenant-a", poolId="tenants")
    assert (answer.status, answer.fields) == (400, {"poolId"})
    member = site.admitted_by(bearer, box)
    assert site.call("nodes/get", nodeId=member.node_id).doc["poolId"] == POOL


def test_a_token_dies_with_its_pools_owner(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token()
    site.change(lambda doc: doc["pools"][POOL].update(owner="tenant-a"))
    assert site.join(bearer, a_box()).status == 401


def test_a_cursor_of_another_pool_reveals_nothing(one_site: JoinSite) -> None:
    site = one_site
    theirs = [site.call("joinTokens/create", "tenant", "tenants", ttlSeconds=600, idempotencyKey=k).doc for k in "abc"]
    ours = sorted(site.call("joinTokens/create", ttlSeconds=600, idempotencyKey=k).doc["tokenId"] for k in "defgh")
    for cursor in (*(one["tokenId"] for one in theirs), "jt_" + "0" * 26, "jt_" + "z" * 52):
        answer = site.call("joinTokens/list", cursor=cursor)
        assert [one["tokenId"] for one in answer.doc["tokens"]] == [one for one in ours if one > cursor]


def test_a_malformed_cursor_is_refused(one_site: JoinSite) -> None:
    cursors: list[Any] = ["jt_' OR 1=1 --", "jt_\x00" + "0" * 26, "../" * 20, "jt_" + "\uff10" * 26, 0, {}]
    for cursor in cursors:
        answer = one_site.call("joinTokens/list", cursor=cursor)
        assert (answer.status, answer.fields) == (400, {"cursor"})


# ---------------------------------------------------------------- flooding


def test_at_most_twenty_requests_of_a_token_wait(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token(maxUses=100)
    boxes = [a_blank(n) for n in range(LIVE_OF_TOKEN)]
    ids = [site.join(bearer, box).doc["requestId"] for box in boxes]
    over = site.join(bearer, a_blank(99))
    assert (over.code, over.headers["retry-after"]) == ("RATE_LIMITED", "300")
    assert site.join(bearer, boxes[3]).doc["requestId"] == ids[3], "who waits already may ask again"
    assert site.join(site.token(), a_blank(100)).status == 202, "another token has its own"
    assert site.admitted_by(bearer, a_box()).node_id, "who needs no decision does not queue"
    site.call("joinRequests/deny", requestId=ids[0])
    assert site.join(bearer, a_blank(99)).status == 202


def test_at_most_a_thousand_requests_of_a_pool_wait(one_site: JoinSite) -> None:
    site = one_site
    site.write(_queue, LIVE_OF_POOL, site)
    over = site.join(site.token(), a_blank(1))
    assert over.code == "RATE_LIMITED"
    assert site.join(site.token(pool="open"), a_blank(2)).status == 202, "another pool has its own"
    assert site.admitted(a_box()).node_id
    site.skip(24 * 3600)
    assert site.join(site.token(), a_blank(3)).status == 202, "those whose time is over count no more"


def _queue(c: Connection, number: int, site: JoinSite) -> None:
    until = Micros(site.now() + 24 * 3600 * SECOND)
    for n in range(number):
        text, claim = f"{n:064x}", dict[str, Any]()
        new = NewRequest(
            site.new_id("jr"), OWNER, POOL, None, "discovery", "unknown-machine", text, text, text, claim, {}, None, None,
            "192.0.2.1", until,
        )  # fmt: skip
        join_requests.add(c, new, site.now())


# ---------------------------------------------------------------- what a clock does


def test_a_clock_that_steps_back_admits_nobody_twice(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    bearer = site.token(ttlSeconds=3600)
    member = site.admitted_by(bearer, box)
    site.skip(-200)
    assert site.join(bearer, a_box(2)).status == 401
    assert site.admitted_by(bearer, box).chain == member.chain
    assert site.secrets_for(member).status == 200
    assert site.renew(member, box.rekeyed()).status == 200


def test_a_token_of_before_an_eviction_stays_one_though_the_clock_stepped_back_between(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    bearer = site.token(maxUses=5)
    member = site.admitted_by(bearer, box)
    site.skip(-120)
    site.call("nodes/evict", nodeId=member.node_id)
    assert site.join(bearer, box.rekeyed()).status == 403
    assert site.reasons() == ["evicted"]


def test_a_request_is_found_again_though_the_clock_stepped_back_since_an_older_one(site: JoinSite) -> None:
    box = a_blank(1)
    bearer = site.token(ttlSeconds=86_400)
    first = site.join(bearer, box).doc["requestId"]
    site.skip(86_400)
    assert site.write(expire_overdue, {POOL: "fra1"}, 10, site.now()) == 1
    site.skip(-90_000)
    second = site.join(bearer, box).doc["requestId"]
    assert second != first
    assert site.join(bearer, box).doc["requestId"] == second


def test_a_guesser_is_not_held_up_for_longer_by_a_clock_that_stepped_back(one_site: JoinSite) -> None:
    site = one_site
    bearer = site.token()
    for _ in range(FAILURES + 1):
        site.join(wrong(bearer), a_box())
    site.skip(-86_400)
    assert site.join(wrong(bearer), a_box()).status == 401


def test_a_deploys_token_is_good_for_its_machine_alone(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    node_id = site.enrolled(box)
    bearer = minted_for(site, node_id)
    assert site.join(bearer, a_box(2)).error["message"] == ONE_403
    assert site.reasons() == ["other-machine"]
    assert the_token(site, bearer).uses == 0
    moved = Box(a_box(2).uuid, box.serial, a_box(2).macs)
    assert site.admitted_by(bearer, moved).node_id == node_id, "one fact that agrees is enough, since UUIDs move"
    assert site.join(bearer, box).status == 401
