"""The Redfish side of one BMC of the rack: rules, login, preconditions, then a route of ours or sushy-tools' application."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from pydantic import SecretStr

from bcmetal_drivers.emulated import account_service, bios, firmware, services, storage, volumes
from bcmetal_drivers.emulated.accounts import Accounts, Login
from bcmetal_drivers.emulated.application import OneChassis, ResourceDrivers
from bcmetal_drivers.emulated.conditions import Notes, facts_of
from bcmetal_drivers.emulated.effects import Effects, take_place
from bcmetal_drivers.emulated.faked import faked
from bcmetal_drivers.emulated.faults import ACT, Rule, Rules
from bcmetal_drivers.emulated.hardware import Maker
from bcmetal_drivers.emulated.host_side import HostSide
from bcmetal_drivers.emulated.interior import ROOT, Call, Interior, accepted
from bcmetal_drivers.emulated.levers import FrontLevers
from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request, not_found
from bcmetal_drivers.emulated.outlets import Outlets
from bcmetal_drivers.emulated.quirks import Quirks
from bcmetal_drivers.emulated.replies import Overlay, Reply
from bcmetal_drivers.emulated.serve import Listener, drop, hang_up, requests_on_this_line
from bcmetal_drivers.emulated.sessions import Sessions
from bcmetal_drivers.emulated.source import Source, SushyTools
from bcmetal_drivers.emulated.systems import RackIndicators, RackManagers, RackSystems
from bcmetal_drivers.emulated.tasks import Tasks
from bcmetal_drivers.emulated.upkeep import Upkeep
from bcmetal_drivers.emulated.vmedia import LOOPBACK, RackMedia, Reach

OPEN: Final = ("/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata")
VOLATILE: Final = ("PowerState", "DateTime", "@odata.etag")
OWN_TASKS: Final = re.compile(re.escape(ROOT) + f"(?:{storage.ERASE}|{volumes.OWN_TASKS})")


class Surroundings(Protocol):
    """What the rack does for each of its BMCs."""

    @property
    def rules(self) -> Rules: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    def wrote(self, bmc: str, machine: str | None, method: str, path: str, kind: str) -> None: ...
    def counted(self, bmc: str, what: str) -> None: ...
    def password_changed(self, bmc: str, username: str, password: SecretStr) -> None: ...


class Listens(Protocol):
    """`serve.Listener`, or one of a hall."""

    @property
    def port(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class RedfishFront:
    """One BMC's listener and all that it knows beside its machines."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        certificate: Path | None,
        maker: Maker,
        machines: Mapping[str, Machine],
        username: str,
        password: SecretStr,
        rack: Surroundings,
        reach: Reach = LOOPBACK,
        source: Source | None = None,
        *,
        old_tls: bool = False,
        listen: Callable[..., Listens] = Listener,
    ) -> None:
        """`source`: where its documents come from; sushy-tools' fake and our routes when None. `listen`: makes its listener."""
        self._name = name
        self._rack = rack
        self._source = source or SushyTools()
        self._stopping = threading.Event()
        self.quirks = Quirks()
        self.overlay = Overlay()
        self.notes = Notes(rack.clock)
        self._shuffles = 0
        self.upkeep = Upkeep()
        self.accounts = Accounts(username, password, rack.clock, self._lock_for)
        self._sessions = Sessions(self.quirks, rack.clock)
        self.tasks = Tasks(rack.clock)
        systems = RackSystems(machines, self.quirks)
        drivers = ResourceDrivers(
            systems,
            RackManagers(systems, self.quirks),
            RackMedia(machines, host, reach),
            RackIndicators(systems),
            OneChassis(),
        )
        self._inside = Interior(
            name,
            host,
            maker,
            machines,
            self.quirks,
            self.accounts,
            self._sessions,
            self.tasks,
            drivers,
            {"BMC": maker.firmware, "BIOS": "2.14.1", "NIC.1": "22.36.10.10"},
            [],
            lambda seconds, flaps: self._levers.restart(seconds, flaps),
            rack.clock,
            self.upkeep,
            lambda username, password: rack.password_changed(name, username, password),
        )
        self._levers = FrontLevers(self._inside, self.notes)
        self.host_side = HostSide(self._inside)
        for machine in machines.values():
            machine.settle_first = self.tasks.settle
            machine.at_boot.append(partial(firmware.boot, self._inside, machine))
            machine.at_boot.append(partial(volumes.boot, self.tasks, machine))
            machine.at_boot.append(partial(bios.boot, self.quirks, self.tasks, machine))
        self._listener = listen(host, port, self._wsgi, certificate, name, old_tls=old_tls)

    # ------------------------------------------------------------ for the rack

    @property
    def port(self) -> int:
        return self._listener.port

    def start(self) -> None:
        self._stopping.clear()
        self.upkeep.open()
        self._listener.start()

    def stop(self) -> None:
        """Close the port. The sessions are gone: a BMC keeps them in memory."""
        self._stopping.set()
        self.upkeep.close()
        self._listener.stop()
        self._sessions.close_all()

    def sessions(self) -> int:
        return len(self._sessions.listed())

    def drop_sessions(self) -> None:
        self._sessions.close_all()

    @property
    def failed_logins(self) -> int:
        return self.accounts.failed_logins

    def change_password(self, username: str, password: SecretStr) -> None:
        """As somebody else would, behind the client's back."""
        self._levers.change_password(username, password)

    @property
    def outlets(self) -> Outlets:
        return self._inside.outlets

    @property
    def firmware(self) -> dict[str, str]:
        """Versions by component, live."""
        return self._inside.firmware

    def set(self, name: str, value: object) -> None:
        self.quirks.set(name, value)

    def snapshot(self) -> dict[str, Any]:
        return {
            "accounts": self.accounts.snapshot(),
            "quirks": self.quirks.snapshot(),
            "firmware": dict(self._inside.firmware),
            "outlets": self._inside.outlets.snapshot(),
            "upkeep": self.upkeep.snapshot(),
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        self.accounts.restore(doc["accounts"])
        self.quirks.restore(doc["quirks"])
        self._inside.firmware.update(doc.get("firmware", {}))
        self._inside.outlets.restore(doc["outlets"])
        self.upkeep.restore(doc["upkeep"])

    def _lock_for(self, failures: int) -> float | None:
        rule = self._rack.rules.standing(self._name, "lock_after")
        if rule is not None and failures >= rule.rule.n and rule.fire():
            return rule.rule.seconds
        limit = self.quirks.lock_after
        return self.quirks.lock_s if limit is not None and failures >= limit else None

    # ------------------------------------------------------------ HTTP

    def _wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request.read(environ)
        self._rack.counted(self._name, request.method)
        if self._levers.is_away():
            raise drop(environ)
        machine = self._machine_at(request.path)
        facts = facts_of(request, machine, self.notes, self.sessions)
        call = Call(request, tuple(self._rack.rules.matching(self._name, request.method, request.path, facts)))
        self._before(call)
        answer = faked(call, opens_session=_opens_session(request))
        if answer is None:
            try:
                answer = self._decorated(call, self._answer(call))
            except Refusal as e:
                answer = e.answer
        dropped = call.rule("drop_after")
        if dropped is not None and dropped.fire():
            raise drop(environ)
        if answer.stream is not None:
            start_response(answer.line, [("Content-Type", answer.content_type), ("Cache-Control", "no-store")])
            return answer.stream
        payload = b"" if request.method == "HEAD" else answer.payload()
        headers = [("OData-Version", "4.0"), ("Cache-Control", "no-store"), *answer.headers.items()]
        if answer.status != 204:
            headers += [("Content-Type", answer.content_type), ("Content-Length", str(len(payload)))]
        start_response(answer.line, headers)
        drip = call.rule("drip")
        if drip is not None and drip.fire():
            return self._drip(payload, drip.rule.seconds)
        hanging_up = call.rule("hang_up")
        if hanging_up is not None and hanging_up.fire():
            return hang_up(environ, payload)
        return [payload]

    def _before(self, call: Call) -> None:
        """Faults of the line and of time."""
        for live in call.rules:
            environ = call.request.environ
            if live.action == "delay" and live.fire():
                self._stopping.wait(live.rule.seconds)
            elif live.action in ("drop_before", "cut"):
                second = requests_on_this_line(environ) % 2 == 0
                if (live.action == "drop_before" or second) and live.fire():
                    raise drop(environ)
            elif live.action == "expire_sessions" and call.request.header("X-Auth-Token") and live.fire():
                self._sessions.close_all()

    def _drip(self, payload: bytes, seconds: float) -> Iterator[bytes]:
        for n in range(len(payload)):
            if self._stopping.wait(seconds):
                return
            yield payload[n : n + 1]

    # ------------------------------------------------------------ Redfish

    def _answer(self, call: Call) -> Answer:
        request = call.request
        if request.path == "/redfish" and request.reads:
            return Answer(200, {"v1": f"{ROOT}/"})
        acting = [live.rule for live in call.rules if live.action == ACT and live.fire()]
        for rule in acting:
            self._take_place(rule.before, request.path)
            self._stopping.wait(rule.delay)
        self._authenticate(call)
        reply = next((rule.answer for rule in acting if rule.answer is not None), None)
        answer = self._replied(call, reply)
        for rule in acting:
            if answer.status < 400 or rule.answer is not None:
                self._take_place(rule.effect, request.path)
        return answer

    def _replied(self, call: Call, reply: Reply | None) -> Answer:
        """As the rule says, where there is one."""
        if reply is None:
            return self._carried_out(call)
        if not reply.passes:
            return reply.answer()
        try:
            return reply.over(self._carried_out(call))
        except Refusal as e:
            return reply.over(e.answer)

    def _carried_out(self, call: Call) -> Answer:
        request = call.request
        if request.reads:
            return self._dispatch(call)
        if request.method == "PATCH":
            self._precondition(call)
        answer = self._lied_or_deferred(call) or self._dispatch(call)
        if answer.status < 400 and "X-Bcmetal-Ignored" not in answer.headers:
            self.notes.wrote(request.path)
            self._rack.wrote(
                self._name, self._machine_of(request.path), request.method, request.path, _kind(request.path)
            )
        answer.headers.pop("X-Bcmetal-Ignored", None)
        return answer

    def _take_place(self, effects: Effects, path: str) -> None:
        take_place(effects, self._machine_at(path), self._levers)

    def _authenticate(self, call: Call) -> None:
        request = call.request
        if (request.path in OPEN and request.reads) or (_opens_session(request) and self.quirks.session_service):
            return
        token = request.header("X-Auth-Token")
        if token is not None:
            session = self._sessions.find(token)
            if session is None:
                raise Refusal(401, "NoValidSession", "There is no valid session established with the implementation.")
            call.token = token
            account_service.check_change_first(self.accounts.named(session.username), request)
            return
        username, password = _basic(request.header("Authorization")) if self.quirks.basic else ("", "")
        if not username or self.accounts.check(username, password) is not Login.GOOD:
            challenge = {"WWW-Authenticate": 'Basic realm="Redfish"'} if self.quirks.basic else {}
            raise Refusal(401, "InsufficientPrivilege", "The service requires a valid account.", challenge)
        account_service.check_change_first(self.accounts.named(username), request)

    def _precondition(self, call: Call) -> None:
        """If-Match: demanded by a rule or a quirk (428), and where it is given, it must be the present ETag (412)."""
        given, rule = call.request.header("If-Match"), call.rule("etag")
        demanded = self.quirks.etag or rule is not None
        if given is None and not demanded:
            return
        current = self._etag(self._dispatch(Call(replace(call.request, method="GET", body=b""))).doc)
        if given is not None and (given == "*" or _opaque(given) == _opaque(current)):
            return
        if rule is not None and not rule.fire() and given is None and not self.quirks.etag:
            return
        if given is None:
            raise Refusal(428, "PreconditionRequired", "The request must have an If-Match header.")
        raise Refusal(412, "PreconditionFailed", "The ETag supplied did not match the current ETag of the resource.")

    def _lied_or_deferred(self, call: Call) -> Answer | None:
        """Writes that are acknowledged and not done, or done later."""
        if _kind(call.request.path) == "session":
            return None
        for live in call.rules:
            if live.action == "ignore" and live.fire():
                return Answer(204, headers={"X-Bcmetal-Ignored": "1"})
            if live.action == "task" and not _begins_own_task(call.request.path) and live.fire():
                return self._deferred(call, live.rule)
        return None

    def _deferred(self, call: Call, rule: Rule) -> Answer:
        later = Call(call.request, (), call.token)
        name = f"{call.request.method} {call.request.path}"
        return accepted(self.tasks, self.tasks.start(name, rule.seconds, lambda: self._done(later), rule.ends))

    def _done(self, call: Call) -> bool:
        try:
            return self._dispatch(call).status < 400
        except Refusal:
            return False

    def _dispatch(self, call: Call) -> Answer:
        """The document under its overlay, or the write carried out."""
        request = call.request
        if request.path.startswith(f"{ROOT}/SessionService") and not self.quirks.session_service:
            raise not_found(request.path)
        if not request.reads or not self.overlay.concerns(request.path):
            return self._source.answer(self._inside, call)
        try:
            answer = self._source.answer(self._inside, call)
        except Refusal as e:
            answer = e.answer
        there = answer.doc if answer.status == 200 else None
        doc = self.overlay.over(request.path, there, self._machine_at(request.path))
        if doc is None:
            raise not_found(request.path)
        return replace(answer, status=200, doc=doc)

    def _decorated(self, call: Call, answer: Answer) -> Answer:
        """Pages and ETags, on what was read."""
        if not call.request.reads or answer.status != 200 or not isinstance(answer.doc, dict):
            return answer
        rule, size = call.rule("page"), self.quirks.page
        if isinstance(answer.doc.get("Members"), list):
            if self.quirks.shuffles_members:
                self._shuffles += 1
                answer.doc["Members"] = rotated(answer.doc["Members"], self._shuffles)
            if rule is not None and len(answer.doc["Members"]) > rule.rule.n and rule.fire():
                size = rule.rule.n
            if size is not None:  # else the source's own pages, if it has any
                _page(answer.doc, call.request, size)
        etag = self._etag(answer.doc)
        if self.quirks.etag_form != "absent":
            answer.headers["ETag"] = etag
        return answer

    def _etag(self, doc: object) -> str:
        if self.quirks.etag_form == "empty":
            return '""'
        kept = {k: v for k, v in doc.items() if k not in VOLATILE} if isinstance(doc, dict) else doc
        opaque = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
        return f'W/"{opaque}"' if self.quirks.etag_form == "weak" else f'"{opaque}"'

    def _machine_of(self, path: str) -> str | None:
        found = re.match(re.escape(ROOT) + r"/Systems/([^/]+)", path)
        machine = self._inside.machines.get(found[1]) if found else None
        if machine is None and "/VirtualMedia/" in path:
            machine = next(iter(self._inside.machines.values()))
        return machine.name if machine else None

    def _machine_at(self, path: str) -> Machine:
        """The one whose path it is; else the first."""
        found = re.match(re.escape(ROOT) + r"/Systems/([^/]+)", path)
        machines = self._inside.machines
        return machines[found[1]] if found and found[1] in machines else next(iter(machines.values()))


def rotated(members: list[Any], by: int) -> list[Any]:
    first = by % len(members) if members else 0
    return members[first:] + members[:first]


def _begins_own_task(path: str) -> bool:
    return path in firmware.OWN_TASKS or OWN_TASKS.fullmatch(path) is not None


def _opens_session(request: Request) -> bool:
    return request.method == "POST" and request.path == services.SESSIONS


def _kind(path: str) -> str:
    return "session" if path.startswith(services.SESSIONS) else "effect"


def _opaque(etag: str) -> str:
    """Weak and strong ones are compared alike: what a BMC's clients rely on."""
    return etag.removeprefix("W/")


def _basic(header: str | None) -> tuple[str, str]:
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        username, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return username, password


def _page(doc: dict[str, Any], request: Request, size: int) -> None:
    query = parse_qs(request.query)
    skipped = query.get("$skip", ["0"])[0]
    first = int(skipped) if skipped.isdigit() else 0
    members = doc["Members"]
    end = first + size
    doc["Members@odata.count"] = len(members)
    doc["Members"] = members[first:end]
    if end < len(members):
        doc["Members@odata.nextLink"] = f"{request.path}?$skip={end}"
