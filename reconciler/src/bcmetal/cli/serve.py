"""`bcmetal serve`: the daemon, or a whole emulated site to try."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bcmetal.cli.local import config_option, config_path


@click.command(
    epilog="""\b
Examples:
  bcmetal serve --demo
  bcmetal serve --demo --behaviours supermicro,flaky
  bcmetal serve --config /etc/bcmetal/bcmetal.toml
"""
)
@config_option
@click.option("--demo", is_flag=True, help="An emulated rack, everything enrolled and inspected; Ctrl-C ends it all.")
@click.option("--behaviours", metavar="A,B", help="With --demo: what its BMCs do, by name; `help` lists the names.")
def serve(config: Path | None, demo: bool, behaviours: str | None) -> None:
    """Run the daemon in the foreground until a signal ends it."""
    if behaviours is not None and not demo:
        raise click.UsageError("--behaviours are of the emulated rack: with --demo")
    if demo:
        if config is not None:
            raise click.UsageError("--demo brings a configuration of its own")
        try:
            from bcmetal.demo.keep import keep
        except ModuleNotFoundError as e:
            if (e.name or "").startswith("bcmetal"):
                raise
            from bcmetal_drivers.emulated import lacking

            raise click.UsageError(lacking(e.name)) from e
        sys.exit(keep(_names(behaviours or "")))
    path = config_path(config)
    from bcmetal.daemon import run
    from bcmetal.install.local import credentials_beside

    with credentials_beside(path):
        code = run(path)
    sys.exit(code)


def _names(text: str) -> tuple[str, ...]:
    """Prints the list and ends for `help`."""
    from bcmetal_drivers.emulated.behaviours import chosen, described

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if "help" in names:
        click.echo(described())
        sys.exit(0)
    try:
        chosen(names)
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    return names
