"""`bcmetal bom …`: bills of materials, learned from a machine and checked against others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.session import Exit, Session, error_lines, exit_of, shared_options, with_session, worst
from bcmetal.cli.targets import resolve
from bcmetal.text import clean

if TYPE_CHECKING:
    from bcmetal.comparing.bom import Bom
    from bcmetal_agent.wire_inventory import Inventory

_COMMANDS = {
    "learn": Entry("bcmetal.cli.bom:bom_learn", "Write one from a machine that is as it should be."),
    "check": Entry("bcmetal.cli.bom:bom_check", "Hold machines to one; nothing is asked of the machines."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def bom() -> None:
    """Bills of materials: a TOML file that a commission profile names by `bom`, and that its machines have to match.

    \b
    Examples:
      bcmetal bom learn r3u17 --output gpu8.toml
      bcmetal bom check gpu8.toml 'r3u[01-20]'
    """


@click.command(
    "learn",
    epilog="""\b
Examples:
  bcmetal bom learn r3u17
  bcmetal bom learn r3u17 --output /etc/bcmetal/bom/gpu8.toml
""",
)
@click.argument("node", metavar="NODE")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it there, where no file is yet; by default it is shown.",
)
@shared_options
@with_session
def bom_learn(session: Session, /, node: str, output: Path | None) -> None:
    """Write a bill of materials from the last deep inventory of NODE. Read it over before it judges other machines."""
    from bcmetal.comparing.bom import parse
    from bcmetal.comparing.learning import learn
    from bcmetal.errors import InvalidInput

    name, found = _deep(session, node)
    text = learn(found, name=name)
    try:
        parse(text)
    except InvalidInput as fault:
        raise click.ClickException(clean(f"what {name} tells of itself makes no bill of materials: {fault}")) from None
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as fault:
            raise click.ClickException(f"{output}: {fault.strerror}") from None
    if session.as_json:
        session.answer({"node": name, "bom": text, "file": None if output is None else str(output)})
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {output}: name it by `bom` in a commission profile", err=True)


@click.command(
    "check",
    epilog="""\b
Examples:
  bcmetal bom check gpu8.toml r3u17
  bcmetal bom check gpu8.toml 'r3u[01-20]' --json
""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@shared_options
@with_session
def bom_check(session: Session, /, file: Path, nodes: tuple[str, ...]) -> None:
    """Hold the last deep inventory of each NODE to the bill of materials in FILE. Exit code 1 when any differs."""
    from bcmetal.client import ApiError
    from bcmetal.comparing.judging import judge

    wanted = _read(file)
    results: list[dict[str, Any]] = []
    codes: list[Exit] = []
    for node in resolve(session, nodes):
        try:
            name, found = _deep(session, node)
        except ApiError as fault:
            codes.append(exit_of(fault.code))
            results.append({"node": node, "error": fault.as_json()})
            lines = list(error_lines(fault.as_json(), node))
        except click.ClickException as fault:
            codes.append(Exit.FAILED)
            results.append({"node": node, "error": {"message": fault.message}})
            lines = [f"{node}: {fault.message}"]
        else:
            mismatches = judge(wanted, found)
            codes += [Exit.FAILED] if mismatches else []
            results.append({"node": name, "mismatches": list(mismatches)})
            lines = [f"{name}: {f'{len(mismatches)} mismatches' if mismatches else 'as it should be'}"]
            lines += [f"  {one}" for one in mismatches]
        for line in () if session.as_json else lines:
            click.echo(clean(line), err="error" in results[-1])
    if session.as_json:
        session.answer({"results": results})
    if worst(codes):
        sys.exit(worst(codes))


def _read(file: Path) -> Bom:
    from bcmetal.comparing.bom import parse
    from bcmetal.errors import InvalidInput

    try:
        return parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise click.ClickException(f"{file}: {fault}") from None
    except InvalidInput as fault:
        lines = "\n".join(f"  {one.path}: {one.message}" if one.path else f"  {one.message}" for one in fault.faults)
        raise click.UsageError(_clean_lines(f"{file}:\n{lines}")) from None


def _clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.splitlines())


def _deep(session: Session, node: str) -> tuple[str, Inventory]:
    """The node's name and what the agent saw inside it. Raises ApiError, ClickException."""
    from bcmetal_agent.wire import BadMessage, read_doc
    from bcmetal_agent.wire_inventory import Inventory

    answer = session.client.call("metal", "inventory", {**session.where(), "nodeId": node})
    name = clean(str((answer.get("node") or {}).get("name") or node))
    doc = (answer.get("deep") or {}).get("doc")
    if doc is None:
        raise click.ClickException(
            f"{name} was not looked at from inside yet: `bcmetal inspect {name} --deep` before it is commissioned; a later commission by the agent looks too"
        )
    try:
        return name, read_doc(Inventory, doc)
    except BadMessage as fault:
        raise click.ClickException(clean(f"{name}: its inventory is of another version of bcmetal: {fault}")) from None
