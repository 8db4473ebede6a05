"""What every listener does with a request before it is anybody's: its address, its trace, its bounded body, and its faults as JSON."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bcmetal.api.faults import NotAllowedMethod, TooLarge, error_response
from bcmetal.errors import BcmetalError, Internal, NotFound, Unavailable

log = logging.getLogger(__name__)
_TRACE: Final = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def address_of(request: Request) -> str:
    """The connection's own peer; an IPv4 one as such, also where the listener is IPv6."""
    return request.client.host.removeprefix("::ffff:") if request.client is not None else ""


def trace_of(request: Request, entropy: Callable[[int], bytes]) -> str:
    """The caller's trace (W3C traceparent), else a new one; the same for the whole request."""
    known: str | None = getattr(request.state, "trace_id", None)
    if known is None:
        given = _TRACE.fullmatch(request.headers.get("traceparent", ""))
        known = given[1] if given is not None else entropy(16).hex()
        request.state.trace_id = known
    return known


async def read_body(request: Request, limit: int) -> bytes:
    """Never more than the limit, whatever the headers say."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:12]) > limit:
        raise TooLarge([], f"the body is larger than {limit} bytes")
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > limit:
                raise TooLarge([], f"the body is larger than {limit} bytes")
    except ClientDisconnect:
        raise Unavailable("the caller hung up") from None
    return bytes(found)


def install_faults(app: FastAPI, entropy: Callable[[int], bytes]) -> None:
    """Every error in the one shape; a fault of our own tells nothing of the inside, and the log has it under its trace."""

    async def broken(request: Request, error: Exception) -> Response:
        trace_id = trace_of(request, entropy)
        log.error("a fault of bcmetal itself, trace %s", trace_id, exc_info=error)
        return error_response(Internal(), trace_id)

    async def known(request: Request, error: Exception) -> Response:
        found = error if isinstance(error, BcmetalError) else Internal()
        if found.api_code == Internal.api_code:
            return await broken(request, error)
        return error_response(found, trace_of(request, entropy))

    async def unrouted(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        found = {404: NotFound(), 405: NotAllowedMethod([], NotAllowedMethod.__doc__ or "")}.get(status, Internal())
        return error_response(found, trace_of(request, entropy))

    app.add_exception_handler(BcmetalError, known)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Exception, broken)
