"""After a board or a BMC was swapped: nothing of the new machine is taken before somebody accepted it, and then nothing of the old one stays."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from uuid import UUID

from sqlalchemy import select

from bcmetal.join.judging import Trust
from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import baselines, certificates, members, tables
from bcmetal.store.certificates import CertificateRow
from bcmetal.store.members import MemberRow
from emulated_site import OnASite, Site
from emulated_site_config import POOL, TENANT

OTHER_UUID = UUID("0c9b33a4-26bd-4c5b-9a1e-4f3f2fb8a001")


async def deployed_and_joined(site: Site) -> str:
    """Its agent proved a TPM, and holds a certificate."""
    bmc = site.rack.add_redfish("m1", drives=1)
    site.rack.start()
    node_id = await site.enroll(bmc)
    await site.live(node_id, Verb.INSPECT)
    assert await site.live(node_id, Verb.COMMISSION) is State.AVAILABLE
    assert await site.live(node_id, Verb.DEPLOY, image={"name": "os"}, kind="iso") is State.DEPLOYED
    now = site.clock.now()
    member = MemberRow(
        node_id=node_id,
        tenant_id=TENANT,
        pool_id=POOL,
        site_id="site-a",
        state=members.LIVE,
        trust=Trust.PLATFORM,
        hosted=None,
        token_id=None,
        request_id=None,
        attestor="tpm",
        admitted_by="somebody",
        ek_sha256="e" * 64,
        tpm_proven=True,
        metal_node_id=node_id,
        address="127.0.0.1",
        joined_at=now,
        last_join_at=now,
        last_seen_at=now,
        ended_at=None,
        end_reason=None,
    )
    held = CertificateRow("1" * 32, node_id, POOL, "i1", "node", "c", "k", "s", None, "chain", now, now, now, now)
    await site.store.write(members.join, member, (), now)
    await site.store.write(certificates.add, held)
    return node_id


async def events(site: Site, type_: str) -> list[dict[str, Any]]:
    def read(c: Any) -> list[dict[str, Any]]:
        rows = c.execute(select(tables.outbox.c.data).where(tables.outbox.c.type == type_))
        return [json.loads(row.data) for row in rows]

    return await site.store.read(read)


def swap_the_board(site: Site) -> None:
    machine = site.rack.bmc("m1").machine
    machine.hardware = dataclasses.replace(machine.hardware, uuid=OTHER_UUID, serial="NEWBOARD01")


def test_an_accepted_board_ends_the_old_machines_certificates_tpm_and_baseline(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await deployed_and_joined(site)
        old_serial = (await site.node(node_id)).facts.serial
        swap_the_board(site)
        await site.queue(node_id, SideVerb.REFRESH)
        await site.settle()
        assert (await site.conditions(node_id))["identity"] == ("error", "identity-changed")
        assert (await site.node(node_id)).facts.serial == old_serial

        await site.queue(node_id, SideVerb.UPDATE, acceptIdentity=True, reason="board swapped")
        await site.settle()
        node = await site.node(node_id)
        assert (node.facts.serial, node.facts.state) == ("NEWBOARD01", State.DEPLOYED)
        assert {one.raw for one in node.identifiers if one.kind == "uuid"} == {str(OTHER_UUID)}
        assert "identity" not in await site.conditions(node_id)
        member = await site.store.read(members.get, node_id)
        assert member is not None
        assert (member.state, member.ek_sha256) == ("released", None)
        assert all(one.revoked_at for one in await site.store.read(certificates.of_node, node_id))
        assert await site.store.read(baselines.latest, node_id) is None
        [told] = await events(site, "security.node.identity-accepted")
        assert (told["old"]["serial"], told["new"]["serial"]) == ([old_serial], ["NEWBOARD01"])
        assert "board swapped" in told["reason"]
        assert len(await events(site, "security.node.evicted")) == 1

    on_each_database(scenario)


def test_accepting_the_machine_that_is_known_ends_nothing(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await deployed_and_joined(site)
        await site.queue(node_id, SideVerb.UPDATE, acceptIdentity=True, reason="by mistake")
        await site.settle()
        member = await site.store.read(members.get, node_id)
        assert member is not None
        assert member.state == members.LIVE
        assert await events(site, "security.node.identity-accepted") == []

    on_each_database(scenario)


def test_a_bmc_that_was_swapped_is_taken_at_its_new_address_once_it_is_accepted(on_each_database: OnASite) -> None:
    async def scenario(site: Site) -> None:
        node_id = await deployed_and_joined(site)
        old = site.rack.bmc("m1")
        new = site.rack.add_redfish("m2", password=old.password)
        wanted = {
            "address": new.address,
            "network": "bmc",
            "trustKind": "fingerprint",
            "trustValue": new.fingerprint,
        }
        refused = await site.queue(node_id, SideVerb.UPDATE, bmc=wanted)
        await site.settle()
        error = (await site.operation(refused)).error
        assert error is not None
        assert error["code"] == "identity-changed"
        assert str(new.machine.uuid)[:8] in error["message"]
        node = await site.node(node_id)
        assert node.bmc is not None
        assert node.bmc.host == old.host

        await site.queue(node_id, SideVerb.UPDATE, bmc=wanted, acceptIdentity=True, reason="BMC swapped")
        await site.settle()
        node = await site.node(node_id)
        assert node.bmc is not None
        assert (node.bmc.host, node.facts.serial) == (new.host, new.machine.serial)
        assert all(one.revoked_at for one in await site.store.read(certificates.of_node, node_id))

    on_each_database(scenario)
