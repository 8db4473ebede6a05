"""The daemon: the only place where objects are wired together.

One process: the API (TLS), the media listener (HTTP, for BMCs), the agents' and the nodes' listeners (TLS), the engine, and the ticks.
SIGTERM and SIGINT end it in order, SIGHUP reads the configuration again and refuses it whole when it is not valid.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bcmetal import __version__, sweeps
from bcmetal.api.app import Services, build_app
from bcmetal.api.join_listeners import JoinListeners
from bcmetal.api.tls import api_server, bound
from bcmetal.boot.media import Ramdisks, media_app, media_config
from bcmetal.boot.policy import fetch_policy
from bcmetal.boot.pxe import beside, pxe_app
from bcmetal.boot.shelf import Shelf
from bcmetal.clock import SystemClock, system_entropy
from bcmetal.consoles import Consoles
from bcmetal.doctor import Doctor
from bcmetal.engine import Engine
from bcmetal.errors import BcmetalError, InvalidInput
from bcmetal.events import Feed
from bcmetal.line import Lines
from bcmetal.listening import TICK_EVERY_S, Listening
from bcmetal.presence import Presence
from bcmetal.settings import Pool, Settings, load, refused_reload
from bcmetal.states import Verb
from bcmetal.store import claims, daemons, members, nodes, sealed
from bcmetal.store.engine import open_store
from bcmetal.store.values import Json, NodeRow, Store
from bcmetal.text import https_url
from bcmetal.vault import Vault, load_key
from bcmetal.workflows import workflow_of
from bcmetal.workflows.asked import asked_of
from bcmetal.workflows.handing import Handing
from bcmetal.workflows.machine import Doors

log = logging.getLogger("bcmetal")
DELIVERY_EVERY_S = 0.5
IDLE_EVERY_S = 20


class Daemon:
    """Everything of one running daemon. Its addresses, and those of `joins`, are known once it is ready."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._settings = load(config)
        self.api_address: tuple[str, int] | None = None
        self.media_address: tuple[str, int] | None = None
        self.joins: JoinListeners | None = None

    def settings(self) -> Settings:
        return self._settings

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set. Raises StartRefused when it must not start."""
        settings = self._settings
        clock = SystemClock()
        vault = Vault([load_key(settings.daemon.vault_key)])
        store = open_store(settings.daemon.database, exclusive=True)
        owner = f"{socket.gethostname()}-{os.getpid()}-{system_entropy(4).hex()}"  # containers may share the first two
        try:
            if store.kind == "sqlite":  # one daemon owns it: what is claimed was claimed by one that is gone
                await store.write(claims.clear_own, "")
                await store.write(daemons.forget_all)
            presence = Presence(store, owner, lambda: self._settings.digest())
            await presence.begin()
            await self._take_sealed(store, settings)
            shelf = Shelf(settings.daemon.image_folder, lambda: fetch_policy(self._settings))
            doors = Doors(store, clock, system_entropy, self.settings, shelf, vault)
            lines = Lines(store, clock, vault, self.settings)
            engine = Engine(doors, lines, owner, may_work=lambda: presence.differs is None)
            feed = Feed(store, owner)
            handing = Handing(doors, self._roots)
            joins = JoinListeners(
                store,
                vault,
                self.settings,
                clock.now,
                system_entropy,
                engine.wake,
                prepare=handing.prepare(),
                images=shelf.folder,
            )
            self.joins = joins
            consoles = Consoles(store, clock, lines)
            doctor = Doctor(lines)
            services = Services(
                store=store,
                settings=self.settings,
                vault=vault,
                clock=clock.now,
                entropy=system_entropy,
                wake=engine.wake,
                feed=feed,
                steps_of=self._steps_of,
                version=__version__,
                held=lambda: presence.differs is not None,
                roots=joins.roots,
                shelf=shelf,
                consoles=consoles,
                doctor=doctor,
            )
            try:
                await joins.open()
                await self._serve(services, joins, engine, doors, lines, feed, presence, owner, stop, ready)
            finally:
                await presence.end()
            await asyncio.to_thread(doctor.close)
            await lines.close()
            await asyncio.to_thread(shelf.close)
        finally:
            await store.close()

    async def _serve(
        self,
        services: Services,
        joins: JoinListeners,
        engine: Engine,
        doors: Doors,
        lines: Lines,
        feed: Feed,
        presence: Presence,
        owner: str,
        stop: asyncio.Event,
        ready: asyncio.Event | None,
    ) -> None:
        settings = self._settings
        api, api_sockets = api_server(build_app(services), settings.daemon)
        ramdisks = Ramdisks(lambda: self._settings.daemon.ramdisk_folder, doors.vault)
        media = _Quiet(
            media_config(
                beside(
                    media_app(doors.store, doors.clock.now, doors.shelf.folder, ramdisks=ramdisks),
                    pxe_app(doors.store, doors.clock.now, self.settings, doors.vault),
                )
            )
        )
        media_sockets = [bound(settings.daemon.media_listen)]
        self.api_address = api_sockets[0].getsockname()[:2]
        self.media_address = media_sockets[0].getsockname()[:2]
        loop = asyncio.get_running_loop()
        self._reload_on_sighup(doors.store, presence)
        listening = Listening(doors, lines, owner, may_work=lambda: presence.differs is None)
        ticks = _ticks(doors, lines, feed, presence, listening, owner)
        tasks = [
            loop.create_task(api.serve(sockets=api_sockets)),
            loop.create_task(media.serve(sockets=media_sockets)),
            loop.create_task(engine.run(stop)),
            loop.create_task(joins.run(stop)),
        ]
        ticks.start()
        try:
            while not (api.started and media.started and joins.started) and not any(task.done() for task in tasks):  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            if ready is not None:
                ready.set()
            for line in joins.told():
                print(f"bcmetald: {line}", file=sys.stderr, flush=True)  # noqa: T201 - as the next one
            print(f"bcmetald: ready, API {https_url(*self.api_address)}", file=sys.stderr, flush=True)  # noqa: T201 - what waits for it reads this
            stopping = loop.create_task(stop.wait())
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
        finally:
            stop.set()
            ticks.shutdown(wait=False)
            await feed.close()
            if services.consoles is not None:
                await services.consoles.close()
            api.should_exit = media.should_exit = True
            engine.wake()
            await listening.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _roots(self) -> Sequence[str]:
        return () if self.joins is None else self.joins.roots()

    def _steps_of(self, verb: Verb, node: NodeRow | None, given: Json, pool: Pool) -> Sequence[str]:
        return tuple(workflow_of(verb, asked_of(node, given, pool, self._settings)).steps)

    async def _take_sealed(self, store: Store, settings: Settings) -> None:
        """Hand the sealed passwords of named credentials to the settings; they are opened only when they are used."""
        rows = await store.read(sealed.every)
        settings.take_sealed({row.owner_id: row for row in rows if row.owner_kind == "credential"})

    def _reload_on_sighup(self, store: Store, presence: Presence) -> None:
        """Only a loop in the main thread gets signals; a daemon that runs in another one (a test's, an embedder's) cannot reload."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self._reload(store, presence)))
        except (NotImplementedError, RuntimeError) as error:
            log.warning("the configuration cannot be read again while this daemon runs: no SIGHUP here (%s)", error)

    async def _reload(self, store: Store, presence: Presence) -> None:
        try:
            new = load(self._config)
            in_use = {*await store.read(nodes.pools_in_use), *await store.read(members.pools_in_use)}
            faults = refused_reload(self._settings, new, in_use)
            if faults:
                raise InvalidInput(faults)
            await self._take_sealed(store, new)
        except BcmetalError as error:
            log.error("the configuration is not taken, the old one goes on: %s", error)
            return
        self._settings = new
        log.info("the configuration was read again: %s", new.digest())
        await presence.beat()


def _ticks(
    doors: Doors, lines: Lines, feed: Feed, presence: Presence, listening: Listening, owner: str
) -> AsyncIOScheduler:
    async def sweep() -> None:
        if presence.differs is None:
            await sweeps.sweep(doors, lines, owner)

    ticks = AsyncIOScheduler(
        timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
    )
    ticks.add_job(presence.beat, "interval", seconds=daemons.BEAT_S)
    ticks.add_job(sweep, "interval", seconds=sweeps.SWEEP_EVERY_S)
    ticks.add_job(sweeps.expire, "interval", [doors, owner], seconds=sweeps.EXPIRY_EVERY_S)
    ticks.add_job(sweeps.retain, "interval", [doors, owner], seconds=sweeps.RETENTION_EVERY_S)
    ticks.add_job(listening.tick, "interval", seconds=TICK_EVERY_S)
    ticks.add_job(lines.close_idle, "interval", seconds=IDLE_EVERY_S)
    ticks.add_job(feed.deliver, "interval", seconds=DELIVERY_EVERY_S)
    return ticks


class _Quiet(uvicorn.Server):
    """Signals belong to the daemon: a listener that caught them would stop alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _main(config: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Daemon(config).run(stop)


def run(config: Path) -> int:
    """Serve until a signal; the process's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    try:
        uvicorn_loop = __import__("uvloop")
        with asyncio.Runner(loop_factory=uvicorn_loop.new_event_loop) as runner:
            runner.run(_main(config))
    except BcmetalError as error:
        print(f"bcmetald: {error}", file=sys.stderr)  # noqa: T201 - the reason must reach the terminal
        return 2
    return 0


def main() -> int:
    """`bcmetald --config FILE`."""
    parser = argparse.ArgumentParser(prog="bcmetald", description="The bcmetal daemon.")
    parser.add_argument("--config", type=Path, default=Path("/etc/bcmetal/bcmetal.toml"))
    return run(parser.parse_args().config)
