"""Secrets on their way to the machine: made or opened as a task is handed out, in the clear in nothing that the daemon keeps, kept for a retry."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from agent_life.life import CRYPTED, LIFE, finish, live_before
from agent_life.site import LifeSite, a_life_site
from bcmetal.api.app import build_app
from bcmetal.api.calls import Services
from bcmetal.decisions import SECOND
from bcmetal.states import State, Verb
from bcmetal.store import agent_tasks, agents, join_tokens, keys
from bcmetal.workflows import workflow_of
from bcmetal.workflows.asked import asked_of
from bcmetal_agent.wire_tasks import Task
from emulated_site_config import POOL, TENANT
from in_process import answer_of

DEPLOY, RESCUE = LIFE[2], LIFE[3]
TOKEN = re.compile(rb"(jt_[0-9a-z]+)\.([A-Za-z0-9_-]{20,})")
GRANT = '\n[[grants]]\nto = "key:admin"\nrole = "admin"\non = "site/site-a"\n'


def _tokens_of(task: Task) -> tuple[str, bytes]:
    """The join token on a config drive: its id, and its secret."""
    iso = gzip.decompress(base64.b64decode(task.params["iso"]))
    found = TOKEN.search(iso)
    assert found is not None
    return found[1].decode(), found[2]


def _kept(life: LifeSite) -> bytes:
    """All that the daemon has on its disk."""
    return b"".join(one.read_bytes() for one in sorted(life.folder.glob("db*")) if one.is_file())


def test_each_hand_out_has_a_join_token_of_its_own_and_the_one_before_is_revoked(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            machine, store = life.add("m1"), life.site.store
            node_id = await live_before(life, "m1", Verb.DEPLOY)
            handed: list[Task] = []

            def killed_once(task: Task) -> bool:
                if task.kind != "writeConfigDrive":
                    return False
                handed.append(task)
                if len(handed) == 1:
                    assert machine.agent is not None
                    machine.agent.kill()
                return len(handed) == 1

            machine.doing = killed_once
            operation_id = await DEPLOY.begin(life, node_id)
            assert await finish(life, node_id, DEPLOY) == []
            assert len(handed) == 2
            (first, first_secret), (second, second_secret) = (_tokens_of(task) for task in handed)
            assert first != second
            before = await store.read(join_tokens.get, first)
            after = await store.read(join_tokens.get, second)
            assert before is not None
            assert after is not None
            assert (before.revoked_at is not None, after.revoked_at) == (True, None)
            assert await store.read(join_tokens.unused_of_node, node_id) == [second]
            assert after.secret_sha256 == hashlib.sha256(second_secret).digest()

            kept = _kept(life)
            assert second.encode() in kept  # its id is: so this would find its secret
            for secret in (first_secret, second_secret, b"# of the tenant"):
                assert secret not in kept
            row = (await life.tasks(operation_id))["write-config-drive"]
            assert (row.params["iso"], row.result is not None) == ("", True)
            log = await store.read(agent_tasks.log_of, operation_id, "write-config-drive")
            assert log
            assert second_secret.decode() not in log
            assert machine.disks[0].holds(second_secret)

            assert await life.live(node_id, Verb.RELEASE) is State.AVAILABLE
            assert await store.read(join_tokens.unused_of_node, node_id) == []

    asyncio.run(run())


def test_an_agent_whose_token_crossed_the_wire_in_the_clear_waits_for_what_is_secret(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path) as life:
            life.add("m1")
            node_id = await live_before(life, "m1", Verb.RESCUE)
            operation_id = await RESCUE.begin(life, node_id)
            assert await finish(life, node_id, RESCUE) == []
            agent = await life.site.store.read(agents.of_token, operation_id, 1)
            handed_at = (await life.tasks(operation_id))["rescue"].handed_at
            assert agent is not None
            assert handed_at is not None
            assert 20 * SECOND <= handed_at - agent.hello_at < 60 * SECOND
            kept = _kept(life)
            assert CRYPTED.encode() not in kept

    asyncio.run(run())


@pytest.mark.parametrize("chapter", [DEPLOY, RESCUE], ids=lambda chapter: chapter.verb.value)
def test_a_retry_has_the_secrets_that_the_failed_one_had(chapter: Any, tmp_path: Path) -> None:
    async def run() -> None:
        async with a_life_site(tmp_path, more=GRANT) as life:
            machine = life.add("m1")
            node_id = await live_before(life, "m1", chapter.verb)
            before = chapter.before(life, "m1")
            machine.boots_agents = False
            await chapter.begin(life, node_id)
            assert (await finish(life, node_id, chapter))[0].startswith(f"it is {chapter.verb}-failed")
            machine.boots_agents = True
            await _retry(life, node_id)
            assert await finish(life, node_id, chapter) == []
            assert chapter.truth(life, "m1", before) == []

    asyncio.run(run())


async def _retry(life: LifeSite, node_id: str) -> None:
    """By the API."""
    site = life.site
    services = Services(
        store=site.store,
        settings=lambda: site.settings,
        vault=site.vault,
        clock=site.clock.now,
        entropy=secrets.token_bytes,
        wake=site.engine.wake,
        steps_of=lambda verb, row, given, pool: tuple(
            workflow_of(verb, asked_of(row, given, pool, site.settings)).steps
        ),
        version="0",
    )
    key = "bcmk_" + secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).digest()
    await site.store.write(keys.insert, site.new_id("ky"), digest, "key:admin", TENANT, site.clock.now(), None)
    body = json.dumps({"tenantId": TENANT, "poolId": POOL, "nodeId": node_id}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    path = "/api/compute/metal/retry"
    answer = await answer_of(build_app(services), path, body, headers, method="POST", address="192.0.2.7")
    assert answer.status == 200, answer.raw
