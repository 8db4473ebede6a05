"""Where the documents of a Redfish BMC come from, and where its writes go: what stands behind the front's rules, login and overlay.

A front takes any `Source`. `SushyTools` is what a rack's own BMCs have: our routes, and sushy-tools' fake for the rest. Another one may
read a recorded tree; it calls `routed` for what it wants to have in common, such as sessions and Tasks (`services.ROUTES`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

from bcmetal_drivers.emulated import (
    account_service,
    bios,
    computer,
    firmware,
    log_routes,
    manager_routes,
    outlet_routes,
    parts,
    secure_boot,
    sensor_routes,
    services,
    slots,
    storage,
    volumes,
)
from bcmetal_drivers.emulated.application import ask
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior
from bcmetal_drivers.emulated.messages import Answer, Refusal

Routes = tuple[tuple[str, re.Pattern[str], Handler], ...]


class Source(Protocol):
    def answer(self, inside: Interior, call: Call) -> Answer:
        """A document, or a write carried out. The login is checked, rules and preconditions are done with. Raises Refusal."""
        ...


def compiled(routes: Iterable[tuple[str, str, Handler]]) -> Routes:
    """Patterns are matched in full, behind `/redfish/v1`."""
    return tuple((method, re.compile(re.escape(ROOT) + pattern), handler) for method, pattern, handler in routes)


def routed(routes: Routes, inside: Interior, call: Call) -> Answer | None:
    """What the first route answers; None where no route knows the path. Raises Refusal: 405 where the path has other methods."""
    request = call.request
    method = "GET" if request.reads else request.method
    others = False
    for known, pattern, handler in routes:
        found = pattern.fullmatch(request.path)
        if found is not None and known == method:
            return handler(inside, call, *found.groups())
        others = others or found is not None
    if others:
        raise Refusal(405, "OperationNotAllowed", f"The method {method} is not allowed on {request.path}.")
    return None


ROUTES: Final = compiled(
    (
        *account_service.ROUTES,
        *bios.ROUTES,
        *computer.ROUTES,
        *firmware.ROUTES,
        *services.ROUTES,
        *outlet_routes.ROUTES,
        *parts.ROUTES,
        *secure_boot.ROUTES,
        *log_routes.ROUTES,
        *manager_routes.ROUTES,
        *sensor_routes.ROUTES,
        *slots.ROUTES,
        *storage.ROUTES,
        *volumes.ROUTES,
    )
)


class SushyTools:
    """Our routes, then sushy-tools' own application."""

    def answer(self, inside: Interior, call: Call) -> Answer:
        answer = routed(ROUTES, inside, call)
        return ask(inside.drivers, call.request) if answer is None else answer
