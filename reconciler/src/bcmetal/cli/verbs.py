"""One command a verb. Each asks the API and, with --wait, follows the operation to its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bcmetal.cli.asking import Duration, ask_each, how_of, verb_options
from bcmetal.cli.session import Session, with_session
from bcmetal.cli.words import POWER
from bcmetal.text import clean

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  bcmetal inspect r3u17 --wait
  bcmetal inspect 'r3u[01-20]'
"""
)
@verb_options
@click.option("--deep", is_flag=True, help="Also look from inside, by the ramdisk.")
@with_session
def inspect(session: Session, /, nodes: tuple[str, ...], deep: bool, **common: Any) -> None:
    """Read what the machine is, through its BMC. Nothing on the machine is changed."""
    ask_each(session, "inspect", "inspect", nodes, how_of(common), lambda _: {"deep": deep or None})


_confirm_erase = click.option(
    "--confirm-erase",
    multiple=True,
    metavar="SERIAL",
    help="Give up what the machine came with: its serial (else its node id). Once for each machine.",
)
_profile = click.option("--profile", "profile_name", metavar="NAME", help="A profile of the configuration.")


def _confirmed(session: Session, serials: Sequence[str], node: str, alone: bool) -> str | None:
    """The serial that was given for this node. With several nodes each gets the one that is its own, and no other."""
    if not serials or alone:
        return serials[0] if serials else None
    view = session.client.call("metal", "get", {**session.where(), "nodeId": node})
    own = {str((view.get("identity") or {}).get("serial")).casefold(), str(view["nodeId"]).casefold()}
    return next((s for s in serials if s.strip().casefold() in own), None)


@click.command(
    epilog="""\b
Examples:
  bcmetal plan commission r3u17
  bcmetal commission r3u17 --confirm-erase 7XK2M13 --wait
  bcmetal commission 'r3u[01-08]' --profile standard --wait --timeout 2h
"""
)
@verb_options
@_profile
@_confirm_erase
@with_session
def commission(
    session: Session,
    /,
    nodes: tuple[str, ...],
    profile_name: str | None,
    confirm_erase: tuple[str, ...],
    **common: Any,
) -> None:
    """Bring machines to a commission profile, and make them available.

    A machine that still has what it came with is neither powered off nor erased before --confirm-erase names it.
    """
    ask_each(
        session,
        "commission",
        "commission",
        nodes,
        how_of(common),
        lambda node: {
            "profile": profile_name,
            "confirmErase": _confirmed(session, confirm_erase, node, len(nodes) == 1),
        },
    )


@click.command(
    epilog="""\b
Examples:
  bcmetal adopt r3u17
"""
)
@verb_options
@with_session
def adopt(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """Take over inspected machines with the system that they run: they become deployed, and nothing is touched."""
    ask_each(session, "adopt", "adopt", nodes, how_of(common), lambda _: {})


@click.command(
    epilog="""\b
Examples:
  bcmetal deploy r3u17 --image debian-12 --ssh-key id_ed25519.pub --wait
  bcmetal deploy r3u17 --image installer --wait
  bcmetal deploy r3u17 --image https://mirror.example/installer.iso --sha256 SHA256 --kind iso
  bcmetal deploy r3u17 --image installer --rebuild --confirm-erase 7XK2M13
"""
)
@verb_options
@click.option("--image", required=True, metavar="NAME|URL", help="An image of the configuration, or an https address.")
@click.option("--sha256", metavar="HEX", help="The checksum of an image given by its address.")
@click.option("--sha512", metavar="HEX", help="The same, by SHA-512.")
@click.option("--format", "image_format", metavar="NAME", help="iso, raw, qcow2; a named image has its own.")
@click.option(
    "--kind", type=click.Choice(["iso", "image"]), help="Boot it as it is, or write it to a disk; else by its format."
)
@click.option("--user-data", type=_FILE, help="A file for the machine's first boot.")
@click.option("--meta-data", type=_FILE, help="A file for the machine's first boot.")
@click.option("--network-data", type=_FILE, help="A file for the machine's first boot.")
@click.option("--ssh-key", "ssh_keys", type=_FILE, multiple=True, help="A public key file; several times for several.")
@click.option("--rebuild", is_flag=True, help="Write over a deployed machine.")
@_confirm_erase
@with_session
def deploy(
    session: Session,
    /,
    nodes: tuple[str, ...],
    image: str,
    sha256: str | None,
    sha512: str | None,
    image_format: str | None,
    kind: str | None,
    user_data: Path | None,
    meta_data: Path | None,
    network_data: Path | None,
    ssh_keys: tuple[Path, ...],
    rebuild: bool,
    confirm_erase: tuple[str, ...],
    **common: Any,
) -> None:
    """Start available machines from an image. The daemon fetches and checks it before anything is touched."""
    by_url = "://" in image
    if by_url and not (sha256 or sha512):
        raise click.UsageError("an image given by its address needs --sha256 or --sha512")
    if not by_url and (sha256 or sha512 or image_format):
        raise click.UsageError("a named image has its checksum and format in the configuration")
    chosen: dict[str, Any] = {"url": image} if by_url else {"name": image}
    chosen |= {k: v for k, v in (("sha256", sha256), ("sha512", sha512), ("format", image_format)) if v}
    body: dict[str, Any] = {
        "image": chosen,
        "kind": kind,
        "userData": _text(user_data),
        "metaData": _text(meta_data),
        "networkData": _text(network_data),
        "sshKeys": [_text(p) for p in ssh_keys] or None,
        "rebuild": rebuild or None,
    }
    ask_each(
        session,
        "deploy",
        "deploy",
        nodes,
        how_of(common),
        lambda node: {**body, "confirmErase": _confirmed(session, confirm_erase, node, len(nodes) == 1)},
    )


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip() if path.suffix == ".pub" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise click.BadParameter(f"{path}: cannot be read as text") from e


@click.command(
    epilog="""\b
Examples:
  bcmetal rescue r3u17 --ssh-key id_ed25519.pub --expires-after 2h --wait
  bcmetal rescue 'r3u[01-04]' --wait --timeout 15m
"""
)
@verb_options
@click.option("--ssh-key", "ssh_keys", type=_FILE, multiple=True, help="A public key file to let in.")
@click.option("--password-hash-file", type=_FILE, help="A file with a crypt(3) hash of the rescue account's password.")
@click.option("--expires-after", type=Duration(), metavar="TIME", help="End the rescue after 30m, 2h, 1d.")
@with_session
def rescue(
    session: Session,
    /,
    nodes: tuple[str, ...],
    ssh_keys: tuple[Path, ...],
    password_hash_file: Path | None,
    expires_after: float | None,
    **common: Any,
) -> None:
    """Start a system beside the machines' own; their disks stay as they are.

    With a key or a password's hash the agent's ramdisk opens SSH to it; without, the pool's rescue ISO boots as it is.
    """
    body = {
        "sshKeys": [_text(p) for p in ssh_keys] or None,
        "passwordHash": (_text(password_hash_file) or "").strip() or None,
        "expiresAfterS": None if expires_after is None else int(expires_after),
    }
    ask_each(session, "rescue", "rescue", nodes, how_of(common), lambda _: body)


@click.command(
    epilog="""\b
Examples:
  bcmetal unrescue r3u17 --wait
"""
)
@verb_options
@with_session
def unrescue(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """End a rescue: eject its medium and start the machine's own system."""
    ask_each(session, "unrescue", "unrescue", nodes, how_of(common), lambda _: {})


def _waiver(reason: str | None, custody: str | None, serials: Sequence[str], machine: bool) -> dict[str, Any] | None:
    if reason is None:
        if custody or serials or machine:
            raise click.UsageError("--waive-custody, --waive-serial and --waive-machine need --waive-erase REASON")
        return None
    if machine == bool(serials):
        raise click.UsageError("--waive-erase needs either --waive-serial SERIAL… or --waive-machine")
    waiver: dict[str, Any] = {"reason": reason}
    if custody:
        waiver["custody"] = custody
    return waiver | ({"machine": True} if machine else {"serials": list(serials)})


_waive = (
    click.option("--waive-erase", metavar="REASON", help="Sign that drives are passed over which cannot be erased."),
    click.option("--waive-custody", metavar="WHO", help="Who keeps the unerased drives, and where."),
    click.option("--waive-serial", multiple=True, metavar="SERIAL", help="The drive; several times for several."),
)


@click.command(
    epilog="""\b
Examples:
  bcmetal release r3u17 --wait
  bcmetal release r3u17 --profile purge --wait
  bcmetal release r3u17 --waive-erase 'drive is dead' --waive-serial S4EVNX0 --waive-custody 'safe 2'
"""
)
@verb_options
@_profile
@_confirm_erase
@_waive[0]
@_waive[1]
@_waive[2]
@with_session
def release(
    session: Session,
    /,
    nodes: tuple[str, ...],
    profile_name: str | None,
    confirm_erase: tuple[str, ...],
    waive_erase: str | None,
    waive_custody: str | None,
    waive_serial: tuple[str, ...],
    **common: Any,
) -> None:
    """Take machines back: power off, erase by the profile, verify, compare the BMC with its baseline. Cannot be aborted."""
    waiver = _waiver(waive_erase, waive_custody, waive_serial, machine=False)
    ask_each(
        session,
        "release",
        "release",
        nodes,
        how_of(common),
        lambda node: {
            "profile": profile_name,
            "eraseWaiver": waiver,
            "confirmErase": _confirmed(session, confirm_erase, node, len(nodes) == 1),
        },
    )


@click.command(
    epilog="""\b
Examples:
  bcmetal retire r3u17 --wait
  bcmetal retire r3u17 --keep-credentials --wait
  bcmetal retire r3u17 --waive-erase 'burnt board' --waive-machine --waive-custody 'shredder, ticket 4711'
"""
)
@verb_options
@_confirm_erase
@_waive[0]
@_waive[1]
@_waive[2]
@click.option("--waive-machine", is_flag=True, help="The waiver is for the whole machine: no BMC step is done.")
@click.option("--keep-credentials", is_flag=True, help="Leave the BMC's password as it is, and keep ours.")
@click.option("--discard-credentials", is_flag=True, help="Leave the BMC's password as it is, and forget ours.")
@with_session
def retire(
    session: Session,
    /,
    nodes: tuple[str, ...],
    confirm_erase: tuple[str, ...],
    waive_erase: str | None,
    waive_custody: str | None,
    waive_serial: tuple[str, ...],
    waive_machine: bool,
    keep_credentials: bool,
    discard_credentials: bool,
    **common: Any,
) -> None:
    """Take machines out of service for good: as release, then hand the BMC over. Cannot be aborted."""
    if keep_credentials and discard_credentials:
        raise click.UsageError("--keep-credentials and --discard-credentials exclude each other")
    waiver = _waiver(waive_erase, waive_custody, waive_serial, waive_machine)
    ask_each(
        session,
        "retire",
        "retire",
        nodes,
        how_of(common),
        lambda node: {
            "eraseWaiver": waiver,
            "keepCredentials": keep_credentials or None,
            "discardCredentials": discard_credentials or None,
            "confirmErase": _confirmed(session, confirm_erase, node, len(nodes) == 1),
        },
    )


@click.command(
    epilog="""\b
Examples:
  bcmetal abort r3u17
"""
)
@verb_options
@with_session
def abort(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """End what is under way; what it did to the machine is cleaned up. Not for release and retire."""
    ask_each(session, "abort", "abort", nodes, how_of(common), lambda _: {})


@click.command(
    epilog="""\b
Examples:
  bcmetal why r3u17
  bcmetal retry r3u17 --wait
"""
)
@verb_options
@with_session
def retry(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """Do the failed operation again, with the input that it had."""
    ask_each(session, "retry", "retry", nodes, how_of(common), lambda _: {})


@click.command(
    epilog="""\b
Examples:
  bcmetal remove r3u17
  bcmetal remove r3u17 --abandon 'sold with its system' --yes
"""
)
@verb_options
@click.option("--abandon", metavar="REASON", help="Forget a deployed machine as it is; the reason is kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_session
def remove(session: Session, /, nodes: tuple[str, ...], abandon: str | None, yes: bool, **common: Any) -> None:
    """Forget nodes. Their history, drives and erasure records stay; the machines are not touched."""
    if not yes and sys.stdin.isatty():
        click.confirm(clean(f"Forget {', '.join(nodes)}?"), abort=True, err=True)
    ask_each(session, "remove", "remove", nodes, how_of(common), lambda _: {"abandon": abandon}, wait=False)


@click.command(
    epilog="""\b
Examples:
  bcmetal refresh 'r3u[01-20]' --wait
"""
)
@verb_options
@with_session
def refresh(session: Session, /, nodes: tuple[str, ...], **common: Any) -> None:
    """Read the BMC again. No state changes; this is how available and deployed machines are looked at."""
    ask_each(session, "refresh", "refresh", nodes, how_of(common), lambda _: {})


@click.command(
    epilog="""\b
Examples:
  bcmetal power on r3u17 --wait
  bcmetal power soft-off 'r3u[01-20]'
"""
)
@click.argument("action", type=click.Choice(list(POWER)))
@verb_options
@with_session
def power(session: Session, /, action: str, nodes: tuple[str, ...], **common: Any) -> None:
    """Switch the machines' power through their BMCs."""
    ask_each(session, f"power {action}", "setPower", nodes, how_of(common), lambda _: {"action": POWER[action]})
