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
  bcmetal serve --config /etc/bcmetal/bcmetal.toml
"""
)
@config_option
@click.option("--demo", is_flag=True, help="An emulated rack, everything enrolled and inspected; Ctrl-C ends it all.")
def serve(config: Path | None, demo: bool) -> None:
    """Run the daemon in the foreground until a signal ends it."""
    if demo:
        if config is not None:
            raise click.UsageError("--demo brings a configuration of its own")
        try:
            from bcmetal.demo.keep import keep
        except ModuleNotFoundError as e:
            raise click.UsageError(f"the emulated rack is not installed ({e.name}): pip install 'bcmetal[demo]'") from e
        sys.exit(keep())
    path = config_path(config)
    from bcmetal.daemon import run
    from bcmetal.install.local import credentials_beside

    with credentials_beside(path):
        code = run(path)
    sys.exit(code)
