"""Asks the API for a mutation of each of several nodes, and waits if that was wanted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click

from bcmetal.cli.outcome import Outcome, finish
from bcmetal.cli.progress import Awaited, wait_for
from bcmetal.cli.session import Session, shared_options
from bcmetal.cli.targets import resolve

F = TypeVar("F", bound=Callable[..., Any])

_UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """`90`, `90s`, `15m`, `2h`, `1d`: seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no duration such as 90s, 15m or 2h", param, ctx)
        return float(match[1]) * _UNITS[match[2] or ""]


@dataclass(frozen=True, slots=True)
class How:
    """The options that every mutation takes."""

    wait: bool
    timeout_s: float | None
    idempotency_key: str | None
    if_generation: int | None


Body = Callable[[str], Mapping[str, Any]]


def verb_options(fn: F) -> F:
    """NODE… and what every verb takes; the command gets `nodes` and `how`."""
    for option in (
        click.option("--if-generation", type=int, metavar="N", help="Refuse when the node has moved on since then."),
        click.option("--idempotency-key", metavar="KEY", help="The same key asks only once, also after a lost answer."),
        click.option(
            "--timeout",
            "timeout_s",
            type=Duration(),
            metavar="TIME",
            help="With --wait: stop waiting after 90s, 15m, 2h; the operation goes on.",
        ),
        click.option("--wait", is_flag=True, help="Wait for the end, with progress; exit code 1 if any failed."),
        click.argument("nodes", nargs=-1, required=True, metavar="NODE..."),
    ):
        fn = option(fn)
    return shared_options(fn)


def how_of(options: dict[str, Any]) -> How:
    """Takes the common options out of a command's own."""
    return How(
        wait=options.pop("wait"),
        timeout_s=options.pop("timeout_s"),
        idempotency_key=options.pop("idempotency_key"),
        if_generation=options.pop("if_generation"),
    )


def ask_each(
    session: Session, verb: str, method: str, patterns: Sequence[str], how: How, body: Body, *, wait: bool | None = None
) -> None:
    """Asks for each node in turn; one refusal does not stop the others. Ends the process with the exit code when it is not 0."""
    nodes = resolve(session, patterns)
    wanted = how.wait if wait is None else wait
    asked = [ask(session, method, node, how, body(node), alone=len(nodes) == 1) for node in nodes]
    code = finish(session, verb, waited_for(session, method, asked, how.timeout_s) if wanted else asked)
    if code:
        sys.exit(code)


def waited_for(session: Session, method: str, asked: Sequence[Outcome], timeout_s: float | None) -> list[Outcome]:
    """What was accepted, at its end; in the order asked."""
    awaited = [
        Awaited(o.node, o.operation_id, o.view) for o in asked if o.operation_id is not None and o.view is not None
    ]
    ended = {o.node: o for o in wait_for(session, awaited, timeout_s)} if awaited else {}
    outcomes = [ended.get(o.node, o) for o in asked]
    if method == "abort":  # an operation that ended as aborted is what was asked for
        outcomes = [replace(o, what="done", error=None) if o.what == "aborted" else o for o in outcomes]
    return outcomes


def ask(session: Session, method: str, node: str, how: How, body: Mapping[str, Any], *, alone: bool) -> Outcome:
    from bcmetal.client import ApiError

    request: dict[str, Any] = {**session.where(), "nodeId": node, **{k: v for k, v in body.items() if v is not None}}
    if how.if_generation is not None:
        request["ifGeneration"] = how.if_generation
    if how.idempotency_key is not None:  # a key stands for one call, so each node gets its own
        request["idempotencyKey"] = how.idempotency_key if alone else f"{how.idempotency_key}:{node}"
    try:
        view = session.client.mutate("metal", method, request)
    except ApiError as e:
        if e.code == "UNAUTHENTICATED":
            raise
        return Outcome(node, "refused", error=e.as_json())
    operation_id = asked_operation(view)
    return Outcome(
        str(view.get("name") or node), "accepted" if operation_id else "done", view, operation_id=operation_id
    )


def asked_operation(view: Mapping[str, Any]) -> str | None:
    """The operation that this answer is about; None when it ended at once."""
    operation = view.get("operation") or {}
    return str(operation["id"]) if operation.get("id") else None
