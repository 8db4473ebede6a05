"""A client of the API: one kept-alive TLS connection, pinned, on the standard library alone.

    ClientFault
    ├── ProfileFault    the profile or its key file is missing, malformed, or readable by others
    ├── Unreachable     no daemon there, or not the one that the profile pins
    └── ApiError        the daemon answered with an error

The key goes only to a server whose certificate was compared with the pin (or verified by the CA) before a byte of it is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import socket
import ssl
import stat
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from bcmetal.text import sha256_fingerprint

Json = dict[str, Any]

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
PATIENCE_S: Final = 60.0  # how long RATE_LIMITED and UNAVAILABLE are waited for, all told
ANSWER_LIMIT_BYTES: Final = 64 * 2**20
LINE_LIMIT_BYTES: Final = 2**20


class ClientFault(Exception):
    """The client cannot do what was asked."""


class ProfileFault(ClientFault):
    """The client's profile is missing or cannot be used."""


class Unreachable(ClientFault):
    """The daemon cannot be reached."""


class ApiError(ClientFault):
    """The daemon answered with an error. `details` carries what a program needs; `faults` names each fault of an input."""

    def __init__(self, http_status: int, code: str, message: str, details: Mapping[str, Any], trace_id: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        self.message = message
        self.details = details
        self.trace_id = trace_id

    @property
    def faults(self) -> Sequence[Mapping[str, Any]]:
        faults = self.details.get("faults")
        return faults if isinstance(faults, list) else ()

    def as_json(self) -> Json:
        return {
            "code": self.code,
            "message": self.message,
            "details": dict(self.details),
            "traceId": self.trace_id,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the daemon is, what proves it, and who we are. Paths in the file are relative to the file."""

    address: str
    key_file: Path
    fingerprint: str | None = None
    ca_file: Path | None = None
    tenant: str | None = None
    pool: str | None = None


def default_places() -> tuple[Path, ...]:
    """Where a profile is looked for, in order; the last one exists only while `bcmetal serve --demo` runs."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bcmetal"
    return own / "client.toml", Path("/etc/bcmetal/client.toml"), own / "demo.toml"


def find_profile(named: Path | None) -> Profile:
    """The profile named, or the first that is found."""
    if named is not None:
        return load_profile(named)
    for place in default_places():
        if place.is_file() and os.access(place, os.R_OK):
            return load_profile(place)
    places = ", ".join(str(p) for p in default_places())
    raise ProfileFault(
        f"no client profile found (looked at {places}): run `bcmetal init`, or name one with --profile or BCMETAL_PROFILE; `bcmetal serve --demo` has one while it runs"
    )


def load_profile(path: Path) -> Profile:
    try:
        doc = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ProfileFault(f"client profile {path}: {e.strerror}; `bcmetal init` writes one") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ProfileFault(f"{path}: {e}") from e
    known = {"address", "key_file", "fingerprint", "ca_file", "tenant", "pool"}
    wrong = [f"{name}: unknown setting" for name in doc if name not in known]
    wrong += [f"{name}: must be text" for name, value in doc.items() if name in known and not isinstance(value, str)]
    wrong += [f"{name}: is missing" for name in ("address", "key_file") if name not in doc]
    if "fingerprint" not in doc and "ca_file" not in doc:
        wrong.append("fingerprint or ca_file: one of them must say how the daemon is known")
    if wrong:
        raise ProfileFault(f"{path}: " + "; ".join(wrong))
    return Profile(
        address=doc["address"],
        key_file=path.parent / doc["key_file"],
        fingerprint=normal_fingerprint(doc["fingerprint"]) if "fingerprint" in doc else None,
        ca_file=path.parent / doc["ca_file"] if "ca_file" in doc else None,
        tenant=doc.get("tenant"),
        pool=doc.get("pool"),
    )


def normal_fingerprint(text: str) -> str:
    """`AA:BB:…`, `sha256:aabb…` and `aabb…` are one fingerprint: 64 lower-case hexadecimal digits."""
    bare = sha256_fingerprint(text)
    if bare is None:
        raise ProfileFault("fingerprint: a SHA-256 fingerprint has 64 hexadecimal digits")
    return bare


def read_private(path: Path) -> SecretStr:
    """The first line of a file that nobody else can read."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.readline().strip()
    except UnicodeDecodeError:
        raise ProfileFault(f"{path}: is not text") from None
    except OSError as e:
        raise ProfileFault(f"{path}: {e.strerror}") from e
    if stat.S_ISREG(mode) and mode & 0o077:
        raise ProfileFault(f"{path}: others can read it; `chmod 600 {path}` first")
    if not text:
        raise ProfileFault(f"{path}: is empty")
    return SecretStr(text)


class _PinnedConnection(http.client.HTTPSConnection):
    """Compares the certificate before anything is sent."""

    def __init__(
        self, host: str, port: int, fingerprint: str | None, ca_file: Path | None, answer_s: float = ANSWER_S
    ) -> None:
        if ca_file is not None:
            context = ssl.create_default_context(cafile=str(ca_file))
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # the pin is the proof: compared in connect()
        super().__init__(host, port, timeout=CONNECT_S, context=context)
        self._fingerprint = fingerprint
        self._tls = context
        self._answer_s = answer_s

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        try:
            self.sock.getpeername()  # Python 3.11's wrap_socket leaks its socket when the other side has reset it already
        except OSError:
            self.close()
            raise
        sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
        self.sock = sock
        if self._fingerprint is not None:
            leaf = sock.getpeercert(binary_form=True) or b""
            seen = hashlib.sha256(leaf).hexdigest()
            if not hmac.compare_digest(seen, self._fingerprint):
                self.close()
                raise Unreachable(
                    f"{self.host}:{self.port} shows another certificate than the profile pins (it shows {seen}); "
                    "nothing was sent. If its certificate was renewed, put the new fingerprint into the profile"
                )
        sock.settimeout(self._answer_s)


class Client:
    """Calls methods of the API. Not for several threads at once."""

    def __init__(self, profile: Profile, answer_s: float = ANSWER_S) -> None:
        """`answer_s`: how long an answer is waited for, of one connection."""
        self.profile = profile
        self._key = read_private(profile.key_file)
        self._connection = _connection_to(profile, answer_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def read(self, path: str) -> Json:
        """A document that stands beside the methods, by GET. Not waited for: what it says of itself by UNAVAILABLE is the answer."""
        try:
            return self._exchange("GET", path, None)
        except (http.client.HTTPException, OSError) as e:
            self._connection.close()
            raise self._unreachable(e) from e

    def answering(self, group: str, method: str, body: Mapping[str, Any]) -> Answering:
        """A method that goes on answering, line by line, on a connection of its own. Not waited for while the daemon is too busy."""
        connection = _connection_to(self.profile)
        try:
            connection.request("POST", f"/api/compute/{group}/{method}", json.dumps(body).encode(), self._headers(True))
            response = connection.getresponse()
            if response.status >= 400:
                doc = _json_of(response.read(ANSWER_LIMIT_BYTES))
                raise _api_error(response.status, doc, response.getheader("Retry-After"))
        except (http.client.HTTPException, OSError) as e:
            connection.close()
            raise self._unreachable(e) from e
        except ApiError:
            connection.close()
            raise
        return Answering(connection, response)

    def mutate(self, group: str, method: str, body: Mapping[str, Any]) -> Json:
        """As `call`; with an idempotency key of its own when none is given, so that a lost answer can be asked for again."""
        return self.call(group, method, {"idempotencyKey": str(uuid.uuid4()), **body})

    def call(self, group: str, method: str, body: Mapping[str, Any]) -> Json:
        """One method. Waits as `Retry-After` says while the daemon is too busy, within bounds.

        A connection that was lost is dialled once more: for reads, and for what carries an idempotency key or an offset.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._once(group, method, body)
            except ApiError as e:
                wait_s = float(e.details.get("retryAfterS") or 1.0)
                if e.code not in ("RATE_LIMITED", "UNAVAILABLE") or time.monotonic() + wait_s > deadline:
                    raise
                time.sleep(wait_s)

    def _once(self, group: str, method: str, body: Mapping[str, Any]) -> Json:
        path = f"/api/compute/{group}/{method}"
        may_repeat = "idempotencyKey" in body or "offset" in body or method in _AGAIN
        reused = self._connection.sock is not None
        try:
            return self._exchange("POST", path, body)
        except (http.client.HTTPException, OSError) as e:
            self._connection.close()
            if not (reused and may_repeat):
                raise self._unreachable(e) from e
        try:
            return self._exchange("POST", path, body)
        except (http.client.HTTPException, OSError) as e:
            self._connection.close()
            raise self._unreachable(e) from e

    def _unreachable(self, e: Exception) -> Unreachable:
        what = "it does not answer in time" if isinstance(e, TimeoutError) else str(e) or type(e).__name__
        if isinstance(e, ConnectionRefusedError):
            what = "connection refused; start it with `bcmetal serve` or `systemctl start bcmetald`, or name another --profile"
        elif isinstance(e, ssl.SSLError):
            what += "; does something else listen there?"
        return Unreachable(f"no daemon at {self.profile.address}: {what}")

    def _exchange(self, how: str, path: str, body: Mapping[str, Any] | None) -> Json:
        written = None if body is None else json.dumps(body).encode()
        self._connection.request(how, path, written, self._headers(body is not None))
        with self._connection.getresponse() as response:
            raw = response.read(ANSWER_LIMIT_BYTES)
            length = response.getheader("Content-Length", "")
            if length.isdecimal() and len(raw) < min(int(length), ANSWER_LIMIT_BYTES):  # `read(n)` is silent about it
                raise http.client.IncompleteRead(raw, int(length) - len(raw))
            retry_after = response.getheader("Retry-After")
            status = response.status
        try:
            doc = json.loads(raw) if raw else {}
        except ValueError as e:
            raise Unreachable(
                f"{self.profile.address} answers {status}, and not in JSON: is it the daemon's API?"
            ) from e
        if status < 400 and isinstance(doc, dict):
            return doc
        raise _api_error(status, doc, retry_after)

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._key.get_secret_value()}", "Accept": "application/json"}
        return {**headers, "Content-Type": "application/json"} if has_body else headers


class Answering:
    """The lines of an answer that goes on, as JSON objects; a line is waited for as long as for a whole answer elsewhere."""

    def __init__(self, connection: http.client.HTTPSConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._response = response

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Json]:
        """Ends where the daemon or `hang_up` ended it. Raises Unreachable where it went silent."""
        while True:
            try:
                line = self._response.readline(LINE_LIMIT_BYTES)
            except TimeoutError as e:
                raise Unreachable("the daemon says nothing more") from e
            except (http.client.HTTPException, OSError, ValueError):  # hung up, by whichever side
                return
            found = _json_of(line)
            if not line.endswith(b"\n") or not isinstance(found, dict):
                return
            yield found

    def hang_up(self) -> None:
        """From another thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _json_of(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _connection_to(profile: Profile, answer_s: float = ANSWER_S) -> _PinnedConnection:
    parts = urlsplit(profile.address)
    if parts.scheme != "https" or not parts.hostname:
        raise ProfileFault(f"address: {profile.address!r} is not of the form https://HOST[:PORT]")
    try:
        return _PinnedConnection(parts.hostname, parts.port or 8443, profile.fingerprint, profile.ca_file, answer_s)
    except (OSError, ssl.SSLError) as e:
        raise ProfileFault(f"{profile.ca_file}: {e}") from e


_AGAIN: Final = frozenset(
    {"list", "get", "inventory", "timeline", "plan", "export", "closeConsole"}
)  # twice is as once


def _api_error(status: int, doc: object, retry_after: str | None) -> ApiError:
    error = doc.get("error") if isinstance(doc, dict) else None
    error = error if isinstance(error, dict) else {}
    details = dict(error.get("details") or {})
    if retry_after is not None and retry_after.isdigit():
        details["retryAfterS"] = int(retry_after)
    return ApiError(
        status,
        str(error.get("code") or "INTERNAL"),
        str(error.get("message") or f"the daemon answered {status}"),
        details,
        str(error.get("traceId") or ""),
    )
