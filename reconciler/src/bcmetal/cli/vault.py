"""`bcmetal vault …`: recovery of the vault's key, and a BMC's password in an emergency; on the daemon's own host."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from bcmetal.cli.lazy import Entry, LazyGroup
from bcmetal.cli.local import config_option, on_this_host

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_RECOVERY = {
    "export": Entry("bcmetal.cli.vault:export", "Write the vault's key under a code that is shown once."),
    "verify": Entry("bcmetal.cli.vault:verify", "Prove that file and code give the key back."),
    "restore": Entry("bcmetal.cli.vault:restore", "Write the vault's key anew from file and code."),
}
_VAULT = {
    "recovery": Entry("bcmetal.cli.vault:recovery", "Keep the vault's key where it is not lost with this host."),
    "reveal": Entry("bcmetal.cli.vault:reveal", "Show a BMC's password, for root, with a reason."),
}


@click.group(cls=LazyGroup, sections=(("Commands", _VAULT),))
def vault() -> None:
    """What is sealed, on the daemon's own host.

    \b
    Examples:
      bcmetal vault recovery export /media/usb/vault-recovery.json
      bcmetal vault recovery verify /media/usb/vault-recovery.json
      bcmetal vault reveal r3u17 --reason 'daemon is down, ticket 4711'
    """


@click.group(cls=LazyGroup, sections=(("Commands", _RECOVERY),))
def recovery() -> None:
    """Keep the vault's key where it is not lost with this host. Random passwords are given to BMCs once `verify` proved that it can be recovered.

    \b
    Examples:
      bcmetal vault recovery export /media/usb/vault-recovery.json
      bcmetal vault recovery verify /media/usb/vault-recovery.json
      bcmetal vault recovery restore /media/usb/vault-recovery.json /etc/bcmetal/credentials/vault-key
    """


@click.command(
    epilog="""\b
Examples:
  bcmetal vault recovery export /media/usb/vault-recovery.json
"""
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@config_option
@on_this_host
def export(file: Path, config: Path | None) -> None:
    """Write the vault's key to FILE, encrypted under a new code. The code is shown once: write it down, and keep it apart from FILE."""
    from bcmetal.cli.local import config_path
    from bcmetal.install.vault import export_recovery

    if file.exists():
        raise click.UsageError(f"{file} is there already, and not written over")
    code = export_recovery(config_path(config), file)
    click.echo("the code, shown this once; keep it apart from the file:", err=True)
    click.echo(code.get_secret_value())
    named = f" --config {shlex.quote(str(config))}" if config else ""
    click.echo(f"now prove it: bcmetal vault recovery verify {shlex.quote(str(file))}{named}", err=True)


@click.command(
    epilog="""\b
Examples:
  bcmetal vault recovery verify /media/usb/vault-recovery.json
"""
)
@click.argument("file", type=_FILE)
@click.option("--code-file", type=_FILE, help="A file only you can read; a prompt by default, or standard input.")
@config_option
@on_this_host
def verify(file: Path, code_file: Path | None, config: Path | None) -> None:
    """Recover the vault's key from FILE and the code, and open all that is sealed with it alone. From then on BMCs may get random passwords."""
    from bcmetal.cli.local import config_path
    from bcmetal.cli.passwords import take_secret
    from bcmetal.install.vault import exercise_recovery

    done = exercise_recovery(config_path(config), file, take_secret("Recovery code", code_file, confirm=False))
    click.echo(f"key {done.key_id} was recovered, and opened {done.opened} sealed secrets")


@click.command(
    epilog="""\b
Examples:
  bcmetal vault recovery restore /media/usb/vault-recovery.json /etc/bcmetal/credentials/vault-key
"""
)
@click.argument("file", type=_FILE)
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--code-file", type=_FILE, help="A file only you can read; a prompt by default, or standard input.")
@on_this_host
def restore(file: Path, out: Path, code_file: Path | None) -> None:
    """Write the vault's key from FILE and the code to OUT, readable by you alone."""
    from bcmetal.cli.passwords import take_secret
    from bcmetal.install.vault import restore_key

    if out.exists():
        raise click.UsageError(f"{out} is there already, and not written over")
    key_id = restore_key(file, take_secret("Recovery code", code_file, confirm=False), out)
    click.echo(f"key {key_id} is in {out}")


@click.command(
    epilog="""\b
Examples:
  bcmetal vault reveal r3u17 --reason 'daemon is down, ticket 4711'
"""
)
@click.argument("node")
@click.option("--reason", required=True, metavar="TEXT", help="For the audit.")
@config_option
@on_this_host
def reveal(node: str, reason: str, config: Path | None) -> None:
    """Show user name and password of NODE's BMC, for root. Audited. NODE is its id, or its name where one node alone has it.

    More than one line: a rotation is under way or ended without knowing, and any of them may be in force.
    """
    from bcmetal.cli.local import config_path
    from bcmetal.install.vault import reveal as shown_of

    shown = shown_of(config_path(config), node, reason)
    if not shown:
        click.echo("bcmetal: nothing is stored for this BMC", err=True)
    for slot, (username, password) in shown.items():
        click.echo(f"{slot}\t{username}\t{password.get_secret_value()}")
