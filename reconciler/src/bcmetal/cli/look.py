"""Commands that only read: why, show, plan, timeline, inventory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from bcmetal.cli.inside import print_inside
from bcmetal.cli.progress import stage
from bcmetal.cli.session import Exit, Session, error_lines, exit_of, shared_options, with_session, worst
from bcmetal.cli.tables import outline, print_pairs, print_table, switched_on, table_of
from bcmetal.cli.targets import resolve
from bcmetal.cli.words import COMMANDS, POWER, command_of, verb_words
from bcmetal.states import SideVerb, Verb
from bcmetal.text import ago, clean, moment, size, span

_nodes = click.argument("nodes", nargs=-1, required=True, metavar="NODE...")


def _each(
    session: Session, method: str, patterns: Sequence[str], body: dict[str, Any], show: Callable[[dict[str, Any]], None]
) -> None:
    """Reads something of each node; what cannot be read is said at its place, and is the exit code."""
    from bcmetal.client import ApiError

    results: list[dict[str, Any]] = []
    codes: list[Exit] = []
    for n, node in enumerate(resolve(session, patterns)):
        try:
            answer = session.client.call("metal", method, {**session.where(), "nodeId": node, **body})
        except ApiError as e:
            codes.append(exit_of(e.code))
            results.append({"node": node, "error": e.as_json()})
            if not session.as_json:
                for line in error_lines(e.as_json(), node):
                    click.echo(line, err=True)
            continue
        results.append({"node": node, **answer} if "state" not in answer else answer)
        if not session.as_json:
            if n:
                click.echo()
            show(answer)
    if session.as_json:
        session.answer({"results": results})
    code = worst(codes)
    if code:
        sys.exit(code)


@click.command(
    epilog="""\b
Examples:
  bcmetal why r3u17
  bcmetal why 'r3u[01-20]' --json
"""
)
@_nodes
@shared_options
@with_session
def why(session: Session, /, nodes: tuple[str, ...]) -> None:
    """What a node is doing, what it waits for and since when, what went wrong, what is allowed, and what to type next."""
    _each(session, "get", nodes, {}, _why)


def _why(view: dict[str, Any]) -> None:
    name = clean(view["name"])
    operation = view.get("operation") or {}
    error = operation.get("error") or view.get("lastError") or {}
    click.echo(f"{name} is {clean(view['state'])}")
    held = [
        f"{flag}: {_reason_of(view.get(flag))}" for flag in ("maintenance", "protected") if switched_on(view.get(flag))
    ]
    print_pairs(
        [
            ("operation", operation and f"{operation.get('verb')} {operation.get('id')}"),
            ("step", stage(view).removeprefix("step ")),
            ("waits for", operation.get("waitingFor")),
            ("since", operation.get("waitingFor") and ago(operation.get("since"))),
            ("tries", operation.get("attempts")),
            ("next try", _ahead(operation.get("nextTryAt"))),
            ("budget left", _budget(operation.get("budgetLeftS"))),
            ("touched", operation and ("yes" if operation.get("touched") else "no: nothing was changed yet")),
            (
                "last error",
                error and f"{error.get('code')} in {error.get('step')}, {ago(error.get('at'))}: {error.get('message')}",
            ),
            ("hint", error.get("hint")),
            ("held", "; ".join(held)),
            *rescue_pairs(view),
        ],
        indent="  ",
    )
    for line in _side_lines(view):
        click.echo(clean(f"  side       {line}"))
    for condition in _conditions(view):
        message = f"{condition.get('type')} {condition.get('status')}: {condition.get('message')}"
        click.echo(clean(f"  condition  {message} ({ago(condition.get('since'))})"))
    allowed = view.get("allowedVerbs") or []
    click.echo(clean(f"  allowed    {', '.join(verb_words(allowed)) or 'nothing'}"))
    click.echo(f"  next       {_next_command(view)}")


def _side_lines(view: dict[str, Any]) -> Iterator[str]:
    """Side operations that wait, and those that failed: what each waits for or ended with, and what helps."""
    for one in view.get("sideOperations") or []:
        error, verb = one.get("error") or {}, command_of(one.get("verb"))
        if one.get("status") == "queued":
            ahead = _ahead(one.get("nextTryAt"))
            then = f", next try {ahead}" if one.get("waitingFor") and ahead else ""
            yield f"{verb} waits: {one.get('waitingFor') or 'its turn'} (asked {ago(one.get('since'))}{then})"
        else:
            yield f"{verb} failed {ago(one.get('endedAt'))}: {error.get('code')}: {error.get('message')}"
            if error.get("hint"):
                yield f"  {error['hint']}"


def rescue_pairs(view: dict[str, Any]) -> list[tuple[str, object]]:
    """How a rescued machine is reached: the command, the host key to compare, and when it ends."""
    rescue = view.get("rescue") or {}
    port = "" if rescue.get("port") in (None, 22) else f" -p {rescue['port']}"
    commands = [f"ssh{port} {rescue.get('user')}@{address}" for address in rescue.get("addresses") or ()]
    return [
        ("rescue", " or ".join(commands) or None),
        ("host key", " or ".join(rescue.get("fingerprints") or ()) or None),
        ("ends", _ahead(rescue.get("endsAt"))),
    ]


def _reason_of(flag: object) -> str:
    if isinstance(flag, dict):
        until = f" until {flag['until']}" if flag.get("until") else ""
        return f"{flag.get('reason') or 'no reason given'}{until}"
    return "on"


def _conditions(view: dict[str, Any]) -> list[dict[str, Any]]:
    found = view.get("conditions") or []
    return [c for c in found if isinstance(c, dict) and c.get("status") != "ok"]


def _budget(seconds: Any) -> str | None:
    return span(float(seconds)) if isinstance(seconds, int | float) else None


def _ahead(value: Any) -> str | None:
    from datetime import UTC, datetime

    at = moment(value)
    if at is None:
        return None
    left = (at - datetime.now(UTC)).total_seconds()
    return f"in {span(left)}" if left >= 1 else "now"


# From a state to what an admin most likely wants next; the first that is allowed is shown.
_LIKELY = {
    "enrolled": ("inspect",),
    "inspected": ("commission", "adopt"),
    "available": ("deploy",),
    "deployed": ("release",),
    "rescued": ("unrescue",),
    "retired": ("remove",),
}
_INPUT = {
    "commission": " --wait",
    "deploy": " --image IMAGE --wait",
    "inspect": " --wait",
    "release": " --wait",
    "unrescue": " --wait",
    "retry": " --wait",
}


_CREDENTIALS = ("bmc-credentials-rejected", "login-budget")


def _next_command(view: dict[str, Any]) -> str:
    name = clean(view["name"])
    if view.get("operation"):
        return f"bcmetal timeline {name}"
    allowed = {str(a.get("verb")): a.get("needs") for a in view.get("allowedVerbs") or [] if isinstance(a, dict)}
    state = str(view["state"])
    code = str((view.get("lastError") or {}).get("code"))
    if code in _CREDENTIALS and state.endswith("-failed"):  # a retry would only send the same password again
        return f"bcmetal node credentials {name} --username NAME"
    if code == "bmc-certificate-untrusted" and state.endswith("-failed"):
        return f"bcmetal node update {name} --fingerprint SHA256"
    likely = ("retry", "inspect") if state.endswith("-failed") else _LIKELY.get(state, ())
    verb = next((v for v in likely if v in allowed), None)
    if verb is None:
        return f"bcmetal node show {name}"
    serial = (view.get("identity") or {}).get("serial") or view["nodeId"]
    confirm = f" --confirm-erase {clean(serial)}" if allowed[verb] == "confirmErase" else ""
    return f"bcmetal {verb} {name}{confirm}{_INPUT.get(verb, '')}"


@click.command(
    epilog="""\b
Examples:
  bcmetal node show r3u17
  bcmetal node show r3u17 --json
"""
)
@_nodes
@shared_options
@with_session
def show(session: Session, /, nodes: tuple[str, ...]) -> None:
    """Show all that is known of nodes. Secrets are never part of it."""
    _each(session, "get", nodes, {}, lambda view: click.echo("\n".join(outline(view))))


@click.command(
    epilog="""\b
Examples:
  bcmetal plan commission r3u17
  bcmetal plan release r3u17 --profile purge
  bcmetal plan deploy r3u17 --image installer
  bcmetal plan power off r3u17
"""
)
@click.argument("verb")
@_nodes
@click.option("--profile", "profile_name", metavar="NAME")
@click.option("--image", metavar="NAME")
@click.option("--rebuild", is_flag=True)
@click.option("--confirm-erase", metavar="SERIAL")
@shared_options
@with_session
def plan(
    session: Session,
    /,
    verb: str,
    nodes: tuple[str, ...],
    profile_name: str | None,
    image: str | None,
    rebuild: bool,
    confirm_erase: str | None,
) -> None:
    """What VERB would do to nodes, and whether it would be allowed. Nothing is done. For power the action comes first: `plan power off NODE`."""
    given: dict[str, Any] = {"profile": profile_name, "confirmErase": confirm_erase, "rebuild": rebuild or None}
    if image:
        given["image"] = {"name": image}
    if verb == "power":
        if nodes[0] not in POWER or len(nodes) == 1:
            raise click.UsageError(f"say which: plan power ACTION NODE..., with ACTION one of {', '.join(POWER)}")
        given["action"], nodes = POWER[nodes[0]], nodes[1:]
    method = _METHODS.get(verb, verb)
    if method not in _PLANNED:
        raise click.BadParameter(f"{verb!r} is none of {', '.join(map(_word, _PLANNED))}", param_hint="VERB")
    body = {"verb": method, "input": {k: v for k, v in given.items() if v is not None}}
    _each(session, "plan", nodes, body, lambda answer: _plan(verb, answer))


def _word(verb: str) -> str:
    return command_of(verb).removeprefix("node ")


_PLANNED = tuple(str(verb) for kind in (Verb, SideVerb) for verb in kind if verb is not SideVerb.CLEANUP)
_METHODS = {_word(verb): verb for verb in COMMANDS}


def _plan(verb: str, answer: dict[str, Any]) -> None:
    view, made = answer.get("node") or {}, answer.get("plan") or {}
    name = str(view.get("name"))
    leads = f", leads to {made['leadsTo']}" if made.get("leadsTo") else ""
    click.echo(
        clean(f"{name} is {view.get('state')}; {verb} is {'allowed' if made.get('allowed') else 'NOT allowed'}{leads}")
    )
    if made.get("refusal"):
        for line in error_lines(made["refusal"], name):
            click.echo(f"  {line}")
    print_pairs(
        [
            ("needs grants", ", ".join(made.get("actions") or [])),
            ("grants missing", ", ".join(made.get("actionsMissing") or [])),
            ("erases disks", "yes" if made.get("erasesDisks") else "no"),
            ("on failure", made.get("onFailure")),
            ("time budget", _budget(made.get("budgetS"))),
        ],
        indent="  ",
    )
    for n, step in enumerate(made.get("steps") or [], start=1):
        click.echo(clean(f"  {n:>2} {step}"))


@click.command(
    epilog="""\b
Examples:
  bcmetal timeline r3u17
  bcmetal timeline r3u17 --json
"""
)
@_nodes
@click.option("--limit", type=click.IntRange(1, 200), help="So many operations, the newest.")
@shared_options
@with_session
def timeline(session: Session, /, nodes: tuple[str, ...], limit: int | None) -> None:
    """What was done to nodes: operations, their steps, how often each was tried, and how long it took."""
    _each(session, "timeline", nodes, {"limit": limit} if limit else {}, _timeline)


def _timeline(answer: dict[str, Any]) -> None:
    view = answer.get("node") or {}
    click.echo(clean(f"{view.get('name')} is {view.get('state')}"))
    for operation in answer.get("operations") or []:
        took = _between(operation.get("createdAt"), operation.get("endedAt"))
        by = operation.get("by")
        click.echo(
            clean(
                f"{operation.get('createdAt')}  {operation.get('verb')} {operation.get('status')}"
                f"{f' in {took}' if took else ''} by {by}  {operation.get('id')}"
            )
        )
        error = operation.get("error") or {}
        if error:
            click.echo(clean(f"    {error.get('code')} in {error.get('step')}: {error.get('message')}"))
        for run in operation.get("steps") or []:
            took = _between(run.get("startedAt"), run.get("endedAt"))
            because = f": {run['why']}" if run.get("why") else ""
            attempt = f" (try {run['attempt']})" if (run.get("attempt") or 0) > 1 else ""
            click.echo(clean(f"    {took or '-':>8}  {run.get('step')}{attempt} {run.get('outcome')}{because}"))


def _between(first: Any, last: Any) -> str:
    a, b = moment(first), moment(last)
    if a is None or b is None:
        return ""
    seconds = (b - a).total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


@click.command(
    epilog="""\b
Examples:
  bcmetal inventory r3u17
  bcmetal inventory r3u17 --json | jq '.results[0].inventory'
"""
)
@_nodes
@shared_options
@with_session
def inventory(session: Session, /, nodes: tuple[str, ...]) -> None:
    """What is in the machines, as the last inspect or refresh found it."""
    _each(session, "inventory", nodes, {}, _inventory)


def _inventory(answer: dict[str, Any]) -> None:
    view, found, deep = answer.get("node") or {}, answer.get("inventory"), answer.get("deep")
    click.echo(clean(f"{view.get('name')} is {view.get('state')}"))
    if not found and not deep:
        click.echo("  no inventory yet: bcmetal inspect, or bcmetal refresh")
    if found:
        _from_outside(found)
    if deep:
        print_inside(deep)


def _from_outside(found: Any) -> None:
    """What the BMC told."""
    doc = found.get("doc", found) if isinstance(found, dict) else found
    drives = doc.get("drives") if isinstance(doc, dict) else None
    if isinstance(drives, list) and drives and isinstance(doc, dict):
        rest = {k: v for k, v in doc.items() if k != "drives"}
        click.echo("\n".join(outline(rest, 1)))
        print_table(
            table_of(
                ("drive", "model", "size"),
                (
                    (d.get("serial"), d.get("model"), size(d.get("capacity_bytes", d.get("capacityBytes"))))
                    for d in drives
                ),
            )
        )
        return
    click.echo("\n".join(outline(json.loads(json.dumps(found)), 1)))
