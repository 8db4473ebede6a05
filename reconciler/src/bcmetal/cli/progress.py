"""Waits for operations and shows how they go: a live table on a terminal, a line for each change otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from bcmetal.cli.outcome import Outcome
from bcmetal.text import clean, span

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from bcmetal.cli.session import Session

FIRST_POLL_S: Final = 0.2
LAST_POLL_S: Final = 2.0
ENDED: Final = ("done", "failed", "aborted", "refused")


@dataclass(frozen=True, slots=True)
class Awaited:
    """An operation that was accepted."""

    node: str
    operation_id: str
    view: dict[str, Any]


class Screen(Protocol):
    def show(self, views: dict[str, dict[str, Any]]) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None: ...


def stage(view: dict[str, Any]) -> str:
    """`step 3/9 erase`, or nothing."""
    operation = view.get("operation") or {}
    if not operation.get("step"):
        return ""
    number, steps = operation.get("stepNumber"), operation.get("steps")
    count = f"{number}/{steps} " if number and steps else ""
    done = operation.get("progress")
    percent = f" {done:.0%}" if isinstance(done, int | float) else ""
    return clean(f"step {count}{operation['step']}{percent}")


def waits_for(view: dict[str, Any]) -> str:
    """What the operation under way waits for. Not `lastError`: before the end it is another operation's, after it the outcome says it."""
    operation = view.get("operation") or {}
    waiting = operation.get("waitingFor")
    if not waiting:
        return ""
    attempts = operation.get("attempts")
    return clean(f"{waiting} (try {attempts})" if attempts and attempts > 1 else waiting)


class Lines:
    """For pipes and logs: one line a change."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def show(self, views: dict[str, dict[str, Any]]) -> None:
        for node, view in views.items():
            waits = waits_for(view)
            text = " ".join(p for p in (str(view.get("state")), stage(view), f"- {waits}" if waits else "") if p)
            if self._last.get(node) != text:
                self._last[node] = text
                click.echo(f"{datetime.now().astimezone():%H:%M:%S} {node}: {clean(text)}", err=True)


class LiveTable:
    """For a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._began = time.monotonic()
        self._live: Live = Live(console=Console(stderr=True, markup=False), refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._live.__exit__(kind, e, tb)

    def show(self, views: dict[str, dict[str, Any]]) -> None:
        self._live.update(self._table(views))

    def _table(self, views: dict[str, dict[str, Any]]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"waiting, {span(time.monotonic() - self._began)}", title_justify="left")
        for name in ("node", "state", "step", "waits for"):
            table.add_column(name, overflow="fold")
        for node, view in views.items():
            table.add_row(*(Text(clean(t)) for t in (node, view.get("state", ""), stage(view), waits_for(view))))
        return table


def screen_for(session: Session) -> Screen:
    """Nothing but the document under --json; progress always goes to the standard error stream."""
    if session.as_json:
        return Silent()
    return LiveTable() if sys.stderr.isatty() else Lines()


class Silent:
    def __enter__(self) -> Silent:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def show(self, views: dict[str, dict[str, Any]]) -> None:
        return None


def wait_for(session: Session, awaited: Sequence[Awaited], timeout_s: float | None) -> list[Outcome]:
    """Until every operation ended, or the time is up: then the operations go on without us."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    views = {a.node: a.view for a in awaited}
    left = {a.node: a for a in awaited}
    outcomes: dict[str, Outcome] = {}
    pause_s = FIRST_POLL_S
    with screen_for(session) as screen:
        screen.show(views)
        while left:
            if deadline is not None and time.monotonic() >= deadline:
                outcomes |= {n: Outcome(n, "timeout", views[n], operation_id=a.operation_id) for n, a in left.items()}
                break
            time.sleep(pause_s if deadline is None else min(pause_s, max(0.0, deadline - time.monotonic())))
            pause_s = min(LAST_POLL_S, max(pause_s * 1.3, len(left) * 0.02))
            for node, one in list(left.items()):
                views[node], outcome = look(session, one)
                if outcome is not None:
                    outcomes[node] = outcome
                    del left[node]
                    pause_s = FIRST_POLL_S
            screen.show(views)
    return [outcomes[a.node] for a in awaited]


def look(session: Session, one: Awaited) -> tuple[dict[str, Any], Outcome | None]:
    """The node's present view, and how the operation ended if it has."""
    where = session.where()
    view = session.client.call("metal", "get", {**where, "nodeId": one.view["nodeId"]})
    if (view.get("operation") or {}).get("id") == one.operation_id:
        return view, None
    side = next((o for o in view.get("sideOperations") or [] if o.get("id") == one.operation_id), None)
    if side is not None and side.get("status") not in ENDED:
        return {**view, "operation": side}, None
    timeline = session.client.call("metal", "timeline", {**where, "nodeId": one.view["nodeId"]})
    entry = next((o for o in timeline["operations"] if o.get("id") == one.operation_id), None)
    if entry is None or entry.get("status") not in ENDED:
        return view, None
    # The operation's own error: the node's `lastError` may be that of an earlier one.
    error = None if entry["status"] == "done" else entry.get("error") or view.get("lastError")
    return view, Outcome(one.node, str(entry["status"]), view, error, one.operation_id)
