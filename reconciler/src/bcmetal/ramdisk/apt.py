"""Debian's packages, by apt with folders of its own: no root, the host's package state untouched, signatures checked by apt."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bcmetal.ramdisk.closure import NotFound, Package, closure, stanzas
from bcmetal.ramdisk.faults import BuildFailed, tool

ARCHITECTURE: Final = "amd64"
FRESH_S: Final = 24 * 3600.0
_UPDATE_S: Final = 300
_DOWNLOAD_S: Final = 3600
Say = Callable[[str], None]


class Apt:
    """`folder` holds the lists and the packages between builds. `sources`: a sources file in place of the host's."""

    def __init__(self, folder: Path, say: Say, *, sources: Path | None = None, offline: bool = False) -> None:
        self.folder = folder
        self._say = say
        self._offline = offline
        for name in ("lists/partial", "archives/partial", "debs", "resolved", "none"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        settings = {
            "Dir::State": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "APT::Architecture": ARCHITECTURE,
            "APT::Architectures::": ARCHITECTURE,
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Acquire::AllowInsecureRepositories": "false",
            "APT::Get::AllowUnauthenticated": "false",
            "APT::Sandbox::User": "",  # there is nobody else that could write here
        }
        if sources is not None:
            settings |= {"Dir::Etc::sourcelist": sources.resolve(), "Dir::Etc::sourceparts": folder / "none"}
        self._options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def refresh(self, *, anew: bool = False) -> None:
        """Fetch the lists of packages when they are more than a day old, or `anew`. Waits for another build that fetches them."""
        with self._alone():
            self._refresh(anew)

    def _refresh(self, anew: bool) -> None:
        stamp = self.folder / "updated"
        age_s = time.time() - stamp.stat().st_mtime if stamp.exists() else None
        if age_s is not None and (self._offline or (0 <= age_s < FRESH_S and not anew)):
            return
        if self._offline:
            raise BuildFailed("no lists of packages here yet", "once with a network: leave --offline out")
        self._say("fetching the lists of packages")
        done = self._run("apt-get", ["update"], _UPDATE_S)
        complaints = [line for line in done.stderr.splitlines() if line.startswith(("E:", "Err:"))]
        if done.returncode != 0:
            raise BuildFailed(
                f"apt-get update failed: {_first(complaints, done.stderr)}",
                "this host needs a Debian mirror: see /etc/apt, or name a sources file by --apt-sources",
            )
        stamp.touch()

    def resolve(self, wanted: Sequence[str], left_out: Collection[str]) -> list[Package]:
        """These packages and all that they need, in the versions that apt would install."""
        key = self._lists_digest(json.dumps([sorted(wanted), sorted(left_out)]))
        kept = self.folder / "resolved" / f"{key}.json"
        if kept.exists():
            with suppress(ValueError, TypeError):
                return [Package(**{**doc, "needs": ()}) for doc in json.loads(kept.read_text())]
        self._say("finding out which packages are needed")
        try:
            found = closure(wanted, self._show, self._providers, left_out)
        except NotFound as error:
            raise BuildFailed(f"apt offers no {error}", _remedy(error.names)) from None
        for old in sorted(kept.parent.iterdir(), key=lambda p: p.stat().st_mtime)[:-20]:
            old.unlink(missing_ok=True)
        write_atomically(kept, json.dumps([asdict(p) for p in found]).encode())
        return found

    def download(self, packages: Sequence[Package]) -> dict[str, Path]:
        """Where the package files lie, by name; each compared with the signed index."""
        there = {p.name: self.folder / "debs" / f"{p.name}-{p.sha256[:32]}.deb" for p in packages}
        missing = [p for p in packages if not _is(there[p.name], p)]
        if missing and self._offline:
            raise BuildFailed(f"{len(missing)} packages are not in the cache", "leave --offline out")
        if missing:
            self._fetch(missing, there)
        for path in there.values():
            os.utime(path)
        return there

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """For fetching the lists: apt gives up at a lock that another apt holds, and builds that share a folder wait for each other here.

        What else is done here needs no lock: package files are downloaded into a folder of each build's own.
        """
        with open(self.folder / "lock", "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("waiting for another build's apt")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fetch(self, missing: Sequence[Package], there: Mapping[str, Path]) -> None:
        size_mb = sum(p.size_bytes for p in missing) / 1e6
        self._say(f"downloading {len(missing)} packages ({size_mb:.0f} MB)")
        into = self.folder / "archives" / f"get-{os.getpid()}"
        into.mkdir(exist_ok=True)
        try:
            wanted = [f"{p.name}={p.version}" for p in missing]
            done = self._run("apt-get", ["download", *wanted], _DOWNLOAD_S, cwd=into)
            if done.returncode != 0:
                raise BuildFailed(f"apt-get download failed: {_first((), done.stderr)}", "is the mirror reachable?")
            by_digest = {sha256_of(path): path for path in into.iterdir()}
            for package in missing:
                if package.sha256 not in by_digest:
                    raise BuildFailed(f"{package.name}: what was downloaded is not what the index says")
                by_digest[package.sha256].replace(there[package.name])
        finally:
            for path in into.iterdir():
                path.unlink()
            into.rmdir()

    def prune(self, keep_s: float = 30 * 24 * 3600.0) -> None:
        """Package files that no build has used for that long go."""
        oldest = time.time() - keep_s
        for path in (self.folder / "debs").iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _show(self, names: Collection[str]) -> dict[str, Package]:
        done = self._run("apt-cache", ["show", "--no-all-versions", "--", *names], 60)
        return {p.name: p for p in stanzas(done.stdout) if p.architecture in (ARCHITECTURE, "all")}

    def _providers(self, names: Collection[str]) -> dict[str, list[str]]:
        done = self._run("apt-cache", ["showpkg", "--", *names], 60)
        found: dict[str, list[str]] = {}
        name, providing = "", False
        for line in done.stdout.splitlines():
            if line.startswith("Package: "):
                name, providing = line.removeprefix("Package: ").split(":")[0].strip(), False
            elif line.startswith("Reverse Provides:"):
                providing = True
            elif providing and (m := re.match(r"([a-z0-9][a-z0-9+.-]*) ", line)):
                found.setdefault(name, []).append(m.group(1))
        return found

    def _lists_digest(self, more: str) -> str:
        digest = hashlib.sha256(more.encode())
        for path in sorted((self.folder / "lists").glob("*Release")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:32]

    def _run(
        self, name: str, words: Sequence[str], limit_s: float, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603 - a list of arguments, names of packages checked
                [tool(name), *self._options, *words],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                cwd=cwd,
                env={**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
            )
        except subprocess.TimeoutExpired:
            raise BuildFailed(f"{name} {words[0]} took more than {limit_s:.0f} s", "is the mirror reachable?") from None


def sha256_of(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


def _is(path: Path, package: Package) -> bool:
    return path.exists() and path.stat().st_size == package.size_bytes and sha256_of(path) == package.sha256


def _first(lines: Sequence[str], rest: str) -> str:
    kept = [line.strip() for line in (*lines, *rest.splitlines()) if line.strip()]
    errors = [line for line in kept if line.startswith(("E:", "Err:"))] or kept
    return (errors[0] if errors else "no reason given")[:300]


def _remedy(names: Collection[str]) -> str:
    if any(name.startswith(("firmware-", "bluez-firmware")) or name.endswith("-microcode") for name in names):
        return "firmware that is not free is in Debian's component non-free-firmware: add it to the apt sources"
    return "the ramdisk is made from Debian 12 or newer: name its mirror by --apt-sources"
