"""Hello of a machine whose TPM is on record: the token alone begins nothing, and ends nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from typing import Any

import pytest

from agent_door.site import PLAIN_WAIT_S, Agent, AgentSite
from bcmetal.decisions import SECOND
from bcmetal.join.challenging import CHALLENGE_US
from bcmetal.join.hello import OPEN_CHALLENGES
from bcmetal.join.judging import Trust
from bcmetal.store import boot_tokens, certificates, members, nodes
from bcmetal.store.members import MemberRow
from bcmetal_agent import wire_tasks
from in_process import Answered
from join.soft_tpm import SoftTpm


@pytest.fixture(scope="module")
def chip() -> SoftTpm:
    return SoftTpm()


@pytest.fixture(scope="module")
def another() -> SoftTpm:
    return SoftTpm()


def on_record(site: AgentSite, ek_sha256: str, **over: Any) -> None:
    """The machine joined once, and proved its TPM."""
    owner = site.db.read(nodes.owner, site.node_id)
    assert owner is not None
    row: dict[str, Any] = {
        "node_id": site.node_id,
        "tenant_id": owner.tenant_id,
        "pool_id": owner.pool_id,
        "site_id": owner.site_id,
        "state": members.LIVE,
        "trust": Trust.PLATFORM,
        "hosted": None,
        "token_id": None,
        "request_id": None,
        "attestor": "tpm",
        "admitted_by": "somebody",
        "ek_sha256": ek_sha256,
        "tpm_proven": True,
        "metal_node_id": site.node_id,
        "address": "192.0.2.7",
        "joined_at": site.now,
        "last_join_at": site.now,
        "last_seen_at": site.now,
        "ended_at": None,
        "end_reason": None,
    }
    site.db.write(members.join, MemberRow(**row | over), (), site.now)


def challenged(agent: Agent, chip: SoftTpm, **more: Any) -> dict[str, Any]:
    answer = agent.hello(tpm=chip.says(), **more)
    assert answer.status == 200, answer.raw
    assert answer.doc["status"] == "challenge"
    return dict(answer.doc)


def proof(agent: Agent, challenge: dict[str, Any], secret: bytes) -> dict[str, str]:
    subject = hashlib.sha256(wire_tasks.hello_statement(agent.public_key)).digest()
    made = hmac.digest(secret, challenge["challengeId"].encode() + subject, "sha256")
    return {"challengeId": challenge["challengeId"], "proof": base64.b64encode(made).decode()}


def proving(agent: Agent, chip: SoftTpm, **more: Any) -> Answered:
    challenge = challenged(agent, chip)
    return agent.hello(tpm=chip.says(), challenge=proof(agent, challenge, chip.opens(challenge)), **more)


def reason(answer: Answered) -> str:
    assert answer.status == 403, answer.raw
    return str(answer.error["details"]["reason"])


def challenges(site: AgentSite) -> int:
    [(count,)] = site.db.rows("SELECT count(*) FROM challenges")
    return int(count)


def test_the_tpm_on_record_is_asked_for_and_vouches_for_the_key(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    agent = site.an_agent(in_clear=True)
    assert agent.hello().doc == {"status": "showTpm"}
    assert (site.agent(), challenges(site), site.condition()) == (None, 0, None)
    answer = proving(agent, chip)
    assert (answer.status, answer.doc["status"]) == (200, "welcome")
    row = site.agent()
    assert row is not None
    assert (row.public_key, row.tpm_proven) == (agent.public_key, True)
    first = answer.doc["sessionId"]
    assert agent.hello().doc["sessionId"] == first  # its answer was lost; the key is proven already


def test_a_machine_without_a_record_is_not_asked_and_what_it_shows_is_not_kept(site: AgentSite, chip: SoftTpm) -> None:
    agent = site.an_agent()
    assert agent.hello(tpm=chip.says()).doc["status"] == "welcome"
    row = site.agent()
    assert row is not None
    assert not row.tpm_proven
    assert (challenges(site), site.db.read(members.eks_of_machine, site.node_id)) == (0, frozenset())


@pytest.mark.parametrize("over", [{"state": "released"}, {"state": "evicted"}, {"node_id": "nd_another"}])
def test_the_record_stays_whatever_became_of_the_membership(
    one_site: AgentSite, chip: SoftTpm, over: dict[str, Any]
) -> None:
    on_record(one_site, chip.ek_sha256, **over)
    assert one_site.an_agent().hello().doc == {"status": "showTpm"}


def test_another_machines_record_asks_nothing_of_this_one(one_site: AgentSite, chip: SoftTpm) -> None:
    on_record(one_site, chip.ek_sha256, node_id="nd_another", metal_node_id="nd_another")
    assert one_site.an_agent().hello().doc["status"] == "welcome"


def test_a_proven_tpm_ends_the_wait_for_secrets(one_site: AgentSite, chip: SoftTpm) -> None:
    one_site.a_task("config", "writeConfigDrive", iso="")
    plain = one_site.an_agent(in_clear=True).welcomed()
    assert plain.next().doc["status"] == "idle"
    one_site.skip(PLAIN_WAIT_S)
    assert plain.next().doc["status"] == "task"
    on_record(one_site, chip.ek_sha256)
    agent = one_site.an_agent(in_clear=True)
    assert proving(agent, chip).status == 200
    assert agent.next().doc["status"] == "task"


def test_who_read_the_token_gets_no_session_and_the_machine_works_on(
    site: AgentSite, chip: SoftTpm, another: SoftTpm
) -> None:
    """First on the wire, or second: it makes no difference."""
    on_record(site, chip.ek_sha256)
    machine = site.an_agent(in_clear=True)
    sniffer = Agent(site, machine.token)
    task_id = site.a_task()
    for turn in range(2):
        assert sniffer.hello(address="192.0.2.66").doc == {"status": "showTpm"}
        assert reason(sniffer.hello(tpm=another.says())) == "other-tpm"
        site.skip(1)
        assert reason(sniffer.hello(noTpm="none")) == "no-tpm"
        # The EK's public half can be known to whoever had the machine before.
        challenge = challenged(sniffer, chip)
        answer = sniffer.hello(tpm=chip.says(), challenge=proof(sniffer, challenge, os.urandom(32)))
        assert reason(answer) == "challenge-failed"
        if turn == 0:
            assert proving(machine, chip).status == 200
            assert site.condition() is None
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 0
    assert machine.next().doc["taskId"] == task_id
    assert site.db.rows("SELECT count(*) FROM agents") == [(1,)]
    assert (sniffer.session_id, site.condition()) == ("", None)


def test_a_second_key_that_the_tpm_vouches_for_voids_both_as_ever(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    first = site.an_agent()
    assert proving(first, chip).status == 200
    again = Agent(site, first.token)
    assert reason(proving(again, chip)) == "conflict"
    assert site.agent() is None
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 1


def test_another_machines_tpm_is_refused_and_told_of_without_a_row(site: AgentSite, another: SoftTpm) -> None:
    on_record(site, "00" * 32)
    agent = site.an_agent()
    answer = agent.hello(tpm=another.says())
    assert reason(answer) == "other-tpm"
    assert "another TPM than the one on record" in answer.error["message"]
    assert (site.agent(), challenges(site), site.condition()) == (None, 0, ("warning", "other-tpm"))


def test_a_machine_that_can_show_no_tpm_is_refused_in_plain_words(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    agent = site.an_agent()
    answer = agent.hello(noTpm="no TPM answers at\x1b[31m\ndevice:/dev/tpmrm0")
    assert reason(answer) == "no-tpm"
    assert "no TPM answers at" in answer.error["message"]
    assert (site.agent(), site.condition()) == (None, ("warning", "no-tpm"))
    [told] = [one for one in site.events("metal.condition.changed") if one["type"] == "agent"]
    assert told["message"].endswith("has none to show: no TPM answers at[31m device:/dev/tpmrm0")
    assert proving(agent, chip).status == 200  # mended: the module was loaded
    assert site.condition() is None


def test_a_proof_is_good_once(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    agent = site.an_agent()
    challenge = challenged(agent, chip)
    answer = proof(agent, challenge, chip.opens(challenge))
    assert agent.hello(tpm=chip.says(), challenge=answer).status == 200
    fresh = site.a_token()  # the operation's next boot, with the same key
    replay = Agent(site, fresh, key=agent.key)
    assert reason(replay.hello(tpm=chip.says(), challenge=answer)) == "challenge-of-another"
    assert site.agent() is None
    # And of the same token, by a key that was not the proof's.
    late = challenged(replay, chip)
    right = proof(replay, late, chip.opens(late))
    assert site.db.write(certificates.use_challenge, late["challengeId"], site.now)
    assert reason(replay.hello(tpm=chip.says(), challenge=right)) == "challenge-replayed"


def test_a_key_swapped_after_the_challenge_is_refused(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    machine = site.an_agent()
    challenge = challenged(machine, chip)
    right = proof(machine, challenge, chip.opens(challenge))
    thief = Agent(site, machine.token)
    assert reason(thief.hello(tpm=chip.says(), challenge=right)) == "challenge-of-another"
    ours = challenged(thief, chip)
    assert reason(thief.hello(tpm=chip.says(), challenge={**right, "challengeId": ours["challengeId"]})) == (
        "challenge-failed"
    )
    assert machine.hello(tpm=chip.says(), challenge=right).status == 200


def test_identifiers_changed_after_the_challenge_are_refused(one_site: AgentSite, chip: SoftTpm) -> None:
    on_record(one_site, chip.ek_sha256)
    agent = one_site.an_agent()
    challenge = challenged(agent, chip)
    agent.says = {**agent.says, "serial": "OTHER77"}
    right = proof(agent, challenge, chip.opens(challenge))
    assert reason(agent.hello(tpm=chip.says(), challenge=right)) == "challenge-of-another"


def test_another_ek_than_the_challenges_is_refused(one_site: AgentSite, chip: SoftTpm, another: SoftTpm) -> None:
    """Both are on record: of the node's two memberships."""
    on_record(one_site, chip.ek_sha256)
    on_record(one_site, another.ek_sha256, node_id="nd_before")
    agent = one_site.an_agent()
    challenge = challenged(agent, chip)
    right = proof(agent, challenge, chip.opens(challenge))
    assert reason(agent.hello(tpm=another.says(), challenge=right)) == "challenge-of-another"


def test_a_challenge_outlives_the_daemon_for_a_minute(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    agent = site.an_agent()
    challenge = challenged(agent, chip)
    right = proof(agent, challenge, chip.opens(challenge))
    site.app = site.an_app()
    site.skip(CHALLENGE_US / SECOND)
    assert reason(agent.hello(tpm=chip.says(), challenge=right)) == "challenge-replayed"
    challenge = challenged(agent, chip)
    right = proof(agent, challenge, chip.opens(challenge))
    site.app = site.an_app()
    site.skip(CHALLENGE_US / SECOND - 1)
    assert agent.hello(tpm=chip.says(), challenge=right).status == 200


def test_unanswered_challenges_are_few(site: AgentSite, chip: SoftTpm) -> None:
    on_record(site, chip.ek_sha256)
    token = site.a_token()
    statuses = [Agent(site, token).hello(tpm=chip.says()).status for _ in range(OPEN_CHALLENGES + 3)]
    assert statuses == [200] * OPEN_CHALLENGES + [429] * 3
    assert challenges(site) == OPEN_CHALLENGES
    site.skip(CHALLENGE_US / SECOND)
    assert proving(Agent(site, token), chip).status == 200


def test_the_machine_is_looked_at_as_well(one_site: AgentSite, chip: SoftTpm) -> None:
    on_record(one_site, chip.ek_sha256)
    agent = one_site.an_agent()
    agent.says = {"productUuid": "11111111-2222-4333-8444-555555555555", "serial": "OTHER77", "macs": []}
    assert reason(proving(agent, chip)) == "other-machine"


def test_nonsense_is_told_as_such_and_makes_no_rows(one_site: AgentSite, chip: SoftTpm) -> None:
    on_record(one_site, chip.ek_sha256)
    agent = one_site.an_agent()
    assert agent.hello(tpm={**chip.says(), "ekPublic": "AAAA"}).fields == {"tpm"}
    assert agent.hello(tpm=chip.says(), challenge={"challengeId": "jc_\0", "proof": ""}).fields == {
        "challenge.challengeId"
    }
    id_ = "jc_" + "0" * 26
    assert agent.hello(tpm=chip.says(), challenge={"challengeId": id_, "proof": "é"}).fields == {"challenge.proof"}
    assert reason(agent.hello(tpm=chip.says(), challenge={"challengeId": id_, "proof": "AAAA"})) == (
        "challenge-of-another"
    )
    assert (one_site.agent(), challenges(one_site)) == (None, 0)
