"""`bcmetal freeze …` and `bcmetal audit`."""

from __future__ import annotations

from typing import Any

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import print_table, table_of
from bcmetal.text import clean

_COMMANDS = {
    "set": Entry("bcmetal.cli.site:freeze_set", "Hold every change on a site, pool or rack."),
    "lift": Entry("bcmetal.cli.site:freeze_lift", "Let changes go on."),
    "list": Entry("bcmetal.cli.site:freeze_list", "Show what is held."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def freeze() -> None:
    """Hold every mutating step on a site, a pool or a rack; reads go on.

    \b
    Examples:
      bcmetal freeze set rack/r3 --reason 'power work until noon'
      bcmetal freeze set site/fra1 --reason 'incident 12'
      bcmetal freeze lift rack/r3
    """


class Scope(click.ParamType[tuple[str, str]]):
    """`site/ID`, `pool/ID`, `rack/ID`."""

    name = "scope"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        kind, slash, name = str(value).partition("/")
        if kind not in ("site", "pool", "rack") or not slash or not name:
            self.fail(f"{value!r} is none of site/ID, pool/ID, rack/ID", param, ctx)
        return kind, name


def _body(session: Session, scope: tuple[str, str], site: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"scopeKind": scope[0], "scopeId": scope[1]}
    return {**session.of_tenant(), **body} | ({"siteId": site} if site else {})


@click.command(
    "set",
    epilog="""\b
Examples:
  bcmetal freeze set rack/r3 --site fra1 --reason 'power work until noon'
""",
)
@click.argument("scope", type=Scope())
@click.option("--reason", required=True, metavar="TEXT")
@click.option("--site", metavar="ID", help="The site that a rack belongs to.")
@shared_options
@with_session
def freeze_set(session: Session, /, scope: tuple[str, str], reason: str, site: str | None) -> None:
    """Hold every change on SCOPE: site/ID, pool/ID or rack/ID."""
    answer = session.client.mutate("freeze", "set", {**_body(session, scope, site), "reason": reason})
    _say(session, answer, f"{scope[0]}/{scope[1]} is frozen: {reason}")


@click.command(
    "lift",
    epilog="""\b
Examples:
  bcmetal freeze lift rack/r3 --site fra1
""",
)
@click.argument("scope", type=Scope())
@click.option("--site", metavar="ID", help="The site that a rack belongs to.")
@shared_options
@with_session
def freeze_lift(session: Session, /, scope: tuple[str, str], site: str | None) -> None:
    """Let changes on SCOPE go on."""
    answer = session.client.mutate("freeze", "lift", _body(session, scope, site))
    _say(session, answer, f"{scope[0]}/{scope[1]} goes on")


def _say(session: Session, answer: dict[str, Any], text: str) -> None:
    if session.as_json:
        session.answer(answer)
    else:
        click.echo(clean(text))


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal freeze list
""",
)
@shared_options
@with_session
def freeze_list(session: Session, /) -> None:
    """Show what is held, by whom and why."""
    answer = session.client.call("freeze", "list", session.of_tenant())
    if session.as_json:
        session.answer(answer)
        return
    rows = answer.get("freezes") or []
    if not rows:
        click.echo("nothing is frozen", err=True)
        return
    print_table(
        table_of(
            ("scope", "reason", "by", "at"),
            ((f"{r.get('scopeKind')}/{r.get('scopeId')}", r.get("reason"), r.get("by"), r.get("at")) for r in rows),
        )
    )


@click.command(
    epilog="""\b
Examples:
  bcmetal audit --limit 50
  bcmetal audit --node r3u17
  bcmetal audit --json | jq '.entries[].identity'
"""
)
@click.option("--node", metavar="NODE", help="Only what concerned this node.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@shared_options
@with_session
def audit(session: Session, /, node: str | None, limit: int) -> None:
    """Who did what, whence, on what, and with what outcome; refusals too. Newest first."""
    body: dict[str, Any] = {**(session.where() if node else session.of_tenant()), "limit": limit}
    if node:
        body["nodeId"] = node
    answer = session.client.call("audit", "list", body)
    if session.as_json:
        session.answer(answer)
        return
    print_table(
        table_of(
            ("at", "who", "from", "action", "on", "outcome"),
            (
                (e.get("at"), e.get("identity"), e.get("address"), e.get("action"), e.get("resource"), e.get("outcome"))
                for e in answer.get("entries") or []
            ),
        )
    )
