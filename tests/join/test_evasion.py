"""What outlives its end, or gets in sideways: evicted TPMs, ended certificates, forged ones, squatted names, crowded queues."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.join.admission import LIVE_OF_NOBODY
from bcmetal.join.ca import IssuerKind, issue_node_certificate
from bcmetal.store import join_requests, members
from bcmetal.store.join_requests import NewRequest
from bcmetal.workflows import membership
from bcmetal_agent.wire import JOIN_PATH
from in_process import Answered
from join.awaited import a_deploying_node
from join.minted import minted_for
from join.site import OWNER, POOL, Box, JoinSite, Member, a_box, member_of
from join.soft_tpm import SoftTpm

DAY_S: Final = 86_400
PATIENCE_S: Final = 10.0
GPU: Final = "GPU-8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b0001"


def takes(site: JoinSite, tpm: SoftTpm, *pools: str) -> None:
    for pool in pools:
        site.doc["pools"][pool].update(attestors=["token", "tpm"], ek_allow=[tpm.ek_sha256])
    site.change(lambda doc: None)


def join_by_tpm(site: JoinSite, tpm: SoftTpm, bearer: str, box: Box) -> Answered:
    asked = site.join(bearer, box, attestor="tpm", tpm=tpm.says())
    if asked.status != 200 or asked.doc["status"] != "challenge":
        return asked
    return site.join(bearer, box, attestor="tpm", tpm=tpm.says(), challenge=tpm.proves(asked.doc, box.csr))


def join_saying(site: JoinSite, bearer: str, box: Box, **says: Any) -> Answered:
    body = {"csr": box.csr, "identifiers": says}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"}
    return site.run(site.send(site.joins, JOIN_PATH, json.dumps(body).encode(), headers))


# ---------------------------------------------------------------- which machine it is


def test_an_evicted_tpm_does_not_come_back_under_another_name(one_site: JoinSite) -> None:
    site, tpm = one_site, SoftTpm()
    takes(site, tpm, POOL)
    bearer = site.token(maxUses=5)
    node_id = member_of(join_by_tpm(site, tpm, bearer, a_box(1)), a_box(1)).node_id
    site.call("nodes/evict", nodeId=node_id)
    assert join_by_tpm(site, tpm, bearer, a_box(2)).status == 403
    assert site.reasons() == ["evicted"]
    assert join_by_tpm(site, tpm, site.token(), a_box(1)).doc["nodeId"] == node_id, "by a later token, as the same node"


def test_one_tpm_is_not_two_nodes_of_two_pools_unless_a_person_says_so(one_site: JoinSite) -> None:
    site, tpm = one_site, SoftTpm()
    takes(site, tpm, POOL, "open")
    assert join_by_tpm(site, tpm, site.token(), a_box(1)).status == 200
    assert join_by_tpm(site, tpm, site.token(pool="open"), a_box(2)).status == 202


def test_a_gpu_that_each_pod_sees_reclaims_no_node(one_site: JoinSite) -> None:
    site, box = one_site, a_box()
    first = join_saying(site, site.token(), box, productUuid=box.uuid, serial=box.serial, gpuUuids=[GPU])
    site.skip(3600)
    second = join_saying(site, site.token(allowReclaim=True), a_box(), productUuid=box.uuid, gpuUuids=[GPU])
    assert (first.status, second.status) == (200, 202)


def test_who_names_our_machine_first_does_not_keep_it_out(site: JoinSite) -> None:
    """The other tenant's root says the MAC of a machine that is to come; what our BMC reports counts for more."""
    machine = a_box(1)
    site.admitted(Box(a_box(2).uuid, "SNX", machine.macs), "tenant", "tenants")
    node_id = a_deploying_node(site, machine)
    assert site.admitted_by(minted_for(site, node_id), machine).node_id == node_id


def test_a_machine_that_another_tenant_evicted_can_change_hands(one_site: JoinSite) -> None:
    site = one_site
    theirs = site.admitted(a_box(), "tenant", "tenants")
    assert site.join(site.token(), a_box()).status == 403
    site.call("nodes/evict", "tenant", "tenants", nodeId=theirs.node_id)
    bearer, box = site.token(), a_box()
    answer = site.join(bearer, box)
    assert answer.status == 202, "a person looks at it"
    site.call("joinRequests/approve", requestId=answer.doc["requestId"])
    assert site.admitted_by(bearer, box).node_id != theirs.node_id


def test_an_approval_holds_for_the_attestor_that_was_looked_at(one_site: JoinSite) -> None:
    site, bearer, box = one_site, one_site.token(), Box(None, "SN00001X")
    request_id = site.join(bearer, box).doc["requestId"]
    site.call("joinRequests/approve", requestId=request_id)
    assert site.join(bearer, box, attestor="discovery").status == 403
    assert site.join(bearer, box).status == 200


# ---------------------------------------------------------------- what a certificate is good for


def test_an_open_connection_does_not_outlive_its_certificate(one_site: JoinSite) -> None:
    site = one_site
    member = site.admitted(a_box())
    assert site.secrets_for(member).status == 200
    site.skip(DAY_S)
    assert site.secrets_for(member).status == 401
    assert site.renew(member, a_box()).status == 401


@pytest.mark.parametrize("kind", [IssuerKind.NODE, IssuerKind.NODE_TENANT])
def test_a_leaked_issuer_neither_stretches_a_certificate_nor_makes_it_another_kind(
    one_site: JoinSite, kind: IssuerKind
) -> None:
    """Its holder has an old key of a node too: serial, node and key are as they were issued, the rest is not."""
    site = one_site
    member = site.admitted(a_box())
    site.skip(45 * DAY_S)
    issuer, start = site.authority.issuer(kind), Micros(site.now() - 2 * DAY_S * SECOND)
    forged = issue_node_certificate(
        issuer, member.key.public_key(), member.node_id, "bcmetal", start, member.leaf.serial_number
    )
    answer = site.renew_late(Member(member.node_id, forged.chain, member.key), a_box())
    assert answer.status == (202 if kind is IssuerKind.NODE else 401)


def test_a_join_that_is_under_way_does_not_outlive_the_release_that_it_races(site: JoinSite) -> None:
    """It was judged before the verb, and commits after it began to look for members."""
    judged, go = threading.Event(), threading.Event()

    def slowly(number: int) -> bytes:
        judged.set()
        assert go.wait(PATIENCE_S)
        return os.urandom(number)

    box = a_box()
    node_id = site.enrolled(box)
    bearer = site.token()
    site.authority = replace(site.authority, entropy=slowly)

    async def released() -> None:
        await asyncio.to_thread(judged.wait, PATIENCE_S)
        asyncio.get_running_loop().call_later(0.3, go.set)
        await site.setting_state(node_id, "releasing")
        assert await site.store.read(membership.has_any, node_id, POOL)
        await site.store.write(membership.end, node_id, POOL, "fra1", "released", "release", site.now())

    async def race() -> Answered:
        return (await asyncio.gather(site.joining(bearer, box), released()))[0]

    member = member_of(site.run(race()), box)
    assert member.node_id == node_id
    assert site.call("nodes/get", nodeId=node_id).doc["state"] == "released"
    assert site.secrets_for(member).status == 401


# ---------------------------------------------------------------- room for others


def test_whoever_has_no_token_leaves_room_for_those_with_one(one_site: JoinSite) -> None:
    site = one_site
    site.write(_crowd, site, LIVE_OF_NOBODY)
    anybody = {"attestor": "discovery", "tenantId": OWNER, "poolId": "open"}
    assert site.join(None, a_box(), **anybody).code == "RATE_LIMITED"
    assert site.join(site.token(pool="open"), Box(None)).status == 202


def _crowd(c: Connection, site: JoinSite, number: int) -> None:
    until = Micros(site.now() + DAY_S * SECOND)
    for n in range(number):
        text = f"{n:064x}"
        new = NewRequest(
            site.new_id("jr"), OWNER, "open", None, "discovery", "unknown-machine", text, text, text, {}, {}, None, None,
            "192.0.2.1", until,
        )  # fmt: skip
        join_requests.add(c, new, site.now())


# ---------------------------------------------------------------- a pool that changed hands


def test_a_pools_new_owner_sees_nothing_of_the_one_before(one_site: JoinSite) -> None:
    site = one_site
    member = site.admitted(a_box())
    request_id = site.join(site.token(), Box(None)).doc["requestId"]
    token_id = site.call("joinTokens/list").doc["tokens"][0]["tokenId"]
    assert site.read(members.pools_in_use) == {POOL}, "a running daemon takes no such configuration"
    site.doc["pools"][POOL]["owner"] = "tenant-a"
    site.change(lambda doc: doc["grants"].append({"to": "key:tenant", "role": "admin", "on": f"compute-pool/{POOL}"}))
    place = {"tenantId": "tenant-a", "poolId": POOL}
    for method, asked in (
        ("nodes/get", {"nodeId": member.node_id}),
        ("nodes/evict", {"nodeId": member.node_id}),
        ("joinRequests/get", {"requestId": request_id}),
        ("joinRequests/approve", {"requestId": request_id}),
        ("joinRequests/deny", {"requestId": request_id}),
        ("joinTokens/revoke", {"tokenId": token_id}),
    ):
        assert site.post(method, "tenant", **place, **asked).code == "NOT_FOUND", method
    for method in ("nodes/list", "joinRequests/list", "joinTokens/list"):
        (rows,) = (rows for rows in site.post(method, "tenant", **place).doc.values() if isinstance(rows, list))
        assert rows == [], method
