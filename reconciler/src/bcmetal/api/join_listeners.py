"""The agents' and the nodes' listeners: open as soon as there is a certificate authority, and kept up with it while they run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from cryptography import x509

from bcmetal.api.agents import AgentDoor, AgentServices, Prepare
from bcmetal.api.joining import JoinServices, build_join_app
from bcmetal.api.node_door import LOOK_EVERY_S, build_node_app, close_the_revoked
from bcmetal.api.node_tls import Connections, Listening, node_protocol
from bcmetal.api.tls import ApiServer, bound, server_config
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import BcmetalError, Unavailable
from bcmetal.join.authority import Authority, authority_from
from bcmetal.join.issuer_keys import open_issuers
from bcmetal.patience import PatientHttpTools
from bcmetal.settings import Settings
from bcmetal.store import issuers
from bcmetal.store.issuers import CaRows
from bcmetal.store.values import Store
from bcmetal.text import https_url
from bcmetal.vault import Vault

log = logging.getLogger(__name__)

AUTHORITY_EVERY_S: Final = 5.0
SERVER_EVERY_US: Final = 10 * 86_400 * SECOND  # a third of a server certificate's life
AGENTS_AT_ONCE: Final = 4000  # each agent in the ramdisk has a call open all the time, and an image beside it
NO_AUTHORITY: Final = "no machine can join yet: there is no certificate authority (`bcmetal ca init`)"


class JoinListeners:
    """`agent_address` and `node_address` are known once they are open."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        settings: Callable[[], Settings],
        clock: Callable[[], Micros],
        entropy: Callable[[int], bytes],
        wake: Callable[[str | None], None],
        prepare: Mapping[str, Prepare] | None = None,
        images: Path | None = None,
    ) -> None:
        """`prepare` and `images`: see `AgentServices`."""
        self._store = store
        self._vault = vault
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._wake = wake
        self._prepare = dict(prepare or {})
        self._images = images
        self._door: AgentDoor | None = None
        self._authority: Authority | None = None
        self._rows: CaRows | None = None
        self._vendors: tuple[x509.Certificate, ...] = ()
        self._listening: Listening | None = None
        self._fresh_at: Micros | None = None
        self._connections = Connections()
        self._servers: list[tuple[uvicorn.Server, socket.socket]] = []
        self._serving: list[asyncio.Task[None]] = []
        self.agent_address: tuple[str, int] | None = None
        self.node_address: tuple[str, int] | None = None

    def authority(self) -> Authority | None:
        return self._authority

    @property
    def started(self) -> bool:
        """Whether they serve; also where there is nothing to serve."""
        return not self._servers or (bool(self._serving) and all(server.started for server, _ in self._servers))

    def roots(self) -> tuple[str, ...]:
        """The trust bundle as PEM, first the root that machines pin; empty: there is no CA yet."""
        return () if self._authority is None else self._authority.roots_to_pin()

    def told(self) -> list[str]:
        """Where they listen, in words; none: there is no CA yet."""
        if self.agent_address is None or self.node_address is None:
            return [NO_AUTHORITY]
        return [f"machines join at {https_url(*self.agent_address)}, nodes renew at {https_url(*self.node_address)}"]

    async def open(self) -> None:
        """Bind the listeners, if there is a CA. Raises StartRefused, VaultError."""
        await self.keep_up()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set: revoked connections are cut within a second, a new CA is taken within five."""
        stopping = asyncio.ensure_future(stop.wait())
        looked_at = asyncio.get_running_loop().time()
        try:
            while not stopping.done():
                self._start()
                await asyncio.wait({stopping, *self._serving}, timeout=LOOK_EVERY_S, return_when="FIRST_COMPLETED")
                if any(task.done() for task in self._serving):
                    break
                await self._close_the_revoked_or_tell()
                if asyncio.get_running_loop().time() - looked_at >= AUTHORITY_EVERY_S:
                    looked_at = asyncio.get_running_loop().time()
                    await self._keep_up_or_tell()
        finally:
            stopping.cancel()
            if self._door is not None:
                self._door.close()
            for server, _ in self._servers:
                server.should_exit = True
            await asyncio.gather(*self._serving)

    async def _close_the_revoked_or_tell(self) -> None:
        """Without its database the daemon answers no node either: what is open is looked at again when there is one."""
        try:
            await close_the_revoked(self._store, self._connections)
        except Unavailable as error:
            log.error("the nodes' connections cannot be looked at: %s", error)

    async def _keep_up_or_tell(self) -> None:
        """A CA that cannot be opened later leaves the one that is there at work."""
        try:
            await self.keep_up()
        except BcmetalError as error:
            log.error("the certificate authority cannot be read again, the one before goes on: %s", error)

    async def keep_up(self) -> None:
        """Take the issuers, roots and TPM vendors as they are now; open the listeners when that is the first time. Raises VaultError."""
        rows = await self._store.read(issuers.rows)
        settings = self._settings()
        if rows != self._rows:
            self._authority = authority_from(open_issuers(rows, self._vault), settings.joining, self._entropy)
            self._rows = rows
            self._fresh_at = None
        if self._authority is None:
            return
        now = self._clock()
        if self._listening is None:
            self._listening = Listening(names_of(settings))
        if self._fresh_at is None or now - self._fresh_at > SERVER_EVERY_US:
            self._listening.refresh(self._authority, now)
            self._vendors = vendors_of(settings)
            self._fresh_at = now
        if not self._servers:
            self._open(self._listening, settings)

    def _open(self, listening: Listening, settings: Settings) -> None:
        services = JoinServices(
            store=self._store,
            settings=self._settings,
            authority=self.authority,
            vendors=lambda: self._vendors,
            clock=self._clock,
            entropy=self._entropy,
            wake=self._wake,
        )
        door = AgentServices(
            store=self._store,
            settings=self._settings,
            clock=self._clock,
            entropy=self._entropy,
            wake=self._wake,
            images=self._images,
            prepare=self._prepare,
        )
        self._door = AgentDoor(door)
        found: list[tuple[uvicorn.Server, socket.socket]] = []
        with contextlib.ExitStack() as held:  # both or none: an address may be taken when the CA comes while this runs
            for app, listen, context, protocol in (
                (
                    build_join_app(services, self._door),
                    settings.daemon.agent_listen,
                    listening.agents,
                    PatientHttpTools,
                ),
                (
                    build_node_app(services),
                    settings.daemon.node_listen,
                    listening.nodes,
                    node_protocol(self._connections),
                ),
            ):
                handle = held.enter_context(bound(listen))
                config = server_config(app, protocol, context)
                if context is listening.agents:
                    config.limit_concurrency = AGENTS_AT_ONCE
                found.append((ApiServer(config), handle))
            held.pop_all()
        self._servers = found
        agents, nodes = (handle.getsockname()[:2] for _, handle in self._servers)
        self.agent_address, self.node_address = agents, nodes
        log.info("%s", self.told()[0])

    def _start(self) -> None:
        if self._servers and not self._serving:
            loop = asyncio.get_running_loop()
            self._serving = [loop.create_task(server.serve(sockets=[handle])) for server, handle in self._servers]


def names_of(settings: Settings) -> tuple[str, ...]:
    """What nodes may call this daemon: as configured, as the networks' agent_url says, as its listeners say, and as its host is named."""
    found: list[str] = [*settings.joining.names]
    found += [urlsplit(network.agent_url).hostname or "" for network in settings.networks.values() if network.agent_url]
    for listen in (settings.daemon.agent_listen, settings.daemon.node_listen):
        host = listen.rpartition(":")[0].strip("[]")
        if host not in ("::", "0.0.0.0"):  # noqa: S104 - compared, not bound
            found.append(host)
    found += ["localhost", "127.0.0.1", "::1"]
    hostname = socket.gethostname().lower()
    if hostname.replace("-", "").replace(".", "").isalnum() and hostname.isascii():
        found.append(hostname)
    return tuple(dict.fromkeys(name for name in found if name))


def vendors_of(settings: Settings) -> tuple[x509.Certificate, ...]:
    """CAs of TPM makers; none where none are configured, or where the file cannot be read, which is logged."""
    path = settings.joining.ek_vendors
    if path is None:
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(path.read_bytes()))
    except (OSError, ValueError) as error:
        log.error("the TPM makers' CAs in %s cannot be read: %s", path, error)
        return ()
