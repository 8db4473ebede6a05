"""A recorded tree as a BMC on loopback: TLS, logins, reads, writes that stay, and resets and virtual media that act.

    tree = RecordedTree.read(Path("some-bmc.tar.xz"))
    with RecordedBmc(tree, Path("state")) as bmc:
        bmc.address, bmc.username, bmc.password, bmc.fingerprint     # what an admin would enrol
        bmc.reads                                                    # how often each path was read

What it does not act out is refused with 501, never acknowledged.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pydantic import SecretStr

from bcmetal_drivers.emulated import recorded_media
from bcmetal_drivers.emulated.accounts import Accounts, Login
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request, not_found
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.emulated.recorded import ROOT, RecordedTree, dig, key
from bcmetal_drivers.emulated.serve import Listener, certificate, certificate_pem, drop, fingerprint
from bcmetal_drivers.emulated.sessions import Sessions, TableFull

HOST: Final = "127.0.0.1"
OPEN: Final = (ROOT, "/redfish")
ON_AFTER: Final = ("on", "forceon", "forcerestart", "gracefulrestart", "powercycle", "fullpowercycle")
OFF_AFTER: Final = ("forceoff", "off", "gracefulshutdown")
PUSH: Final = "pushpowerbutton"
NO_CHANGE: Final = ("nmi",)


class RecordedService:
    """What answers requests; how they come is for others to say. Plain data throughout: a test may change `failing` while it runs."""

    def __init__(
        self,
        tree: RecordedTree,
        *,
        name: str = "recorded",
        username: str = "admin",
        password: SecretStr | None = None,
    ) -> None:
        self.tree = tree
        self.name = name
        self.username = username
        self.password = password or SecretStr(secrets.token_urlsafe(12))
        self.quirks = Quirks()
        self.reads: Counter[str] = Counter()  # by path in lower case, without a slash at its end; logins are no reads
        self.requests = 0  # reads, as requests: one with $expand reads many resources
        self.expands = True  # answers $expand where the tree's root says that it can
        self.whole_status: int | None = None  # what $expand is answered with, in place of the collection
        self.writes: list[tuple[str, str]] = []  # method and path of those that were applied
        self.failing: dict[str, int] = {}  # path in lower case to the status that reading it is answered with
        self.slow: dict[str, float] = {}  # path in lower case to the seconds that it takes; "" for all
        self.cutting: set[str] = set()  # paths in lower case at which the line is cut in place of an answer
        self._bodies: dict[str, tuple[bytes, str]] = {}  # what was served since the last write, with its ETag
        self._lock = threading.Lock()
        self._accounts = Accounts(username, self.password, time.monotonic, lambda failures: None)
        self._sessions = Sessions(self.quirks, time.monotonic)
        sessions = dig(tree.document(ROOT), "Links", "Sessions", "@odata.id")
        self._sessions_path = key(sessions if isinstance(sessions, str) else f"{ROOT}/SessionService/Sessions")

    def sessions(self) -> int:
        return len(self._sessions.listed())

    def answer(self, request: Request) -> Answer:
        try:
            with self._lock:
                return self._answer(request)
        except Refusal as refused:
            return refused.answer

    # ------------------------------------------------------------ requests

    def _answer(self, request: Request) -> Answer:
        path = key(unquote(request.path))
        paged = f"{path}?{unquote(request.query).lower()}"
        if request.reads and paged in self.tree:
            path = paged
        if request.method == "POST" and path == self._sessions_path:
            return self._log_in(request)
        if not (request.reads and path in OPEN):
            self._authenticate(request)
        if request.reads:
            self.reads[path] += 1
            self.requests += 1
            return self._read(path, "$expand=" in unquote(request.query))
        self._bodies.clear()
        if request.method == "DELETE" and path.rpartition("/")[0] == self._sessions_path:
            if not self._sessions.close(path.rpartition("/")[2]):
                raise not_found(request.path)
            return Answer(204)
        answer = self._patched(path, request) if request.method == "PATCH" else self._acted(path, request)
        self.writes.append((request.method, path))
        return answer

    def _log_in(self, request: Request) -> Answer:
        asked = request.json()
        username, password = asked.get("UserName"), asked.get("Password")
        good = isinstance(username, str) and isinstance(password, str)
        if not good or self._accounts.check(str(username), str(password)) is not Login.GOOD:
            raise Refusal(401, "InsufficientPrivilege", "The user name or the password is wrong.")
        try:
            session = self._sessions.open(str(username))
        except TableFull:
            raise Refusal(503, "SessionLimitExceeded", "Too many sessions.") from None
        where = f"{self._sessions_path}/{session.id}"
        return Answer(201, {"@odata.id": where}, {"X-Auth-Token": session.token, "Location": where})

    def _authenticate(self, request: Request) -> None:
        token = request.header("X-Auth-Token")
        if token is not None:
            if self._sessions.find(token) is None:
                raise Refusal(401, "NoValidSession", "There is no valid session.")
            return
        username, password = _basic(request.header("Authorization"))
        if not username or self._accounts.check(username, password) is not Login.GOOD:
            challenge = {"WWW-Authenticate": 'Basic realm="Redfish"'}
            raise Refusal(401, "InsufficientPrivilege", "The service requires a valid account.", challenge)

    def _read(self, path: str, with_members: bool) -> Answer:
        if path in self.failing:
            raise Refusal(self.failing[path], "GeneralError", "This resource cannot be read now.")
        if path == "/redfish":
            return Answer(200, {"v1": f"{ROOT}/"})
        if with_members and self.whole_status is not None:
            raise Refusal(self.whole_status, "QueryNotSupported", "The query is not supported.")
        if with_members:
            whole = self._with_members(path)
            if whole is not None:
                return Answer(200, whole)
        if path not in self._bodies:
            doc = self.tree.document(path)
            if doc is None:
                raise not_found(path)
            self._bodies[path] = (doc, "") if isinstance(doc, bytes) else (json.dumps(doc).encode(), _etag(doc))
        body, etag = self._bodies[path]
        return Answer(200, None, {"ETag": etag} if etag else {}, body)

    def _with_members(self, path: str) -> dict[str, Any] | None:
        """A collection with its members in it, one level deep, where the service says that it can."""
        can = dig(self.tree.document(ROOT), "ProtocolFeaturesSupported", "ExpandQuery")
        collection = self.tree.document(path)
        members = dig(collection, "Members")
        if not self.expands or not isinstance(can, dict) or not isinstance(members, list):
            return None
        whole = []
        for one in members:
            at = dig(one, "@odata.id")
            doc = self.tree.document(at) if isinstance(at, str) and key(at) not in self.failing else None
            if isinstance(doc, dict):
                self.reads[key(at)] += 1
            whole.append({**doc, "@odata.id": at} if isinstance(doc, dict) else one)
        return {**collection, "Members": whole}

    # ------------------------------------------------------------ writes

    def _patched(self, path: str, request: Request) -> Answer:
        doc = self.tree.document(path)
        if not isinstance(doc, dict):
            raise not_found(request.path)
        given = request.header("If-Match")
        if given not in (None, "*", _etag(doc)):
            raise Refusal(412, "PreconditionFailed", "The ETag is not that of the resource.")
        self.tree.write(path, request.json())
        return Answer(200, self.tree.document(path))

    def _acted(self, path: str, request: Request) -> Answer:
        where, _, action = path.partition("/actions/")
        where = where.partition("/oem/")[0]
        doc = self.tree.document(where) if action else None
        if request.method != "POST" or not isinstance(doc, dict):
            raise Refusal(405, "OperationNotAllowed", f"{request.method} is not allowed here.")
        if action == "computersystem.reset":
            return self._reset(where, doc, request.json().get("ResetType"))
        if "virtualmedia." in action:
            return recorded_media.acted(self.tree, where, action, request.json())
        raise Refusal(501, "ActionNotSupported", f"A recorded tree does not act out {action}.")

    def _reset(self, where: str, doc: Mapping[str, Any], asked: object) -> Answer:
        kind = asked.lower() if isinstance(asked, str) else ""
        offered = dig(doc, "Actions", "#ComputerSystem.Reset", "ResetType@Redfish.AllowableValues")
        if isinstance(offered, list) and asked not in offered:
            raise Refusal(400, "ActionParameterNotSupported", f"ResetType {asked} is not supported.")
        on = doc.get("PowerState") == "On"
        if kind in ON_AFTER:
            self.tree.write(where, {"PowerState": "On"})
        elif kind in OFF_AFTER:
            self.tree.write(where, {"PowerState": "Off"})
        elif kind == PUSH:
            self.tree.write(where, {"PowerState": "Off" if on else "On"})
        elif kind not in NO_CHANGE:
            raise Refusal(400, "ActionParameterNotSupported", f"ResetType {asked} is not supported.")
        return Answer(204)


class RecordedBmc(RecordedService):
    """The service on a port of its own. `folder` keeps the certificate. Writes change what is served, not the recording."""

    def __init__(
        self,
        tree: RecordedTree,
        folder: Path,
        *,
        name: str = "recorded",
        username: str = "admin",
        password: SecretStr | None = None,
        host: str = HOST,
        port: int = 0,
        tls: bool = True,
    ) -> None:
        super().__init__(tree, name=name, username=username, password=password)
        self.host = host
        self._stopping = threading.Event()
        self._pem = folder / f"{name}.pem" if tls else None
        if self._pem is not None:
            certificate(self._pem, host, name)
        self._listener = Listener(host, port, self._wsgi, self._pem, name)

    def __enter__(self) -> RecordedBmc:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._stopping.clear()
        self._listener.start()

    def stop(self) -> None:
        self._stopping.set()
        self._listener.stop()
        self._sessions.close_all()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def address(self) -> str:
        return f"redfish{'' if self._pem else '+http'}://{self.host}:{self.port}"

    @property
    def fingerprint(self) -> str | None:
        return fingerprint(self._pem) if self._pem else None

    @property
    def ca_pem(self) -> str | None:
        return certificate_pem(self._pem) if self._pem else None

    def _wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request.read(environ)
        seconds = self.slow.get(key(unquote(request.path)), self.slow.get("", 0.0))
        if seconds and request.reads:
            self._stopping.wait(seconds)
        if key(unquote(request.path)) in self.cutting:
            raise drop(environ)
        answer = self.answer(request)
        payload = b"" if request.method == "HEAD" else answer.payload()
        headers = [("OData-Version", "4.0"), ("Cache-Control", "no-store"), *answer.headers.items()]
        if answer.status != 204:
            headers += [("Content-Type", answer.content_type), ("Content-Length", str(len(payload)))]
        start_response(answer.line, headers)
        return [payload]


def _etag(doc: Any) -> str:
    return f'"{hashlib.sha256(json.dumps(doc, sort_keys=True).encode()).hexdigest()[:16]}"'


def _basic(header: str | None) -> tuple[str, str]:
    kind, _, value = (header or "").partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        username, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return username, password
