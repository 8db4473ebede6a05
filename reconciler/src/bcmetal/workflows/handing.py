"""What a task holds when it is handed out, beside what is stored of it: secrets, made or opened anew each time.

The door asks (`api.agents`), for these kinds only. Whatever goes wrong here is the door's to answer as unavailable: the agent asks again.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cryptography import x509
from sqlalchemy import Connection

from bcmetal.boot import config_drive
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Conflict, Unavailable
from bcmetal.join.bearers import Bearer
from bcmetal.join.ca import pin_of
from bcmetal.join.minting import mint_for_node
from bcmetal.settings import Settings
from bcmetal.store import agents, nodes, operations, sealed
from bcmetal.store.agent_tasks import AgentTaskRow
from bcmetal.store.agents import AgentRow
from bcmetal.store.values import Json, NodeRow, OperationRow, Sealed
from bcmetal.store.views import stamp
from bcmetal.text import at_port
from bcmetal.workflows.machine import Doors
from bcmetal_agent import wire
from bcmetal_agent.wire_tasks import RescueParams, TestParams, WriteConfigDriveParams

Prepare = Callable[[AgentTaskRow, AgentRow], Awaitable[Json]]
HOSTNAME_LIMIT: Final = 63


@dataclass(frozen=True, slots=True)
class _About:
    operation: OperationRow
    node: NodeRow
    secrets: tuple[Sealed, ...]


@dataclass(frozen=True)
class Handing:
    """`roots`: the site's trust bundle as PEM, first the root to pin; empty: there is no CA yet, and nobody joins."""

    doors: Doors
    roots: Callable[[], Sequence[str]]

    def prepare(self) -> Mapping[str, Prepare]:
        return {"writeConfigDrive": self._config_drive, "rescue": self._rescue, "test": self._test}

    async def _about(self, task: AgentTaskRow) -> _About:
        found = await self.doors.store.read(_about, task)
        if found is None:
            raise Unavailable(f"operation {task.operation_id} or its node is gone")
        return found

    def _opened(self, about: _About, name: str) -> str | None:
        row = next((one for one in about.secrets if one.field == name), None)
        return None if row is None else self.doors.vault.open(row, "operation").get_secret_value()

    async def _config_drive(self, task: AgentTaskRow, agent: AgentRow) -> Json:
        """A fresh join token, which takes the place of the one before; it is in the answer alone."""
        about = await self._about(task)
        settings = self.doors.settings()
        files: dict[str, bytes] = {}
        if self.roots():
            doors = self.doors
            bearer = await doors.store.write(_mint, about, agent, doors.entropy, doors.clock.now())
            files["bcmetal/token"] = bearer.text().encode() + b"\n"
            files["bcmetal/join.json"] = json.dumps(join_document(settings, agent.address, self.roots())).encode()
        image = settings.images.get(str(about.operation.input["image"].get("name") or ""))
        drive = config_drive.Drive(
            kind=image.config_drive if image is not None else "nocloud",
            instance_id=about.operation.operation_id,
            hostname=about.node.name[:HOSTNAME_LIMIT],
            ssh_keys=tuple(about.operation.input.get("sshKeys") or ()),
            user_data=self._opened(about, "user-data"),
            meta_data=self._opened(about, "meta-data"),
            network_data=self._opened(about, "network-data"),
            files=files,
        )
        iso = await asyncio.to_thread(config_drive.build, drive)
        packed = await asyncio.to_thread(gzip.compress, iso, 6)
        stored = wire.read_doc(WriteConfigDriveParams, dict(task.params))
        return wire.to_doc(
            replace(stored, iso=base64.b64encode(packed).decode(), sha256=hashlib.sha256(iso).hexdigest())
        )

    async def _rescue(self, task: AgentTaskRow, agent: AgentRow) -> Json:
        """With the password's hash; its end counts from when the task was first handed out."""
        about = await self._about(task)
        params = wire.read_doc(RescueParams, dict(task.params))
        if params.expires_in_s and task.handed_at is not None:
            used_s = (self.doors.clock.now() - task.handed_at) // SECOND
            params = replace(params, expires_in_s=max(1, params.expires_in_s - used_s))
        if task.name == "rescue":
            params = replace(params, password_hash=self._opened(about, "password-hash"))
        return wire.to_doc(params)

    async def _test(self, task: AgentTaskRow, agent: AgentRow) -> Json:
        """The clock's test is told the daemon's time."""
        params = wire.read_doc(TestParams, dict(task.params))
        if params.name == "clock":
            params = replace(params, limits={**params.limits, "server_time": stamp(self.doors.clock.now())})
        return wire.to_doc(params)


def _mint(c: Connection, about: _About, agent: AgentRow, entropy: Callable[[int], bytes], now: Micros) -> Bearer:
    """Raises Conflict: the agent asked anew meanwhile, and the token that it was given then must stay."""
    if not agents.is_last_call(c, agent.session_id, agent.sequence):
        raise Conflict("the agent has asked anew", reason="sequence")
    node = about.node
    places = (node.node_id, node.tenant_id, node.pool_id, node.site_id)
    return mint_for_node(c, *places, about.operation.by, entropy, now)


def _about(c: Connection, task: AgentTaskRow) -> _About | None:
    operation, node = operations.get(c, task.operation_id), nodes.get(c, task.node_id)
    if operation is None or node is None:
        return None
    return _About(operation, node, sealed.get(c, "operation", task.operation_id))


def join_document(settings: Settings, agent_address: str, roots: Sequence[str]) -> dict[str, str]:
    """How the machine's own agent finds its pool on the first boot: the daemon as machines on the agent's network reach it, and the root to pin."""
    network = settings.network_for(agent_address)
    server = network.agent_url if network is not None else None
    if server is None:
        server = next((one.agent_url for one in settings.networks.values() if one.agent_url), None)
    if server is None:
        raise Unavailable("no network of the configuration has an agent_url: machines cannot be told where to join")
    port = settings.daemon.node_listen.rpartition(":")[2]
    return {
        "server": server,
        "nodeServer": at_port(server, port),
        "ca": pin_of(x509.load_pem_x509_certificate(roots[0].encode())),
    }
