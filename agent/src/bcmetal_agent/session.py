"""One boot's session with the daemon, from inside the ramdisk.

1. `hello` shows the boot token once and binds it to a key that was made for it, for which the TPM vouches where the daemon knows it.
   The key stays in /run: an agent that was killed and started again says hello with the same key, and is in the same session.
2. Every later call is signed by that key and numbered. Numbers are reserved on the disk before they are used: none comes twice,
   whatever becomes of this process or of the machine's clock.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException, HTTPResponse
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from bcmetal_agent import attesting, calls, client, identifiers, keys, trust, wire, wire_tasks
from bcmetal_agent.bearer import Bearer
from bcmetal_agent.calls import NotYetValid, RetryLater
from bcmetal_agent.client import Client, Refused
from bcmetal_agent.state import write_file
from bcmetal_agent.tasks.doing import Readable
from bcmetal_agent.tpm import AttestationKey, TpmError
from bcmetal_agent.trust import Endpoint, Untrusted

SKEW_S: Final = 5
CALL_S: Final = 20.0
STALL_S: Final = 30.0  # the longest that an image may stand still
_WHY: Final = 300  # characters of a TPM's error that the daemon is told
_BLOCK: Final = 1000  # sequence numbers reserved at a time
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_BYTES: Final = re.compile(r"(?:bytes )?(?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18})")
_SANE: Final = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
log = logging.getLogger("bcmetal_agent")

T = TypeVar("T")
HelloAnswer = wire_tasks.Welcome | wire.Challenge | wire_tasks.ShowTpm


class BadSite(Exception):
    """The image does not say whom to call; the text says what is wrong."""


@dataclass(frozen=True)
class Site:
    """What `bcmetal ramdisk build` put into the image. `roots`: PEM."""

    server: Endpoint
    roots: str
    name: str

    @classmethod
    def read(cls, path: Path) -> Site:
        """Raises BadSite."""
        try:
            doc = json.loads(path.read_text())
            url, roots, name = (str(doc[key]) for key in ("agentUrl", "caPem", "site"))
            return cls(Endpoint.parse(url), trust.check_roots(roots), name)
        except OSError as error:
            raise BadSite(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadSite(f"{path} is not what `bcmetal ramdisk build` makes: {type(error).__name__}") from None


@dataclass(frozen=True)
class AnyTask:
    """A task of any kind, also of one that this agent does not know: to be answered rather than asked for again and again."""

    task_id: str
    kind: wire.Word
    params: wire.Json = field(repr=False)
    status: str = "task"


def set_clock(moment: float) -> None:
    """Raises OSError."""
    time.clock_settime(time.CLOCK_REALTIME, moment)


class Session:
    """The calls of one boot token. Every one may come from any thread; they go out one after the other, in the order of their numbers."""

    def __init__(
        self,
        site: Site,
        token: str,
        folder: Path,
        *,
        call_s: float = CALL_S,
        root: Path = Path("/"),
        clock: Callable[[float], None] = set_clock,
        tcti: str | None = None,
    ) -> None:
        """`folder`: where key and numbers are kept, made with 0700. `root`: where the machine's /sys is. `tcti`: see `Tpm.open`.

        Raises OSError, BadSite.
        """
        self.site, self._token, self._folder, self._call_s, self._root = site, Bearer(token), folder, call_s, root
        self._set_clock, self._tcti = clock, tcti
        self._shown: tuple[wire.TpmClaim, AttestationKey] | None = None  # of the TPM, once it was asked for
        self._lock = threading.Lock()
        self._session_id = ""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._key, fresh = self._kept_key(token)
        self._reserved = self._number = 0 if fresh else _number(folder / "sequence")
        try:
            self._context = trust.verified(site.roots)
        except Untrusted as error:
            raise BadSite(str(error)) from None

    # ------------------------------------------------------------ calls

    def hello(self) -> wire_tasks.Welcome | Refused | RetryLater:
        """Begin the session, or take it up again; by the TPM, where the daemon asks for it. The machine's clock is set by the answer
        where it is off."""
        message = wire_tasks.Hello(
            public_key=attesting.text(self._public_key()),
            identifiers=identifiers.read(self._root),
            version=_version(self._root),
            clock=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        answer = self._say_hello(message)
        if isinstance(answer, wire_tasks.ShowTpm):
            log.info("the daemon asks for this machine's TPM")
            message = self._with_tpm(message)
            answer = self._say_hello(message)
        if isinstance(answer, wire.Challenge):
            answer = self._say_hello(self._proven(message, answer))
        if isinstance(answer, wire_tasks.ShowTpm | wire.Challenge):
            return RetryLater("the daemon asked for this machine's TPM once more")
        return answer

    def _say_hello(self, message: wire_tasks.Hello) -> HelloAnswer | Refused | RetryLater:
        sent_s = time.monotonic()
        with self._lock:
            answer: HelloAnswer | Refused | RetryLater = self._tried(
                lambda: self._client(self._call_s).ask(
                    wire_tasks.HELLO_PATH, wire.encode(message), self._token, _hello_answer
                )
            )
        if isinstance(answer, wire_tasks.Welcome):
            self._session_id = answer.session_id
            self._mind_clock(answer.server_time, (time.monotonic() - sent_s) / 2)
        return answer

    def _with_tpm(self, message: wire_tasks.Hello) -> wire_tasks.Hello:
        """Or with why there is none: the daemon refuses that, and tells of it."""
        try:
            if self._shown is None:
                self._shown = attesting.claim(self._tcti)
            return dataclasses.replace(message, tpm=self._shown[0])
        except TpmError as error:
            return _without_tpm(message, error)

    def _proven(self, message: wire_tasks.Hello, challenge: wire.Challenge) -> wire_tasks.Hello:
        if self._shown is None:
            return _without_tpm(message, TpmError("a challenge came for a TPM that was not shown"))
        try:
            subject = wire_tasks.hello_statement(self._public_key())
            proof = attesting.prove(self._tcti, self._shown[1], challenge, subject)
        except TpmError as error:
            return _without_tpm(message, error)
        return dataclasses.replace(message, challenge=proof)

    def _public_key(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def next(self) -> AnyTask | wire_tasks.Idle | Refused | RetryLater:
        """The present task, after POLL_S at the latest."""
        message = wire.encode(wire_tasks.Next())
        deadline_s = wire_tasks.POLL_S + self._call_s
        return self._signed(wire_tasks.NEXT_PATH, message, _task_or_idle, deadline_s, wire_tasks.TASK_LIMIT)

    def report(self, report: wire_tasks.Report) -> wire_tasks.Heard | Refused | RetryLater:
        return self._signed(wire_tasks.REPORT_PATH, wire.encode(report), _heard, self._call_s, wire.BODY_LIMIT)

    @contextlib.contextmanager
    def image(self, offset: int) -> Iterator[Readable]:
        """An ImageDoor."""
        with contextlib.ExitStack() as until_read:
            with self._lock:
                headers = self._headers("GET", wire_tasks.IMAGE_PATH, b"")
                headers["Range"] = f"bytes={offset}-"
                response = until_read.enter_context(
                    calls.stream(
                        self.site.server,
                        self._context,
                        wire_tasks.IMAGE_PATH,
                        headers,
                        open_s=self._call_s,
                        read_s=STALL_S,
                    )
                )
            yield _Image(response, offset)

    def _signed(
        self, path: str, message: bytes, read: Callable[[bytes], T], deadline_s: float, limit: int
    ) -> T | Refused | RetryLater:
        with self._lock:
            answer = self._tried(
                lambda: self._client(deadline_s).ask(
                    path, message, None, read, headers=self._headers("POST", path, message), limit=limit
                )
            )
        if isinstance(answer, Refused) and answer.status == 409:  # overtaken: the next one has a larger number
            return RetryLater(f"the daemon has heard a later call of this session: {answer.message}")
        return answer

    def _client(self, deadline_s: float) -> Client:
        return Client(self.site.server, self._context, deadline_s)

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        number = self._next_number()
        signature = self._key.sign(wire_tasks.statement(method, path, self._session_id, number, body))
        return {
            wire_tasks.SESSION_HEADER: self._session_id,
            wire_tasks.SEQUENCE_HEADER: str(number),
            wire_tasks.SIGNATURE_HEADER: base64.b64encode(signature).decode(),
        }

    def _tried(self, ask: Callable[[], T | Refused | RetryLater]) -> T | Refused | RetryLater:
        """Whom the agent does not trust now it may trust later: a wrong clock or a listener that is being set up anew."""
        try:
            return ask()
        except NotYetValid as error:
            if self._clock_by_certificate():
                return RetryLater(
                    "the machine's clock was before the server's certificate, and was set to when it begins", 0.0
                )
            return RetryLater(str(error))
        except Untrusted as error:
            return RetryLater(str(error))

    # ------------------------------------------------------------ key and numbers

    def _kept_key(self, token: str) -> tuple[Ed25519PrivateKey, bool]:
        """A new one for each boot token; and whether it is new."""
        digest, path = hashlib.sha256(token.encode()).hexdigest(), self._folder / "key.json"
        try:
            doc = json.loads(path.read_text())
            if doc["tokenSha256"] == digest:
                return Ed25519PrivateKey.from_private_bytes(base64.b64decode(doc["key"], validate=True)), False
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # none, or one that is half written: a key that no hello was said with
        key = Ed25519PrivateKey.generate()
        raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        write_file(path, json.dumps({"tokenSha256": digest, "key": base64.b64encode(raw).decode()}))
        return key, True

    def _next_number(self) -> int:
        if self._number >= self._reserved:
            self._reserved = self._number + _BLOCK
            write_file(self._folder / "sequence", str(self._reserved))
        self._number += 1
        return self._number

    # ------------------------------------------------------------ the clock

    def _mind_clock(self, server_time: str, on_the_way_s: float) -> None:
        try:
            theirs = datetime.fromisoformat(server_time)
        except ValueError:
            return
        if theirs.tzinfo is not None and _SANE[0] < theirs < _SANE[1]:
            ahead_s = time.time() - (theirs.timestamp() + on_the_way_s)
            if abs(ahead_s) > SKEW_S:
                self._step(theirs.timestamp() + on_the_way_s, ahead_s)

    def _clock_by_certificate(self) -> bool:
        """Forward to the beginning of the server's certificate, whose chain and names hold all the same: only their times are not looked at."""
        context = trust.verified(self.site.roots)
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
        try:
            with calls.connected(self.site.server, context, self._call_s) as tls:
                leaf = keys.facts(keys.load_der(tls.getpeercert(binary_form=True) or b""))
        except (Untrusted, OSError, keys.BadCertificate):
            return False
        ahead_s = time.time() - leaf.not_before.timestamp()
        if ahead_s >= 0 or leaf.not_before >= _SANE[1]:
            return False
        return self._step(leaf.not_before.timestamp() + 1, ahead_s)

    def _step(self, moment: float, ahead_s: float) -> bool:
        way = "ahead" if ahead_s > 0 else "behind"
        try:
            self._set_clock(moment)
        except OSError as error:
            log.warning("the clock is %d s %s and cannot be set: %s", abs(ahead_s), way, error.strerror)
            return False
        log.warning("the clock was %d s %s: set to %s", abs(ahead_s), way, datetime.fromtimestamp(moment, UTC))
        return True


class _Image:
    """http.client takes an answer that was cut short for its end; this does not."""

    def __init__(self, response: HTTPResponse, offset: int) -> None:
        """Raises OSError where the answer is not the image from this byte on."""
        found = _BYTES.fullmatch(response.headers.get("Content-Range", ""))
        self._response = response
        if response.status == 416 and found is not None and found.group(3) == str(offset):
            self._left = 0  # asked for from its very end
            return
        if response.length is None:
            raise OSError("the server did not say how much it sends")
        if response.status == 206 and found is not None and found.group(1) is not None:
            first, end, size = int(found.group(1)), int(found.group(2)) + 1, int(found.group(3))
            if (first, end, response.length) != (offset, size, size - offset):
                raise OSError("the server sent another part of the image than was asked for")
        elif response.status != 200 or offset != 0:
            raise OSError(f"the server answered {response.status} instead of the image")
        self._left = response.length

    def read(self, size: int, /) -> bytes:
        want = min(size, self._left)
        if want <= 0:
            return b""
        try:
            chunk = self._response.read(want)
        except HTTPException as error:
            raise OSError(f"the server broke off: {type(error).__name__}") from None
        if not chunk:
            raise OSError(f"the server broke off with {self._left} bytes still to come")
        self._left -= len(chunk)
        return chunk


# ---------------------------------------------------------------- answers


def _without_tpm(message: wire_tasks.Hello, error: TpmError) -> wire_tasks.Hello:
    why = "".join(char if char.isprintable() else " " for char in str(error)[:_WHY])
    log.warning("the daemon asks for this machine's TPM, which cannot be shown: %s", why)
    return dataclasses.replace(message, tpm=None, challenge=None, no_tpm=why)


def _hello_answer(body: bytes) -> HelloAnswer:
    kinds = {"welcome": wire_tasks.Welcome, "challenge": wire.Challenge, "showTpm": wire_tasks.ShowTpm}
    found: HelloAnswer = client.by_status(kinds, body)
    return found


def _heard(body: bytes) -> wire_tasks.Heard:
    return wire.decode(wire_tasks.Heard, body)


def _task_or_idle(body: bytes) -> AnyTask | wire_tasks.Idle:
    try:
        doc: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise wire.BadMessage("", "is no JSON") from None
    if isinstance(doc, dict) and doc.get("status") == "task":
        task = wire.decode(AnyTask, body, wire_tasks.TASK_LIMIT)
        if not 0 < len(task.task_id) <= 64:
            raise wire.BadMessage("taskId", "is no task's id")
        return task
    return wire.decode(wire_tasks.Idle, body)


def _number(path: Path) -> int:
    """Reserved so far. Where that is lost: microseconds since 1970, past anything that was counted from 0."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return time.time_ns() // 1000


def _version(root: Path) -> str:
    """Of the image; of the package where the agent runs outside of one."""
    try:
        return str(json.loads((root / "etc/bcmetal/release.json").read_text())["agentVersion"])[:128]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        return metadata.version("bcmetal-agent")
    except metadata.PackageNotFoundError:
        return "unknown"
