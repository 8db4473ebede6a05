"""`bcmetal token create --from FILE`: a list of expected machines, a pinned token for each.

The whole list is read and judged before anything is minted. A row's idempotency key comes from what the row says, the pool and --key:
the same list mints nothing twice, in whatever order or case it comes the second time.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bcmetal.cli.bearers import Wanted, private_file, tell_line
from bcmetal.cli.session import Exit, Session, error_lines, exit_of, fault_doc
from bcmetal.text import clean, defused

if TYPE_CHECKING:
    from bcmetal.cli.join_line import JoinLine

COLUMNS: Final = ("productUuid", "serial", "mac", "gpuUuid")
ROWS_AT_MOST: Final = 10_000
FAULTS_SHOWN: Final = 100


class BadList(Exception):
    """The list cannot be used; `faults` names each line."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Row:
    """`expect`: as the row says it; `normal`: the same, comparable."""

    line: int
    expect: Mapping[str, str]
    normal: tuple[tuple[str, str], ...]

    def key(self, pool: str, key: str) -> str:
        import hashlib

        text = json.dumps([pool, key, self.normal], separators=(",", ":"))
        return f"from:{hashlib.sha256(text.encode()).hexdigest()}"


def read_list(text: str) -> tuple[tuple[str, ...], list[Row]]:
    """The columns that are there, and the rows. Raises BadList with every fault."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = next((tuple(cell.strip() for cell in row) for row in reader if row), ())
        _check_header(header)
        lines = [(reader.line_num, row) for row in reader if row]
    except csv.Error as e:
        raise BadList([f"line {reader.line_num}: is no CSV: {e}"]) from None
    if not lines:
        raise BadList(["the list names no machine"])
    if len(lines) > ROWS_AT_MOST:
        raise BadList([f"the list has {len(lines)} machines: at most {ROWS_AT_MOST} at once"])
    faults: list[str] = []
    rows: dict[tuple[tuple[str, str], ...], Row] = {}
    for line, cells in lines:
        read = _read_row(header, line, cells)
        if isinstance(read, Row):
            first = rows.setdefault(read.normal, read)
            if first is not read:
                faults.append(f"line {line}: is the same machine as line {first.line}")
        else:
            faults += read
    if faults:
        raise BadList(faults)
    return header, list(rows.values())


def _check_header(header: tuple[str, ...]) -> None:
    faults = [
        f"line 1: {name!r} is no column; there are {', '.join(COLUMNS)}" for name in header if name not in COLUMNS
    ]
    faults += [f"line 1: {name} stands there twice" for name in COLUMNS if header.count(name) > 1]
    if faults or not header:
        raise BadList(faults or [f"line 1: must be a header that names some of {', '.join(COLUMNS)}"])


def _read_row(header: tuple[str, ...], line: int, cells: Sequence[str]) -> Row | list[str]:
    from pydantic import ValidationError

    from bcmetal.join.claims import EXPECTED, expectation
    from bcmetal.models_joining import Expect
    from bcmetal.settings import Placeholders

    if len(cells) != len(header):
        return [f"line {line}: has {len(cells)} cells, and the header {len(header)}"]
    named = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
    if not named:
        return [f"line {line}: names no identifier"]
    try:
        expect = Expect.model_validate(named).said()
    except ValidationError as error:
        wrong = dict.fromkeys(str(one["loc"][0]) for one in error.errors() if one["loc"])
        return [f"line {line}: {name}: {named.get(name, '')!r} is not of its form" for name in wrong]
    found = expectation(expect, Placeholders())
    faults = [
        f"line {line}: {name}: {named[name]!r} is a placeholder that many machines share{', or given by software' if name == 'mac' else ''}"
        for name, kind in EXPECTED
        if kind in found and not found[kind][1]
    ]
    return faults or Row(line, expect, tuple(sorted((kind, value) for kind, (value, _) in found.items())))


def mint_each(session: Session, wanted: Wanted, path: Path, key: str | None, out: Path | None, line: JoinLine) -> None:
    """Each token is written out as soon as it is there, so that a failure half-way loses none."""
    from bcmetal.client import ApiError, ClientFault

    header, rows = _list_of(path)
    pool = session.where()["poolId"]
    done: list[dict[str, Any]] = []
    failed: ClientFault | None = None
    with private_file(out) as file:
        write: Callable[[str], object] | None = None
        if file is not None:
            write = file.write
        elif not session.as_json:
            write = sys.stdout.write
        for row in rows:
            body = wanted.body(session, row.expect, row.key(pool, key or ""))
            try:
                record = session.client.mutate("joinTokens", "create", body)
            except ClientFault as e:
                failed = e
                _say_failed(session, row, len(done), e)
                break
            if write is not None and record.get("token"):
                if not any(one.get("token") for one in done):
                    write(csv_line((*header, "tokenId", "expiresAt", "token")))
                write(csv_line((*(row.expect.get(name, "") for name in header), *_of(record))))
                (file or sys.stdout).flush()
            done.append({"line": row.line, **record})
    _tell(session, done, failed, out, line)
    if failed is not None:
        sys.exit(exit_of(failed.code) if isinstance(failed, ApiError) else Exit.UNREACHABLE)


def _list_of(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return read_list(raw.decode("utf-8"))
    except OSError as e:
        raise click.UsageError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise click.UsageError(f"{path}: is no UTF-8") from e
    except BadList as e:
        shown = [clean(fault) for fault in e.faults[:FAULTS_SHOWN]]
        more = len(e.faults) - len(shown)
        shown += [f"and {more} more"] if more else []
        raise click.UsageError("nothing was minted:\n  " + "\n  ".join(shown)) from e


def _of(record: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(record.get("tokenId")), str(record.get("expiresAt")), str(record.get("token"))


def csv_line(cells: Sequence[str]) -> str:
    """One line, in which no spreadsheet finds a formula."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow([defused(cell) for cell in cells])
    return buffer.getvalue()


def _say_failed(session: Session, row: Row, done: int, e: Exception) -> None:
    from bcmetal.client import ApiError

    if session.as_json:
        return
    for text in error_lines(e.as_json(), f"line {row.line}") if isinstance(e, ApiError) else [f"line {row.line}: {e}"]:
        click.echo(clean(text), err=True)
    click.echo(f"{done} lines were done before it: the same command, with another --out, goes on there", err=True)


def _tell(
    session: Session, done: Sequence[dict[str, Any]], failed: Exception | None, out: Path | None, line: JoinLine
) -> None:
    from bcmetal.client import ApiError

    fresh = [one for one in done if one.get("token")]
    if session.as_json:
        hidden = {"token"} if out is not None else set()
        tokens = [{name: value for name, value in one.items() if name not in hidden} for one in done]
        doc: dict[str, Any] = {"tokens": tokens, "minted": len(fresh), "ca": line.pins[0] if line.pins else None}
        doc |= {"joinLine": line.text("FILE") if line.pins else None}
        doc |= {"tokenFile": str(out)} if out is not None and fresh else {}
        if failed is not None:
            doc |= {"error": failed.as_json()} if isinstance(failed, ApiError) else fault_doc("CLIENT", str(failed))
        session.answer(doc)
        return
    for one in done:
        if not one.get("token"):
            why = (
                "its secret is not shown again"
                if one.get("live")
                else "and is no longer live: another --key mints anew"
            )
            click.echo(clean(f"line {one['line']}: {one.get('tokenId')} was minted before; {why}"), err=True)
    kept = f", in {out}" if out is not None and fresh else ""
    shown = " Each token is shown this once." if fresh else ""
    click.echo(clean(f"{len(fresh)} of {len(done)} minted{kept}.{shown}"), err=True)
    tell_line(line, "FILE", bool(fresh))
