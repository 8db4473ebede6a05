"""`bcmetal token …`: what machines may join a pool by."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bcmetal.cli.asking import Duration
from bcmetal.cli.bearers import Wanted, private_file, tell_line
from bcmetal.cli.join_line import JoinLine, join_line
from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Exit, Session, shared_options, with_session
from bcmetal.cli.tables import print_table, table_of
from bcmetal.text import clean

_COMMANDS = {
    "create": Entry("bcmetal.cli.tokens:token_create", "Mint a token, or one for each machine of a list."),
    "list": Entry("bcmetal.cli.tokens:token_list", "Show a pool's tokens; never their secrets."),
    "revoke": Entry("bcmetal.cli.tokens:token_revoke", "End tokens at once, and deny the requests that came by them."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def token() -> None:
    """Join tokens: who has one may join its pool, as often as it says, until it expires.

    \b
    Examples:
      bcmetal token create --pool gpu --expect-serial 7XK2M13 --out r3u17.token
      bcmetal token create --pool gpu --from expected.csv --out tokens.csv
      bcmetal token list
      bcmetal token revoke jt_ID
    """


@click.command(
    "create",
    epilog="""\b
Examples:
  bcmetal token create --uses 8 --ttl 2h
  bcmetal token create --expect-serial 7XK2M13 --out r3u17.token
  bcmetal token create --from expected.csv --ttl 12h --key delivery-4711 --out tokens.csv
  bcmetal token create | ssh r3u17 bcmetal-agent join ... --token-file -
""",
)
@click.option("--uses", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many machines.")
@click.option(
    "--ttl", type=Duration(), default="1h", show_default=True, metavar="TIME", help="Good for 60s up to 24h (1d)."
)
@click.option("--expect-uuid", metavar="UUID", help="Only for the machine with this product UUID.")
@click.option("--expect-serial", metavar="SERIAL", help="Only for the machine with this serial.")
@click.option("--expect-mac", metavar="MAC", help="Only for the machine with this permanent address.")
@click.option("--expect-gpu", metavar="GPU-UUID", help="Only for the machine with this GPU.")
@click.option(
    "--from",
    "from_csv",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="A token for each row of a CSV with a header: productUuid, serial, mac, gpuUuid, or some of them.",
)
@click.option("--allow-reclaim", is_flag=True, help="Also for a machine that is joined already, with a new key.")
@click.option("--hosted", type=click.Choice(["kubernetes"]), help="For agents that run as a DaemonSet.")
@click.option("--key", metavar="KEY", help="The same KEY mints only once; with --from it goes into each row's.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the token here, readable by you alone."
)
@click.option("--server", metavar="URL", help="Where machines join, for the join line; as the daemon says by default.")
@click.option("--node-server", metavar="URL", help="Where joined machines renew, for the join line.")
@shared_options
@with_session
def token_create(
    session: Session,
    /,
    uses: int,
    ttl: float,
    expect_uuid: str | None,
    expect_serial: str | None,
    expect_mac: str | None,
    expect_gpu: str | None,
    from_csv: Path | None,
    allow_reclaim: bool,
    hosted: str | None,
    key: str | None,
    out: Path | None,
    server: str | None,
    node_server: str | None,
) -> None:
    """Mint a token for the pool, and print the line by which a machine joins with it. The token is shown this once.

    A pin (--expect-…) guards against a token that reaches another machine than meant; a machine's root can still lie.
    """
    wanted = Wanted(uses, int(ttl), allow_reclaim, hosted)
    expect = given(productUuid=expect_uuid, serial=expect_serial, mac=expect_mac, gpuUuid=expect_gpu)
    if from_csv is not None:
        if expect:
            raise click.UsageError("--from and --expect-… exclude each other: the file says what is expected")
        from bcmetal.cli.tokens_from_file import mint_each

        mint_each(session, wanted, from_csv, key, out, join_line(session, server, node_server))
        return
    line = join_line(session, server, node_server)
    body = wanted.body(session, expect, key or str(uuid.uuid4()))
    with private_file(out) as file:
        record = session.client.mutate("joinTokens", "create", body)
        bearer = record.pop("token", None)
        if bearer is not None and file is not None:
            file.write(f"{bearer}\n")
    if bearer is None and key is None:
        click.echo(_lost(record), err=True)
        sys.exit(Exit.FAILED)
    _tell_created(session, record, bearer, out, line)


def _lost(record: Mapping[str, Any]) -> str:
    return clean(
        f"bcmetal: the token was minted, but the answer that held it was lost on the way: "
        f"`bcmetal token revoke {record.get('tokenId')}`, and create another"
    )


def _tell_created(
    session: Session, record: dict[str, Any], bearer: str | None, out: Path | None, line: JoinLine
) -> None:
    """On a terminal all of it; in a pipe the token alone goes to the standard output, the rest to the other stream."""
    where = "FILE" if out is None else str(out)
    if session.as_json:
        shown = {} if bearer is None else {"token": bearer} if out is None else {"tokenFile": str(out)}
        join = line.text(where) if line.pins else None
        session.answer({**record, **shown, "ca": line.pins[0] if line.pins else None, "joinLine": join})
        return
    again = "" if bearer is not None else " (minted before by the same --key: its secret is not shown again)"
    click.echo(clean(f"{record.get('tokenId')}: {words_of(record)}{again}"), err=True)
    if bearer is not None and out is None:
        click.echo("the token, shown once:", err=True)
        click.echo(bearer)
    elif bearer is not None:
        click.echo(clean(f"the token is in {out}"), err=True)
    tell_line(line, where, bearer is not None)


def words_of(record: Mapping[str, Any]) -> str:
    uses = int(record.get("maxUses") or 1)
    pinned = pin_words(record.get("expect"))
    parts = [f"pool {record.get('poolId')}", f"{uses} use{'s' if uses > 1 else ''}", f"until {record.get('expiresAt')}"]
    parts += [f"only for {pinned}"] if pinned else ["for any machine"]
    parts += ["reclaim allowed"] if record.get("allowReclaim") else []
    parts += [f"hosted by {record['hosted']}"] if record.get("hosted") else []
    return ", ".join(parts)


def pin_words(expect: Mapping[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted((expect or {}).items()))


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal token list --pool gpu
  bcmetal token list --all --json
""",
)
@click.option("--all", "every", is_flag=True, help="Also those that are used up, expired or revoked.")
@click.option("--limit", type=click.IntRange(1, 200), default=100, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on after a page: its `cursor` under --json.")
@shared_options
@with_session
def token_list(session: Session, /, every: bool, limit: int, cursor: str | None) -> None:
    """Show the pool's tokens, by default those that are live."""
    body = {**session.where(), **given(includeInactive=every or None, cursor=cursor), "limit": limit}
    answer = session.client.call("joinTokens", "list", body)
    if session.as_json:
        session.answer(answer)
        return
    rows: Sequence[Mapping[str, Any]] = answer.get("tokens") or []
    if not rows:
        click.echo("no live tokens" if not every else "no tokens", err=True)
        return
    print_table(
        table_of(
            ("token", "state", "uses", "expires", "only for", "by", "note"),
            (
                (
                    row.get("tokenId"),
                    _state(row),
                    f"{row.get('uses')} of {row.get('maxUses')}",
                    row.get("expiresAt"),
                    pin_words(row.get("expect")) or row.get("nodeId"),
                    row.get("createdBy"),
                    _note(row),
                )
                for row in rows
            ),
        )
    )
    if answer.get("cursor"):
        click.echo(f"more: --cursor {answer['cursor']}", err=True)


def _state(row: Mapping[str, Any]) -> str:
    if row.get("revokedAt"):
        return "revoked"
    if row.get("live"):
        return "live"
    spent = int(row.get("uses") or 0) + int(row.get("reserved") or 0) >= int(row.get("maxUses") or 1)
    return "used up" if spent else "expired"


def _note(row: Mapping[str, Any]) -> str:
    parts = [f"{row['reserved']} reserved"] if row.get("reserved") else []
    parts += ["reclaim"] if row.get("allowReclaim") else []
    parts += [str(row["hosted"])] if row.get("hosted") else []
    return ", ".join(parts)


@click.command(
    "revoke",
    epilog="""\b
Examples:
  bcmetal token revoke jt_ID
""",
)
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN-ID...")
@shared_options
@with_session
def token_revoke(session: Session, /, tokens: tuple[str, ...]) -> None:
    """End tokens at once; join requests that came by them are denied. Machines that joined stay joined: see `bcmetal joined evict`."""
    if any(one.startswith("bcjt_") for one in tokens):
        raise click.UsageError("that is a token itself, which is a secret: name it by its id, jt_…")
    found = []
    for token_id in tokens:
        one = session.client.call("joinTokens", "revoke", {**session.where(), "tokenId": token_id})
        found.append(one)
        if not session.as_json:
            click.echo(clean(f"{token_id}: revoked at {one.get('revokedAt')}, {one.get('uses')} joined by it"))
    if session.as_json:
        session.answer({"tokens": found})
