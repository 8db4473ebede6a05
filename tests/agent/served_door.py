"""The daemon's own door for the ramdisk's agent, over TLS: the door in this thread, the agent in another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agent_door.site import MAC, SERIAL, UUID, AgentSite
from bcmetal.decisions import Micros
from bcmetal.join import ca
from bcmetal.store.engine import open_store
from bcmetal_agent.session import Session, Site
from bcmetal_agent.trust import Endpoint

T = TypeVar("T")


class Served:
    """The door of one machine's operation, and what the agent was told to set its clock to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        url = f"sqlite:///{folder / 'db'}"
        open_store(url).shut()
        self.door = AgentSite(url, folder)
        now = Micros(time.time_ns() // 1000)
        self.root = ca.make_root("Test", now)
        issuer = ca.make_issuer(ca.IssuerKind.SERVER, self.root, now)
        key = ec.generate_private_key(ec.SECP256R1())
        made = ca.issue_server_certificate(issuer, key.public_key(), ("127.0.0.1",), now, 30, 1)
        self.pem = folder / "listener.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        self.pem.write_text(secret + made.chain)
        self.steps: list[float] = []

    def run(self, work: Callable[[Site], T]) -> T:
        """`work` in a thread while the door is open."""

        async def both() -> T:
            config = uvicorn.Config(
                self.door.app, host="127.0.0.1", port=0, ssl_certfile=str(self.pem), lifespan="off", log_config=None
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            site = Site(Endpoint("127.0.0.1", port), ca.pem_of([self.root.certificate]), "test")
            try:
                return await asyncio.to_thread(work, site)
            finally:
                server.should_exit = True
                await serving

        return self.door.db.run(both())

    def session(self, site: Site, token: str, folder: str = "run", **more: Any) -> Session:
        return Session(
            site, token, self.folder / folder, call_s=5, root=self.machine(), clock=self.steps.append, **more
        )

    def machine(self) -> Path:
        root = self.folder / "machine"
        dmi, card = root / "sys/class/dmi/id", root / "sys/class/net/eno1"
        if not root.exists():
            for made in (dmi, card / "device"):
                made.mkdir(parents=True)
            for path, text in (
                (dmi / "product_uuid", UUID),
                (dmi / "product_serial", SERIAL),
                (card / "address", MAC),
                (card / "type", "1"),
            ):
                path.write_text(f"{text}\n")
        return root
