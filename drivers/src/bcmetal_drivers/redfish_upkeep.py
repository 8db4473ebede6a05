"""What a Redfish BMC tells and does beside a machine's way: sensors, logs, its light, itself, its ways in. Each method one call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from bcmetal_drivers import (
    redfish_bmc,
    redfish_clock,
    redfish_events,
    redfish_host_ways,
    redfish_indicator,
    redfish_logs,
    redfish_network_ways,
    redfish_sensors,
)
from bcmetal_drivers.capabilities import (
    BmcClock,
    BmcNetwork,
    BmcReset,
    Console,
    EventLog,
    Events,
    EventStream,
    EventStreams,
    HostWays,
    Indicator,
    NetworkWays,
    Sensors,
)
from bcmetal_drivers.redfish_maker import quirks_for
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BmcEvent, BmcInterface, ConsoleAccess, HostWay, LogEntry, Sensor


class Upkeep(ABC):
    """The other half of `redfish.RedfishBmc`, which has the conversation."""

    @abstractmethod
    def _call(self) -> AbstractContextManager[Tree]: ...

    @contextmanager
    def _look(self) -> Iterator[Tree]:
        """A call that only reads, and each resource once."""
        with self._call() as tree, tree.reading():
            yield tree

    def sensors(self) -> tuple[Sensor, ...]:
        with self._look() as tree:
            return redfish_sensors.sensors(tree)

    def power_draw_w(self) -> float | None:
        with self._look() as tree:
            return redfish_sensors.power_draw_w(tree)

    def event_log(self, limit: int = 100) -> tuple[LogEntry, ...]:
        with self._look() as tree:
            return redfish_logs.event_log(tree, limit)

    def clear_event_log(self) -> None:
        with self._call() as tree:
            redfish_logs.clear(tree)

    def events(self, wait_s: float, after: str | None = None) -> tuple[BmcEvent, ...]:
        """Nobody else speaks with this BMC through the same door meanwhile: keep `wait_s` short."""
        with self._call() as tree:
            return redfish_events.events(tree, wait_s, after)

    def open_events(self) -> EventStream | None:
        with self._call() as tree:
            return redfish_events.open_stream(tree)

    def identified(self) -> bool | None:
        with self._look() as tree:
            return redfish_indicator.identified(tree)

    def identify(self, on: bool) -> None:
        with self._call() as tree:
            redfish_indicator.identify(tree, on)

    def reset_bmc(self, hard: bool = False) -> None:
        """Raises MaybeSent where the answer was lost, which a restart easily does."""
        with self._call() as tree:
            redfish_bmc.reset(tree, hard)

    def bmc_clock(self) -> str | None:
        with self._look() as tree:
            return redfish_clock.bmc_clock(tree)

    def set_bmc_clock(self, at: datetime) -> None:
        with self._call() as tree:
            redfish_clock.set_bmc_clock(tree, at)

    def bmc_network(self) -> tuple[BmcInterface, ...]:
        with self._look() as tree:
            return redfish_bmc.network(tree)

    def consoles(self) -> tuple[ConsoleAccess, ...]:
        with self._look() as tree:
            return redfish_bmc.consoles(tree, quirks_for(tree).ssh_console)

    def host_ways(self) -> tuple[HostWay, ...]:
        with self._look() as tree:
            return redfish_host_ways.host_ways(tree)

    def close_host_way(self, name: str) -> None:
        with self._call() as tree:
            redfish_host_ways.close(tree, name)

    def network_ways(self) -> tuple[HostWay, ...]:
        with self._look() as tree:
            return redfish_network_ways.network_ways(tree)

    def close_network_way(self, name: str) -> None:
        with self._call() as tree:
            redfish_network_ways.close(tree, name)


_conforms_sensors: type[Sensors] = Upkeep
_conforms_log: type[EventLog] = Upkeep
_conforms_events: type[Events] = Upkeep
_conforms_event_streams: type[EventStreams] = Upkeep
_conforms_indicator: type[Indicator] = Upkeep
_conforms_reset: type[BmcReset] = Upkeep
_conforms_clock: type[BmcClock] = Upkeep
_conforms_network: type[BmcNetwork] = Upkeep
_conforms_console: type[Console] = Upkeep
_conforms_ways: type[HostWays] = Upkeep
_conforms_network_ways: type[NetworkWays] = Upkeep
