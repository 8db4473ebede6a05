"""`bcmetal log`: what the agent was asked to do in an operation, and the log of one of its tasks."""

from __future__ import annotations

from typing import Any

import click

from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import print_table, table_of
from bcmetal.text import ago, clean, log_text


@click.command(
    epilog="""\b
Examples:
  bcmetal log r3u17                              # which tasks its last operation had
  bcmetal log r3u17 test-memory
  bcmetal log r3u17 erase-erase --operation op_01k…
"""
)
@click.argument("node")
@click.argument("task", required=False)
@click.option(
    "--operation", "operation_id", metavar="ID", help="Of another operation than the last; `bcmetal timeline`."
)
@shared_options
@with_session
def log(session: Session, /, node: str, task: str | None, operation_id: str | None) -> None:
    """What the agent did on NODE in its last operation; with TASK, all that this one logged."""
    body: dict[str, Any] = {**session.where(), "nodeId": node}
    if operation_id:
        body["operationId"] = operation_id
    if task is None:
        answer = session.client.call("metal", "logs", body)
        session.answer(answer) if session.as_json else _show(answer)
        return
    body["task"] = task
    answer = session.client.call("metal", "logs", body)
    text, following = answer["text"] or "", answer.get("nextOffset")
    pieces = [text]
    while following is not None:
        more = session.client.call("metal", "logs", {**body, "operationId": answer["operationId"], "offset": following})
        pieces.append(more["text"] or "")
        following = more.get("nextOffset")
    if session.as_json:
        session.answer({**answer, "text": "".join(pieces), "nextOffset": None})
        return
    click.echo(log_text("".join(pieces)), nl=not pieces[-1].endswith("\n"))


def _show(answer: dict[str, Any]) -> None:
    if answer.get("operationId") is None:
        click.echo("the agent was never asked for anything on this machine")
        return
    click.echo(f"operation {clean(answer['operationId'])}")
    rows = [
        (
            clean(task["name"]),
            clean(task["state"]),
            f"{task['progress']:.0%}",
            ago(task["handedAt"]) if task["handedAt"] else "-",
            f"{task['logCharacters']}",
            clean(task.get("errorMessage") or task.get("message") or ""),
        )
        for task in answer.get("tasks") or ()
    ]
    print_table(table_of(("task", "state", "done", "begun", "log", "says"), rows))
