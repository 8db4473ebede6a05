"""Credentials do not follow addresses that a caller typed: who answers there without being the BMC gets none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import bmcs, nodes
from bcmetal.store.values import SetBmc
from bcmetal_drivers.emulated.rack import EmulatedBmc
from credentials.bmc_secrets import rotate, stored
from credentials.listed import OURS, a_listed_site, enroll_by
from emulated_site import Site


def got_nothing(site: Site, rogue: EmulatedBmc) -> bool:
    """No session was asked for, no Basic was sent, and no login failed there."""
    return (
        not site.rack.writes and site.rack.failed_logins(rogue) == 0 and site.rack.requests(rogue).get("POST", 0) == 0
    )


async def fails(site: Site, node_id: str) -> str:
    assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
    error = (await site.node(node_id)).last_error
    assert error is not None
    return str(error["code"])


REFUSED = {
    ("fingerprint", "ab" * 32): "bmc-certificate-untrusted",  # another certificate than the pinned one
    ("system", ""): "bmc-certificate-untrusted",
    ("pin-first", ""): "bmc-certificate-untrusted",  # trust on first use spends no shared password
    ("none", ""): "credential-not-for-here",
}


def test_a_shared_credential_goes_only_to_a_pinned_or_verified_certificate(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_listed_site(tmp_path) as site:
            rogue = site.rack.add_redfish("rogue")
            site.rack.start()
            for trust, code in REFUSED.items():
                node_id = await enroll_by(site, rogue, "fleet", trust=trust)
                assert await fails(site, node_id) == code, trust
                await site.store.write(nodes.tombstone_and_delete, node_id, "over", site.clock.now())
            assert got_nothing(site, rogue)

    asyncio.run(scenario())


def test_an_ipmi_bmc_that_does_not_know_the_password_gets_nothing_made_of_it(tmp_path: Path) -> None:
    """RAKP 3 would let it try passwords at leisure; RAKP 2 has shown by then that it is not the BMC."""

    async def scenario() -> None:
        async with a_listed_site(tmp_path) as site:
            rogue = site.rack.add_ipmi("rogue", username=OURS)
            site.rack.start()
            node_id = await enroll_by(site, rogue, "fleet")
            assert await fails(site, node_id) == "bmc-credentials-rejected"
            heard = site.rack.requests(rogue)
            assert (heard["rakp1"] > 0, heard["rakp3"]) == (True, 0)
            assert site.rack.failed_logins(rogue) == 0

    asyncio.run(scenario())


def test_a_credential_goes_to_no_network_that_it_does_not_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_listed_site(tmp_path) as site:
            rogue = site.rack.add_redfish("rogue")
            site.rack.start()
            for credential in ("fleet", "factory"):
                found = site.settings.credentials[credential].model_copy(update={"networks": ("elsewhere",)})
                site.settings = site.settings.model_copy(
                    update={"credentials": {**site.settings.credentials, credential: found}}
                )
                pinned = ("fingerprint", rogue.fingerprint)
                node_id = await enroll_by(site, rogue, credential, {"serial": "SER1234"}, trust=pinned)
                assert await fails(site, node_id) == "credential-not-for-here"
                await site.store.write(nodes.tombstone_and_delete, node_id, "over", site.clock.now())
            assert got_nothing(site, rogue)

    asyncio.run(scenario())


def test_a_node_is_changed_to_a_shared_credential_once_it_was_proven(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_listed_site(tmp_path) as site:
            fleet = site.settings.credentials["fleet"].password_from(site.vault)
            bmc = site.rack.add_redfish("m1", username=OURS, password=fleet)
            other = site.rack.add_redfish("other", username=OURS)
            site.rack.start()
            for one, status in ((bmc, "done"), (other, "failed")):
                node_id = await site.enroll(one)
                assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
                wanted = {"address": one.address, "network": "bmc", "credentialRef": "fleet"}
                trust = {"trustKind": "fingerprint", "trustValue": one.fingerprint}
                operation_id = await site.queue(node_id, SideVerb.UPDATE, bmc={**wanted, **trust})
                await site.settle()
                assert (await site.operation(operation_id)).status == status
                assert ("current.password" in await stored(site, node_id)) is (status == "failed")
                assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED

    asyncio.run(scenario())


def test_a_stored_password_goes_to_nobody_who_took_the_address_over(tmp_path: Path) -> None:
    """By another certificate at the same address, by SQL that moves the address, and by an update that was never proven."""

    async def scenario() -> None:
        async with a_listed_site(tmp_path) as site:
            bmc, rogue = site.rack.add_redfish("m1"), site.rack.add_redfish("rogue")
            site.rack.start()
            node_id = await site.enroll(bmc)
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
            before = len(site.rack.writes)
            row = (await site.node(node_id)).bmc
            assert row is not None
            wanted = {"address": rogue.address, "network": "bmc", "trustKind": "fingerprint", "trustValue": "ab" * 32}
            operation_id = await site.queue(node_id, SideVerb.UPDATE, bmc=wanted)
            await site.settle()
            assert (await site.operation(operation_id)).error is not None
            await site.store.write(bmcs.change, row.bmc_id, SetBmc({"host": rogue.host, "port": rogue.port}))
            await fails(site, node_id)
            pinned = {"host": rogue.host, "port": rogue.port, "trust_value": rogue.fingerprint}
            await site.store.write(bmcs.change, row.bmc_id, SetBmc(pinned))
            assert await fails(site, node_id) == "vault"
            assert (await rotate(site, node_id)).status == "failed"
            assert len(site.rack.writes) == before
            assert site.rack.failed_logins(rogue) == 0
            assert site.rack.requests(rogue).get("POST", 0) == 0

    asyncio.run(scenario())
