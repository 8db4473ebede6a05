"""The door to one Redfish BMC: every request goes through here.

1. The origin is pinned: a link or a redirect to another host is refused, and no token goes there.
2. GETs may be sent once more when their line was dropped or their answer was cut. A write never is: its lost answer is MaybeSent. The
   exceptions are a write that was answered 401, or sent on to another place within the BMC (307, 308): both prove that it was not applied.
3. One total deadline spans everything between `with door.call():` and its end; an upload moves it for as long as it goes on. Within it
   a GET that is answered 429 or 503 waits as long as the BMC says, where that is a few seconds; a longer time, and a write's, is the
   caller's to wait for.
4. In observe mode no write passes, login and logout excepted.

Inside, answers of 400 and above are raised as sushy's HTTPError family, so that what is tried in turn can tell them apart by their status;
`call` turns them, and whatever a hostile body made a library stumble over, into our errors.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Never
from weakref import WeakSet

import sushy.exceptions

from bcmetal_drivers.breakage import broken, is_remnant
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust, TrustKind
from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    InsecureTransport,
    Malformed,
    MaybeSent,
    Refused,
    ServerFault,
    TimedOut,
)
from bcmetal_drivers.origin import own_path
from bcmetal_drivers.pace import Pace
from bcmetal_drivers.refusals import (
    error_view,
    is_only_an_error,
    refusal,
    retry_after_s,
    says_failure,
    says_there_is_none,
    words,
)
from bcmetal_drivers.schemes import REDFISH_HTTP
from bcmetal_drivers.session import ROOT, Session
from bcmetal_drivers.stream import OpenStream
from bcmetal_drivers.tcp import Deadline
from bcmetal_drivers.wire import Answer, Line, Upload

CLOSE_S: Final = 3.0
REDIRECTS: Final = 3
PASSING: Final = (502, 503, 504)  # a read is tried once more: a proxy before the service, or one moment's load
AGAIN_S: Final = 0.2
MOVED: Final = (301, 302, 303, 307, 308)
SAME_THERE: Final = (307, 308)  # the same request belongs there (RFC 9110, 15.4): it was not carried out here
SEE_OTHER: Final = 303  # of a write: it was carried out, and what became of it is told elsewhere
ERROR_LIMIT: Final = 65536
HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # some firmware gives another ETag with compression
    "OData-Version": "4.0",
    "User-Agent": "bcmetal",
}
STUMBLES: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
PATIENCE_S: Final = 5.0  # with one Retry-After
WAITS: Final = 3


@dataclass(frozen=True, slots=True)
class WithToken:
    """An upload that holds the session's token, with the headers beside it. Made anew for each session in which it is sent; None under Basic."""

    made: Callable[[str | None], tuple[Upload, Mapping[str, str]]]


class Door:
    """One line, one session. Calls from several threads take turns."""

    def __init__(
        self,
        address: BmcAddress,
        credential: Credential | None,
        trust: Trust,
        limits: Limits,
        memory: dict[str, Any] | None = None,
        line: Line | None = None,
    ) -> None:
        """Connects to nothing. Without a credential nothing is ever sent that authorises. `memory` is what was learned before, and
        is added to; `line` is another way to the BMC than TCP. Raises InsecureTransport."""
        plain = address.scheme == REDFISH_HTTP
        if plain and trust.kind is not TrustKind.NONE:
            raise InsecureTransport(f"{address}: plain HTTP is for a BMC whose trust is explicitly none")
        self.address = address
        self.limits = limits
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.origin = f"{'http' if plain else 'https'}://{host}:{address.port}"
        self._line = line or Line(self.origin, address.host, address.port, None if plain else trust, limits)
        self.memory: dict[str, Any] = {} if memory is None else memory
        self.pace = Pace(self.memory)
        self._session = Session(credential, self._for_login, self.origin, self.memory) if credential else None
        self._root: Answer | None = None
        self._deadline: Deadline | None = None
        self._streams: WeakSet[OpenStream] = WeakSet()
        self._lock = threading.RLock()
        self._asked = self.origin

    @property
    def rejected(self) -> bool:
        """Whether the BMC rejected the credentials: they are not sent again through this door."""
        return self._session is not None and self._session.rejected

    @property
    def session_path(self) -> str | None:
        """Of our session at the BMC; None under Basic."""
        return self._session.path if self._session is not None else None

    @property
    def certificate_fp(self) -> str | None:
        """Of the certificate that was shown last; None without TLS, or before the first request."""
        return self._line.certificate_fp

    # ------------------------------------------------------------ one call of a capability's method

    @contextmanager
    def call(self) -> Iterator[None]:
        """All requests inside share one total deadline; whatever goes wrong leaves as a DriverError. May be nested."""
        deadline = Deadline(self.limits.total_s)
        if not self._lock.acquire(timeout=self.limits.total_s):
            raise TimedOut(f"{self.origin}: another call to this BMC did not end in time")
        with ExitStack() as stack:
            stack.callback(self._lock.release)
            if self._deadline is not None:
                yield
                return
            self._deadline = deadline
            try:
                yield
            except DriverError:
                raise
            except sushy.exceptions.HTTPError as error:
                raise translated(error) from error
            except sushy.exceptions.SushyError as error:
                raise Malformed(f"{self._asked}: {type(error).__name__} while the answer was read") from error
            except STUMBLES as error:
                raise Malformed(f"{self._asked}: the answer is not what the standard says") from error
            finally:
                self._deadline = None

    def left_s(self, at_most: float) -> float:
        """Seconds left of this call. Raises TimedOut."""
        return self._now().left(at_most, self._asked)

    def _now(self) -> Deadline:
        if self._deadline is None:
            raise RuntimeError("a request outside of Door.call")
        return self._deadline

    def close(self) -> None:
        """End the session at the BMC and what is read in it, best effort, within a few seconds; never raises."""
        for opened in list(self._streams):
            opened.hang_up()
        if not self._lock.acquire(timeout=CLOSE_S):
            self._line.close()
            return
        try:
            self._deadline = Deadline(CLOSE_S)
            if self._session is not None:
                with suppress(*STUMBLES):
                    self._session.close()
        finally:
            self._deadline = None
            self._line.close()
            self._lock.release()

    def use(self, credential: Credential) -> None:
        """Log in with these from now on. Raises RejectedCredentials when they are not taken."""
        if self._session is not None:
            self._session.use(credential)

    # ------------------------------------------------------------ the verbs of HTTP

    def get(self, path: str, data: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self._checked("GET", path, data, headers)

    def document(self, path: str) -> dict[str, Any]:
        """What stands there. Raises Refused where the BMC says yes and nothing more (204)."""
        answer = self.get(path)
        if answer.status_code == 204:
            raise Refused(f"{answer.url}: there is nothing (204)")
        return answer.json()

    def post(self, path: str, data: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """`data` is sent as JSON, an Upload as it is. Without data `{}` is sent: a bare POST is answered 415 or 400 by several makers."""
        return self._checked("POST", path, {} if data is None else data, headers)

    def patch(
        self, path: str, data: object = None, headers: Mapping[str, str] | None = None, etag: str | None = None
    ) -> Answer:
        return self._checked("PATCH", path, data, {**(headers or {}), **({"If-Match": etag} if etag else {})})

    def delete(self, path: str, data: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        return self._checked("DELETE", path, data, headers)

    # ------------------------------------------------------------ requests

    def anonymous(self, path: str) -> Answer:
        """A GET without credentials; its status is not looked at, but that redirects within the BMC are followed."""
        answer = self._sent_on("GET", self._own(path), {}, None)
        if path == ROOT and answer.status_code == 404:  # some know their root without the slash only
            answer = self._sent_on("GET", ROOT.rstrip("/"), {}, None)
        if path == ROOT and answer.status_code == 200:
            self._root = answer
        return answer

    def _sent_on(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Sent, and where the BMC says that it belongs elsewhere within itself, sent there."""
        answer = self._send(method, path, headers, body)
        for _ in range(REDIRECTS):
            if answer.status_code not in (MOVED if method == "GET" else SAME_THERE):
                break
            answer = self._send(method, self._own(answer.headers.get("Location") or ""), headers, body)
        return answer

    def _for_login(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """The service root, which tells where sessions are, is not read anew for it."""
        if method == "GET" and path == ROOT and not headers:
            return self._root or self.anonymous(ROOT)
        return self._sent_on(method, path, headers, body)

    def lines(self, path: str, wait_s: float, headers: Mapping[str, str]) -> Iterator[bytes]:
        """The lines of a stream (server-sent events), for so many seconds. It may end before. Raises as `stream`."""
        with closing(self.stream(path, headers)) as opened:
            yield from opened.lines(self.left_s(wait_s))

    def stream(self, path: str, headers: Mapping[str, str]) -> OpenStream:
        """A stream in this door's session, on a connection of its own; it ends with the door.

        Raises what a GET raises, and Malformed for what is no stream of events.
        """
        own, session = self._own(path), self._session
        if session is None:
            raise Refused(f"{self.origin}{own}: no credentials for this BMC")
        line = self._line.another()
        try:
            answer = self._streamed(line, own, {**HEADERS, **headers, **session.headers()})
            if isinstance(answer, Answer) and answer.status_code == 401:
                session.refused(answer)
                answer = self._streamed(line, own, {**HEADERS, **headers, **session.headers()})
            if isinstance(answer, Answer):
                raise refusal(answer)
        except BaseException:
            line.close()
            raise
        session.accepted()
        opened = OpenStream(line, answer, self.origin + own)
        self._streams.add(opened)
        return opened

    def _streamed(self, line: Line, path: str, headers: Mapping[str, str]) -> Answer | http.client.HTTPResponse:
        """The open stream, or a refusal."""
        line.close()
        try:
            line.open(self._now())
            response = line.stream(path, headers)
            kind = response.headers.get_content_type()
            if response.status == 200 and kind == "text/event-stream":
                return response
            answer = Answer(response.status, response.headers, response.read(ERROR_LIMIT), self.origin + path)
        except (DriverError, OSError, http.client.HTTPException) as error:
            raise broken(error, self._asked, self.limits.read_s) from error
        if answer.status_code >= 400:
            return answer
        raise Malformed(f"{answer.url}: no stream of events ({answer.status_code}, {kind[:64]})")

    def _checked(self, method: str, path: str, data: object, headers: Mapping[str, str] | None) -> Answer:
        own = self._own(path)
        if method != "GET" and not self.limits.write_allowed:
            raise Refused(f"{self.origin}{own}: {method} is a write, and this BMC is only observed")
        answer = self._patiently(method, own, data, headers or {})
        for _ in range(REDIRECTS):
            if not 300 <= answer.status_code < 400 or answer.status_code == 304:
                break
            if method != "GET" and answer.status_code == SEE_OTHER:
                return answer
            if method != "GET" and answer.status_code not in SAME_THERE:
                raise Refused(f"{answer.url}: the BMC redirects a {method} ({answer.status_code})")
            answer = self._patiently(method, self._own(answer.headers.get("Location") or ""), data, headers or {})
        if answer.status_code >= 400:
            _raise(method, answer)
        if not 200 <= answer.status_code < 300:
            raise Malformed(f"{answer.url}: the BMC answers {answer.status_code}")
        if method == "GET" and is_only_an_error(answer):
            if says_there_is_none(answer):
                _raise(method, replace(answer, status_code=404))
            raise ServerFault(
                f"{answer.url}: {answer.status_code} with an error instead of a document: {words(answer)}"
            )
        if method != "GET" and says_failure(answer):
            raise Refused(f"{answer.url}: {answer.status_code} with an error in it: {words(answer)}")
        return answer

    def _patiently(self, method: str, path: str, data: object, headers: Mapping[str, str]) -> Answer:
        """A GET waits as often as the BMC says for how long, and once for a passing failure that says nothing."""
        answer = self._authorised(method, path, data, headers)
        for turn in range(WAITS if method == "GET" else 0):
            wait_s = retry_after_s(answer) if answer.status_code in (429, *PASSING) else None
            if wait_s is None and answer.status_code in PASSING and turn == 0:
                wait_s = AGAIN_S
            if wait_s is None or wait_s > PATIENCE_S or self.left_s(PATIENCE_S) <= wait_s:
                break
            time.sleep(wait_s)
            answer = self._authorised(method, path, data, headers)
        if method == "GET" and answer.is_cut:
            answer = self._authorised(method, path, data, headers)
        return answer

    def _authorised(self, method: str, path: str, data: object, headers: Mapping[str, str]) -> Answer:
        session = self._session
        if session is None:
            raise Refused(f"{self.origin}{path}: no credentials for this BMC")

        def sent() -> Answer:
            proof = session.headers()
            more = dict(headers)
            whole = data
            if isinstance(data, WithToken):
                whole, beside = data.made(proof.get("X-Auth-Token"))
                more |= beside
            body = whole if whole is None or isinstance(whole, Upload) else json.dumps(whole).encode()
            if body is not None:
                more["Content-Type"] = whole.kind if isinstance(whole, Upload) else "application/json"
            return self._send(method, path, {**more, **proof}, body)

        answer = sent()
        # ends: a token that expired, then one that is refused at once, then Basic, which raises
        while answer.status_code == 401:
            session.refused(answer)
            answer = sent()
        session.accepted()
        return answer

    def _own(self, link: str) -> str:
        """The path of a link of this BMC. Raises Malformed for a link to elsewhere."""
        return own_path(self.origin, link, self._asked)

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Upload | None, *, again: bool = True
    ) -> Answer:
        """One request; a GET once more when its line, kept alive or new, turns out to be dropped."""
        self._asked = self.origin + path
        write = method != "GET"
        if self.memory.get("keepAlive") is False:  # it drops kept-alive lines: each request gets one of its own
            self._line.close()
        if wait_s := self.pace.wait_s():
            time.sleep(self.left_s(wait_s))
        kept = self._line.open(self._now())
        try:
            answer = self._line.ask(method, path, {**HEADERS, **headers}, body)
            self.pace.answered(answer.status_code)
            return answer
        except (DriverError, OSError, http.client.HTTPException) as error:
            sent = self._line.sent
            self._line.close()
            dropped = isinstance(error, ConnectionError | ssl.SSLError) and not isinstance(error, TimeoutError)
            if kept and dropped:
                self.memory["keepAlive"] = False
            if again and not write and ((dropped and (kept or sent)) or is_remnant(error, kept=kept)):
                return self._send(method, path, headers, body, again=False)
            if write and sent and not isinstance(error, Malformed | Refused | Busy):
                raise MaybeSent(f"{self._asked}: the {method} was sent, and its answer was lost") from error
            raise broken(error, self._asked, self.limits.read_s) from error
        except BaseException:  # whoever was told of an upload ended it, in the middle of a request
            self._line.close()
            raise


def _raise(method: str, answer: Answer) -> Never:
    try:
        sushy.exceptions.raise_for_response(method, answer.url, error_view(answer))
    except sushy.exceptions.HTTPError as error:
        error.answer = answer
        raise
    raise Malformed(f"{answer.url}: the BMC answers {answer.status_code}")


def translated(error: Any) -> DriverError:
    """Our error for one of sushy's HTTPErrors."""
    answer = getattr(error, "answer", None)
    return (
        refusal(answer)
        if isinstance(answer, Answer)
        else Malformed(f"the BMC's refusal cannot be read ({type(error).__name__})")
    )


@contextmanager
def tolerated(*kinds: type[DriverError]) -> Iterator[None]:
    """Pass over these errors of ours, and over sushy's that would become one of them."""
    with suppress(*kinds):
        try:
            yield
        except sushy.exceptions.HTTPError as error:
            raise translated(error) from error
