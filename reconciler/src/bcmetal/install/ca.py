"""The site's certificate authority, administered on the daemon's host: made, rolled over, retired, in audited transactions.

The root's key passes through memory once and is written, encrypted, to a file of the operator's choice; it is never stored. What is
kept are the issuers' keys, sealed by the vault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from cryptography import x509
from pydantic import SecretStr
from sqlalchemy import Connection

from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import Conflict, Fault, InvalidInput
from bcmetal.install.files import write_new
from bcmetal.install.local import Admin, administer
from bcmetal.join.ca import Issuer, IssuerKind, Root, make_issuer, make_root, micros_of, pem_of, sha256_of
from bcmetal.join.given_ca import load_issuer
from bcmetal.join.issuer_keys import read_key_file, row_of, seal_issuer
from bcmetal.join.root_file import export_root, read_root
from bcmetal.store import audit, issuers, sealed
from bcmetal.store.issuers import CURRENT, NEXT, PREVIOUS, RETIRED, SEALED, IssuerRow, RootRow
from bcmetal.store.values import NewAudit, Sealed
from bcmetal.text import at_port

DAY: Final = 86400 * SECOND
SHORTEST: Final = 8  # digits by which an issuer or a root is named
SHOWN: Final = 5


class Keys(StrEnum):
    """Where the keys of an operator's own issuers stay."""

    SEALED = "sealed"
    FILE = "file"
    CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True)
class Installed:
    """`state`: current, or next when the root is a new one. `calls`: where machines join and where they renew, by the configuration."""

    state: str
    root: x509.Certificate
    calls: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    issuers: tuple[IssuerRow, ...]
    roots: tuple[tuple[RootRow, Micros], ...]  # and when each ends; also those that were removed from the trust bundle


def init_ca(config: Path, name: str | None, root_out: Path, passphrase: SecretStr) -> Installed:
    """`name`: the site's by default. Raises Conflict: there are issuers already."""

    async def work(admin: Admin) -> Installed:
        _unless_there(await admin.store.read(issuers.list))
        root = _new_root(admin, name)
        with _exported(root, root_out, passphrase):
            return await _install(admin, "ca.init", _issuers_of(root, admin.now), first=True)

    return administer(config, work)


def init_from_files(config: Path, folder: Path, keys: Keys) -> Installed:
    """`folder` holds root.pem, and KIND.pem and KIND.key for each of node, node-tenant and server."""

    async def work(admin: Admin) -> Installed:
        _unless_there(await admin.store.read(issuers.list))
        given, places = _given(folder, keys, admin.now)
        return await _install(admin, "ca.init", given, places, first=True)

    return administer(config, work)


def roll_over(config: Path, root_text: str, passphrase: SecretStr | None) -> Installed:
    """New issuers below the same root, which sign at once. Raises Conflict: it is another root."""

    async def work(admin: Admin) -> Installed:
        root = read_root(root_text, passphrase)
        now_root = _current_root(await admin.store.read(issuers.list))
        if sha256_of(root.certificate) != now_root:
            raise Conflict(f"that is not the root of the present issuers, which is sha256:{now_root}")
        return await _install(admin, "ca.rollover", _issuers_of(root, admin.now))

    return administer(config, work)


def roll_over_to_new_root(config: Path, name: str | None, root_out: Path, passphrase: SecretStr) -> Installed:
    """Both roots are in the trust bundle; the new issuers sign nothing until `promote`."""

    async def work(admin: Admin) -> Installed:
        _current_root(await admin.store.read(issuers.list))
        root = _new_root(admin, name)
        with _exported(root, root_out, passphrase):
            return await _install(admin, "ca.rollover", _issuers_of(root, admin.now))

    return administer(config, work)


def roll_over_from_files(config: Path, folder: Path, keys: Keys) -> Installed:
    """Below the present root they sign at once; below another one they wait for `promote`."""

    async def work(admin: Admin) -> Installed:
        given, places = _given(folder, keys, admin.now)
        return await _install(admin, "ca.rollover", given, places)

    return administer(config, work)


def promote(config: Path, *, early: bool) -> Installed:
    """next → current. Raises Conflict: none is next, or nodes would be left behind that do not know the new root yet."""

    async def work(admin: Admin) -> Installed:
        entry = admin.audit("ca.promote", "early" if early else "in time", admin.owner)
        ended_after = Micros(admin.now - admin.settings.joining.expired_grace_days * DAY)
        row = await admin.store.write(_promote, ended_after, early, admin.now, entry)
        return Installed(CURRENT, x509.load_pem_x509_certificates(row.chain.encode())[-1], _calls(admin))

    return administer(config, work)


def retire(config: Path, named: str, *, force: bool) -> str | None:
    """An issuer or a root, by the first digits of its SHA-256; what was retired, None: there is none of that name.

    Raises Conflict: it is in use, or, without `force`, certificates below it are still good.
    """

    async def work(admin: Admin) -> str | None:
        return await admin.store.write(_retire, named, force, admin.now, admin.audit("ca.retire", named, admin.owner))

    return administer(config, work)


def list_ca(config: Path) -> Listing:
    async def work(admin: Admin) -> Listing:
        roots = await admin.store.read(issuers.every_root)
        return Listing(await admin.store.read(issuers.list), tuple((row, _end_of(row)) for row in roots))

    return administer(config, work)


def trust_bundle(config: Path) -> str:
    """PEM, the newest root first; empty before there is one."""

    async def work(admin: Admin) -> str:
        return "".join(row.certificate for row in await admin.store.read(issuers.roots))

    return administer(config, work)


# ---------------------------------------------------------------- making


def _new_root(admin: Admin, name: str | None) -> Root:
    try:
        return make_root(name or next(iter(admin.settings.sites)), admin.now)
    except ValueError as error:
        raise InvalidInput([Fault("name", str(error))]) from error


@contextlib.contextmanager
def _exported(root: Root, path: Path, passphrase: SecretStr) -> Iterator[None]:
    """The file is there before anything relies on its root, and goes again when nothing does."""
    text = export_root(root, passphrase)
    read_root(text, passphrase)  # there is no other copy: it must open
    write_new(path, text, private=True)
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _issuers_of(root: Root, now: Micros) -> tuple[Issuer, ...]:
    return tuple(make_issuer(kind, root, now) for kind in IssuerKind)


def _given(folder: Path, keys: Keys, now: Micros) -> tuple[tuple[Issuer, ...], dict[IssuerKind, str]]:
    """Raises InvalidInput with the faults of all of them."""
    found, places, faults = [], {}, []
    for kind in IssuerKind:
        place = f"credential:ca-{kind}" if keys is Keys.CREDENTIAL else f"file:{(folder / f'{kind}.key').absolute()}"
        places[kind] = SEALED if keys is Keys.SEALED else place
        try:
            texts = [(folder / name).read_text(encoding="utf-8") for name in (f"{kind}.pem", "root.pem")]
            found.append(load_issuer(kind, texts[0], read_key_file(place), texts[1], now))
        except InvalidInput as error:
            faults += [fault for fault in error.faults if fault not in faults]
        except UnicodeDecodeError:
            faults.append(Fault(f"{kind}.certificate", "holds no certificate in PEM form that can be read"))
    if faults:
        raise InvalidInput(faults)
    return tuple(found), places


async def _install(
    admin: Admin,
    action: str,
    new: Sequence[Issuer],
    places: Mapping[IssuerKind, str] | None = None,
    *,
    first: bool = False,
) -> Installed:
    root = new[0].root
    refs = places or dict.fromkeys(IssuerKind, SEALED)
    keys = [seal_issuer(admin.vault, one) for one in new if refs[one.kind] == SEALED]
    rows = [row_of(one, CURRENT, refs[one.kind], admin.now, admin.identity) for one in new]
    entry = admin.audit(action, f"sha256:{sha256_of(root)}", admin.owner)
    state = await admin.store.write(_put, rows, keys, pem_of([root]), first, admin.now, entry)
    return Installed(state, root, _calls(admin))


def _end_of(row: RootRow) -> Micros:
    certificate = x509.load_pem_x509_certificate(row.certificate.encode())
    return micros_of(certificate.not_valid_after_utc)


def _calls(admin: Admin) -> tuple[tuple[str, str], ...]:
    port = admin.settings.daemon.node_listen.rpartition(":")[2]
    urls = dict.fromkeys(network.agent_url for network in admin.settings.networks.values() if network.agent_url)
    return tuple((url, at_port(url, port)) for url in urls)


# ---------------------------------------------------------------- transactions


def _put(
    c: Connection,
    rows: Sequence[IssuerRow],
    keys: Sequence[Sealed],
    root_pem: str,
    first: bool,
    now: Micros,
    entry: NewAudit,
) -> str:
    there = issuers.list(c)
    if first:
        _unless_there(there)
    elif any(row.state == NEXT for row in there):
        raise Conflict("a rollover is under way: `bcmetal ca rollover --promote`, or retire the next issuers first")
    root_sha256 = rows[0].root_sha256
    state = CURRENT if first or root_sha256 == _current_root(there) else NEXT
    issuers.add_root(c, root_sha256, root_pem, now)
    for row in rows:
        if state == CURRENT:
            issuers.supersede(c, row.kind)
        if not issuers.add(c, replace(row, state=state)):
            raise Conflict(f"there is such an issuer {row.kind} already")
    sealed.put(c, keys)
    audit.add(c, entry, now)
    return state


def _promote(c: Connection, ended_after: Micros, early: bool, now: Micros, entry: NewAudit) -> IssuerRow:
    waiting = [row for row in issuers.list(c) if row.state == NEXT]
    if not waiting:
        raise Conflict("no issuer is next: `bcmetal ca rollover --new-root-out FILE` makes some")
    left = issuers.left_behind(c, waiting[0].created_at, ended_after)
    if left and not early:
        named = ", ".join(left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        raise Conflict(f"not renewed since, and so without the new root: {named}. --early leaves them behind")
    for row in waiting:
        issuers.supersede(c, row.kind)
        issuers.promote(c, row.issuer_id)
    audit.add(c, entry, now)
    return waiting[0]


def _retire(c: Connection, named: str, force: bool, now: Micros, entry: NewAudit) -> str | None:
    digits = named.lower().removeprefix("sha256:")
    if len(digits) < SHORTEST:
        raise InvalidInput([Fault("name", f"needs at least {SHORTEST} digits of the SHA-256")])
    there = [row for row in issuers.list(c) if row.state != RETIRED]
    roots = [row.sha256 for row in issuers.roots(c) if row.sha256.startswith(digits)]
    meant = [row for row in there if row.issuer_id.startswith(digits)]
    if len(roots) + len(meant) != 1:
        if roots or meant:
            raise InvalidInput([Fault("name", "stands for several: give more digits")])
        return None
    below = [row for row in there if row.root_sha256 in roots] if roots else meant
    if used := [row.kind for row in below if row.state == CURRENT]:
        raise Conflict(f"in use: the issuers {', '.join(used)} sign now; `bcmetal ca rollover` first")
    if roots and any(row.state == NEXT for row in below):
        raise Conflict("its issuers are next: retire them first, or promote them")
    live = sum(issuers.live_leaves(c, row.issuer_id, now) for row in below if row.state == PREVIOUS)
    if live and not force:
        raise Conflict(f"{live} certificates below it are still good; --force ends what they are good for")
    for row in below:
        issuers.retire(c, row.issuer_id)
    for sha256 in roots:
        issuers.remove_root(c, sha256, now)
    audit.add(c, entry, now)
    return f"root sha256:{roots[0]}" if roots else f"issuer {below[0].kind} {below[0].issuer_id}"


def _unless_there(rows: Sequence[IssuerRow]) -> None:
    if any(row.state != RETIRED for row in rows):
        raise Conflict("there are issuers already: `bcmetal ca rollover` makes new ones, and nothing is written over")


def _current_root(rows: Sequence[IssuerRow]) -> str:
    found = next((row.root_sha256 for row in rows if row.state == CURRENT), None)
    if found is None:
        raise Conflict("there is no issuer yet: `bcmetal ca init`")
    return found
