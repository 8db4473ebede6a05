"""The application: one route for each method of the registry, and for each call the same order of questions.

Size, then authentication, then input, then ownership, then authorisation, then (in the method) idempotency and state.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from bcmetal import __version__
from bcmetal.api import audit, enrolling, erasure, freeze, metal, reads  # each registers its methods
from bcmetal.api.access import Identity, actions_on_pool, pool_of, require
from bcmetal.api.auth import Gate
from bcmetal.api.calls import METHODS, Call, Method
from bcmetal.api.calls import Services as Services
from bcmetal.api.events import EventStreams
from bcmetal.api.faults import (
    HEADERS,
    NotAllowedMethod,
    NotJson,
    TooLarge,
    error_response,
    input_faults,
)
from bcmetal.api.openapi import document
from bcmetal.errors import BcmetalError, Internal, InvalidInput, NotFound, PermissionDenied, Unavailable
from bcmetal.models import Input, Located
from bcmetal.store import audit as audit_rows
from bcmetal.store import outbox
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import NewAudit

log = logging.getLogger(__name__)

REGISTERED: Final = (audit, enrolling, erasure, freeze, metal, reads)
HELD_REASON: Final = "configuration-differs"
BODY_LIMIT: Final = 256 * 1024
_TRACE: Final = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


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

    async def readyz(request: Request) -> Response:
        await services.store.read(outbox.bounds)
        if services.held():
            return JSONResponse({"ready": False, "reason": HELD_REASON}, 503, headers=HEADERS)
        return JSONResponse({"ready": True}, headers=HEADERS)

    async def events(request: Request) -> Response:
        return await streams.answer(request, address_of(request))

    async def broken(request: Request, error: Exception) -> Response:
        trace_id = trace_of(request, services)
        log.error("a fault of bcmetal itself, trace %s", trace_id, exc_info=error)
        return error_response(Internal(), trace_id)

    async def known(request: Request, error: Exception) -> Response:
        found = error if isinstance(error, BcmetalError) else Internal()
        if found.api_code == Internal.api_code:
            return await broken(request, error)
        return error_response(found, trace_of(request, services))

    async def unrouted(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        found = {404: NotFound(), 405: NotAllowedMethod([], NotAllowedMethod.__doc__ or "")}.get(status, Internal())
        return error_response(found, trace_of(request, services))

    for method in METHODS.values():
        app.add_api_route(method.path, _route(services, gate, method), methods=["POST"], response_model=None)
    app.add_api_route("/api/openapi.json", openapi, methods=["GET"], response_model=None)
    app.add_api_route("/healthz", healthz, methods=["GET"], response_model=None)
    app.add_api_route("/readyz", readyz, methods=["GET"], response_model=None)
    app.add_api_route("/events", events, methods=["GET"], response_model=None)
    app.add_exception_handler(BcmetalError, known)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, broken)
    return app


def address_of(request: Request) -> str:
    """The connection's own peer; an IPv4 one as such, also where the listener is IPv6."""
    return request.client.host.removeprefix("::ffff:") if request.client is not None else ""


def trace_of(request: Request, services: Services) -> str:
    """The caller's trace (W3C traceparent), else a new one; the same for the whole request."""
    known: str | None = getattr(request.state, "trace_id", None)
    if known is None:
        given = _TRACE.fullmatch(request.headers.get("traceparent", ""))
        known = given[1] if given is not None else services.entropy(16).hex()
        request.state.trace_id = known
    return known


def _route(services: Services, gate: Gate, method: Method) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        trace_id, address = trace_of(request, services), address_of(request)
        raw = await read_body(request)
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


async def read_body(request: Request) -> bytes:
    """Never more than the limit, whatever the headers say."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:12]) > BODY_LIMIT:
        raise TooLarge([], f"the body is larger than {BODY_LIMIT} bytes")
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > BODY_LIMIT:
                raise TooLarge([], f"the body is larger than {BODY_LIMIT} bytes")
    except ClientDisconnect:
        raise Unavailable("the caller hung up") from None
    return bytes(found)


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
