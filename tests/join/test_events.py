"""What the feed is told of tokens and requests, whatever brought it about."""

from __future__ import annotations

from bcmetal.join.leaving import withdraw_tokens
from bcmetal.store import outbox
from bcmetal.store.outbox import EventRow
from join.minted import minted_for
from join.site import JoinSite, a_box


def told(site: JoinSite, type_: str) -> list[EventRow]:
    site.write(outbox.deliver, 10_000)
    return [event for event in site.read(outbox.since, 0, 10_000) if event.type == f"security.{type_}"]


def test_a_deploys_token_is_told_under_its_node_and_is_not_called_pinned(one_site: JoinSite) -> None:
    node_id = one_site.enrolled(a_box())
    minted_for(one_site, node_id)
    one_site.write(withdraw_tokens, node_id, "fra1", one_site.now())
    (created,), (revoked,) = told(one_site, "join-token.created"), told(one_site, "join-token.revoked")
    assert (created.node_id, created.data["pinned"], created.data["maxUses"]) == (node_id, False, 1)
    assert (revoked.node_id, revoked.data["pinned"], "by" in revoked.data) == (node_id, False, False)
    assert created.data["tokenId"] == revoked.data["tokenId"]


def test_a_decision_is_told_under_the_node_whose_join_it_is(one_site: JoinSite) -> None:
    box = a_box()
    member = one_site.admitted(box)
    one_site.skip(60 * 86_400)
    for decide in ("approve", "deny"):
        request_id = one_site.renew_late(member, box.rekeyed()).doc["requestId"]
        assert one_site.call(f"joinRequests/{decide}", requestId=request_id).status == 200
    (approved,), (denied,) = told(one_site, "join-request.approved"), told(one_site, "join-request.denied")
    assert (approved.node_id, denied.node_id) == (member.node_id, member.node_id)
    assert (approved.data["by"], denied.data["by"]) == ("key:owner", "key:owner")
