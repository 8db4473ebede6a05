"""`bcmetal key …` and `bcmetal credential …`: on the daemon's own host, beside a running daemon."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from bcmetal.cli.asking import Duration
from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.session import Exit

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BCMETAL_CONFIG",
    help="The daemon's configuration: ~/.config/bcmetal/bcmetal.toml or /etc/bcmetal/bcmetal.toml by default.",
)


def config_path(named: Path | None) -> Path:
    from bcmetal.cli.init import default_folder

    places = [named] if named else [default_folder() / "bcmetal.toml", Path("/etc/bcmetal/bcmetal.toml")]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise click.UsageError(f"no configuration at {places[0]}: run `bcmetal init`, or name one with --config")
    return found.absolute()


def on_this_host(fn: Callable[P, R]) -> Callable[P, R]:
    """Faults of the store, the vault and the configuration in words."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from bcmetal.errors import BcmetalError, InvalidInput

        try:
            return fn(*args, **kwargs)
        except InvalidInput as e:
            for fault in e.faults:
                click.echo(f"bcmetal: {fault.path}: {fault.message}", err=True)
            sys.exit(Exit.USAGE)
        except (BcmetalError, OSError) as e:
            click.echo(f"bcmetal: {e}", err=True)
            sys.exit(Exit.FAILED)

    return call


_KEYS = {
    "create": Entry("bcmetal.cli.local:key_create", "Make a key, shown once or written to a file."),
    "list": Entry("bcmetal.cli.local:key_list", "Show whose keys there are."),
    "revoke": Entry("bcmetal.cli.local:key_revoke", "End a key at once."),
}
_CREDENTIALS = {
    "set": Entry("bcmetal.cli.local:credential_set", "Seal a secret that the configuration names."),
    "list": Entry("bcmetal.cli.local:credential_list", "Show which are sealed; never what they are."),
    "remove": Entry("bcmetal.cli.local:credential_remove", "Forget a sealed secret."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _KEYS),))
def key() -> None:
    """API keys, on the daemon's own host. What a key may do is said by [[grants]] to `key:NAME` in the configuration.

    \b
    Examples:
      bcmetal key create ci --expires 90d --out ci.key
      bcmetal key list
      bcmetal key revoke ci
    """


@click.command(
    "create",
    epilog="""\b
Examples:
  bcmetal key create ci --expires 90d --out ci.key
""",
)
@click.argument("name")
@click.option("--tenant", default="platform", show_default=True, metavar="ID", help="Whose identity it is.")
@click.option("--expires", type=Duration(), metavar="TIME", help="After 90d, 12h; never by default.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it here, readable by you alone.")
@config_option
@on_this_host
def key_create(name: str, tenant: str, expires: float | None, out: Path | None, config: Path | None) -> None:
    """Make a key for the identity key:NAME. It is shown once: the daemon keeps only its SHA-256."""
    from bcmetal.install.files import write_new
    from bcmetal.install.local import create_key

    path = config_path(config)
    if out is not None and out.exists():
        raise click.UsageError(f"{out} is there already, and not written over")
    new = create_key(path, name, tenant, expires)
    click.echo(f"{new.key_id} is a key of {new.identity}, tenant {tenant}", err=True)
    if out is None:
        click.echo(new.secret.get_secret_value())
    else:
        write_new(out, new.secret.get_secret_value() + "\n", private=True)


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal key list
""",
)
@config_option
@on_this_host
def key_list(config: Path | None) -> None:
    """Show whose keys there are, and when each was used last."""
    from bcmetal.cli.tables import print_table, table_of
    from bcmetal.install.local import list_keys

    def when(at: int | None) -> str:
        return "-" if at is None else datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="seconds")

    rows = list_keys(config_path(config))
    columns = ("key", "identity", "tenant", "created", "expires", "last used", "revoked")
    print_table(
        table_of(
            columns,
            (
                (
                    r.key_id,
                    r.identity,
                    r.tenant_id,
                    when(r.created_at),
                    when(r.expires_at),
                    when(r.last_used_at),
                    when(r.revoked_at),
                )
                for r in rows
            ),
        )
    )


@click.command(
    "revoke",
    epilog="""\b
Examples:
  bcmetal key revoke ci
""",
)
@click.argument("name")
@config_option
@on_this_host
def key_revoke(name: str, config: Path | None) -> None:
    """End a key at once: NAME is its identity's name or its id."""
    from bcmetal.install.local import revoke_key

    ended = revoke_key(config_path(config), name)
    if not ended:
        click.echo(f"bcmetal: no live key {name}", err=True)
        sys.exit(Exit.FORBIDDEN)
    click.echo(f"revoked {ended} key{'s' if ended > 1 else ''} of {name}")


@click.group(cls=LazyGroup, sections=(("Commands", _CREDENTIALS),))
def credential() -> None:
    """Sealed secrets that the configuration names `sealed:NAME`, on the daemon's own host.

    \b
    Examples:
      bcmetal credential set fleet
      bcmetal credential set fleet --file ./password
      pass show bmc/fleet | bcmetal credential set fleet --file -
    """


@click.command(
    "set",
    epilog="""\b
Examples:
  bcmetal credential set fleet
  pass show bmc/fleet | bcmetal credential set fleet --file -
""",
)
@click.argument("name")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="A file only you can read, its first line; - is standard input. A prompt by default.",
)
@config_option
@on_this_host
def credential_set(name: str, file: Path | None, config: Path | None) -> None:
    """Seal the secret NAME under the vault's key. A running daemon takes it when it is reloaded."""
    from bcmetal.cli.passwords import take_secret
    from bcmetal.client import ClientFault
    from bcmetal.install.local import set_credential

    path = config_path(config)
    try:
        secret = take_secret(f"Secret {name}", file)
    except ClientFault as e:
        click.echo(f"bcmetal: {e}", err=True)
        sys.exit(Exit.USAGE)
    if not set_credential(path, name, secret):
        click.echo(f"sealed; but {path} has no credential with `sealed:{name}` yet", err=True)
        return
    click.echo(f"sealed {name}; a running daemon takes it with `systemctl reload bcmetald`")


@click.command(
    "list",
    epilog="""\b
Examples:
  bcmetal credential list
""",
)
@config_option
@on_this_host
def credential_list(config: Path | None) -> None:
    """Show which secrets are sealed, and which the configuration names and nobody set. Never what they are."""
    from bcmetal.install.local import list_credentials

    for name, held in list_credentials(config_path(config)).items():
        click.echo(f"{name}  {'sealed' if held else 'NOT SET: bcmetal credential set ' + name}")


@click.command(
    "remove",
    epilog="""\b
Examples:
  bcmetal credential remove fleet
""",
)
@click.argument("name")
@config_option
@on_this_host
def credential_remove(name: str, config: Path | None) -> None:
    """Forget the sealed secret NAME."""
    from bcmetal.install.local import remove_credential

    if not remove_credential(config_path(config), name):
        click.echo(f"bcmetal: no sealed secret {name}", err=True)
        sys.exit(Exit.FORBIDDEN)
    click.echo(f"forgot {name}")
