"""The join call on both databases: who is let in, as which node, and what it costs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bcmetal.join.leaving import expire_overdue
from bcmetal.store.members import JOIN_STEP
from bcmetal.workflows import deploy
from join.site import Box, JoinSite, Member, a_box, member_of

ONE_401 = "The join token is not valid."
ONE_403 = "The join is refused."


def test_a_machine_with_a_token_is_admitted_once(site: JoinSite) -> None:
    bearer = site.token()
    box = a_box()
    answer = site.join(bearer, box)
    assert answer.status == 200, answer.raw
    member = member_of(answer, box)
    assert member.uri == f"spiffe://bcmetal/node/{member.node_id}"
    assert answer.doc["trustBundle"].startswith("-----BEGIN CERTIFICATE-----")
    other = site.join(bearer, a_box(2))
    assert (other.status, other.error["message"]) == (401, ONE_401)
    assert site.reasons() == ["used-up"]
    assert [type_ for type_, _ in site.events()] == [
        "security.join-token.created",
        "security.join.admitted",
        "security.join.refused",
    ]


def test_a_lost_answer_is_given_again_and_costs_nothing(site: JoinSite) -> None:
    bearer = site.token()
    box = a_box()
    first = site.join(bearer, box)
    again = site.join(bearer, box)  # the token is used up by now
    assert again.doc["certificate"] == first.doc["certificate"]
    changed = Box(box.uuid, "another", box.macs, box.key, box.csr)
    assert site.join(bearer, changed).error["message"] == ONE_403
    site.skip(901)
    assert site.join(bearer, box).error["message"] == ONE_401


@pytest.mark.parametrize("uses", [1, 10])
def test_the_last_use_is_given_to_one(site: JoinSite, uses: int) -> None:
    bearer = site.token(maxUses=uses)

    async def race() -> list[int]:
        calls = [site.joining(bearer, a_box(n), address=f"192.0.2.{n}") for n in range(64)]
        return [answer.status for answer in await asyncio.gather(*calls)]

    statuses = site.run(race())
    assert sorted(statuses) == [200] * uses + [401] * (64 - uses)
    listed = site.call("joinTokens/list", includeInactive=True).doc["tokens"]
    assert [(one["uses"], one["reserved"]) for one in listed] == [(uses, 0)]
    assert len(site.call("nodes/list").doc["nodes"]) == uses


def test_a_machine_with_a_bmc_takes_the_id_of_its_node(site: JoinSite) -> None:
    box = a_box()
    node_id = site.enrolled(box)
    assert site.admitted(box).node_id == node_id
    other = site.enrolled(a_box(2), state="available")
    answer = site.join(site.token(), a_box(2))
    assert answer.error["message"] == ONE_403
    assert site.reasons() == ["state"]
    site.set_state(other, "rescued")
    assert site.admitted(a_box(2)).node_id == other


def test_the_uuid_in_the_other_byte_order_is_the_same_machine(site: JoinSite) -> None:
    box = a_box()
    node_id = site.enrolled(box)
    assert box.uuid is not None
    a, b, c, rest = box.uuid.split("-", 3)
    flip = "".join(a[i : i + 2] for i in (6, 4, 2, 0))
    swapped = f"{flip}-{b[2:]}{b[:2]}-{c[2:]}{c[:2]}-{rest}"
    assert site.admitted(Box(swapped, box.serial, box.macs)).node_id == node_id


def test_placeholders_wait_for_a_person(site: JoinSite) -> None:
    bearer = site.token()
    box = Box("03000200-0400-0500-0006-000700080009", "To be filled by O.E.M.", ("3c:ec:ef:77:00:01",))
    answer = site.join(bearer, box)
    assert (answer.status, answer.doc["status"]) == (202, "deferred")
    request_id = answer.doc["requestId"]
    assert site.join(bearer, box).doc["requestId"] == request_id
    (shown,) = site.call("joinRequests/list").doc["requests"]
    assert (shown["state"], shown["reason"], shown["attempts"]) == ("pending", "placeholder-identifiers", 2)
    assert {one["kind"]: one["usable"] for one in shown["evidence"]["identifiers"]} == {
        "uuid": False,
        "serial": False,
        "mac": True,
    }
    stale = site.call("joinRequests/approve", requestId=request_id, csrSha256="0" * 64)
    assert stale.code == "CONFLICT"
    approved = site.call("joinRequests/approve", requestId=request_id, csrSha256=shown["csrSha256"]).doc
    assert approved["state"] == "approved"
    assert site.call("joinRequests/approve", requestId=request_id).doc["state"] == "approved"
    assert site.join(bearer, a_box()).status == 401  # its only use is reserved
    site.skip(3000)
    answer = site.join(bearer, box)
    assert answer.status == 200, (answer.raw, site.reasons())
    assert site.call("joinRequests/get", requestId=request_id).doc["state"] == "consumed"
    assert site.call("joinRequests/approve", requestId=request_id).code == "INVALID_STATE"
    types = [type_ for type_, _ in site.events("security.join-request")]
    assert types == [f"security.join-request.{what}" for what in ("created", "approved", "consumed")]


def test_a_running_node_is_reclaimed_by_leave_only(site: JoinSite) -> None:
    box = a_box()
    first = site.admitted(box)
    again = box.rekeyed()
    assert site.join(site.token(), again).error["message"] == ONE_403
    assert site.join(site.token(allowReclaim=True), again).error["message"] == ONE_403
    assert site.reasons() == ["reclaim", "running"]
    second = site.admitted(again, allowReclaim=True, expect={"serial": box.serial})
    assert second.node_id == first.node_id
    assert site.secrets_for(first).status == 401
    assert site.secrets_for(second).status == 200
    assert "security.node.reclaimed" in [type_ for type_, _ in site.events()]


def test_a_duplicate_uuid_waits_for_a_person(site: JoinSite) -> None:
    first = site.admitted(a_box())
    twin = Box(a_box().uuid, "OTHER77", ("3c:ec:ef:99:00:01",))
    answer = site.join(site.token(allowReclaim=True), twin)
    assert answer.status == 202
    shown = site.call("joinRequests/get", requestId=answer.doc["requestId"]).doc
    assert shown["reason"] == "duplicate-uuid"
    uuid = next(one for one in shown["evidence"]["identifiers"] if one["kind"] == "uuid")
    assert uuid["conflicts"] == [first.node_id]


def test_a_node_is_renewed_and_its_old_certificate_dies_when_the_new_one_is_seen(site: JoinSite) -> None:
    box = a_box()
    first = site.admitted(box)
    new = box.rekeyed()
    answer = site.renew(first, new)
    assert answer.status == 200, answer.raw
    second = Member(answer.doc["nodeId"], answer.doc["certificate"], new.key)
    assert second.node_id == first.node_id
    assert site.renew(first, new).doc["certificate"] == answer.doc["certificate"]  # an answer that was lost
    assert site.secrets_for(first).status == 200
    assert site.secrets_for(second).status == 200
    assert site.secrets_for(first).status == 401


def test_a_copied_key_locks_its_node(site: JoinSite) -> None:
    box = a_box()
    first = site.admitted(box)
    new = box.rekeyed()
    second = Member(first.node_id, site.renew(first, new).doc["certificate"], new.key)
    assert site.secrets_for(second).status == 200
    assert site.renew(first, box.rekeyed()).status == 401
    assert site.secrets_for(second).status == 401
    assert "security.node.cloned" in [type_ for type_, _ in site.events()]
    assert site.join(site.token(allowReclaim=True, expect={"serial": box.serial}), box.rekeyed()).status == 403
    assert site.reasons() == ["locked"]


def test_an_expired_certificate_renews_within_the_grace_and_by_leave_after_it(site: JoinSite) -> None:
    box = a_box()
    first = site.admitted(box)
    site.skip(3 * 86_400)
    new = box.rekeyed()
    assert site.renew_late(first, new, key=new.key).status == 401
    answer = site.renew_late(first, new)
    assert answer.status == 200, answer.raw
    second = Member(first.node_id, answer.doc["certificate"], new.key)
    site.skip(40 * 86_400)
    last = box.rekeyed()
    late = site.renew_late(second, last)
    assert (late.status, late.doc["status"]) == (202, "deferred")
    request_id = late.doc["requestId"]
    assert site.call("joinRequests/get", requestId=request_id).doc["reason"] == "expired-certificate"
    assert site.call("joinRequests/approve", requestId=request_id).status == 200
    assert site.renew_late(second, last).status == 200


def test_an_evicted_node_is_out_at_once_and_names_what_to_rotate(site: JoinSite) -> None:
    box = a_box()
    bearer = site.token(maxUses=2)
    member = member_of(site.join(bearer, box), box)
    answer = site.call("nodes/evict", nodeId=member.node_id, reason="sold")
    assert (answer.doc["node"]["state"], answer.doc["rotate"]) == ("evicted", [])
    assert site.renew(member, box.rekeyed()).status == 401
    assert site.join(bearer, box.rekeyed()).status == 403  # the token is older than the eviction
    assert site.reasons() == ["evicted"]
    site.skip(1)
    assert site.admitted(box.rekeyed()).node_id == member.node_id


def test_a_request_that_nobody_decides_expires_and_gives_its_use_back(site: JoinSite) -> None:
    bearer = site.token()
    box = Box(None, None, ("3c:ec:ef:77:00:01",))
    request_id = site.join(bearer, box).doc["requestId"]
    site.call("joinRequests/approve", requestId=request_id)
    site.skip(3601)
    assert site.call("joinRequests/get", requestId=request_id).doc["state"] == "expired"
    assert site.call("joinRequests/list").doc["requests"] == []
    assert site.write(expire_overdue, {}, 100, site.now()) == 1
    assert site.write(expire_overdue, {}, 100, site.now()) == 0
    (token,) = site.call("joinTokens/list", includeInactive=True).doc["tokens"]
    assert (token["uses"], token["reserved"]) == (0, 0)
    assert [type_ for type_, _ in site.events("security.join-request")][-1] == "security.join-request.expired"


def test_the_step_at_which_a_join_is_awaited_is_one_of_deploys() -> None:
    """The store knows it by name alone: it may not import the workflow."""
    assert JOIN_STEP in [step.__name__ for step in deploy.STEPS]


def test_why_a_join_was_refused_stands_in_the_log_and_not_in_the_answer(
    one_site: JoinSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bcmetal.api.joining")
    one_site.enrolled(a_box(), state="available")
    answer = one_site.join(one_site.token(), a_box())
    assert (answer.status, answer.error["details"]) == (403, {})
    assert "a join of pool metal from 192.0.2.7 is refused: state" in caplog.text
