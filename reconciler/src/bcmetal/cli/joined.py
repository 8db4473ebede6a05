"""`bcmetal joined …`: the machines that joined, with or without a BMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import outline, print_table, table_of
from bcmetal.text import ago, clean

_COMMANDS = {
    "list": Entry("bcmetal.cli.joined:joined_list", "Show which machines joined, and by whom they were let in."),
    "show": Entry(
        "bcmetal.cli.joined:joined_show", "What one said of itself, its certificates, and what it was given."
    ),
    "evict": Entry("bcmetal.cli.joined:joined_evict", "Put one out: its certificates end at once."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def joined() -> None:
    """Machines that joined a pool and hold a certificate.

    \b
    Examples:
      bcmetal joined list
      bcmetal joined show nd_ID
      bcmetal joined evict nd_ID --reason 'stolen'
    """


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal joined list --pool gpu
  bcmetal joined list --json
""",
)
@click.option("--limit", type=click.IntRange(1, 200), default=100, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on after a page: its `cursor` under --json.")
@shared_options
@with_session
def joined_list(session: Session, /, limit: int, cursor: str | None) -> None:
    """Show the pool's joined machines, in the order of their ids; those that left stay listed."""
    body = {**session.where(), **given(cursor=cursor), "limit": limit}
    answer = session.client.call("nodes", "list", body)
    if session.as_json:
        session.answer(answer)
        return
    rows: Sequence[Mapping[str, Any]] = answer.get("nodes") or []
    if not rows:
        click.echo("no machine has joined", err=True)
        return
    print_table(
        table_of(
            ("node", "state", "trust", "BMC", "proven by", "let in by", "from", "joined", "last seen"),
            (
                (
                    row.get("nodeId"),
                    row.get("state"),
                    row.get("trust"),
                    "yes" if row.get("metal") else "none",
                    "tpm" if row.get("tpmProven") else row.get("attestor"),
                    row.get("admittedBy"),
                    row.get("address"),
                    row.get("joinedAt"),
                    ago(row.get("lastSeenAt")),
                )
                for row in rows
            ),
        )
    )
    if answer.get("cursor"):
        click.echo(f"more: --cursor {answer['cursor']}", err=True)


@click.command(
    "show",
    epilog="""\b
Examples:
  bcmetal joined show nd_ID
""",
)
@click.argument("node_id", metavar="NODE-ID")
@shared_options
@with_session
def joined_show(session: Session, /, node_id: str) -> None:
    """What the machine said of itself, its certificates, and which platform secrets it was given."""
    record = _get(session, node_id)
    if session.as_json:
        session.answer(record)
    else:
        click.echo("\n".join(outline(record)))


def _get(session: Session, node_id: str) -> dict[str, Any]:
    found: dict[str, Any] = session.client.call("nodes", "get", {**session.where(), "nodeId": node_id})
    return found


@click.command(
    "evict",
    epilog="""\b
Examples:
  bcmetal joined evict nd_ID --reason 'stolen'
  bcmetal joined evict nd_ID --yes --json
""",
)
@click.argument("node_id", metavar="NODE-ID")
@click.option("--reason", metavar="TEXT", help="Kept with the node, and in the event.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
@with_session
def joined_evict(session: Session, /, node_id: str, reason: str | None, yes: bool) -> None:
    """Put a machine out: its certificates are revoked and its connections closed at once. Tells which secrets to rotate.

    It comes back only by a token that is minted later. The machine itself is not touched.
    """
    if not yes:
        record = _get(session, node_id)
        what = (
            f"{node_id} ({record.get('state')}, trust {record.get('trust')}, last seen {ago(record.get('lastSeenAt'))})"
        )
        click.confirm(clean(f"Put {what} out?"), abort=True, err=True)
    answer = session.client.call("nodes", "evict", {**session.where(), "nodeId": node_id, **given(reason=reason)})
    if session.as_json:
        session.answer(answer)
        return
    node: Mapping[str, Any] = answer.get("node") or {}
    click.echo(clean(f"{node_id}: {node.get('state')} at {node.get('endedAt')} ({node.get('endReason')})"))
    for token_id in answer.get("tokens") or []:
        click.echo(clean(f"its root may have a copy of the token that let it in: bcmetal token revoke {token_id}"))
    rotate: Sequence[str] = answer.get("rotate") or []
    if not rotate:
        click.echo("it was given no platform secret: there is nothing to rotate")
        return
    click.echo("rotate what it was given:")
    for name in rotate:
        click.echo(clean(f"  {name}"))
