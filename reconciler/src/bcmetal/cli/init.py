"""`bcmetal init`: a configuration, the vault's key, the API's certificate, a first API key and a client profile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from bcmetal.cli.session import Exit

ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one installation lies."""

    folder: Path
    state: Path

    @property
    def config(self) -> Path:
        return self.folder / "bcmetal.toml"

    @property
    def credentials(self) -> Path:
        return self.folder / "credentials"

    @property
    def certificate(self) -> Path:
        return self.folder / "api.crt"

    @property
    def profile(self) -> Path:
        return self.folder / "client.toml"

    @property
    def admin_key(self) -> Path:
        return self.folder / "admin.key"

    @property
    def database(self) -> Path:
        return self.state / "db"

    def written(self) -> tuple[Path, ...]:
        return (self.config, self.credentials, self.certificate, self.profile, self.admin_key, self.database)


def default_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/etc/bcmetal")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bcmetal"


def default_state(folder: Path, *, folder_named: bool) -> Path:
    if folder_named:
        return folder / "state"
    if os.geteuid() == 0:
        return Path("/var/lib/bcmetal")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "bcmetal"


class Networks(click.ParamType[str]):
    name = "cidr"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(ip_network(str(value)))
        except ValueError as e:
            self.fail(str(e), param, ctx)


class Url(click.ParamType[str]):
    """An address with a scheme and a host, and nothing behind them."""

    name = "url"

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        parts = urlsplit(str(value))
        if parts.scheme not in self.schemes or not parts.hostname or parts.path.strip("/") or parts.query:
            self.fail(f"{value!r} is not of the form {self.schemes[0]}://HOST:PORT", param, ctx)
        return str(value).rstrip("/")


class Word(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", str(value)):
            self.fail(f"{value!r}: lower-case letters, digits and hyphens, at most 63", param, ctx)
        return str(value)


@click.command(
    epilog="""\b
Examples:
  sudo bcmetal init --site fra1 --bmc-net 10.20.0.0/16 --media-url http://10.20.0.5:8480
  bcmetal init --site lab --bmc-net 192.168.7.0/24 --media-url http://192.168.7.2:8480 --dir ./lab
"""
)
@click.option("--site", required=True, type=Word(), metavar="NAME", help="This site's name.")
@click.option(
    "--bmc-net", "bmc_nets", required=True, multiple=True, type=Networks(), metavar="CIDR", help="Where the BMCs are."
)
@click.option(
    "--media-url", required=True, type=Url("http"), metavar="URL", help="This daemon, as BMCs reach it to fetch media."
)
@click.option("--agent-url", type=Url("https"), metavar="URL", help="This daemon, as machines' ramdisks reach it.")
@click.option(
    "--owner",
    default="platform",
    show_default=True,
    type=Word(),
    metavar="TENANT",
    help="The tenant that owns the site and its first pool.",
)
@click.option("--pool", default="default", show_default=True, type=Word(), metavar="NAME", help="The first pool.")
@click.option("--api-port", default=8443, show_default=True, type=click.IntRange(1, 65535))
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="/etc/bcmetal, or ~/.config/bcmetal without root.",
)
@click.option(
    "--state-dir", type=click.Path(file_okay=False, path_type=Path), help="/var/lib/bcmetal, or ~/.local/state/bcmetal."
)
def init(
    site: str,
    bmc_nets: tuple[str, ...],
    media_url: str,
    agent_url: str | None,
    owner: str,
    pool: str,
    api_port: int,
    folder: Path | None,
    state_dir: Path | None,
) -> None:
    """Write a commented configuration, the vault's key, a self-signed certificate, a first admin key and a client profile.

    Nothing that exists is written over.
    """
    named = folder is not None
    home = (folder or default_folder()).absolute()
    places = Places(home, (state_dir or default_state(home, folder_named=named)).absolute())
    there = [str(path) for path in places.written() if path.exists()]
    if there:
        click.echo(f"bcmetal: already there, and not written over: {', '.join(there)}", err=True)
        sys.exit(Exit.USAGE)
    from bcmetal.install.configuration import Answers

    answers = Answers(site, bmc_nets, media_url, agent_url, owner, pool, api_port)
    made: list[Path] = []
    try:
        _write_all(places, answers, made)
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    _tell(places, named)


def _write_all(places: Places, answers: Any, made: list[Path]) -> None:
    """`made` fills with what must go again if the rest fails."""
    from bcmetal.errors import BcmetalError
    from bcmetal.install.certificate import self_signed
    from bcmetal.install.configuration import client_profile, configuration
    from bcmetal.install.files import write_new
    from bcmetal.install.local import first_key
    from bcmetal.vault import new_key

    places.folder.mkdir(parents=True, exist_ok=True)
    places.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    made.append(places.credentials)
    places.credentials.mkdir(mode=0o700)
    new_key(places.credentials / "vault-key")
    host = urlsplit(answers.media_url).hostname or "localhost"
    pair = self_signed(["localhost", "127.0.0.1", "::1", socket.gethostname(), host])
    write_new(places.credentials / "tls-key", pair.key_pem, private=True)
    made += [places.certificate, places.config]
    write_new(places.certificate, pair.certificate_pem, private=False)
    write_new(places.config, configuration(answers, places.database, places.certificate), private=False)
    made += [places.database, places.admin_key, places.profile]
    try:
        secret = first_key(places.config, ADMIN, answers.owner)
    except BcmetalError as e:
        raise click.ClickException(str(e)) from e
    write_new(places.admin_key, secret.get_secret_value() + "\n", private=True)
    profile = client_profile(f"https://127.0.0.1:{answers.api_port}", pair.fingerprint, answers.owner, answers.pool)
    write_new(places.profile, profile, private=False)


def _tell(places: Places, named: bool) -> None:
    click.echo(f"configuration   {places.config}")
    click.echo(
        f"secrets         {places.credentials} (keep a copy of vault-key elsewhere: without it no sealed password opens)"
    )
    click.echo(f"admin key       {places.admin_key}")
    click.echo(f"client profile  {places.profile}")
    click.echo("next:")
    flag = f" --config {places.config}" if named else ""
    click.echo(f"  bcmetal credential set fleet{flag}")
    click.echo(f"  bcmetal ca init --root-out FILE{flag}    # only where machines shall join: FILE is yours to keep")
    click.echo(f'  bcmetal ramdisk build{flag}    # only where the pool says agent = "bcd", after `ca init`')
    if os.geteuid() == 0 and not named:
        click.echo("  systemctl enable --now bcmetald")
    else:
        click.echo(f"  bcmetal serve{flag}")
    if named:
        click.echo(f"  export BCMETAL_PROFILE={places.profile}")
    click.echo("  bcmetal node enroll ADDRESS --name NAME --credential fleet --fingerprint SHA256 --wait")
