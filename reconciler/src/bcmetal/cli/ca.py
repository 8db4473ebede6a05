"""`bcmetal ca …`: the authority that signs the certificates of nodes, on the daemon's own host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import SecretStr

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.local import config_option, config_path, on_this_host
from bcmetal.cli.session import Exit

if TYPE_CHECKING:
    from bcmetal.install.ca import Installed

F = TypeVar("F", bound=Callable[..., Any])

_COMMANDS = {
    "init": Entry("bcmetal.cli.ca:ca_init", "Make a root for safekeeping, and the issuers that the daemon keeps."),
    "list": Entry("bcmetal.cli.ca:ca_list", "Show issuers and roots, until when they are good, and the pin."),
    "rollover": Entry("bcmetal.cli.ca:ca_rollover", "Make new issuers, below the same root or a new one."),
    "retire": Entry("bcmetal.cli.ca:ca_retire", "No longer trust an old root or issuer."),
    "trust-bundle": Entry("bcmetal.cli.ca:ca_trust_bundle", "Write the roots that nodes trust, as PEM."),
}

TAKEN = "a running daemon takes it within seconds"

_file = click.Path(dir_okay=False, path_type=Path)


def _given_options(fn: F) -> F:
    for option in (
        click.option(
            "--keys",
            type=click.Choice(["sealed", "file", "credential"]),
            default="sealed",
            show_default=True,
            help="With --from-files: seal their keys, or read them where they lie (credential: systemd's ca-KIND) at each start.",
        ),
        click.option(
            "--from-files",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Issuers of your own: root.pem, and KIND.pem and KIND.key for node, node-tenant and server.",
        ),
        click.option("--name", metavar="NAME", help="What a new root is called; the site's name by default."),
        click.option(
            "--passphrase-file",
            type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
            help="A file only you can read, its first line; - is standard input. A prompt by default.",
        ),
    ):
        fn = option(fn)
    return fn


@click.group(cls=LazyGroup, sections=(("Commands", _COMMANDS),))
def ca() -> None:
    """The site's certificate authority, on the daemon's own host. Its root is yours to keep; the daemon has only issuers below it.

    \b
    Examples:
      bcmetal ca init --root-out /media/safe/root.pem
      bcmetal ca list
      bcmetal ca rollover --root /media/safe/root.pem
    """


@click.command(
    "init",
    epilog="""\b
Examples:
  bcmetal ca init --root-out /media/safe/root.pem
  bcmetal ca init --from-files ./our-ca --keys credential
""",
)
@click.option("--root-out", type=_file, metavar="FILE", help="The new root, its key encrypted: keep it away from here.")
@_given_options
@config_option
@on_this_host
def ca_init(
    root_out: Path | None,
    from_files: Path | None,
    keys: str,
    name: str | None,
    passphrase_file: Path | None,
    config: Path | None,
) -> None:
    """Make a root and the issuers node, node-tenant and server. The root's key is written to FILE, under a passphrase, and kept nowhere.

    It is needed once a year, for `bcmetal ca rollover --root FILE`. Lost, another one takes its place by --new-root-out.
    """
    from bcmetal.install.ca import Keys, init_ca, init_from_files

    path = config_path(config)
    if from_files is not None:
        _only("--from-files", root_out=root_out, name=name, passphrase_file=passphrase_file)
        _tell(init_from_files(path, from_files, Keys(keys)), None)
        return
    if root_out is None:
        raise click.UsageError("say where the root goes: --root-out FILE (or bring your own: --from-files FOLDER)")
    _tell(init_ca(path, name, root_out, _new_passphrase(root_out, passphrase_file)), root_out)


@click.command(
    "rollover",
    epilog="""\b
Examples:
  bcmetal ca rollover --root /media/safe/root.pem
  bcmetal ca rollover --new-root-out /media/safe/root-2.pem
  bcmetal ca rollover --promote
""",
)
@click.option("--root", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE", help="The root.")
@click.option("--new-root-out", type=_file, metavar="FILE", help="Begin to change the root: make another one.")
@click.option("--promote", "promoting", is_flag=True, help="End the change of the root: let the next issuers sign.")
@click.option(
    "--early", is_flag=True, help="With --promote: also when nodes do not know the new root yet; they must join anew."
)
@_given_options
@config_option
@on_this_host
def ca_rollover(
    root: Path | None,
    new_root_out: Path | None,
    promoting: bool,
    early: bool,
    from_files: Path | None,
    keys: str,
    name: str | None,
    passphrase_file: Path | None,
    config: Path | None,
) -> None:
    """Make new issuers. Below the same root (--root) they sign at once, and what the old ones signed stays good until its end.

    Another root takes two steps: --new-root-out puts it into the trust bundle, which nodes get when they renew their certificates; once
    all have, --promote lets its issuers sign. `bcmetal ca retire` then takes the old root out of the bundle.
    """
    from bcmetal.install.ca import Keys, promote, roll_over, roll_over_from_files, roll_over_to_new_root

    if sum((root is not None, new_root_out is not None, from_files is not None, promoting)) != 1:
        raise click.UsageError("one of --root, --new-root-out, --from-files and --promote says what to do")
    if early and not promoting:
        raise click.UsageError("--early goes with --promote")
    path = config_path(config)
    if promoting:
        _only("--promote", name=name, passphrase_file=passphrase_file)
        _tell(promote(path, early=early), None)
    elif from_files is not None:
        _only("--from-files", name=name, passphrase_file=passphrase_file)
        _tell(roll_over_from_files(path, from_files, Keys(keys)), None)
    elif new_root_out is not None:
        passphrase = _new_passphrase(new_root_out, passphrase_file)
        _tell(roll_over_to_new_root(path, name, new_root_out, passphrase), new_root_out)
    elif root is not None:
        _only("--root", name=name)
        text = root.read_text(encoding="utf-8", errors="replace")
        _tell(roll_over(path, text, _passphrase_of(text, passphrase_file)), None)


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal ca list
""",
)
@config_option
@on_this_host
def ca_list(config: Path | None) -> None:
    """Show issuers and roots by their SHA-256. A root that is `current` is what joining machines pin."""
    from bcmetal.cli.tables import print_table, table_of
    from bcmetal.install.ca import list_ca

    def when(at: int | None) -> str:
        return "-" if at is None else datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="minutes")

    found = list_ca(config_path(config))
    if not found.issuers and not found.roots:
        click.echo("there is no authority yet: bcmetal ca init --root-out FILE", err=True)
        return
    states = {row.root_sha256: row.state for row in found.issuers if row.state in ("next", "current")}
    issuers = (
        (f"issuer {r.kind}", r.state, r.issuer_id, when(r.not_after_at), r.key_ref, when(r.created_at), r.created_by)
        for r in found.issuers
    )
    roots = (
        (
            "root",
            "retired" if r.removed_at else states.get(r.sha256, "trusted"),
            r.sha256,
            when(end),
            None,
            when(r.added_at),
            None,
        )
        for r, end in found.roots
    )
    columns = ("what", "state", "sha256", "good until", "key", "since", "by")
    print_table(table_of(columns, [*issuers, *roots]))


@click.command(
    "retire",
    epilog="""\b
Examples:
  bcmetal ca retire 5f1c09ab
""",
)
@click.argument("name", metavar="SHA256")
@click.option(
    "--force", is_flag=True, help="Also while certificates below it are still good: their nodes must join anew."
)
@config_option
@on_this_host
def ca_retire(name: str, force: bool, config: Path | None) -> None:
    """No longer trust an old root, or an old issuer: its SHA-256, as `ca list` shows it, or the first eight digits and more."""
    from bcmetal.install.ca import retire

    ended = retire(config_path(config), name, force=force)
    if ended is None:
        click.echo(f"bcmetal: nothing here is called {name}: `bcmetal ca list`", err=True)
        sys.exit(Exit.FORBIDDEN)
    click.echo(f"retired {ended}")
    click.echo(TAKEN, err=True)


@click.command(
    "trust-bundle",
    epilog="""\b
Examples:
  bcmetal ca trust-bundle --out roots.pem
""",
)
@click.option("--out", type=_file, metavar="FILE", help="Write it here; standard output by default.")
@config_option
@on_this_host
def ca_trust_bundle(out: Path | None, config: Path | None) -> None:
    """Write the roots that nodes trust, the newest first, as PEM."""
    from bcmetal.install.ca import trust_bundle
    from bcmetal.install.files import write_new

    bundle = trust_bundle(config_path(config))
    if not bundle:
        click.echo("bcmetal: there is no root yet: `bcmetal ca init`", err=True)
        sys.exit(Exit.FAILED)
    if out is None:
        click.echo(bundle, nl=False)
    else:
        write_new(out, bundle, private=False)


# ---------------------------------------------------------------- words


def _only(option: str, **others: object) -> None:
    extra = [f"--{name.replace('_', '-')}" for name, value in others.items() if value is not None]
    if extra:
        raise click.UsageError(f"{', '.join(extra)} says nothing with {option}")


def _new_passphrase(out: Path, file: Path | None) -> SecretStr:
    if out.exists():
        raise click.UsageError(f"{out} is there already, and not written over")
    return _take("Passphrase of the new root", file, confirm=True)


def _passphrase_of(text: str, file: Path | None) -> SecretStr | None:
    from bcmetal.join.root_file import is_encrypted

    return _take("Passphrase of the root", file, confirm=False) if is_encrypted(text) else None


def _take(what: str, file: Path | None, *, confirm: bool) -> SecretStr:
    from bcmetal.cli.passwords import take_secret
    from bcmetal.client import ClientFault

    try:
        return take_secret(what, file, confirm=confirm)
    except ClientFault as e:
        click.echo(f"bcmetal: {e}", err=True)
        sys.exit(Exit.USAGE)


def _tell(made: Installed, root_out: Path | None) -> None:
    from bcmetal.cli.join_line import JoinLine
    from bcmetal.join.ca import pin_of

    pin = pin_of(made.root)
    if root_out is not None:
        click.echo(
            f"root       {root_out} (there is no other copy of its key: keep it, and its passphrase, away from this host)"
        )
    if made.state == "next":
        click.echo(f"next pin   {pin}")
        click.echo(
            "its issuers are next: nodes learn the new root when they renew; then `bcmetal ca rollover --promote`"
        )
    else:
        click.echo(f"pin        {pin}")
        for server, node_server in made.calls or (("https://HOST:8445", "https://HOST:8444"),):
            click.echo(f"join line  {JoinLine((server,), (node_server,), (pin,)).text('FILE')}")
    click.echo(TAKEN, err=True)
