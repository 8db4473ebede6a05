"""What every command shares: where the daemon is, whose nodes, and how to answer; and how faults become words and exit codes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click

from bcmetal.cli.words import said, verb_words
from bcmetal.text import clean

if TYPE_CHECKING:
    from bcmetal.client import ApiError, Client, Json

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    FORBIDDEN = 4


_BY_CODE: Final = {
    "INVALID_INPUT": Exit.USAGE,
    "UNAUTHENTICATED": Exit.FORBIDDEN,
    "PERMISSION_DENIED": Exit.FORBIDDEN,
    "NOT_FOUND": Exit.FORBIDDEN,
    "UNAVAILABLE": Exit.UNREACHABLE,
    "RATE_LIMITED": Exit.UNREACHABLE,
}

# What an error of the API asks of the person who reads it.
_REMEDY: Final = {
    "UNAUTHENTICATED": "The key is unknown, expired or revoked: make one with `bcmetal key create` on the daemon's host.",
    "PERMISSION_DENIED": "The key has no grant for this in that pool: another pool is named with --pool; see [[grants]] in the daemon's configuration.",
    "NOT_FOUND": "See `bcmetal node list --all-pools` (or `token list`, …); another pool is named with --pool, another tenant with --tenant.",
    "RATE_LIMITED": "Try again in a while.",
    "UNAVAILABLE": "Try again in a while.",
    "INTERNAL": "The daemon's log has the rest under the trace id.",
}


def exit_of(code: str) -> Exit:
    return _BY_CODE.get(code, Exit.FAILED)


def worst(codes: Sequence[Exit]) -> Exit:
    """A failed operation weighs more than what was not allowed, and that more than wrong input."""
    order = (Exit.UNREACHABLE, Exit.FAILED, Exit.FORBIDDEN, Exit.USAGE)
    return next((code for code in order if code in codes), Exit.DONE)


@dataclass(slots=True)
class Session:
    profile_path: Path | None = None
    tenant: str | None = None
    pool: str | None = None
    as_json: bool = False
    _client: Client | None = field(default=None, repr=False)

    @property
    def client(self) -> Client:
        if self._client is None:
            from bcmetal.client import Client, find_profile

            self._client = Client(find_profile(self.profile_path))
        return self._client

    def patient(self, answer_s: float) -> Client:
        """A client that waits longer for an answer: BMCs are slow."""
        from bcmetal.client import Client, find_profile

        self.close()
        self._client = Client(find_profile(self.profile_path), answer_s)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def of_tenant(self) -> dict[str, str]:
        """`tenantId` of a request."""
        tenant = self.tenant or self.client.profile.tenant
        if not tenant:
            raise click.UsageError("which tenant? Say --tenant ID, or put `tenant` into the profile")
        return {"tenantId": tenant}

    def where(self) -> dict[str, str]:
        """`tenantId` and `poolId` of a request."""
        pool = self.pool or self.client.profile.pool
        if not pool:
            raise click.UsageError("which pool? Say --pool ID, or put `pool` into the profile")
        return {**self.of_tenant(), "poolId": pool}

    def answer(self, doc: Json) -> None:
        """The one JSON document."""
        import json

        click.echo(json.dumps(doc, indent=2, ensure_ascii=False))


def with_session(fn: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Hands the command its session, with this command's own --json, --pool and --tenant in it, and turns faults into exit codes."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from bcmetal.client import ApiError, ClientFault, ProfileFault, Unreachable

        session = click.get_current_context().ensure_object(Session)
        own: dict[str, Any] = dict(kwargs)
        session.as_json = bool(own.pop("as_json", False)) or session.as_json
        session.tenant = own.pop("tenant", None) or session.tenant
        session.pool = own.pop("pool", None) or session.pool
        try:
            return fn(session, *args, **own)
        except ApiError as e:
            say_error(session, e)
            sys.exit(exit_of(e.code))
        except ProfileFault as e:
            say_fault(session, "PROFILE", str(e))
            sys.exit(Exit.USAGE)
        except Unreachable as e:
            say_fault(session, "UNREACHABLE", str(e))
            sys.exit(Exit.UNREACHABLE)
        except ClientFault as e:
            say_fault(session, "CLIENT", str(e))
            sys.exit(Exit.FAILED)
        finally:
            session.close()

    return call


def shared_options(fn: F) -> F:
    """--pool, --tenant and --json, also after the command's name, where people type them."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document."),
        click.option("--tenant", metavar="ID", help="The tenant; the profile's by default."),
        click.option("--pool", metavar="ID", help="The pool; the profile's by default."),
    ):
        fn = option(fn)
    return fn


def say_fault(session: Session, code: str, message: str) -> None:
    if session.as_json:
        session.answer(fault_doc(code, message))
    else:
        click.echo(f"bcmetal: {clean(message)}", err=True)


def fault_doc(code: str, message: str) -> Json:
    """What went wrong on this side, in the shape of the API's errors."""
    return {"error": {"code": code, "message": clean(message), "details": {}, "traceId": ""}}


def say_error(session: Session, e: ApiError) -> None:
    if session.as_json:
        session.answer({"error": e.as_json()})
        return
    for line in error_lines(e.as_json()):
        click.echo(line, err=True)


def error_lines(error: Mapping[str, Any], node: str | None = None) -> list[str]:
    """An error of the API in words: code and message, each fault with its path, what is allowed instead, the remedy."""
    details = error.get("details") or {}
    faults = details.get("faults") or []
    lead = f"{node}: " if node else "bcmetal: "
    if faults:
        lines = [f"{lead}{error['code']}"]
        lines += [clean(f"  {fault.get('field')}: {fault.get('message')}") for fault in faults]
    else:
        lines = [clean(f"{lead}{error['code']}: {error['message']}")]
        if details.get("field") and str(details["field"]) not in str(error["message"]):
            lines.append(clean(f"  input: {details['field']}"))
    say = said(details)
    if say:
        lines.append(clean(f"  say: {say}"))
    allowed = details.get("allowedVerbs")
    if allowed:
        lines.append(clean("  allowed now: " + ", ".join(verb_words(allowed))))
    place = _asked() if error["code"] == "NOT_FOUND" else None
    if place:
        lines.append(clean(f"  asked: {place}"))
    remedy = _REMEDY.get(str(error["code"]))
    if remedy:
        lines.append(f"  {remedy}")
    if error.get("traceId") and error["code"] == "INTERNAL":
        lines.append(clean(f"  trace id: {error['traceId']}"))
    return lines


def _asked() -> str | None:
    """Which tenant and pool this command asked in; None where it has no profile."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context else None
    if session is None or session._client is None:
        return None
    profile = session.client.profile
    return f"tenant {session.tenant or profile.tenant}, pool {session.pool or profile.pool}"
