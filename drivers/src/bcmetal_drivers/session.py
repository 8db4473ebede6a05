"""One login at one BMC: by a session where it has sessions, by Basic where it has none.

Which of both is found once and remembered, from one conversation to the next. A wrong password costs one failed login: Basic is not tried
after a session login that was rejected, and rejected credentials are not sent again. The one case that may cost two is a BMC where Basic was
learned, which answers 401 without saying whether it still knows Basic, and shows sessions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from bcmetal_drivers.connection import Credential
from bcmetal_drivers.errors import DriverError, Malformed, MaybeSent, RejectedCredentials, ServerFault
from bcmetal_drivers.learned import PATH
from bcmetal_drivers.origin import path_alone
from bcmetal_drivers.refusals import login_refusal, refusal
from bcmetal_drivers.wire import Answer

ROOT: Final = "/redfish/v1/"
SESSIONS: Final = "/redfish/v1/SessionService/Sessions"
TOKEN: Final = "X-Auth-Token"  # noqa: S105  # the name of a header
TOKEN_LIMIT: Final = 8192

# What a place is answered with where no sessions are opened. Some BMCs say 401 to whatever they do not know, until somebody logged in.
NO_LOGIN: Final = (400, 401, 403, 404, 405, 410, 501)

Ask = Callable[[str, str, Mapping[str, str], bytes | None], Answer]


class Mode(Enum):
    """How requests are authorised; kept among what is learned of a BMC."""

    UNKNOWN = "unknown"
    SESSION = "session"
    BASIC = "basic"


class Session:
    """`ask` sends a request as it is. Headers hold the token or the password: they go nowhere else than into `ask`."""

    def __init__(
        self, credential: Credential, ask: Ask, where: str, memory: MutableMapping[str, Any] | None = None
    ) -> None:
        """`memory`: `login` and `sessions` as they were learned before, and are learned now."""
        self._credential = credential
        self._ask = ask
        self._where = where
        self._memory: MutableMapping[str, Any] = {} if memory is None else memory
        self._token: str | None = None
        self._path: str | None = None
        self._mode = Mode(self._memory.get("login") or Mode.UNKNOWN.value)
        self._proven = False  # the mode was seen to work in this conversation
        self._fresh = False  # the token was not accepted by anything yet
        self._rejected = False
        self._logged_in = False  # a session was opened with these credentials

    def headers(self) -> dict[str, str]:
        """What authorises a request; logs in first where that is needed. Raises RejectedCredentials, LockedOut, Busy and the wire's errors."""
        if self._rejected:
            raise RejectedCredentials(f"{self._where}: the BMC rejected these credentials, they are not sent again")
        if self._token is None and self._mode is not Mode.BASIC:
            self._log_in()
        if self._token is not None:
            return {"X-Auth-Token": self._token}
        return {"Authorization": f"Basic {self._basic()}"}

    @property
    def rejected(self) -> bool:
        """Whether the BMC rejected the credentials."""
        return self._rejected

    @property
    def path(self) -> str | None:
        """Of the session that is open."""
        return self._path

    def accepted(self) -> None:
        """An authorised request got through."""
        self._fresh = False
        self._proven = True
        self._memory["login"] = (Mode.BASIC if self._token is None else Mode.SESSION).value

    def refused(self, answer: Answer) -> None:
        """A request was answered 401: be logged in anew, or raise. The request may be repeated once after this."""
        if self._token is None and self._logged_in:
            self._mode = Mode.UNKNOWN  # the password is good: the BMC is in disorder, restarting perhaps
            raise ServerFault(f"{self._where}: the BMC takes the login and then refuses its token, and Basic too")
        if self._token is None:
            if self._mode is Mode.BASIC and not self._proven and self._memory.get("login") == Mode.BASIC.value:
                self._relearn(answer)
                return
            error = refusal(answer)
            self._rejected = isinstance(error, RejectedCredentials)  # an account that is locked may be good again
            raise error
        old, self._token, self._path = self._path, None, None
        if self._fresh:  # it took the password, and then not its own token: some firmware knows Basic only
            self._mode = Mode.BASIC
            self._delete(old, {"Authorization": f"Basic {self._basic()}"})
            return
        token_headers = self.headers()
        self._delete(old, token_headers)

    def _relearn(self, answer: Answer) -> None:
        """Basic was learned in an earlier conversation and is answered 401. Raises, or is logged in by a session.

        Was the password looked at? It was where the BMC still offers Basic; another challenge says that it was not. Without a challenge
        the password counts as looked at, and one session login tells more than a rejection that may be none.
        """
        offered = (answer.headers.get("WWW-Authenticate") or "").lower()
        self._forget()
        error = refusal(answer)
        if not isinstance(error, RejectedCredentials) or "basic" in offered or self._find_sessions() is None:
            self._rejected = isinstance(error, RejectedCredentials)
            raise error
        try:
            self._log_in()
        except RejectedCredentials as rejected:
            raise RejectedCredentials(str(rejected), logins=1 if offered else 2) from rejected
        if self._token is None:
            self._rejected = True
            raise error

    def _forget(self) -> None:
        self._mode = Mode.UNKNOWN
        self._memory["login"] = self._memory["sessions"] = None

    def use(self, credential: Credential) -> None:
        """Log in with these credentials from now on. Raises RejectedCredentials, and keeps the old ones, when they are not taken."""
        old, old_path, old_token = self._credential, self._path, self._token
        self._credential, self._token, self._path = credential, None, None
        proven, self._logged_in = self._logged_in, False
        try:
            if self._mode is not Mode.BASIC:
                self._log_in()
            else:
                answer = self._ask("GET", SESSIONS, {"Authorization": f"Basic {self._basic()}"}, None)
                if answer.status_code == 401:
                    raise refusal(answer)
        except DriverError:
            self._credential, self._path, self._token = old, old_path, old_token
            self._rejected, self._logged_in = False, proven
            raise
        if old_path is not None:
            self._delete(old_path, self.headers())

    def close(self) -> None:
        """Log out, best effort."""
        if self._token is not None:
            self._delete(self._path, {"X-Auth-Token": self._token})
        self._token = self._path = None

    def _basic(self) -> str:
        pair = f"{self._credential.username}:{self._credential.password.get_secret_value()}"
        return base64.b64encode(pair.encode()).decode()

    def _delete(self, path: str | None, headers: Mapping[str, str]) -> None:
        if path is not None:
            with suppress(DriverError):
                self._ask("DELETE", path, headers, None)

    def _find_sessions(self) -> str | None:
        """Where sessions are opened; None where the service has none: a login there would count as a failed one."""
        known: str | None = self._memory.get("sessions")
        if known is None:
            root = self._ask("GET", ROOT, {}, None)
            if root.status_code == 401:  # not what the standard says, and it tells nothing about sessions
                return SESSIONS
            if root.status_code >= 400:
                raise refusal(root)
            doc = root.json()
            path = _dig(doc, "Links", "Sessions", "@odata.id")
            if path is None and _dig(doc, "SessionService", "@odata.id") is None:
                return None
            known = path if path and PATH.fullmatch(path) else SESSIONS
            self._memory["sessions"] = known
        return known

    def _post_login(self, path: str) -> Answer:
        body = {"UserName": self._credential.username, "Password": self._credential.password.get_secret_value()}
        try:
            return self._ask("POST", path, {"Content-Type": "application/json"}, json.dumps(body).encode())
        except MaybeSent as lost:
            raise ServerFault(f"{self._where}: the answer to the login was lost") from lost

    def _log_in(self) -> None:
        remembered = self._memory.get("sessions") is not None
        path = self._find_sessions()
        if path is None:
            self._mode = Mode.BASIC
            return
        answer = self._post_login(path)
        if remembered and answer.status_code in NO_LOGIN:
            self._memory["sessions"] = None
            now = self._find_sessions()
            if now is None:
                self._mode = Mode.BASIC
                return
            if now != path:  # sessions are opened elsewhere by now, and what was refused was no login
                path, answer = now, self._post_login(now)
        token = _token_of(answer)
        if token is not None:
            self._token, self._path = token, _session_path(answer, path)
            self._mode, self._fresh, self._logged_in = Mode.SESSION, True, True
            return
        error = login_refusal(answer)
        if error is None or (answer.status_code == 500 and isinstance(error, ServerFault)):
            # 500: it fell over the login without judging it, and Basic may be all that works; what works is remembered
            self._mode = Mode.BASIC
            if answer.status_code < 400:  # a session without a token: of no use, and it takes up room
                self._delete(_session_path(answer, path), {"Authorization": f"Basic {self._basic()}"})
            return
        self._rejected = isinstance(error, RejectedCredentials)
        raise error


def _token_of(answer: Answer) -> str | None:
    """Some makers write it into the body only."""
    if not 200 <= answer.status_code < 300:
        return None
    token = answer.headers.get(TOKEN)
    if token is None:
        with suppress(Malformed):
            token = _dig(answer.json(), TOKEN)
    return token if token and len(token) <= TOKEN_LIMIT and token.isascii() and token.isprintable() else None


def _session_path(answer: Answer, sessions: str) -> str | None:
    """Where the session can be deleted. Only the path counts: it is asked for on the line that we have, whatever host it names."""
    doc: Mapping[str, Any] = {}
    with suppress(Malformed):
        doc = answer.json()
    own = _dig(doc, "Id")
    below = f"{sessions.rstrip('/')}/{own}" if own and "/" not in own else None
    for link in (answer.headers.get("Location"), _dig(doc, "@odata.id"), below):
        path = (path_alone(link) or "").partition("?")[0]
        if PATH.fullmatch(path) and path.rstrip("/") != sessions.rstrip("/"):
            return path
    return None


def _dig(document: Mapping[str, Any], *keys: str) -> str | None:
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
