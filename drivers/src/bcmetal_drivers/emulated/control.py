"""The rack told and judged from another process: JSON over HTTP on loopback, with a bearer token from a 0600 file.

GET  /bmcs · /machines · /writes?after=N · /fired?rule=ID · /counts?bmc=NAME
POST /rule {…Rule's fields} · /clear {"rule": ID or null} · /set {"bmc": NAME, "settings": {…}} · /plant {"machine", "drive"}
     · /password {"bmc": NAME, "password"}
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from pydantic import SecretStr

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, Refusal, Request
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule, Write
from bcmetal_drivers.emulated.serve import Listener

TOKEN_FILE: Final = "control.token"  # noqa: S105  # a file's name
TIMEOUT_S: Final = 30.0


class ControlFault(Exception):
    """The rack's process refused; the message is its own."""


class Control:
    """The endpoint, on 127.0.0.1. `port` 0 takes a free one."""

    def __init__(self, rack: Rack, folder: Path, port: int = 0) -> None:
        self._rack = rack
        self._token = secrets.token_urlsafe(24)
        self.token_file = folder / TOKEN_FILE
        self._listener = Listener("127.0.0.1", port, self._wsgi, None, "control")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.port}"

    def start(self) -> None:
        write_private(self.token_file, self._token)
        self._listener.start()

    def stop(self) -> None:
        self._listener.stop()
        self.token_file.unlink(missing_ok=True)

    def _wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request.read(environ)
        try:
            answer = self._answer(request)
        except Refusal as e:
            answer = e.answer
        except (KeyError, TypeError, ValueError, StopIteration) as e:
            answer = Answer(400, {"error": {"message": f"{type(e).__name__}: {e}"}})
        payload = answer.payload()
        start_response(answer.line, [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))])
        return [payload]

    def _answer(self, request: Request) -> Answer:
        given = (request.header("Authorization") or "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode()):
            raise Refusal(401, "Unauthorized", "a bearer token is needed")
        routes: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], Any]] = {
            ("GET", "/bmcs"): lambda _: [bmc_document(bmc) for bmc in self._rack.bmcs.values()],
            ("GET", "/machines"): lambda _: {m.name: machine_document(m) for m in self._rack.machines()},
            ("GET", "/writes"): lambda asked: [
                asdict(w) for w in list(self._rack.writes)[int(asked.get("after", 0)) :]
            ],
            ("GET", "/fired"): lambda asked: self._rack.fired(int(asked["rule"])),
            ("GET", "/counts"): self._counts,
            ("POST", "/rule"): lambda asked: self._rack.rule(Rule.read(asked)),
            ("POST", "/clear"): lambda asked: self._rack.clear(asked.get("rule")),
            ("POST", "/set"): lambda asked: self._rack.bmc(asked["bmc"]).set(**asked["settings"]),
            ("POST", "/plant"): self._plant,
            ("POST", "/password"): self._password,
        }
        route = routes.get((request.method, request.path))
        if route is None:
            raise Refusal(404, "NotFound", f"no such operation: {request.method} {request.path}")
        query = {name: values[-1] for name, values in parse_qs(request.query).items()}
        return Answer(200, {"result": route(query if request.reads else request.json())})

    def _counts(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = asked["bmc"]
        return {
            "requests": dict(self._rack.requests(name)),
            "sessions": self._rack.sessions(name),
            "failed_logins": self._rack.failed_logins(name),
        }

    def _plant(self, asked: Mapping[str, Any]) -> None:
        machine = next(m for m in self._rack.machines() if m.name == asked["machine"])
        for serial in [asked["drive"]] if asked.get("drive") else list(machine.drives):
            machine.plant(serial)

    def _password(self, asked: Mapping[str, Any]) -> None:
        self._rack.bmc(asked["bmc"]).change_password(SecretStr(asked["password"]))


def bmc_document(bmc: EmulatedBmc) -> dict[str, Any]:
    """Without the password."""
    return {
        "name": bmc.name,
        "kind": bmc.kind,
        "address": bmc.address,
        "host": bmc.host,
        "port": bmc.port,
        "username": bmc.username,
        "fingerprint": bmc.fingerprint,
        "machines": [machine.name for machine in bmc.machines],
    }


def machine_document(machine: Machine) -> dict[str, Any]:
    """What it is, and what the oracle knows."""
    device, url = machine.would_boot()
    kept = machine.snapshot()
    return {
        "name": machine.name,
        "uuid": str(machine.uuid),
        "serial": machine.serial,
        "macs": list(machine.macs),
        "power": machine.power,
        "boot_mode": kept["boot_mode"],
        "override": kept["override"],
        "media": machine.media,
        "would_boot": [device, url],
        "boots": kept["boots"],
        "drives": {drive["serial"]: drive for drive in kept["drives"]},
        "system_present": machine.system_present,
    }


def write_private(path: Path, text: str) -> None:
    """A new 0600 file in the place of any old one."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(text)


class RackClient:
    """The rack's operations from another process. Raises ControlFault and OSError."""

    def __init__(self, url: str, token: SecretStr) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._token = token

    def bmcs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("GET", "/bmcs")
        return found

    def machines(self) -> dict[str, dict[str, Any]]:
        """By name; see `machine_document`."""
        found: dict[str, dict[str, Any]] = self._ask("GET", "/machines")
        return found

    def writes(self, after: int = 0) -> list[Write]:
        return [Write(**write) for write in self._ask("GET", "/writes", {"after": after})]

    def rule(self, rule: Rule) -> int:
        return int(self._ask("POST", "/rule", asdict(rule)))

    def clear(self, rule_id: int | None = None) -> None:
        self._ask("POST", "/clear", {"rule": rule_id})

    def fired(self, rule_id: int) -> int:
        return int(self._ask("GET", "/fired", {"rule": rule_id}))

    def counts(self, bmc: str) -> dict[str, Any]:
        """`requests`, `sessions`, `failed_logins`."""
        found: dict[str, Any] = self._ask("GET", "/counts", {"bmc": bmc})
        return found

    def set(self, bmc: str, **settings: Any) -> None:
        self._ask("POST", "/set", {"bmc": bmc, "settings": settings})

    def plant(self, machine: str, drive: str | None = None) -> None:
        """Write data on one drive, or on all."""
        self._ask("POST", "/plant", {"machine": machine, "drive": drive})

    def change_password(self, bmc: str, password: SecretStr) -> None:
        self._ask("POST", "/password", {"bmc": bmc, "password": password.get_secret_value()})

    def _ask(self, method: str, path: str, asked: Mapping[str, Any] | None = None) -> Any:
        line = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {self._token.get_secret_value()}"}
            if method == "GET":
                line.request(method, path + (f"?{urlencode(asked)}" if asked else ""), headers=headers)
            else:
                line.request(method, path, json.dumps(asked).encode(), {**headers, "Content-Type": "application/json"})
            with line.getresponse() as response:
                status, doc = response.status, json.loads(response.read())
        finally:
            line.close()
        if status != 200:
            raise ControlFault(doc["error"]["message"])
        return doc["result"]
