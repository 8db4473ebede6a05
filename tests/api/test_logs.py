"""What the agent did: its tasks and their logs, by the API."""

from __future__ import annotations

from typing import Any, Final

from api.site import Site
from bcmetal.api.logs import PIECE
from bcmetal.store import agent_tasks
from bcmetal.store.agent_tasks import NewReport

OPERATION: Final = "op_" + "0" * 26


def a_task(site: Site, node_id: str, name: str, log: str = "", operation_id: str = OPERATION) -> None:
    task = site.write(agent_tasks.put, operation_id, node_id, name, "test", {"name": name}, site.now())
    for at in range(0, len(log), 100_000):
        present = site.read(agent_tasks.by_id, task.task_id)
        assert present is not None
        report = NewReport("running", 250, log=log[at : at + 100_000], log_offset=at)
        site.write(agent_tasks.report, present, report, site.now())


def test_a_node_whose_agent_did_nothing_has_nothing_to_tell(site: Site) -> None:
    node_id = site.enroll()
    assert site.of(node_id, "logs").doc == {"operationId": None, "tasks": [], "text": None, "nextOffset": None}
    assert site.of(node_id, "logs", task="look").code == "NOT_FOUND"


def test_a_log_comes_whole_in_pieces(site: Site) -> None:
    node_id = site.enroll()
    said = "".join(f"line {n}\n" for n in range(60_000))
    a_task(site, node_id, "test-cpu", said)
    [shown] = site.of(node_id, "logs").doc["tasks"]
    assert (shown["name"], shown["progress"], shown["logCharacters"]) == ("test-cpu", 0.25, len(said))
    found, offset = "", 0
    while offset is not None:
        answer: dict[str, Any] = site.of(node_id, "logs", task="test-cpu", offset=offset).doc
        assert len(answer["text"]) <= PIECE
        found, offset = found + answer["text"], answer["nextOffset"]
    assert found == said


def test_the_log_of_another_node_is_not_found_here(site: Site) -> None:
    mine, other = site.enroll(name="mine"), site.enroll(name="other", bmc={"address": "redfish://10.20.3.99"})
    a_task(site, other, "look", "its serial\n")
    assert site.of(mine, "logs", operationId=OPERATION).code == "NOT_FOUND"
    assert site.of(mine, "logs", operationId=OPERATION, task="look").code == "NOT_FOUND"
    assert site.of(other, "logs", task="look").doc["text"] == "its serial\n"
