"""A site for the API's tests: a real store and vault, four identities, no machine and no engine; called in process, as ASGI."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, text

from bcmetal.api.app import Services, build_app
from bcmetal.api.auth import CERTIFICATE
from bcmetal.boot.fetch import FetchPolicy
from bcmetal.boot.shelf import Shelf
from bcmetal.decisions import SECOND, Micros
from bcmetal.events import Feed
from bcmetal.settings import Pool, Settings, check
from bcmetal.states import Verb
from bcmetal.store import keys, outbox, views
from bcmetal.store.engine import OpenStore, open_store
from bcmetal.store.ids import new_id
from bcmetal.store.values import Json, NodeRow
from bcmetal.vault import Vault, VaultKey
from in_process import Answered, answer_of
from on_store import OnStore

TENANT: Final = "tenant-a"
POOL: Final = "pool-a"
STEPS: Final = ("look", "act", "see")


def nowhere() -> FetchPolicy:
    """No test of the API fetches anything: no host is allowed."""
    return FetchPolicy((), 1, None)


DOC: Final[dict[str, Any]] = {
    "daemon": {"images_from": ["mirror.example", "10.9.0.0/24"]},
    "sites": {"site-a": {"owner": "platform"}, "site-b": {"owner": "tenant-b"}},
    "networks": {
        "bmc": {
            "cidrs": ["10.20.0.0/16"],
            "names": ["*.bmc.example"],
            "tls": "pin-first",
            "media_url": "http://10.20.0.5",
        },
        "lab": {"cidrs": ["10.30.0.0/16"], "tls": "off", "plain_http": True},
    },
    "credentials": {"fleet": {"username": "bcmetal", "password": "sealed:fleet", "networks": ["bmc"]}},
    "images": {
        "os": {"url": "https://mirror.example/os.iso", "sha256": "0" * 64, "format": "iso"},
        "rescue": {"url": "https://mirror.example/rescue.iso", "sha256": "1" * 64, "format": "iso"},
    },
    "profiles": {
        "commission": {"standard": {"erase": ["bmc"]}, "as-it-is": {"erase": "none"}},
        "release": {
            "standard": {"erase": ["bmc"]},
            "waived": {"erase": ["bmc"], "unerased": "waiver"},
            "as-it-is": {"erase": "none"},
        },
    },
    "pools": {
        POOL: {
            "owner": TENANT,
            "site": "site-a",
            "commission": "standard",
            "release": "standard",
            "trust_bmc_erase": True,
            "rescue_iso": "rescue",
        },
        "pool-a2": {"owner": TENANT, "site": "site-a", "commission": "standard", "release": "standard"},
        "pool-b": {"owner": "tenant-b", "site": "site-b", "commission": "standard", "release": "standard"},
    },
    "identities": [
        {"name": "cert:admin", "tenant": "platform"},
        {"name": "cert:stranger", "tenant": "tenant-b"},
    ],
    "grants": [
        {"to": "key:reader", "role": "reader", "on": f"compute-pool/{POOL}"},
        {"to": "key:operator", "role": "operator", "on": f"compute-pool/{POOL}"},
        {"to": "key:admin", "role": "admin", "on": "site/site-a"},
        {"to": "cert:admin", "role": "admin", "on": "site/site-a"},
        {"to": "key:other", "role": "admin", "on": "site/site-b"},
        {"to": "key:eraser", "actions": ["read", "erase"], "on": f"compute-pool/{POOL}"},
    ],
}
KEYS: Final = {
    "reader": TENANT,
    "operator": TENANT,
    "admin": "platform",
    "eraser": TENANT,
    "nobody": TENANT,
    "other": "tenant-b",
}


@dataclass(slots=True)
class Site(OnStore):
    folder: Path
    doc: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(DOC)))
    keys: dict[str, str] = field(default_factory=dict)
    woken: list[str | None] = field(default_factory=list)
    skipped: int = 0
    sent: list[dict[str, Any]] = field(default_factory=list)  # of the last call

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store: OpenStore = open_store(f"sqlite:///{self.folder / 'db'}")
        self.vault = Vault([VaultKey(os.urandom(32))])
        self.settings: Settings = check(self.doc)
        self.feed = Feed(self.store, "test")
        self.shelf = Shelf(self.folder / "images", nowhere)
        self.services = Services(
            store=self.store,
            settings=lambda: self.settings,
            vault=self.vault,
            clock=self.now,
            entropy=os.urandom,
            wake=self.woken.append,
            steps_of=self.steps_of,
            version="0",
            feed=self.feed,
            shelf=self.shelf,
        )
        self.app = build_app(self.services)
        for name, tenant in KEYS.items():
            self.keys[name] = self.new_key(name, tenant)

    # These are read by the tests and by the app alike.
    loop: asyncio.AbstractEventLoop = field(init=False)
    store: OpenStore = field(init=False)
    vault: Vault = field(init=False)
    settings: Settings = field(init=False)
    feed: Feed = field(init=False)
    shelf: Shelf = field(init=False)
    services: Services = field(init=False)
    app: Any = field(init=False)

    def now(self) -> Micros:
        return Micros(time.time_ns() // 1000 + self.skipped)

    def steps_of(self, verb: Verb, node: NodeRow | None, given: Json, pool: Pool) -> tuple[str, ...]:
        return STEPS

    def close(self) -> None:
        self.shelf.close()
        self.run(self.store.close())
        self.loop.close()

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), os.urandom(10))

    def new_key(self, name: str, tenant: str, expires_at: Micros | None = None) -> str:
        token = "bcmk_" + secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).digest()
        self.write(keys.insert, self.new_id("ky"), digest, f"key:{name}", tenant, self.now(), expires_at)
        return token

    def change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """The configuration, read again."""
        change(self.doc)
        self.settings = check(self.doc)

    # ---------------------------------------------------- calls

    def send(
        self,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        certificate: str | None = None,
        address: str = "192.0.2.7",
    ) -> Answered:
        return self.run(self._send(path, body, headers or {}, method, certificate, address))

    async def _send(
        self, path: str, body: bytes, headers: Mapping[str, str], method: str, certificate: str | None, address: str
    ) -> Answered:
        self.sent = []
        proven = {} if certificate is None else {CERTIFICATE: certificate}
        return await answer_of(
            self.app, path, body, headers, method=method, address=address, proven=proven, sent=self.sent
        )

    def post(self, path: str, body: Any, who: str | None = "admin", **more: Any) -> Answered:
        """`who`: the name of one of the keys; None: no credential."""
        headers = {"Content-Type": "application/json"}
        if who is not None:
            headers["Authorization"] = f"Bearer {self.keys[who]}"
        return self.send(path, json.dumps(body).encode(), {**headers, **more.pop("headers", {})}, **more)

    def metal(
        self, name: str, body: Mapping[str, Any] | None = None, who: str | None = "admin", **more: Any
    ) -> Answered:
        place = {"tenantId": TENANT, "poolId": POOL}
        return self.post(f"/api/compute/metal/{name}", {**place, **(body or {})}, who, **more)

    def of(self, node_id: str, name: str, who: str | None = "admin", /, **given: Any) -> Answered:
        """A method that is about one node."""
        return self.metal(name, {"nodeId": node_id, **given}, who)

    def at_once(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Answered]:
        """Methods of the metal group by the admin, all begun before any is answered."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.keys['admin']}"}

        async def every() -> list[Answered]:
            return await asyncio.gather(
                *(
                    self._send(
                        f"/api/compute/metal/{name}",
                        json.dumps({"tenantId": TENANT, "poolId": POOL, **body}).encode(),
                        headers,
                        "POST",
                        None,
                        "192.0.2.7",
                    )
                    for name, body in calls
                )
            )

        return self.run(every())

    # ---------------------------------------------------- nodes

    def enroll(self, name: str = "r3u17", **given: Any) -> str:
        """A node whose inspect did not begin; its id."""
        bmc = {"address": "redfish://10.20.3.17", "username": "root", "password": secrets.token_urlsafe(9)}
        answer = self.metal("enroll", {"name": name, "bmc": {**bmc, **given.pop("bmc", {})}, "inspect": False, **given})
        assert answer.status == 200, answer.raw
        return str(answer.doc["nodeId"])

    def put(self, node_id: str, **columns: Any) -> None:
        """Columns of the node's row, as if the engine had written them."""

        def write(c: Connection) -> None:
            sets = ", ".join(f"{name} = :{name}" for name in columns)
            c.execute(text(f"UPDATE nodes SET {sets} WHERE node_id = :node_id"), {**columns, "node_id": node_id})  # noqa: S608
            views.rewrite(c, node_id, self.now())

        self.write(write)

    def view(self, node_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.of(node_id, "get").doc
        return found

    def events(self) -> list[outbox.EventRow]:
        self.run(self.feed.deliver())
        return self.read(outbox.since, 0, 1000)

    def operations(self, node_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.of(node_id, "timeline").doc["operations"]
        return found

    def audited(self) -> list[Mapping[str, Any]]:
        def rows(c: Connection) -> list[Mapping[str, Any]]:
            return [dict(row._mapping) for row in c.execute(text("SELECT * FROM audit ORDER BY at, audit_id"))]

        return self.read(rows)

    def skip(self, seconds: float) -> None:
        self.skipped += int(seconds * SECOND)
