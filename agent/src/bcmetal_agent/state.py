"""The agent's folder: what must survive a power cut, and the one rename by which each thing becomes true.

    join.json               the join that was begun: key, the exact message, the TPM's blobs
    next.json               the renewal that was begun: key and request
    identities/<name>/      key.pem  chain.pem  trust.pem  identity.json   of one admission
    current                 a symbolic link to identities/<name>: the admitted identity
    status.json             the last thing that happened, for `bcmetal-agent status`
    lock                    held by the one agent that works here

An attempt is on the disk before its first call, so that the answer, however late or often it is asked for, always
finds its key. An admission is written whole beside the old one, and the rename of `current` commits it. An attempt
names the identity that it means to replace: once another one is current it is void, and is cleared away.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from bcmetal_agent import keys

DEFAULT_FOLDER: Final = Path("/var/lib/bcmetal-agent")
Kind = Literal["join", "next"]
T = TypeVar("T")


class StateError(Exception):
    """The folder cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Attempt:
    """`message`: the very text that is sent. `replaces`: the name of the identity that was current, or None.

    `ak_public`, `ak_private`: base64 of the TPM's blobs of the attestation key, empty without a TPM.
    """

    key: str = field(repr=False)
    message: str
    replaces: str | None = None
    ak_public: str = ""
    ak_private: str = field(default="", repr=False)


@dataclass(frozen=True)
class Admission:
    """What came with the certificate, and what the agent made of it. Times: RFC 3339, UTC; `admitted_at` by the server's clock."""

    node_id: str
    server: str
    node_server: str
    admitted_at: str
    renew_after: str
    renew_at: str


@dataclass(frozen=True)
class Identity:
    """The admitted identity; `folder` stays the same while it is read, whatever becomes current meanwhile."""

    name: str
    folder: Path
    admission: Admission
    not_before: datetime
    not_after: datetime

    @property
    def key_file(self) -> Path:
        return self.folder / "key.pem"

    @property
    def chain_file(self) -> Path:
        return self.folder / "chain.pem"

    @property
    def life_s(self) -> float:
        return (self.not_after - self.not_before).total_seconds()

    @property
    def renew_at(self) -> datetime:
        """The stored moment where it makes sense, else half of the certificate's life."""
        at = _moment(self.admission.renew_at)
        half = self.not_before + (self.not_after - self.not_before) / 2
        return at if at is not None and self.not_before <= at < self.not_after else half

    @property
    def renew_in_s(self) -> float:
        """How long after the admission, both by the server's clock; never so soon that renewals would chase each other."""
        began = _moment(self.admission.admitted_at) or self.not_before
        return max((self.renew_at - began).total_seconds(), self.life_s / 4)

    def key(self) -> str:
        return self.key_file.read_text()

    def chain(self) -> str:
        return self.chain_file.read_text()

    def trust(self) -> str:
        return (self.folder / "trust.pem").read_text()


@dataclass(frozen=True)
class Status:
    """For people; nothing depends on it."""

    at: str = ""
    doing: str = ""
    last_error: str = ""
    last_error_at: str = ""
    request_id: str = ""
    clock_skew_s: int = 0


class StateFolder:
    """The folder at `path`. Whatever writes must hold `locked`, and raises OSError when the disk is full or not writable."""

    def __init__(self, path: Path = DEFAULT_FOLDER) -> None:
        self.path = path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder ready and keep other agents out of it. Raises StateError."""
        try:
            if not self.path.exists():
                self.path.mkdir(mode=0o700, parents=True)
                _sync(self.path.parent)
            found = self.path.stat()
            if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
                raise StateError(f"others may have put anything into {self.path}: give the agent a folder of its own")
            self.path.chmod(0o700)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StateError(f"cannot use the folder {self.path}: {error.strerror}") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(f"another bcmetal-agent works in {self.path}") from None
            self._tidy()
            yield
        finally:
            os.close(lock)

    # ------------------------------------------------------------ attempts

    def keep(self, kind: Kind, attempt: Attempt) -> None:
        write_file(self.path / f"{kind}.json", _json(attempt))

    def attempt(self, kind: Kind) -> Attempt | None:
        """The attempt that was begun, if it still is about the identity that is current. Raises StateError."""
        found = _load(self.path / f"{kind}.json", Attempt)
        if found is not None and found.replaces != self.current_name():
            return None
        return found

    def drop(self, kind: Kind) -> None:
        (self.path / f"{kind}.json").unlink(missing_ok=True)

    # ------------------------------------------------------------ the identity

    def current_name(self) -> str | None:
        try:
            return Path(os.readlink(self.path / "current")).name
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{self.path / 'current'} is damaged: {error.strerror}") from None

    def current(self) -> Identity | None:
        """Raises StateError."""
        name = self.current_name()
        if name is None:
            return None
        folder = self.path / "identities" / name
        try:
            admission = _load(folder / "identity.json", Admission)
            leaf = keys.facts(keys.split_pem((folder / "chain.pem").read_text())[0])
        except (OSError, keys.BadCertificate):
            admission = None
        if admission is None and self.current_name() != name:
            return self.current()  # replaced while it was read
        if admission is None:
            raise StateError(f"the identity in {folder} is damaged: restore it, or join anew with --anew")
        return Identity(name, folder, admission, leaf.not_before, leaf.not_after)

    def commit(self, key: str, chain: str, trust: str, admission: Admission) -> Identity:
        """Make an admission the current identity; attempts for the one before are void from that moment."""
        name = secrets.token_hex(8)
        folder = self.path / "identities" / name
        folder.mkdir(mode=0o700, parents=True)
        for file, text in (
            ("key.pem", key),
            ("chain.pem", chain),
            ("trust.pem", trust),
            ("identity.json", _json(admission)),
        ):
            write_file(folder / file, text)
        for made in (folder, folder.parent, self.path):
            _sync(made)
        link = self.path / f".current-{name}"
        os.symlink(Path("identities") / name, link)
        os.replace(link, self.path / "current")
        _sync(self.path)
        self._tidy()
        found = self.current()
        assert found is not None
        return found

    # ------------------------------------------------------------ for people

    def note(self, **what: Any) -> None:
        """Change some fields of the status."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if what.get("last_error"):
            what["last_error_at"] = now
        write_file(self.path / "status.json", _json(Status(**{**asdict(self.status()), "at": now, **what})))

    def status(self) -> Status:
        with contextlib.suppress(StateError):
            return _load(self.path / "status.json", Status) or Status()
        return Status()

    # ------------------------------------------------------------ files

    def _tidy(self) -> None:
        """Clear away what a crash left half-made, void attempts, and identities that were replaced."""
        current = self.current_name()
        kinds: tuple[Kind, ...] = ("join", "next")
        for kind in kinds:
            with contextlib.suppress(StateError):
                found = _load(self.path / f"{kind}.json", Attempt)
                if found is not None and found.replaces != current:
                    self.drop(kind)
        for left in (*self.path.glob(".*.new"), *self.path.glob(".current-*")):
            left.unlink(missing_ok=True)
        for folder in self.path.glob("identities/*"):
            if folder.name != current:
                shutil.rmtree(folder, ignore_errors=True)


def write_file(path: Path, text: str) -> None:
    """0600, and durable before it bears its name: a temporary file beside it, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _json(value: Any) -> str:
    return json.dumps(asdict(value), indent=1) + "\n"


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        doc = json.loads(path.read_text())
        known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # T is one of the dataclasses above
        return kind(**{name: value for name, value in doc.items() if name in known})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StateError(f"{path} is damaged ({type(error).__name__}): restore it, or join anew with --anew") from None
