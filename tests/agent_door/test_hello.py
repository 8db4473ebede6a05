"""Hello: a boot token binds one key, for the machine and the operation that it was made for."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import Any

from agent_door.site import Agent, AgentSite, a_machine
from bcmetal.store import boot_tokens


def test_a_hello_binds_the_agents_key_and_wakes_the_operation(site: AgentSite) -> None:
    agent = site.an_agent()
    assert site.agent() is None
    assert not site.is_due()
    answer = agent.hello()
    assert (answer.status, answer.doc["status"]) == (200, "welcome")
    row = site.agent()
    assert row is not None
    assert (row.session_id, row.node_id, row.public_key) == (agent.session_id, site.node_id, agent.public_key)
    assert row.identifiers == {**a_machine()}
    assert site.is_due()
    assert site.woken == [site.node_id]
    assert site.condition() is None


def test_the_same_key_again_gets_the_same_session(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    first = agent.session_id
    assert agent.welcomed().session_id == first
    assert site.db.rows("SELECT count(*) FROM agents") == [(1,)]


def test_a_second_key_voids_both(site: AgentSite) -> None:
    sniffer = site.an_agent().welcomed(address="192.0.2.66")
    site.skip(1)
    machine = Agent(site, sniffer.token)
    answer = machine.hello()
    assert (answer.status, answer.error["details"]["reason"]) == (403, "conflict")
    assert site.agent() is None
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 1
    assert site.events("security.boot-token.conflict") == [
        {"operationId": site.operation_id, "conflicts": 1, "addresses": ["192.0.2.66", "192.0.2.7"]}
    ]
    assert site.is_due()
    for agent in (sniffer, machine):
        assert agent.hello().status == 403
    assert sniffer.next().status == 403
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 1  # what comes after it is one and the same
    assert site.db.rows("SELECT count(*) FROM agents") == [(1,)]

    again = site.an_agent().welcomed()
    assert Agent(site, again.token).hello().status == 403
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 2


def test_of_many_at_once_one_is_first_and_the_next_voids_both(site: AgentSite) -> None:
    token = site.a_token()
    rivals = [Agent(site, token) for _ in range(6)]

    async def at_once() -> list[int]:
        answers = await asyncio.gather(*(one.saying_hello() for one in rivals))
        return sorted(answer.status for answer in answers)

    assert site.db.run(at_once()) == [200, 403, 403, 403, 403, 403]
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 1
    assert len(site.events("security.boot-token.conflict")) == 1
    assert site.agent() is None


def test_a_hello_that_is_sent_twice_at_once_is_one_session(site: AgentSite) -> None:
    agent = site.an_agent()

    async def at_once() -> list[Any]:
        return [answer.doc["sessionId"] for answer in await asyncio.gather(*(agent.saying_hello() for _ in range(4)))]

    assert set(site.db.run(at_once())) == {agent.session_id}
    assert site.db.read(boot_tokens.conflicts, site.operation_id) == 0


def test_what_proves_nothing_makes_no_rows_and_is_soon_slowed(site: AgentSite) -> None:
    real = site.an_agent()
    forged = Agent(site, real.token[:-43] + base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode())
    answers = {forged.hello().status for _ in range(3)}
    answers |= {Agent(site, text).hello().status for text in ("", "bcbt_x", "bcjt_" + real.token[5:], real.token + "x")}
    assert answers == {401}
    assert forged.hello(identifiers="broken").status == 401
    statuses = [forged.hello().status for _ in range(60)]
    assert 429 in statuses
    assert site.db.rows("SELECT count(*) FROM agents") == [(0,)]
    assert real.hello().status == 200  # what proves itself is never held up by it


def test_a_token_that_is_past_its_time_is_refused(site: AgentSite) -> None:
    agent = site.an_agent(ttl_s=60)
    site.skip(61)
    answer = agent.hello()
    assert (answer.status, answer.error["details"]["reason"]) == (403, "expired")
    assert site.agent() is None
    assert site.condition() is None


def test_a_newer_token_takes_the_place_of_the_one_before(site: AgentSite) -> None:
    first = site.an_agent().welcomed()
    second = site.an_agent()
    assert site.agent() is None
    assert first.next().status == 403
    assert (first.hello().status, second.hello().status) == (403, 200)
    row = site.agent()
    assert row is not None
    assert row.session_id == second.session_id


def test_an_agent_whose_operation_is_over_is_turned_away_and_told_of(site: AgentSite) -> None:
    late = site.an_agent()
    site.over()
    answer = late.hello()
    assert (answer.status, answer.error["details"]["reason"]) == (403, "not-ours-to-run")
    assert site.condition() == ("warning", "not-ours-to-run")
    told = [data for data in site.events("metal.condition.changed") if data["type"] == "agent"]
    assert len(told) == 1
    assert "calls home, but is not ours to run" in told[0]["message"]


def test_a_session_ends_with_its_operation(site: AgentSite) -> None:
    agent = site.an_agent().welcomed()
    assert agent.next().status == 200
    site.over()
    answer = agent.next()
    assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
    assert site.condition() is None


def test_a_stranger_on_the_machines_medium_is_refused_by_name_of_what_differs(site: AgentSite) -> None:
    agent = site.an_agent()
    agent.says = a_machine(productUuid="11111111-2222-4333-8444-555555555555", serial="OTHER77", macs=[])
    answer = agent.hello()
    assert (answer.status, answer.error["details"]["reason"]) == (403, "other-machine")
    assert "another serial and another uuid" in answer.error["message"]
    assert site.agent() is None
    assert site.condition() == ("warning", "other-machine")
    agent.says = a_machine(serial="OTHER77")  # one that agrees is enough: a board's serial is not the system's
    assert agent.hello().status == 200
    assert site.condition() is None


def test_a_machine_that_is_known_as_another_node_is_refused_whatever_else_agrees(site: AgentSite) -> None:
    site.a_node("22222222-2222-4333-8444-555555555555", "SN00002X", "3c:ec:ef:10:00:02")
    agent = site.an_agent()
    agent.says = a_machine(macs=["3c:ec:ef:10:00:02"])
    answer = agent.hello()
    assert answer.status == 403
    assert "by its mac it is another node's machine" in answer.error["message"]


def test_a_machine_without_any_usable_identifier_is_taken_by_its_token(one_site: AgentSite) -> None:
    agent = one_site.an_agent()
    agent.says = {"serial": "To be filled by O.E.M.", "macs": []}
    assert agent.hello().status == 200


def test_a_hello_of_another_shape_is_told_what_is_wrong(one_site: AgentSite) -> None:
    agent = one_site.an_agent()
    assert agent.hello(publicKey="AAAA").fields == {"publicKey"}
    assert agent.hello(identifiers={"macs": ["nonsense"]}).fields == {"identifiers.macs[0]"}
    assert agent.hello(surprise=1).fields == {"surprise"}
    assert agent.hello(version="x" * 70_000).status == 413
    assert one_site.agent() is None


def test_no_answer_says_whether_a_token_of_that_name_exists(one_site: AgentSite) -> None:
    agent = one_site.an_agent()
    forged = Agent(one_site, agent.token[:-1] + ("A" if agent.token[-1] != "A" else "B"))
    unknown = Agent(one_site, "bcbt_" + "0" * 26 + "." + "A" * 43)
    said = [(one.status, one.error["code"], one.error["message"]) for one in (forged.hello(), unknown.hello())]
    assert said[0] == said[1]
