"""`bcmetal request …`: machines that wait for a person's decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from bcmetal.cli.evidence import compare, tpm_pairs
from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Session, shared_options, with_session
from bcmetal.cli.tables import print_pairs, print_table, table_of
from bcmetal.text import ago, clean, sha256_fingerprint

_COMMANDS = {
    "list": Entry("bcmetal.cli.join_requests:request_list", "Show who waits."),
    "show": Entry("bcmetal.cli.join_requests:request_show", "What a machine claims, beside what is known of it."),
    "approve": Entry("bcmetal.cli.join_requests:request_approve", "Let a machine in."),
    "deny": Entry("bcmetal.cli.join_requests:request_deny", "Refuse machines."),
}
STATES: Final = ("pending", "approved", "denied", "consumed", "expired")
WHY: Final = {
    "placeholder-identifiers": "its product UUID is a placeholder that many machines share, and its token is not pinned",
    "unknown-machine": "no enrolled machine of the pool is like it",
    "unknown-ek": "its TPM's EK is not in the pool's ek_allow",
    "duplicate-uuid": "another node has its product UUID and not the rest, or several have parts of it",
    "expired-certificate": "its certificate ended too long ago to be renewed",
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def request() -> None:
    """Join requests: machines whose token, TPM or BMC was not proof enough.

    \b
    Examples:
      bcmetal request list
      bcmetal request show jr_ID
      bcmetal request approve jr_ID
      bcmetal request deny jr_ID --reason 'not ours'
    """


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal request list
  bcmetal request list --state denied
""",
)
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--all", "every", is_flag=True, help="Also those that are decided or expired.")
@click.option("--limit", type=click.IntRange(1, 200), default=100, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on after a page: its `cursor` under --json.")
@shared_options
@with_session
def request_list(session: Session, /, state: str | None, every: bool, limit: int, cursor: str | None) -> None:
    """Show the pool's join requests, by default those that wait for a decision, or for their machine to come back."""
    body = {**session.where(), **given(state=state, cursor=cursor, includeInactive=every or None), "limit": limit}
    answer = session.client.call("joinRequests", "list", body)
    if session.as_json:
        session.answer(answer)
        return
    rows: Sequence[Mapping[str, Any]] = answer.get("requests") or []
    if not rows:
        click.echo("nobody waits" if not every and state is None else "no join requests", err=True)
        return
    print_table(
        table_of(
            ("request", "state", "why", "claims", "from", "tries", "last seen", "expires"),
            (
                (
                    row.get("requestId"),
                    row.get("state"),
                    row.get("reason"),
                    _claims(row),
                    row.get("address"),
                    row.get("attempts"),
                    ago(row.get("lastSeenAt")),
                    row.get("expiresAt"),
                )
                for row in rows
            ),
        )
    )
    if answer.get("cursor"):
        click.echo(f"more: --cursor {answer['cursor']}", err=True)


def _claims(row: Mapping[str, Any]) -> str:
    found = (row.get("evidence") or {}).get("identifiers") or []
    first = {str(one.get("kind")): str(one.get("value")) for one in reversed(found)}
    return next((f"{kind} {first[kind]}" for kind in ("serial", "uuid", "mac", "gpu") if kind in first), "")


@click.command(
    "show",
    epilog="""\b
Examples:
  bcmetal request show jr_ID
""",
)
@click.argument("request_id", metavar="REQUEST-ID")
@shared_options
@with_session
def request_show(session: Session, /, request_id: str) -> None:
    """What the machine claims of itself beside what BMCs reported of the nodes that have the same; differences end in ≠."""
    record = _get(session, request_id)
    if session.as_json:
        session.answer(record)
    else:
        show(record)


def _get(session: Session, request_id: str) -> dict[str, Any]:
    found: dict[str, Any] = session.client.call("joinRequests", "get", {**session.where(), "requestId": request_id})
    return found


def show(record: Mapping[str, Any], *, err: bool = False) -> None:
    """The evidence; `err`: to the other stream, where a document follows."""
    evidence: Mapping[str, Any] = record.get("evidence") or {}
    reason = str(record.get("reason"))
    print_pairs(
        (
            ("request", record.get("requestId")),
            ("state", record.get("state")),
            ("why", f"{reason}: {WHY[reason]}" if reason in WHY else reason),
            ("pool", record.get("poolId")),
            ("would be", record.get("nodeId") or "a new node"),
            ("proves itself by", record.get("attestor")),
            ("token", record.get("tokenId")),
            ("called from", record.get("address")),
            ("called", f"{record.get('attempts')} times, last {ago(record.get('lastSeenAt'))}"),
            ("first called", record.get("createdAt")),
            ("expires", record.get("expiresAt")),
            ("decided", _decision(record)),
            ("csr", f"sha256:{record.get('csrSha256')}"),
            ("key", f"sha256:{record.get('keySha256')}"),
            *tpm_pairs(evidence),
        ),
        err=err,
    )
    compared = compare(evidence)
    if compared.rows:
        print_table(table_of(compared.columns, compared.rows), err=err)
    if not evidence.get("reported"):
        click.echo("no enrolled machine of the pool has any of it: nothing but its own word speaks for it", err=err)
    elif compared.differing:
        click.echo(f"{compared.differing} differences (≠)", err=err)
    else:
        click.echo("no differences", err=err)


def _decision(record: Mapping[str, Any]) -> str:
    if not record.get("decidedBy"):
        return ""
    reason = f": {record['decisionReason']}" if record.get("decisionReason") else ""
    return f"by {record['decidedBy']} at {record.get('decidedAt')}{reason}"


@click.command(
    "approve",
    epilog="""\b
Examples:
  bcmetal request approve jr_ID
  bcmetal request approve jr_ID --csr-sha256 SHA256 --yes
""",
)
@click.argument("request_id", metavar="REQUEST-ID")
@click.option("--csr-sha256", metavar="SHA256", help="Only if it came with this CSR; the one that is shown by default.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
@with_session
def request_approve(session: Session, /, request_id: str, csr_sha256: str | None, yes: bool) -> None:
    """Show the evidence, ask, and let the machine in: it joins when it calls again, with the very CSR that was shown."""
    wanted = None
    if csr_sha256 is not None:
        wanted = sha256_fingerprint(csr_sha256)
        if wanted is None:
            raise click.UsageError("--csr-sha256 takes 64 hexadecimal digits")
    record = _get(session, request_id)
    if not (yes and session.as_json):
        show(record, err=session.as_json)
    if not yes:
        click.confirm("Let this machine in?", abort=True, err=True)
    body = {**session.where(), "requestId": request_id, "csrSha256": wanted or record.get("csrSha256")}
    _tell(session, session.client.call("joinRequests", "approve", body))


def _tell(session: Session, record: dict[str, Any]) -> None:
    if session.as_json:
        session.answer(record)
        return
    text = f"{record.get('requestId')}: {record.get('state')} by {record.get('decidedBy')}"
    if record.get("state") == "approved":
        text += f"; the machine has until {record.get('expiresAt')} to call again"
    click.echo(clean(text))


@click.command(
    "deny",
    epilog="""\b
Examples:
  bcmetal request deny jr_ID --reason 'not ours'
""",
)
@click.argument("requests", nargs=-1, required=True, metavar="REQUEST-ID...")
@click.option("--reason", metavar="TEXT", help="Kept with the request; the machine is not told.")
@shared_options
@with_session
def request_deny(session: Session, /, requests: tuple[str, ...], reason: str | None) -> None:
    """Refuse machines, also after an approval that was not used yet. A machine asks anew with `bcmetal-agent join --anew`."""
    found = []
    for one in requests:
        body = {**session.where(), "requestId": one, **given(reason=reason)}
        found.append(session.client.call("joinRequests", "deny", body))
        if not session.as_json:
            _tell(session, found[-1])
    if session.as_json:
        session.answer({"requests": found})
