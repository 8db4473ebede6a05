"""Lines, certificates, answers that are late, broken or enormous, and services with more than one system."""

from __future__ import annotations

import pytest

from bcmetal.states import State, Verb
from bcmetal_drivers.connection import Limits
from behaviours.frame import Case, Judge, Row, Shared
from emulated_site import Site

IMPATIENT = Limits(connect_s=2.0, read_s=1.0, total_s=3.0)
SYSTEM_TRUST = {"trust": ("system", "")}


async def whole(case: Case) -> None:
    """Everything was read, in spite of it."""
    inventory = await case.inventory()
    assert len(inventory.doc["cpus"]) == case.bmc.machine.hardware.cpus
    assert len(inventory.doc["drives"]) == len(case.bmc.machine.drives)


def told(*sections: str) -> Judge:
    """These sections say what was wrong; the others are there."""

    async def judge(case: Case) -> None:
        inventory = await case.inventory()
        bad = {name for name, status in inventory.sections.items() if status not in ("ok", "absent")}
        assert bad == set(sections), inventory.sections
        assert len(inventory.doc["drives"]) == len(case.bmc.machine.drives)

    return judge


def says(*words: str, logins: int = 0) -> Judge:
    async def judge(case: Case) -> None:
        error = (await case.node()).last_error
        assert error is not None
        assert all(word in error["message"] for word in words), error
        assert case.site.rack.requests(case.bmc)["POST"] == logins

    return judge


async def the_machine_itself(case: Case) -> None:
    """Not the system beside it."""
    node = await case.node()
    assert node.system_path == f"/redfish/v1/Systems/{case.bmc.machine.hardware.system_id}"
    assert str(case.bmc.machine.uuid) in {i.raw for i in node.identifiers}


async def the_same_again(case: Case) -> None:
    """Another reading finds nothing changed."""
    first = await case.inventory()
    assert await case.live(Verb.INSPECT) is State.INSPECTED
    assert (await case.inventory()).inventory_id == first.inventory_id


async def harmless(case: Case) -> None:
    """What is stored can be shown."""
    inventory = await case.inventory()
    identity = inventory.doc["identity"]
    for text in (identity["model"], identity["asset_tag"], inventory.doc["cpus"][0]["model"]):
        assert text.isprintable()
    assert identity["model"].startswith("R740")


ROWS = (
    Row("keep-alive-dropped", until=Verb.DEPLOY),
    Row("reset-on-second-request", until=Verb.DEPLOY),
    Row("reset-answers-lost", until=Verb.RELEASE),
    Row("silent", limits=IMPATIENT, judge=whole),
    Row("a-byte-a-second", limits=IMPATIENT, judge=whole),
    Row("gateway-timeout-html", until=Verb.DEPLOY),
    Row("not-ready-400", judge=whole),
    Row("restarts-in-the-middle", until=Verb.COMMISSION),
    Row("ipv6-literal", judge=whole),
    Row("certificate-expired", enroll=SYSTEM_TRUST, fails="bmc-certificate-untrusted", judge=says("self-signed")),
    Row("certificate-expired", note="pinned", judge=whole),
    Row("certificate-for-another-name", enroll=SYSTEM_TRUST, fails="bmc-certificate-untrusted", judge=says("self-signed")),
    Row("certificate-for-another-name", note="pinned", judge=whole),
    Row("old-tls", fails="bmc-insecure-transport", judge=says("too old")),
    Row("several-systems", anywhere=True, fails="bmc-ambiguous-system", judge=says("Systems/1", "Systems/2", logins=1)),
    Row("several-systems", note="named", until=Verb.COMMISSION),
    Row("witness-node", anywhere=True, judge=the_machine_itself),
    Row("hgx-beside-the-host", anywhere=True, judge=the_machine_itself),
    Row("members-change-their-order", judge=the_same_again),
    Row("enormous-documents", judge=told("firmware")),
    Row("links-in-a-circle", judge=told("memory", "firmware")),
    Row("nan-in-documents", judge=whole),
    Row("control-characters", judge=harmless),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_machine_with_this_behaviour(row: Row, shared: Shared) -> None:
    shared.tell(row)


def test_a_certificate_of_a_ca_for_another_name_is_told_from_an_expired_one(shared: Shared) -> None:
    async def scenario(site: Site) -> None:
        for name, word in (("certificate-for-another-name", "another IP address"), ("certificate-expired", "expired")):
            bmc = site.rack.add_redfish(f"ca-{name}", behaviours=(name,))
            site.rack.start()
            node_id = await site.enroll(bmc, trust=("ca", bmc.ca_pem))
            assert await site.live(node_id, Verb.INSPECT) is State.INSPECT_FAILED
            error = (await site.node(node_id)).last_error
            assert error is not None
            assert error["code"] == "bmc-certificate-untrusted"
            assert word in error["message"]

    shared.run(scenario)
