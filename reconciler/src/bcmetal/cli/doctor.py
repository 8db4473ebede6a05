"""`bcmetal doctor`: what a BMC is like, before it is enrolled. The daemon looks, and not this host."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from bcmetal.cli.node_options import PEM_FILE, given, tls_of
from bcmetal.cli.session import Exit, Session, shared_options, with_session
from bcmetal.cli.tables import print_pairs
from bcmetal.text import clean
from bcmetal_drivers.schemes import IPMI, REDFISH, families, family_of

ANSWER_S: Final = 200.0
YES_NO: Final = {True: "yes", False: "no"}


@click.command(
    epilog="""\b
Examples:
  bcmetal doctor 10.20.3.17
  bcmetal doctor 10.20.3.17 --fingerprint SHA256 --credential fleet
  bcmetal doctor ipmi://10.20.3.18 --json | jq .ipmi.cipherSuites
"""
)
@click.argument("address")
@click.option(
    "--credential", metavar="NAME", help="Log in too, with this credential of the configuration; nothing is written."
)
@click.option("--fingerprint", metavar="SHA256", help="Trust the BMC's certificate by its fingerprint.")
@click.option("--ca", type=PEM_FILE, help="Trust the BMC's certificate by this CA (PEM).")
@shared_options
@with_session
def doctor(session: Session, /, address: str, credential: str | None, fingerprint: str | None, ca: Path | None) -> None:
    """Look at the BMC at ADDRESS from the daemon: Redfish, IPMI, its certificate and clock, what is known of its maker's BMCs.

    Without --credential nothing is sent that authorises. ADDRESS is written as for `bcmetal node enroll`, and must lie in a network
    of the configuration. Exit code 1: nothing is there, or the login did not come about.
    """
    bmc = given(address=address, credentialRef=credential, tls=tls_of(fingerprint, ca, False))
    body = {**session.where(), "bmc": bmc}
    found = session.patient(ANSWER_S).call("metal", "doctor", body)
    if session.as_json:
        session.answer(found)
    else:
        _show(found)
        _show_next(found, address, credential, fingerprint, ca)
    login = found.get("login")
    if not _there(found, address) or (login is not None and not login["ok"]):
        sys.exit(Exit.FAILED)


def _show(found: Mapping[str, Any]) -> None:
    click.echo(clean(f"{found['address']}, in network {found['network']}"))
    for name, said, pairs in (
        ("Redfish", found["redfish"], _redfish(found["redfish"])),
        ("IPMI", found["ipmi"], _ipmi(found["ipmi"])),
    ):
        if said["there"]:
            click.echo(clean(f"{name}: yes, {said['address']}"))
        else:
            click.echo(clean(f"{name}: no ({said['trouble']['code']}): {said['trouble']['message']}"))
        print_pairs(pairs, indent="  ")
    login = found.get("login")
    if login is not None:
        _show_login(login)
    for one in (login or {}).get("behaviours") or found["behaviours"]:
        click.echo(clean(f"known behaviour: {', '.join(one['differs'])}: {one['source']}"))
    for warning in found["warnings"]:
        click.echo(clean(f"warning: {warning}"))


def _redfish(said: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "maker", said["maker"]
    yield "product", said["product"]
    yield "version", said["redfishVersion"]
    yield "UUID", said["uuid"]
    skew = said["clockSkewS"]
    if skew is not None:
        yield "clock", f"{skew:+.0f} s"
    certificate = said["certificate"]
    if certificate is None:
        return
    yield "fingerprint", certificate["fingerprint"]
    yield "certificate of", certificate["subject"]
    yield "issued by", "itself" if certificate["selfSigned"] else certificate["issuer"]
    yield "names", ", ".join(certificate["names"] or ())
    if certificate["notAfter"]:
        yield "valid", f"{certificate['notBefore']} to {certificate['notAfter']}"
    yield (
        "trusted",
        YES_NO.get(certificate["trusted"], "nothing says by what yet: compare the fingerprint, then give it"),
    )


def _ipmi(said: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    if not said["there"]:
        return
    yield "versions", ", ".join(said["versions"])
    yield "IPMI 1.5 by", ", ".join(said["authentication"])
    suites = said["cipherSuites"]
    yield "cipher suites", "not told" if suites is None else ", ".join(map(str, suites))
    yield "anonymous users", YES_NO[said["anonymous"] or said["nullNames"]]


def _show_login(login: Mapping[str, Any]) -> None:
    if not login["ok"]:
        click.echo(
            clean(f"login with {login['credential']}: no ({login['trouble']['code']}): {login['trouble']['message']}")
        )
        return
    click.echo(clean(f"login with {login['credential']}: yes"))
    account, policy = login["account"] or {}, login["accountPolicy"] or {}
    print_pairs(
        (
            ("BMC", " ".join(str(one) for one in (login["maker"], login["model"], login["firmware"]) if one)),
            ("system", " ".join(str(one) for one in login["system"].values() if one)),
            (
                "session",
                {"session": "by session", "basic": "Basic alone: a login with each request"}.get(login["session"]),
            ),
            ("role", account.get("role")),
            ("password", "must be changed before anything else" if account.get("passwordExpired") else None),
            ("account ends", account.get("expires")),
            ("locks after", f"{policy['lockoutThreshold']} failed logins" if policy.get("lockoutThreshold") else None),
            ("claims", ", ".join(login["capabilities"])),
        ),
        indent="  ",
    )
    for name, why in {**login["lacks"], **login["unread"]}.items():
        click.echo(clean(f"  lacks {name}: {why}"))


def _show_next(
    found: Mapping[str, Any], address: str, credential: str | None, fingerprint: str | None, ca: Path | None
) -> None:
    if not _there(found, address):
        return
    redfish = found["redfish"]
    certificate = redfish["certificate"] if _family(address) != IPMI else None
    if certificate is not None and certificate["trusted"] is False:
        known = "the one that you know" if fingerprint is not None else "one that a trusted CA vouches for"
        click.echo(f"next: find out why this is another certificate than {known}; do not enrol it before")
        if fingerprint is None:
            click.echo(
                "  if it should be: compare its fingerprint with the one on the BMC's own page, then give --fingerprint"
            )
        return
    words = ["bcmetal", "node", "enroll", address]
    if fingerprint is not None:
        words += ["--fingerprint", fingerprint]
    elif ca is not None:
        words += ["--ca", str(ca)]
    elif certificate is not None and redfish["there"] and certificate["trusted"] is None:
        words += ["--fingerprint", certificate["fingerprint"]]
    words += ["--credential", credential or "NAME", "--wait"]
    click.echo(f"next: {clean(shlex.join(words))}")


def _there(found: Mapping[str, Any], address: str) -> bool:
    """Whether anything that the address names is there."""
    family = _family(address)
    return any(found[one]["there"] for one in families() if family in ("", one))


def _family(address: str) -> str:
    """The protocol that an address names, which the daemon found to be one; all names of makers are Redfish's."""
    scheme, separator, _ = address.strip().lower().partition("://")
    if not separator:
        return ""
    return IPMI if family_of(scheme) == IPMI else REDFISH
