"""The agents' listener in process over a real store, with a clock that the test moves; and an agent that signs its calls."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from bcmetal.api.agents import AgentDoor, AgentServices, Prepare
from bcmetal.api.joining import JoinServices, build_join_app
from bcmetal.boot import token_file
from bcmetal.decisions import SECOND, Micros
from bcmetal.placeholders import normal_uuid
from bcmetal.settings import check
from bcmetal.store import agent_tasks, agents, claims, conditions, outbox
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.agents import AgentRow
from bcmetal.store.values import Claim, SetIdentifiers
from bcmetal.vault import Vault, VaultKey
from bcmetal_agent import wire_tasks
from in_process import Answered, answer_of
from join.site import DOC
from store.samples import NOW, Db, a_run, an_end, know, mac, save, serial, under_way, uuid

UUID: Final = "8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b0001"
SERIAL: Final = "SN00001X"
MAC: Final = "3c:ec:ef:10:00:01"
ADDRESS: Final = "192.0.2.7"
PLAIN_WAIT_S: Final = 20


def a_machine(**over: Any) -> dict[str, Any]:
    """What it says of itself."""
    return {"productUuid": UUID, "serial": SERIAL, "macs": [MAC], **over}


@dataclass(slots=True)
class Agent:
    """One run of the ramdisk's agent: its key, and once it was welcomed its session."""

    site: AgentSite
    token: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    session_id: str = ""
    sequence: int = 0
    says: dict[str, Any] = field(default_factory=a_machine)

    @property
    def public_key(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def hello(self, address: str = ADDRESS, **more: Any) -> Answered:
        return self.site.db.run(self.saying_hello(address, **more))

    async def saying_hello(self, address: str = ADDRESS, **more: Any) -> Answered:
        body = {
            "publicKey": base64.b64encode(self.public_key).decode(),
            "identifiers": self.says,
            "version": "0.1",
            "clock": "1970-01-01T00:00:07Z",
            **more,
        }
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        raw = json.dumps(body).encode()
        answer = await self.site.sending("POST", wire_tasks.HELLO_PATH, raw, headers, address)
        if answer.status == 200 and answer.doc["status"] == "welcome":
            self.session_id = answer.doc["sessionId"]
        return answer

    def welcomed(self, **more: Any) -> Self:
        answer = self.hello(**more)
        assert answer.status == 200, answer.raw
        assert answer.doc["status"] == "welcome"
        return self

    def headers(self, method: str, path: str, body: bytes, sequence: int) -> dict[str, str]:
        signed = wire_tasks.statement(method, path, self.session_id, sequence, body)
        return {
            wire_tasks.SESSION_HEADER: self.session_id,
            wire_tasks.SEQUENCE_HEADER: str(sequence),
            wire_tasks.SIGNATURE_HEADER: base64.b64encode(self.key.sign(signed)).decode(),
        }

    async def calling(self, method: str, path: str, body: bytes = b"", **more: str) -> Answered:
        self.sequence += 1
        headers = {**self.headers(method, path, body, self.sequence), **more}
        if body:
            headers["Content-Type"] = "application/json"
        return await self.site.sending(method, path, body, headers)

    def call(self, method: str, path: str, body: bytes = b"", **more: str) -> Answered:
        return self.site.db.run(self.calling(method, path, body, **more))

    def next(self) -> Answered:
        return self.call("POST", wire_tasks.NEXT_PATH, b"{}")

    def report(self, task_id: str, state: str = "running", **more: Any) -> Answered:
        body = json.dumps({"taskId": task_id, "state": state, **more}).encode()
        return self.call("POST", wire_tasks.REPORT_PATH, body)

    def image(self, method: str = "GET", **more: str) -> Answered:
        self.sequence += 1
        headers = {**self.headers(method, wire_tasks.IMAGE_PATH, b"", self.sequence), **more}
        return self.site.db.run(self.site.patient(self.site.app, method, wire_tasks.IMAGE_PATH, b"", headers))


class AgentSite:
    """A machine under an operation, whose medium holds a boot token."""

    def __init__(self, url: str, folder: Path) -> None:
        self.db = Db(url)
        self.folder = folder / "images"
        self.folder.mkdir()
        self.vault = Vault([VaultKey(os.urandom(32))])
        self.settings = check({**DOC, "daemon": {"plain_boot_wait_s": PLAIN_WAIT_S}})
        self.now = NOW
        self.woken: list[str | None] = []
        self.prepare: dict[str, Prepare] = {}
        self.node_id, self.operation_id, self.claim = self.a_node(UUID, SERIAL, MAC)
        self.app = self.an_app()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.db.__exit__(kind, error, trace)

    def an_app(self, poll_s: float = 0.3) -> FastAPI:
        joining = JoinServices(
            store=self.db.store,
            settings=lambda: self.settings,
            authority=lambda: None,
            vendors=lambda: (),
            clock=lambda: self.now,
            entropy=os.urandom,
            wake=self.woken.append,
        )
        door = AgentServices(
            store=self.db.store,
            settings=lambda: self.settings,
            clock=lambda: self.now,
            entropy=os.urandom,
            wake=self.woken.append,
            images=self.folder,
            prepare=self.prepare,
            poll_s=poll_s,
        )
        return build_join_app(joining, AgentDoor(door))

    def skip(self, seconds: float) -> None:
        self.now = Micros(self.now + int(seconds * SECOND))

    def a_node(self, uuid_: str, serial_: str, mac_: str) -> tuple[str, str, Claim]:
        node_id, operation_id, held = under_way(self.db)
        known = (uuid(normal_uuid(uuid_) or ""), serial(serial_), mac(mac_))
        know(self.db, node_id, SetIdentifiers("bmc", known))
        held = save(self.db, held, operation_id, a_run(node_id, operation_id, wake_at=Micros(NOW + 600 * SECOND)))
        self.db.write(claims.release, held)
        return node_id, operation_id, held

    def a_token(self, *, in_clear: bool = False, ttl_s: int = 3600, operation_id: str = "", node_id: str = "") -> str:
        """A new one for the operation, as its text."""
        operation_id = operation_id or self.operation_id
        minted = token_file.fresh(self.vault, operation_id, self.now, os.urandom)
        until = Micros(self.now + ttl_s * SECOND)
        node_id = node_id or self.node_id
        self.db.write(token_file.mint, operation_id, node_id, minted, until, self.now, in_clear=in_clear)
        text = self.db.run(token_file.token_of(self.db.store, self.vault, operation_id, self.now))
        assert text is not None
        return text.get_secret_value()

    def an_agent(self, token: str = "", **options: Any) -> Agent:
        return Agent(self, token or self.a_token(**options))

    def a_task(
        self, name: str = "inventory", kind: str = "inventory", /, *, file: str | None = None, **params: Any
    ) -> str:
        args = (self.operation_id, self.node_id, name, kind, params, self.now, file)
        return self.db.write(agent_tasks.put, *args).task_id

    def task(self, name: str = "inventory") -> AgentTaskRow:
        row = self.db.read(agent_tasks.of, self.operation_id, name)
        assert row is not None
        return row

    def agent(self) -> AgentRow | None:
        return self.db.read(agents.current, self.operation_id)

    def over(self) -> None:
        """The operation ends."""
        self.db.write(claims.clear_own, "")
        [held] = [one for one in self.claimed() if one.node_id == self.node_id]
        save(self.db, held, self.operation_id, an_end(self.node_id, self.operation_id), now=self.now)

    def claimed(self) -> list[Claim]:
        self.db.write(agents.wake, self.node_id, self.operation_id, self.now)
        return self.db.write(claims.claim_due, "daemon-1", self.now, 100, {})

    def is_due(self) -> bool:
        """Whether the engine would go on with the operation now."""
        [(wake_at,)] = self.db.rows("SELECT wake_at FROM operations WHERE operation_id = :id", id=self.operation_id)
        [(due_at,)] = self.db.rows("SELECT due_at FROM nodes WHERE node_id = :id", id=self.node_id)
        return bool(wake_at <= self.now and due_at <= self.now)

    def condition(self) -> tuple[str, str] | None:
        found = self.db.read(conditions.list, self.node_id)
        return next(((one.status, one.reason) for one in found if one.type == "agent"), None)

    def events(self, type_: str) -> list[Mapping[str, Any]]:
        self.db.write(outbox.deliver, 10_000)
        return [one.data for one in self.db.read(outbox.since, 0, 10_000) if one.type == type_]

    async def sending(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], address: str = ADDRESS
    ) -> Answered:
        return await answer_of(self.app, path, body, headers, method=method, address=address)

    async def patient(self, app: FastAPI, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        """A caller that stays on the line, as `answer_of`'s does not."""
        return await answer_of(app, path, body, headers, method=method, address=ADDRESS, stays=True)
