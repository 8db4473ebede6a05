"""`bcmetal erasure …`: the records of what became of each drive."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.local import config_option, config_path, on_this_host
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Exit, Session, say_fault, shared_options, with_session
from bcmetal.cli.tables import outline, print_table, table_of

PAGE = 200

_COMMANDS = {
    "list": Entry("bcmetal.cli.erasure:erasure_list", "List records, newest first."),
    "show": Entry("bcmetal.cli.erasure:erasure_show", "Show all of some records."),
    "export": Entry("bcmetal.cli.erasure:erasure_export", "Write signed records that openssl verifies by itself."),
}
_KEYS = {
    "keys": Entry("bcmetal.cli.erasure:erasure_keys", "Show the ids of the keys that sign, and that signed."),
    "rotate-key": Entry("bcmetal.cli.erasure:erasure_rotate_key", "Let another key sign from now on."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS), ("The signing key, on the daemon's own host", _KEYS)))
def erasure() -> None:
    """What became of each drive: erased, or passed over by a waiver. Records stay when the node is removed.

    \b
    Examples:
      bcmetal erasure list --node r3u17
      bcmetal erasure list --serial S4EVNX0 --json
      bcmetal erasure export --node r3u17 -o proof
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


@click.command(
    "export",
    epilog="""\b
Examples:
  bcmetal erasure export --node r3u17 -o proof
  bcmetal erasure export er_01k0000000000000000000000a -o proof
  bcmetal erasure export --serial S4EVNX0 --json
In the folder, README.txt has for each record the command that verifies it:
  openssl dgst -sha256 -verify keys/KEY.pem -signature records/RECORD.sig records/RECORD.json
""",
)
@click.argument("records", nargs=-1, metavar="[RECORD]...")
@click.option("--node", metavar="NODE", help="A name or an id, also of a node that was removed.")
@click.option("--serial", metavar="SERIAL", help="The drive's.")
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A new or empty folder; with --json instead, all is one document.",
)
@shared_options
@with_session
def erasure_export(
    session: Session, /, records: tuple[str, ...], node: str | None, serial: str | None, out: Path | None
) -> None:
    """Write signed records, some or all, with the public keys: whoever has them verifies them offline, by openssl alone."""
    if (out is None) == (not session.as_json):
        raise click.UsageError("say where to: -o DIR, or --json for one document")
    asked = {**session.of_tenant(), **given(poolId=session.pool, nodeId=node, serial=serial), "limit": PAGE}
    found: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = []
    for names in [records[n : n + PAGE] for n in range(0, len(records), PAGE)] or [()]:
        cursor: str | None = None
        while True:
            body = {**asked, **given(cursor=cursor, recordIds=list(names) or None)}
            answer = session.client.call("erasureRecords", "export", body)
            found += answer.get("records") or []
            keys = answer.get("keys") or []
            cursor = answer.get("cursor")
            if cursor is None:
                break
    missing = sorted(set(records) - {str(one.get("recordId")) for one in found})
    if missing:
        say_fault(session, "NOT_FOUND", f"no such record, or not for you: {', '.join(missing)}")
        sys.exit(Exit.FORBIDDEN)
    if out is None:
        session.answer({"records": found, "keys": keys})
    else:
        _write(session, out, found, keys)


def _write(session: Session, out: Path, records: list[dict[str, Any]], keys: list[dict[str, Any]]) -> None:
    from bcmetal.proof.bundle import BadExport, write_folder

    try:
        written = write_folder(out, records, keys)
    except BadExport as error:
        say_fault(session, "CLIENT", str(error))
        sys.exit(Exit.FAILED)
    except OSError as error:
        say_fault(session, "FILE", f"{error.filename or out}: {error.strerror}")
        sys.exit(Exit.FAILED)
    unsigned = f", and {written.unsigned} from before records were signed" if written.unsigned else ""
    click.echo(
        f"{written.signed} signed records{unsigned}; {out / 'README.txt'} says how openssl verifies them", err=True
    )


@click.command(
    "keys",
    epilog="""\b
Examples:
  bcmetal erasure keys
""",
)
@config_option
@on_this_host
def erasure_keys(config: Path | None) -> None:
    """Show the keys of erasure records by their ids: what an auditor compares with the key in an export. One is made if there is none."""
    from bcmetal.install.proof import list_keys

    for row in list_keys(config_path(config)):
        click.echo(f"{row.key_id}  since {row.since}, {f'until {row.until}' if row.until else 'signs now'}")


@click.command(
    "rotate-key",
    epilog="""\b
Examples:
  bcmetal erasure rotate-key
""",
)
@config_option
@on_this_host
def erasure_rotate_key(config: Path | None) -> None:
    """Make another key, which signs from now on, also in a running daemon. What the old one signed stays good; its private half is forgotten."""
    from bcmetal.install.proof import rotate_key

    click.echo(rotate_key(config_path(config)))
