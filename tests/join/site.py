"""A site that machines join: a real store on either database, a CA made at run time, the three applications called in process.

Time is the site's own (`skip`). `Box` is a machine: a key, a CSR and what it says of itself; `join` is its call.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import Connection, update

from bcmetal.api.agents import AgentDoor, AgentServices
from bcmetal.api.app import Services, build_app
from bcmetal.api.joining import JoinServices, build_join_app
from bcmetal.api.node_door import build_node_app
from bcmetal.api.node_tls import PEER
from bcmetal.boot.shelf import Shelf
from bcmetal.decisions import SECOND, Micros
from bcmetal.join.authority import Authority
from bcmetal.join.ca import IssuerKind, make_issuer, make_root, pem_of
from bcmetal.placeholders import normal_uuid, usable_uuid
from bcmetal.settings import Settings, check
from bcmetal.store import keys, nodes, outbox
from bcmetal.store.engine import OpenStore, open_store
from bcmetal.store.ids import new_id
from bcmetal.store.tables import nodes as nodes_table
from bcmetal.store.values import Identifier, NewBmc, NewNode, SetIdentifiers
from bcmetal.vault import Vault, VaultKey
from bcmetal_agent.wire import JOIN_PATH, RENEW_PATH, SECRETS_PATH, renewal_statement
from in_process import Answered, answer_of
from on_store import OnStore

OWNER: Final = "platform"
POOL: Final = "metal"

DOC: Final[dict[str, Any]] = {
    "sites": {"fra1": {"owner": OWNER}, "edge": {"owner": "tenant-b", "custom": True}},
    "networks": {"bmc": {"cidrs": ["10.20.0.0/16"]}},
    "profiles": {"commission": {"std": {"erase": "none"}}, "release": {"std": {"erase": "none"}}},
    "pools": {
        POOL: {"owner": OWNER, "site": "fra1", "agent": "bcd", "commission": "std", "release": "std"},
        "tenants": {"owner": "tenant-a", "site": "fra1", "agent": "bcd", "commission": "std", "release": "std"},
        "edge": {"owner": "tenant-b", "site": "edge", "agent": "bcd", "commission": "std", "release": "std"},
        "bare": {"owner": OWNER, "site": "fra1", "agent": "none", "commission": "std", "release": "std"},
        "open": {
            "owner": OWNER,
            "site": "fra1",
            "agent": "bcd",
            "commission": "std",
            "release": "std",
            "tokenless": ["discovery", "tpm"],
        },
    },
    "grants": [
        *({"to": "key:owner", "role": "admin", "on": f"compute-pool/{pool}"} for pool in (POOL, "bare", "open")),
        {"to": "key:second", "role": "admin", "on": f"compute-pool/{POOL}"},
        {"to": "key:tenant", "role": "admin", "on": "compute-pool/tenants"},
        {"to": "key:edge", "role": "admin", "on": "compute-pool/edge"},
        {"to": "key:reader", "actions": ["join-tokens:read"], "on": f"compute-pool/{POOL}"},
        {"to": "key:siteadmin", "role": "admin", "on": "site/fra1"},
    ],
}
KEYS: Final = {
    "owner": OWNER,
    "second": OWNER,
    "reader": OWNER,
    "siteadmin": OWNER,
    "tenant": "tenant-a",
    "edge": "tenant-b",
}
TENANT_OF: Final = {POOL: OWNER, "bare": OWNER, "open": OWNER, "tenants": "tenant-a", "edge": "tenant-b"}


def new_csr(
    key: Any = None, subject: str = "", build: Callable[[Any], Any] = lambda builder: builder
) -> tuple[Any, str]:
    """A key and its request as PEM; `build` may add what a request should not have."""
    key = key if key is not None else ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)] if subject else []
    builder = build(x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)))
    algorithm = None if type(key).__name__.startswith("Ed25519") else hashes.SHA256()
    return key, builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM).decode()


@dataclass(slots=True)
class Box:
    """A machine that joins."""

    uuid: str | None
    serial: str | None = None
    macs: tuple[str, ...] = ()
    key: Any = None
    csr: str = ""

    def __post_init__(self) -> None:
        if not self.csr:
            self.key, self.csr = new_csr(self.key)

    def says(self) -> dict[str, Any]:
        found: dict[str, Any] = {"macs": list(self.macs)}
        if self.uuid is not None:
            found["productUuid"] = self.uuid
        if self.serial is not None:
            found["serial"] = self.serial
        return found

    def rekeyed(self) -> Box:
        """The same machine with another key."""
        return Box(self.uuid, self.serial, self.macs)


def a_box(n: int = 1) -> Box:
    """Each number is a machine of its own."""
    return Box(f"8f3c1a52-6b7d-4e21-9a0c-5d2e7f4b{n:04x}", f"SN{n:05d}X", (f"3c:ec:ef:10:{n >> 8:02x}:{n & 255:02x}",))


@dataclass(slots=True)
class JoinSite(OnStore):
    url: str
    doc: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(DOC)))
    keys: dict[str, str] = field(default_factory=dict)
    woken: list[str | None] = field(default_factory=list)
    skipped: int = 0
    held_at: int | None = None
    vendors: tuple[x509.Certificate, ...] = ()
    with_ca: bool = True
    shelf: Shelf | None = None

    loop: asyncio.AbstractEventLoop = field(init=False)
    store: OpenStore = field(init=False)
    settings: Settings = field(init=False)
    authority: Authority = field(init=False)
    api: Any = field(init=False)
    joins: Any = field(init=False)
    nodes: Any = field(init=False)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = open_store(self.url)
        self.settings = check(self.doc)
        root = make_root("test", self.now())
        issuers = {kind: make_issuer(kind, root, self.now()) for kind in IssuerKind}
        self.authority = Authority(
            issuers=issuers,
            node_issuers=tuple(one.certificate for kind, one in issuers.items() if kind is not IssuerKind.SERVER),
            roots=(pem_of([root.certificate]),),
            trust_domain="bcmetal",
            certificate_s=86_400,
            entropy=os.urandom,
        )
        services = Services(
            store=self.store,
            settings=lambda: self.settings,
            vault=Vault([VaultKey(os.urandom(32))]),
            clock=self.now,
            entropy=os.urandom,
            wake=self.woken.append,
            steps_of=lambda verb, node, given, pool: ("look", "act"),
            version="0",
            roots=lambda: self.authority.roots_to_pin() if self.with_ca else (),
            shelf=self.shelf,
        )
        joining = JoinServices(
            store=self.store,
            settings=lambda: self.settings,
            authority=lambda: self.authority if self.with_ca else None,
            vendors=lambda: self.vendors,
            clock=self.now,
            entropy=os.urandom,
            wake=self.woken.append,
        )
        self.api = build_app(services)
        agents = AgentServices(
            store=self.store,
            settings=lambda: self.settings,
            clock=self.now,
            entropy=os.urandom,
            wake=self.woken.append,
        )
        self.joins = build_join_app(joining, AgentDoor(agents))
        self.nodes = build_node_app(joining)
        for name, tenant in KEYS.items():
            self.keys[name] = self.a_key(name, tenant)

    # ---------------------------------------------------- time and store

    def now(self) -> Micros:
        at = self.held_at if self.held_at is not None else time.time_ns() // 1000
        return Micros(at + self.skipped)

    def hold_the_clock(self) -> None:
        """Lets time pass by `skip` alone: what counts calls in a time then says the same on a slow machine."""
        self.held_at = time.time_ns() // 1000

    def skip(self, seconds: float) -> None:
        self.skipped += int(seconds * SECOND)

    def close(self) -> None:
        if self.shelf is not None:
            self.shelf.close()
        self.run(self.store.close())
        self.loop.close()

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), os.urandom(10))

    def a_key(self, name: str, tenant: str) -> str:
        key = "bcmk_" + secrets.token_urlsafe(32)
        digest = hashlib.sha256(key.encode()).digest()
        self.write(keys.insert, self.new_id("ky"), digest, f"key:{name}", tenant, self.now(), None)
        return key

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        change(self.doc)
        self.settings = check(self.doc)

    def events(self, prefix: str = "security.") -> list[tuple[str, Mapping[str, Any]]]:
        """All so far, in the order in which they became true."""
        self.write(outbox.deliver, 10_000)
        return [(e.type, e.data) for e in self.read(outbox.since, 0, 10_000) if e.type.startswith(prefix)]

    def reasons(self) -> list[str]:
        """Of the joins that were refused."""
        return [str(data["reason"]) for type_, data in self.events() if type_ == "security.join.refused"]

    # ---------------------------------------------------- machines with a BMC

    def enrolled(self, box: Box, pool: str = POOL, state: str = "deployed") -> str:
        """A node whose BMC reported what the box says of itself."""
        node_id = self.new_id("nd")
        site = self.settings.pools[pool].site
        place = f"10.20.{secrets.randbelow(250)}.{secrets.randbelow(250)}"
        bmc = NewBmc("bmc", "redfish", place, 443, "verify", "")
        new = NewNode(node_id, TENANT_OF[pool], site, pool, f"n{secrets.token_hex(4)}", self.new_id("bm"), bmc)
        self.write(nodes.insert, new, self.now())
        found = [Identifier("mac", mac, mac, "bmc", True) for mac in box.macs]
        if box.uuid is not None:
            value = normal_uuid(box.uuid) or ""
            found.append(Identifier("uuid", value, box.uuid, "bmc", usable_uuid(value)))
        if box.serial is not None:
            found.append(Identifier("serial", box.serial.lower(), box.serial, "bmc", True))
        self.write(nodes.apply, node_id, [SetIdentifiers("bmc", tuple(found))], self.now())
        self.set_state(node_id, state)
        return node_id

    def set_state(self, node_id: str, state: str) -> None:
        self.run(self.setting_state(node_id, state))

    async def setting_state(self, node_id: str, state: str) -> None:
        await self.store.write(_set_state, node_id, state)

    # ---------------------------------------------------- calls

    async def send(
        self,
        app: Any,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        peer: bytes | None = None,
        address: str = "192.0.2.7",
        method: str = "POST",
        query: bytes = b"",
    ) -> Answered:
        proven = {} if peer is None else {PEER: peer}
        return await answer_of(app, path, body, headers, method=method, address=address, query=query, proven=proven)

    def post(self, path: str, who: str | None = "owner", **body: Any) -> Answered:
        return self.run(self.posting(path, who, **body))

    async def posting(self, path: str, who: str | None = "owner", **body: Any) -> Answered:
        headers = {"Content-Type": "application/json"}
        if who is not None:
            headers["Authorization"] = f"Bearer {self.keys[who]}"
        return await self.send(self.api, f"/api/compute/{path}", json.dumps(body).encode(), headers)

    def call(self, path: str, who: str | None = "owner", pool: str = POOL, **body: Any) -> Answered:
        """A method of a pool, with its tenant."""
        return self.run(self.calling(path, who, pool, **body))

    async def calling(self, path: str, who: str | None = "owner", pool: str = POOL, **body: Any) -> Answered:
        return await self.posting(path, who, tenantId=TENANT_OF.get(pool, OWNER), poolId=pool, **body)

    def token(self, who: str = "owner", pool: str = POOL, **given: Any) -> str:
        """A new bearer."""
        body = {"ttlSeconds": 3600, "idempotencyKey": secrets.token_hex(8), **given}
        answer = self.call("joinTokens/create", who, pool, **body)
        assert answer.status == 200, answer.raw
        return str(answer.doc["token"])

    def join(self, bearer: str | None, box: Box, address: str = "192.0.2.7", **more: Any) -> Answered:
        return self.run(self.joining(bearer, box, address, **more))

    async def joining(self, bearer: str | None, box: Box, address: str = "192.0.2.7", **more: Any) -> Answered:
        body = {"csr": box.csr, "identifiers": box.says(), **more}
        headers = {"Content-Type": "application/json"}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        return await self.send(self.joins, JOIN_PATH, json.dumps(body).encode(), headers, address=address)

    def admitted(self, box: Box, who: str = "owner", pool: str = POOL, **token: Any) -> Member:
        """Join with a token of its own."""
        answer = self.join(self.token(who, pool, **token), box)
        assert answer.status == 200, (answer.raw, self.reasons())
        return member_of(answer, box)

    def admitted_by(self, bearer: str, box: Box, **more: Any) -> Member:
        answer = self.join(bearer, box, **more)
        assert answer.status == 200, (answer.raw, self.reasons())
        return member_of(answer, box)

    def renew(self, member: Member, box: Box, **more: Any) -> Answered:
        """Over the connection that the member's certificate opened."""
        return self.as_node(member, RENEW_PATH, csr=box.csr, **more)

    def renew_late(self, member: Member, box: Box, key: Any = None) -> Answered:
        """Over the agents' listener, by the old key's signature."""
        der = x509.load_pem_x509_csr(box.csr.encode()).public_bytes(serialization.Encoding.DER)
        signature = (key or member.key).sign(renewal_statement(der), ec.ECDSA(hashes.SHA256()))
        expired = {"certificate": member.leaf_pem, "signature": base64.b64encode(signature).decode()}
        body = json.dumps({"csr": box.csr, "expired": expired}).encode()
        return self.run(self.send(self.joins, RENEW_PATH, body, {"Content-Type": "application/json"}))

    def secrets_for(self, member: Member, *names: str) -> Answered:
        return self.as_node(member, SECRETS_PATH, names=list(names))

    def as_node(self, member: Member, path: str, **body: Any) -> Answered:
        raw = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self.run(self.send(self.nodes, path, raw, headers, peer=member.der))


@dataclass(frozen=True, slots=True)
class Member:
    """An admitted machine: its id, its certificate, and the key that belongs to it."""

    node_id: str
    chain: str
    key: Any

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.chain.encode())

    @property
    def leaf_pem(self) -> str:
        return self.leaf.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.leaf.public_bytes(serialization.Encoding.DER)

    @property
    def uri(self) -> str:
        names = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return str(names.get_values_for_type(x509.UniformResourceIdentifier)[0])


def member_of(answer: Answered, box: Box) -> Member:
    return Member(answer.doc["nodeId"], answer.doc["certificate"], box.key)


def _set_state(c: Connection, node_id: str, state: str) -> None:
    c.execute(update(nodes_table).where(nodes_table.c.node_id == node_id).values(state=state))
