"""What it means when a line breaks, or what comes over it is no HTTP."""

from __future__ import annotations

import http.client

from bcmetal_drivers.errors import DriverError, Malformed, NotThisService, ServerFault, TimedOut, Unreachable


def broken(error: Exception, asked: str, read_s: float) -> DriverError:
    """Our error for one of the wire's, `asked` being the URL."""
    if isinstance(error, DriverError):
        return error
    if isinstance(error, TimeoutError):
        return TimedOut(f"{asked}: no answer within {read_s:g} s")
    if isinstance(error, http.client.RemoteDisconnected):
        return Unreachable(f"{asked}: the BMC closed the connection without an answer")
    if isinstance(error, http.client.IncompleteRead):
        return ServerFault(f"{asked}: the answer was cut short")
    if isinstance(error, http.client.BadStatusLine):
        return NotThisService(f"{asked}: what answers there does not speak HTTP")
    if isinstance(error, http.client.HTTPException):
        return Malformed(f"{asked}: the answer is no proper HTTP ({type(error).__name__})")
    return Unreachable(f"{asked}: the connection was lost")


def is_remnant(error: Exception, *, kept: bool) -> bool:
    """Whether it was an answer that was cut short, or on a line that was kept the rest of the answer before, whose length was told wrong."""
    if isinstance(error, http.client.IncompleteRead | ServerFault):
        return True
    return kept and isinstance(error, http.client.BadStatusLine)
