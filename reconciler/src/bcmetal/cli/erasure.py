"""`bcmetal erasure …`: the records of what became of each drive."""

from __future__ import annotations

from typing import Any

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import outline, print_table, table_of

_COMMANDS = {
    "list": Entry("bcmetal.cli.erasure:erasure_list", "List records, newest first."),
    "show": Entry("bcmetal.cli.erasure:erasure_show", "Show all of some records."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def erasure() -> None:
    """What became of each drive: erased, or passed over by a waiver. Records stay when the node is removed.

    \b
    Examples:
      bcmetal erasure list --node r3u17
      bcmetal erasure list --serial S4EVNX0 --json
    """


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal erasure list
  bcmetal erasure list --node r3u17
  bcmetal erasure list --serial S4EVNX0 --json
""",
)
@click.option("--node", metavar="NODE", help="A name or an id, also of a node that was removed.")
@click.option("--serial", metavar="SERIAL", help="The drive's.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on after a page: its `cursor` under --json.")
@shared_options
@with_session
def erasure_list(session: Session, /, node: str | None, serial: str | None, limit: int, cursor: str | None) -> None:
    """List erasure records of the tenant, newest first; with --pool those of one pool."""
    body = {**session.of_tenant(), **given(poolId=session.pool, nodeId=node, serial=serial, cursor=cursor)}
    answer = session.client.call("erasureRecords", "list", {**body, "limit": limit})
    if session.as_json:
        session.answer(answer)
        return
    records: list[dict[str, Any]] = answer.get("records") or []
    if not records:
        click.echo("no erasure records", err=True)
        return
    print_table(
        table_of(
            ("at", "record", "node", "drive", "model", "result", "seen by"),
            (
                (
                    r.get("at"),
                    r.get("recordId"),
                    r.get("nodeId"),
                    r.get("serial") or "the whole machine",
                    r.get("model"),
                    r.get("result"),
                    r.get("verifier"),
                )
                for r in records
            ),
        )
    )
    if answer.get("cursor"):
        click.echo(f"more: --cursor {answer['cursor']}", err=True)


@click.command(
    "show",
    epilog="""\b
Examples:
  bcmetal erasure show er_01k0000000000000000000000a
""",
)
@click.argument("records", nargs=-1, required=True, metavar="RECORD...")
@shared_options
@with_session
def erasure_show(session: Session, /, records: tuple[str, ...]) -> None:
    """Show all of some RECORDs, which `bcmetal erasure list` names."""
    found = [
        session.client.call("erasureRecords", "get", {**session.of_tenant(), "recordId": record}) for record in records
    ]
    if session.as_json:
        session.answer({"records": found})
        return
    for n, record in enumerate(found):
        if n:
            click.echo()
        click.echo("\n".join(outline(record)))
