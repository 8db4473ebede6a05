"""Verbs and side operations: one transaction each, replayed by key, refused in the table's words."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from api.site import STEPS, Site
from bcmetal.store import meta, nodes, operations, sealed


def _stamp(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_a_workflow_begins_with_its_first_step_and_wakes_the_engine(site: Site) -> None:
    node_id = site.enroll()
    site.woken.clear()
    view = site.of(node_id, "inspect").doc
    assert view["state"] == "inspecting"
    assert (view["operation"]["step"], view["operation"]["stepNumber"], view["operation"]["steps"]) == (STEPS[0], 1, 3)
    assert view["operation"]["budgetLeftS"] == 15 * 60
    assert site.woken == [node_id]
    assert [event.data for event in site.events() if event.type == "metal.state.changed"][-1] == {
        "from": "enrolled",
        "to": "inspecting",
        "verb": "inspect",
        "operationId": view["operation"]["id"],
    }


def test_a_name_stands_for_the_id(site: Site) -> None:
    node_id = site.enroll("r3u17")
    assert site.of("r3u17", "get").doc["nodeId"] == node_id
    assert site.of("r3u17", "refresh").doc["nodeId"] == node_id


def test_what_the_table_does_not_allow_names_the_state_and_what_is_allowed(site: Site) -> None:
    answer = site.of(site.enroll(), "deploy", image={"name": "os"})
    assert (answer.status, answer.code) == (409, "INVALID_STATE")
    details = answer.error["details"]
    assert details["state"] == "enrolled"
    assert {"verb": "inspect"} in details["allowedVerbs"]


def test_foreign_disks_want_the_machine_to_be_named(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="inspected")
    asked = site.of(node_id, "commission")
    assert asked.error["details"]["reason"] == "needs-confirm-erase"
    assert asked.error["details"]["confirmErase"] == node_id
    wrong = site.of(node_id, "commission", confirmErase="another")
    assert (wrong.code, wrong.fields) == ("INVALID_INPUT", {"confirmErase"})
    view = site.of(node_id, "commission", confirmErase=node_id, profile="as-it-is").doc
    assert view["state"] == "commissioning"
    assert site.operations(node_id)[0]["input"] == {"confirmErase": node_id, "profile": "as-it-is"}


def test_a_random_password_waits_until_the_vaults_recovery_was_exercised(site: Site) -> None:
    node_id = site.enroll()
    answer = site.of(node_id, "rotateBmcCredentials")
    assert (answer.code, answer.error["details"]["reason"]) == ("INVALID_STATE", "recovery-not-exercised")
    assert "bcmetal vault recovery" in answer.error["message"]
    rotating = {"standard": {"erase": "none", "rotate_bmc": True}}
    site.change(lambda doc: doc["profiles"].update(commission=rotating, release=rotating))
    for verb, state in (("commission", "inspected"), ("release", "deployed")):
        site.put(node_id, state=state)
        refused = site.of(node_id, verb, confirmErase=node_id)
        assert refused.error["details"]["reason"] == "recovery-not-exercised"
    site.loop.run_until_complete(site.store.write(meta.put, meta.RECOVERY, site.vault.key_id))
    assert site.of(node_id, "rotateBmcCredentials").doc["nodeId"] == node_id
    assert [one["verb"] for one in site.operations(node_id) if one["kind"] == "side"] == ["rotateBmcCredentials"]


def test_a_service_does_named_steps_by_a_profile_that_has_values_for_them(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "service", steps=[]).fields == {"steps"}
    assert "steps[0]" in site.of(node_id, "service", steps=["erase"]).fields
    site.put(node_id, state="deployed", disks="tenant")
    assert site.of(node_id, "service", steps=["powerCycle", "bios"]).fields == {"steps[1]"}
    answer = site.of(node_id, "service", steps=["powerCycle", "resetBmc"], force=True)
    assert answer.doc["state"] == "servicing"
    given = site.operations(node_id)[0]["input"]
    assert given == {"steps": ["powerCycle", "resetBmc"], "force": True, "profile": given["profile"]}


@pytest.mark.parametrize(
    ("name", "state", "given"),
    [
        ("refresh", "enrolled", {"deep": True}),
    ],
)
def test_inputs_that_this_build_does_not_have_are_refused(
    site: Site, name: str, state: str, given: dict[str, Any]
) -> None:
    node_id = site.enroll(bmc={"tls": {"fingerprint": "cd" * 32}})
    site.put(node_id, state=state, disks="clean")
    answer = site.of(node_id, name, **given)
    assert answer.error["details"]["reason"] == "not-in-this-build"


def test_another_identity_is_accepted_only_with_a_reason_and_keeps_what_was_there(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "update", acceptIdentity=True).fields == {"reason"}
    site.put(node_id, state="deployed", disks="tenant")
    assert site.of(node_id, "update", acceptIdentity=True, reason="board swapped").status == 200
    given = site.operations(node_id)[0]["input"]
    assert given == {"acceptIdentity": True, "reason": "board swapped", "old": {}}


def test_keys_that_a_rescue_iso_cannot_take_are_refused(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="deployed", disks="tenant")
    assert site.of(node_id, "rescue", sshKeys=["ssh-ed25519 AAAA"]).fields == {"sshKeys"}
    assert site.of(node_id, "rescue", passwordHash="$6$saltsalt$" + 43 * "x").fields == {"passwordHash"}
    assert site.of(node_id, "rescue").doc["state"] == "rescuing"


def test_all_faults_of_a_deploy_are_named_at_once(site: Site) -> None:
    node_id = site.enroll()
    image = {"url": "http://169.254.169.254/os.iso", "sha256": "0" * 64, "format": "qcow2", "compression": "gzip"}
    answer = site.of(node_id, "deploy", image=image, kind="iso", userData="x", sshKeys=["ssh-ed25519 AAAA"])
    assert answer.fields == {"image.url", "image.format", "image.compression", "userData", "sshKeys"}
    assert site.of(node_id, "deploy", image={"name": "none"}).fields == {"image.name"}
    assert site.of(node_id, "deploy", image={"name": "os", "url": "https://x.example/"}).fields == {"image"}
    assert site.of(node_id, "deploy", image={"url": "https://mirror.example/x"}).fields == {"image"}


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://127.0.0.1/x", "http://user@mirror.example/x", "http://[::1]/x", "http://10.8.0.1/x"],
)
def test_an_image_address_that_the_site_does_not_allow_is_refused(site: Site, url: str) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "deploy", image={"url": url, "sha256": "0" * 64}).fields == {"image.url"}


def test_a_deploy_by_address_is_taken_where_the_site_lists_it(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="available", disks="clean")
    answer = site.of(node_id, "deploy", image={"url": "http://10.9.0.4/x.iso", "sha256": "AB" * 32})
    assert answer.doc["state"] == "deploying"
    assert site.operations(node_id)[0]["input"]["image"]["sha256"] == "ab" * 32


def test_an_unknown_profile_is_named(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="inspected")
    assert "as-it-is" in site.of(node_id, "commission", profile="none").error["message"]
    assert site.of(node_id, "release", profile="none").fields == {"profile"}


def test_a_release_takes_a_waiver_only_where_its_profile_does(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="deployed", disks="tenant")
    waiver = {"reason": "the drive is dead", "serials": ["S1"]}
    assert site.of(node_id, "release", eraseWaiver=waiver).fields == {"eraseWaiver"}
    assert site.of(node_id, "release", eraseWaiver={"reason": "r"}).fields == {"eraseWaiver"}
    assert site.of(node_id, "release", eraseWaiver=waiver, profile="waived").doc["state"] == "releasing"
    signed = next(event for event in site.events() if event.type == "security.access.waiver")
    assert signed.data["waiver"]["serials"] == ["S1"]


# ---------------------------------------------------------------- keys, generations


def test_a_known_key_asks_only_once_and_answers_with_the_view_now(site: Site) -> None:
    node_id = site.enroll()
    first = site.of(node_id, "refresh", idempotencyKey="k1").doc
    second = site.of(node_id, "refresh", idempotencyKey="k1").doc
    assert first["operation"]["id"] == second["operation"]["id"]
    assert [one["verb"] for one in site.operations(node_id)].count("refresh") == 1


def test_a_key_that_was_used_for_something_else_is_a_conflict(site: Site) -> None:
    node_id, other = site.enroll("a"), site.enroll("b", bmc={"address": "redfish://10.20.3.18"})
    site.of(node_id, "setPower", action="on", idempotencyKey="k1")
    for answer in (
        site.of(node_id, "setPower", action="off", idempotencyKey="k1"),
        site.of(node_id, "refresh", idempotencyKey="k1"),
        site.of(other, "setPower", action="on", idempotencyKey="k1"),
    ):
        assert (answer.status, answer.code) == (409, "CONFLICT")
        assert answer.error["details"]["field"] == "idempotencyKey"
    assert site.of(node_id, "refresh", "operator", idempotencyKey="k1").status == 200  # keys are each identity's own


def test_a_replay_is_answered_before_the_state_is_looked_at(site: Site) -> None:
    node_id = site.enroll()
    first = site.of(node_id, "inspect", idempotencyKey="k1")
    assert first.doc["state"] == "inspecting"
    assert site.of(node_id, "inspect", idempotencyKey="k1").doc["operation"]["id"] == first.doc["operation"]["id"]
    assert site.of(node_id, "inspect").code == "INVALID_STATE"


def test_a_key_of_whom_lost_the_grant_is_no_way_in(site: Site) -> None:
    node_id = site.enroll()
    site.of(node_id, "refresh", "operator", idempotencyKey="k1")
    site.change(lambda doc: doc["grants"].pop(1))
    assert site.of(node_id, "refresh", "operator", idempotencyKey="k1").code == "PERMISSION_DENIED"


def test_a_stale_generation_is_a_conflict(site: Site) -> None:
    node_id = site.enroll()
    generation = site.view(node_id)["generation"]
    answer = site.of(node_id, "inspect", ifGeneration=generation + 1)
    assert (answer.code, answer.error["details"]["reason"]) == ("CONFLICT", "stale-generation")
    assert answer.error["details"]["generation"] == generation
    assert site.of(node_id, "inspect", ifGeneration=generation).status == 200


def test_of_many_calls_at_once_one_moves_the_node(site: Site) -> None:
    node_id = site.enroll()
    answers = site.at_once([("inspect", {"nodeId": node_id})] * 12)
    assert sorted(answer.code for answer in answers) == ["INVALID_STATE"] * 11 + ["OK"]


def test_of_many_calls_at_once_with_one_key_one_is_done_and_all_are_answered(site: Site) -> None:
    node_id = site.enroll()
    bmc = {"address": "ipmi://10.20.3.18", "username": "u", "password": "p" * 8}
    powers = site.at_once([("setPower", {"nodeId": node_id, "action": "on", "idempotencyKey": "k1"})] * 12)
    assert len({answer.doc["operation"]["id"] for answer in powers}) == 1
    begun = site.at_once([("inspect", {"nodeId": node_id, "idempotencyKey": "k3"})] * 12)
    assert len({answer.doc["operation"]["id"] for answer in begun}) == 1
    made = site.at_once([("enroll", {"name": "twin", "bmc": bmc, "idempotencyKey": "k2"})] * 12)
    assert {answer.status for answer in made} == {200}
    assert len({answer.doc["nodeId"] for answer in made}) == 1


# ---------------------------------------------------------------- side operations


def test_a_side_operation_is_queued_and_is_the_answers_operation(site: Site) -> None:
    node_id = site.enroll()
    generation = site.view(node_id)["generation"]
    view = site.of(node_id, "setPower", action="softOff").doc
    assert (view["operation"]["verb"], view["operation"]["status"]) == ("setPower", "queued")
    assert view["generation"] == generation
    assert site.operations(node_id)[0]["input"] == {"action": "softOff"}
    [listed] = site.metal("list").doc["nodes"]
    assert [(one["verb"], one["status"]) for one in listed["sideOperations"]] == [("setPower", "queued")]


def test_what_was_never_read_of_a_bmc_is_null(site: Site) -> None:
    node_id = site.enroll()
    for method, key in (("sensors", "sensors"), ("eventLog", "entries"), ("consoleWays", "ways")):
        answer = site.of(node_id, method).doc
        assert (answer["node"]["nodeId"], answer["takenAt"], answer[key]) == (node_id, None, None)


def test_the_way_to_a_console_is_told_as_a_security_event(site: Site) -> None:
    node_id = site.enroll()
    operation = site.of(node_id, "console").doc["operation"]
    [event] = [one for one in site.events() if one.type == "security.access.console"]
    assert (event.node_id, event.data) == (node_id, {"by": "key:admin", "operationId": operation["id"]})


def test_what_a_bmc_is_asked_for_is_bounded(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "readEventLog", limit=501).code == "INVALID_INPUT"
    assert site.of(node_id, "identify", on="perhaps").code == "INVALID_INPUT"
    for method, given in (("readEventLog", {"limit": 100}), ("identify", {"on": True}), ("resetBmc", {})):
        site.of(node_id, method)
        assert site.operations(node_id)[0]["input"] == given


def test_new_credentials_are_a_candidate_until_they_are_proven(site: Site) -> None:
    node_id = site.enroll()
    password = secrets.token_urlsafe(12)
    view = site.of(node_id, "setBmcCredentials", username="root", password=password).doc
    assert view["bmc"]["pending"] is True
    row = site.read(nodes.get, node_id)
    assert row is not None
    assert row.bmc is not None
    slots = {(one.field, one.slot) for one in site.read(sealed.get, "bmc", row.bmc.bmc_id)}
    assert slots == {(name, slot) for name in ("username", "password") for slot in ("current", "candidate")}
    assert site.operations(node_id)[0]["input"] == {}


def test_new_credentials_are_taken_while_a_workflow_runs(site: Site) -> None:
    node_id = site.enroll()
    site.of(node_id, "inspect")
    answer = site.of(node_id, "setBmcCredentials", username="root", password=secrets.token_urlsafe(12))
    assert answer.doc["state"] == "inspecting"
    assert answer.doc["operation"]["verb"] == "setBmcCredentials"
    assert site.of(node_id, "setPower", action="on").code == "INVALID_STATE"


def test_credentials_that_ipmi_cannot_carry_are_refused(site: Site) -> None:
    node_id = site.enroll(bmc={"address": "ipmi://10.20.3.17"})
    answer = site.of(node_id, "setBmcCredentials", username="u" * 17, password="p" * 21)
    assert answer.fields == {"username", "password"}


# ---------------------------------------------------------------- update


def test_plain_changes_are_taken_at_once(site: Site) -> None:
    node_id = site.enroll(location={"rack": "r3", "unit": "17"}, assetTag="A1")
    given: dict[str, Any] = {"name": "r4u18", "labels": {"team": "a"}, "location": {"rack": "r4"}, "assetTag": None}
    view = site.of(node_id, "update", **given).doc
    assert (view["name"], view["labels"], view["assetTag"]) == ("r4u18", {"team": "a"}, None)
    assert view["location"] == {"room": None, "rack": "r4", "unit": "17"}
    assert view["operation"] is None


def test_a_new_address_is_pending_until_it_is_proven(site: Site) -> None:
    node_id = site.enroll(bmc={"tls": {"fingerprint": "ab" * 32}})
    before = site.view(node_id)["bmc"]["address"]
    view = site.of(node_id, "update", bmc={"address": "redfish://10.20.3.18", "systemId": "1"}, assetTag="A2").doc
    assert (view["bmc"]["address"], view["bmc"]["pending"]) == (before, True)
    assert view["assetTag"] == "A2"
    assert view["operation"]["verb"] == "update"
    side = next(one for one in site.operations(node_id) if one["kind"] == "side")
    assert side["input"]["bmc"] == {
        "address": "redfish://10.20.3.18:443/redfish/v1/Systems/1",
        "network": "bmc",
        "trustKind": "fingerprint",
        "trustValue": "ab" * 32,
    }


@pytest.mark.parametrize(
    ("bmc", "field"),
    [
        ({"address": "redfish://192.0.2.1"}, "bmc.address"),
        ({"tls": {"verify": False}}, "bmc.tls.verify"),
        ({"address": "10.20.3.18", "systemId": "1"}, "bmc.address"),
    ],
)
def test_a_new_place_is_checked_as_at_an_enrolment(site: Site, bmc: dict[str, Any], field: str) -> None:
    node_id = site.enroll(bmc={"tls": {"fingerprint": "ab" * 32}})
    assert field in site.of(node_id, "update", bmc=bmc).fields


def test_a_shared_credential_does_not_follow_to_another_network(site: Site) -> None:
    bmc = {"address": "redfish://10.20.3.17", "credentialRef": "fleet", "tls": {"fingerprint": "ab" * 32}}
    node_id = site.metal("enroll", {"bmc": bmc, "inspect": False}).doc["nodeId"]
    answer = site.of(node_id, "update", bmc={"address": "redfish://10.30.3.17"})
    assert answer.fields == {"bmc.credentialRef"}


def test_a_change_to_a_shared_credential_is_proven_first_and_goes_where_it_may(site: Site) -> None:
    site.change(lambda doc: doc["credentials"].update(factory={"manifest": "/etc/labels.csv", "networks": ["bmc"]}))
    pinned = site.enroll(bmc={"tls": {"fingerprint": "ab" * 32}})
    assert site.of(pinned, "update", bmc={"credentialRef": "none"}).fields == {"bmc.credentialRef"}
    assert site.of(pinned, "update", bmc={"credentialRef": "factory"}).fields == {"bmc.credentialRef"}
    unpinned = site.enroll("unpinned", bmc={"address": "redfish://10.20.3.18"})
    assert "bmc.tls.fingerprint" in site.of(unpinned, "update", bmc={"credentialRef": "fleet"}).fields
    view = site.of(pinned, "update", bmc={"credentialRef": "fleet"}).doc
    assert view["bmc"]["pending"]
    assert view["bmc"]["credentialRef"] is None
    assert site.operations(pinned)[0]["input"]["bmc"]["credentialRef"] == "fleet"


def test_an_update_of_nothing_and_a_taken_name_are_refused(site: Site) -> None:
    node_id = site.enroll("a")
    site.enroll("b", bmc={"address": "redfish://10.20.3.18"})
    assert site.of(node_id, "update").code == "INVALID_INPUT"
    taken = site.of(node_id, "update", name="b")
    assert (taken.code, taken.error["details"]["field"]) == ("CONFLICT", "name")


# ---------------------------------------------------------------- abort, retry, adopt, remove


def test_an_abort_is_a_flag_that_the_engine_sees(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "abort").code == "INVALID_STATE"
    operation = site.of(node_id, "inspect").doc["operation"]["id"]
    view = site.of(node_id, "abort", idempotencyKey="k1").doc
    assert view["operation"]["id"] == operation
    assert view["operation"]["aborting"] is True
    assert site.of(node_id, "abort", idempotencyKey="k1").doc["operation"]["id"] == operation
    row = site.read(operations.get, operation)
    assert row is not None
    assert row.abort


def test_an_abort_in_maintenance_ends_at_once_and_leaves_its_cleanup_queued(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="available", disks="clean")
    operation = site.of(node_id, "deploy", image={"name": "os"}).doc["operation"]["id"]
    site.of(node_id, "setMaintenance", on=True, reason="by hand")

    def touch(c: Any) -> None:
        c.execute(text("UPDATE operations SET touched = true WHERE operation_id = :o"), {"o": operation})

    site.write(touch)
    view = site.of(node_id, "abort").doc
    assert view["state"] == "deploy-failed"
    assert view["lastError"]["code"] == "aborted"
    by_verb = {one["verb"]: one["status"] for one in site.operations(node_id)}
    assert (by_verb["deploy"], by_verb["cleanup"]) == ("aborted", "queued")


def test_an_untouched_abort_in_maintenance_returns_to_where_it_came_from(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="available", disks="clean")
    site.of(node_id, "setMaintenance", on=True, reason="by hand")
    site.of(node_id, "deploy", image={"name": "os"})
    assert site.of(node_id, "abort").doc["state"] == "available"
    assert "cleanup" not in {one["verb"] for one in site.operations(node_id)}


def test_a_retry_does_the_failed_verb_again_with_its_input(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "retry").code == "INVALID_STATE"
    site.put(node_id, state="inspected")
    site.of(node_id, "commission", confirmErase=node_id, profile="as-it-is")

    def fail(c: Any) -> None:
        c.execute(text("UPDATE operations SET status = 'failed', ended_at = 1 WHERE verb = 'commission'"))

    site.write(fail)
    site.put(node_id, state="commission-failed", failed_verb="commission", failed_origin="inspected", operation_id=None)
    view = site.of(node_id, "retry").doc
    assert (view["state"], view["operation"]["verb"]) == ("commissioning", "commission")
    assert site.operations(node_id)[0]["input"] == {"confirmErase": node_id, "profile": "as-it-is"}


def test_adopting_touches_nothing(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="inspected")
    view = site.of(node_id, "adopt").doc
    assert (view["state"], view["system"], view["disks"]) == ("deployed", "present", "foreign")
    assert view["operation"] is None
    assert site.events()[-1].data["to"] == "deployed"


def test_a_removed_node_is_answered_once_more_to_whom_asked(site: Site) -> None:
    node_id = site.enroll("r3u17")
    gone = site.of(node_id, "remove", idempotencyKey="k1").doc
    again = site.of(node_id, "remove", idempotencyKey="k1").doc
    assert gone == again
    assert (gone["name"], gone["allowedVerbs"]) == ("r3u17", [])
    assert site.of(node_id, "get").code == "NOT_FOUND"
    assert site.of(node_id, "remove").code == "NOT_FOUND"
    assert site.events()[-1].type == "metal.node.removed"
    assert site.enroll("r3u17") != node_id


def test_a_deployed_node_is_abandoned_with_a_reason_only(site: Site) -> None:
    node_id = site.enroll()
    site.put(node_id, state="deployed", disks="tenant")
    assert site.of(node_id, "remove").error["details"]["reason"] == "needs-abandon"
    assert site.of(node_id, "remove", abandon="sold").status == 200


# ---------------------------------------------------------------- maintenance, protection


def test_maintenance_holds_and_lets_go(site: Site) -> None:
    node_id = site.enroll()
    view = site.of(node_id, "setMaintenance", on=True, reason="DIMM", quiet=True, until=_stamp(3600)).doc
    assert view["maintenance"]["on"] is True
    assert view["maintenance"]["quiet"] is True
    assert view["maintenance"]["until"].endswith("Z")
    assert site.of(node_id, "inspect").doc["state"] == "inspecting"  # accepted; it waits
    off = site.of(node_id, "setMaintenance", on=False).doc
    assert off["maintenance"] == {"on": False, "quiet": False, "reason": None, "until": None}


def test_protection_refuses_what_takes_the_machine_down(site: Site) -> None:
    node_id = site.enroll()
    site.of(node_id, "setProtected", on=True, reason="the only copy")
    assert site.of(node_id, "setPower", action="off").error["details"]["reason"] == "protected"
    site.of(node_id, "setProtected", on=False)
    assert site.of(node_id, "setPower", action="off").status == 200


@pytest.mark.parametrize("name", ["setMaintenance", "setProtected"])
def test_a_hold_needs_a_reason_and_an_end_that_is_to_come(site: Site, name: str) -> None:
    node_id = site.enroll()
    assert site.of(node_id, name, on=True, until=_stamp(-5)).fields == {"reason", "until"}
    assert site.of(node_id, name, on=True, reason="r", until="2026-01-01T00:00:00").fields == {"until"}
    assert site.of(node_id, name, on=True, reason="r", until="0001-01-01T00:00:00Z").fields == {"until"}


def test_a_pool_that_only_observes_refuses_what_writes(site: Site) -> None:
    node_id = site.enroll()
    site.change(lambda doc: doc["pools"]["pool-a"].update(mode="observe"))
    assert site.of(node_id, "setPower", action="on").error["details"]["reason"] == "observe-mode"
    assert site.of(node_id, "refresh").status == 200
