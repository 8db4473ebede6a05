"""`bcmetal image …`: what lies on the daemon's shelf."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.node_options import given
from bcmetal.cli.session import Exit, Session, shared_options, with_session
from bcmetal.cli.tables import print_table, table_of
from bcmetal.text import clean, size

POLL_S: Final = 0.5
_COMMANDS = {
    "list": Entry("bcmetal.cli.images:image_list", "Show the images of the configuration, and what else is there."),
    "pull": Entry("bcmetal.cli.images:image_pull", "Fetch images before a machine needs them."),
    "prune": Entry("bcmetal.cli.images:image_prune", "Delete images that no machine needs now."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def image() -> None:
    """Images on the daemon's shelf. A deployment fetches its own, once for all machines; `pull` has it there before.

    \b
    Examples:
      bcmetal image list
      bcmetal image pull debian-12
      bcmetal image prune
    """


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal image list
  bcmetal image list --json
""",
)
@shared_options
@with_session
def image_list(session: Session, /) -> None:
    """Show the images of the configuration, and what else is on the shelf for this tenant."""
    answer = session.client.call("images", "list", session.of_tenant())
    if session.as_json:
        session.answer(answer)
        return
    images: list[dict[str, Any]] = answer.get("images") or []
    if not images:
        click.echo("no images: name some in the configuration, under [images]", err=True)
        return
    rows = ((_name(one), one.get("format"), _state(one), size(one.get("onDiskBytes")), _whose(one)) for one in images)
    print_table(table_of(("image", "format", "state", "on disk", "for"), rows))


@click.command(
    "pull",
    epilog="""\b
Examples:
  bcmetal image pull debian-12 rocky-9
  bcmetal image pull --url https://mirror.example/os.qcow2 --format qcow2 --sha256 0f3a…
  bcmetal image pull debian-12 --no-wait
""",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--url", metavar="URL", help="Instead of a NAME: an address that the site allows.")
@click.option("--sha256", metavar="HEX", help="With --url.")
@click.option("--sha512", metavar="HEX", help="With --url.")
@click.option("--format", "kind", type=click.Choice(("iso", "raw", "qcow2")), help="With --url; iso by default.")
@click.option("--wait/--no-wait", default=True, help="Wait until all are there (the default).")
@shared_options
@with_session
def image_pull(
    session: Session,
    /,
    names: tuple[str, ...],
    url: str | None,
    sha256: str | None,
    sha512: str | None,
    kind: str | None,
    wait: bool,
) -> None:
    """Fetch the images of the configuration that the NAMEs say, or the one at --url, and check them."""
    if bool(names) is (url is not None):
        raise click.UsageError("say NAMEs of the configuration's images, or one --url")
    if url is None and (sha256 or sha512 or kind):
        raise click.UsageError("--sha256, --sha512 and --format go with --url")
    wanted = [{"name": name} for name in dict.fromkeys(names)]
    if url is not None:
        wanted = [given(url=url, sha256=sha256, sha512=sha512, format=kind)]
    found = _pulled(session, wanted, wait)
    if session.as_json:
        session.answer({"images": found})
    else:
        for asked, one in zip(wanted, found, strict=True):
            click.echo(clean(f"{asked.get('name') or 'the image'}: {_outcome(one)}"))
    if any(one.get("state") == "failed" for one in found):
        sys.exit(Exit.FAILED)


def _pulled(session: Session, wanted: list[dict[str, Any]], wait: bool) -> list[dict[str, Any]]:
    """The last answer about each."""
    found: dict[int, dict[str, Any]] = {}
    told: dict[int, str] = {}
    while True:
        for n, asked in enumerate(wanted):
            if n not in found or found[n].get("state") == "fetching":
                found[n] = session.client.call("images", "pull", {**session.of_tenant(), "image": asked})
        going = [n for n, one in found.items() if one.get("state") == "fetching"]
        if not wait or not going:
            return [found[n] for n in range(len(wanted))]
        for n in going:
            text = f"{wanted[n].get('name') or 'the image'}: {_progress(found[n])}"
            if not session.as_json and told.get(n) != text:
                told[n] = text
                click.echo(clean(text), err=True)
        time.sleep(POLL_S)


def _progress(one: dict[str, Any]) -> str:
    """In steps of five per cent, so that a log stays short."""
    done, total = one.get("doneBytes") or 0, one.get("totalBytes")
    return f"{done * 20 // total * 5} % of {size(total)}" if total else "is fetched and checked"


def _outcome(one: dict[str, Any]) -> str:
    if one.get("state") == "failed":
        error = one.get("error") or {}
        return f"{error.get('code')}: {error.get('message')}"
    if one.get("state") == "ready":
        file = one.get("file") or {}
        packed = "" if file.get("compression") == "none" else f", {file.get('compression')}"
        return f"ready, {size(file.get('bytes'))}{packed}"
    return f"is under way, {_progress(one)}"


@click.command(
    "prune",
    epilog="""\b
Examples:
  bcmetal image prune
""",
)
@shared_options
@with_session
def image_prune(session: Session, /) -> None:
    """Delete images that no machine needs now. One that was used in the last quarter of an hour stays."""
    answer = session.client.call("images", "prune", session.of_tenant())
    if session.as_json:
        session.answer(answer)
        return
    for one in answer.get("pruned") or []:
        click.echo(clean(f"{one.get('file')}  {size(one.get('bytes'))}"))
    click.echo(f"freed {size(answer.get('bytes') or 0)}", err=True)


def _name(one: dict[str, Any]) -> str:
    if one.get("name"):
        return str(one["name"])
    return f"sha256:{str(one['sha256'])[:16]}…" if one.get("sha256") else f"sha512:{str(one.get('sha512'))[:16]}…"


def _state(one: dict[str, Any]) -> str:
    return f"fetching, {_progress(one)}" if one.get("state") == "fetching" else str(one.get("state"))


def _whose(one: dict[str, Any]) -> str:
    return "everybody" if one.get("public") else "this tenant"
