"""The application: one route for each method of the registry, and for each call the same order of questions.

Size, then authentication, then input, then ownership, then authorisation, then (in the method) idempotency and state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bcmetal import __version__
from bcmetal.api import (  # each registers its methods
    audit,
    consoles,
    doctor,
    enrolling,
    erasure,
    freeze,
    images,
    join_requests,
    join_tokens,
    joined,
    logs,
    metal,
    reads,
)
from bcmetal.api.access import Identity, actions_on_pool, pool_of, require
from bcmetal.api.auth import Gate
from bcmetal.api.calls import METHODS, Call, Method
from bcmetal.api.calls import Services as Services
from bcmetal.api.events import EventStreams
from bcmetal.api.faults import (
    HEADERS,
    NotJson,
    input_faults,
)
from bcmetal.api.openapi import document
from bcmetal.api.requests import address_of, install_faults, read_body, trace_of
from bcmetal.errors import BcmetalError, Internal, InvalidInput, PermissionDenied, Unavailable
from bcmetal.join.authority import NO_CA
from bcmetal.models_words import Input, Located
from bcmetal.store import audit as audit_rows
from bcmetal.store import outbox
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import NewAudit
from bcmetal.text import at_port
from bcmetal_agent.wire import TRUST_BUNDLE_PATH

log = logging.getLogger(__name__)

REGISTERED: Final = (
    audit,
    consoles,
    doctor,
    enrolling,
    erasure,
    freeze,
    images,
    join_requests,
    join_tokens,
    joined,
    logs,
    metal,
    reads,
)
HELD_REASON: Final = "configuration-differs"
BODY_LIMIT: Final = 256 * 1024


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of every method, without a running daemon."""
    return document(__version__)


def build_app(services: Services) -> FastAPI:
    """Every route of the API's listener."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    gate = Gate(services)
    streams = EventStreams(services, gate)
    doc = document(services.version)

    async def openapi(request: Request) -> Response:
        return JSONResponse(doc, headers=HEADERS)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"ok": True}, headers=HEADERS)

    async def trust_bundle(request: Request) -> Response:
        return _trust_bundle(services)

    async def readyz(request: Request) -> Response:
        await services.store.read(outbox.bounds)
        if services.held():
            return JSONResponse({"ready": False, "reason": HELD_REASON}, 503, headers=HEADERS)
        return JSONResponse({"ready": True}, headers=HEADERS)

    async def events(request: Request) -> Response:
        return await streams.answer(request, address_of(request))

    for method in METHODS.values():
        app.add_api_route(method.path, _route(services, gate, method), methods=["POST"], response_model=None)
    app.add_api_route("/api/openapi.json", openapi, methods=["GET"], response_model=None)
    app.add_api_route(TRUST_BUNDLE_PATH, trust_bundle, methods=["GET"], response_model=None)
    app.add_api_route("/healthz", healthz, methods=["GET"], response_model=None)
    app.add_api_route("/readyz", readyz, methods=["GET"], response_model=None)
    app.add_api_route("/events", events, methods=["GET"], response_model=None)
    install_faults(app, services.entropy)
    return app


def _trust_bundle(services: Services) -> Response:
    """The roots, and where machines join and renew: for the join line."""
    roots = services.roots()
    if not roots:
        raise Unavailable(NO_CA)
    agents = [network.agent_url for network in services.settings().networks.values() if network.agent_url]
    port = services.settings().daemon.node_listen.rpartition(":")[2]
    nodes = [at_port(url, port) for url in agents]
    return JSONResponse({"roots": list(roots), "agents": agents, "nodes": nodes}, headers=HEADERS)


def _route(services: Services, gate: Gate, method: Method) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        trace_id, address = trace_of(request, services.entropy), address_of(request)
        raw = await read_body(request, BODY_LIMIT)
        who = await gate.identify(request.scope, address)
        if services.held():
            raise Unavailable(
                "this daemon's configuration differs from another's: it serves nothing", reason=HELD_REASON
            )
        call: Call[Any] | None = None
        try:
            parsed, body = parse(method, request, raw)
            call = Call(services, method, parsed, body, who, address, trace_id, services.clock(), services.settings())
            call = authorised(call)
            answer = await method.run(call)
        except BcmetalError as error:
            await note_refusal(services, method, who, address, trace_id, call, error)
            raise
        return answer if isinstance(answer, Response) else JSONResponse(answer, headers=HEADERS)

    return route


def parse(method: Method, request: Request, raw: bytes) -> tuple[Input, dict[str, Any]]:
    """The input, and the JSON that it was made from. Raises InvalidInput with every fault."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise NotJson([], NotJson.__doc__ or "")
    try:
        parsed = method.model.model_validate_json(raw)
    except ValidationError as error:
        raise input_faults(error) from None
    return parsed, json.loads(raw)


def authorised(call: Call[Any]) -> Call[Any]:
    """Ownership, then authorisation, for methods that are about a pool. Raises NotFound, PermissionDenied."""
    method, asked = call.method, call.input
    if method.actions is None or not isinstance(asked, Located):
        return call
    pool = pool_of(call.settings, call.who, asked.tenant_id, asked.pool_id)
    owned = Call(
        call.services,
        method,
        asked,
        call.body,
        call.who,
        call.address,
        call.trace_id,
        call.now,
        call.settings,
        pool,
    )
    allowed = actions_on_pool(call.settings, call.who, pool)
    require(allowed, method.actions(asked), call.who, f"compute-pool/{pool.name}")
    return owned


async def note_refusal(
    services: Services,
    method: Method,
    who: Identity,
    address: str,
    trace_id: str,
    call: Call[Any] | None,
    error: BcmetalError,
) -> None:
    """Refused mutations, and reads that were not permitted, are audited: by the caller's own tenant, whatever tenant it named."""
    if not method.mutates and not isinstance(error, PermissionDenied):
        return
    body = call.body if call is not None else {}
    resource = "/".join(f"{name}={body[name]}" for name in ("tenantId", "poolId", "nodeId") if body.get(name))
    now = services.clock()
    entry = NewAudit(
        new_id("au", now, services.entropy(ENTROPY_BYTES)),
        who.name,
        who.tenant_id,
        address,
        f"compute:{method.group}:{method.name}",
        resource,
        "failed" if isinstance(error, Internal) else "refused",
        trace_id,
        None,
        {"code": error.api_code, "reason": error.details.get("reason")}
        | ({"fields": [fault.path for fault in error.faults]} if isinstance(error, InvalidInput) else {}),
    )
    await services.store.write(audit_rows.add, entry, now)
