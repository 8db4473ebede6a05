"""sushy-tools' own emulator application, made to serve many BMCs in one process.

Its `app` is a singleton that holds one set of resource drivers. Here its class is replaced by one that takes them from the request:
the listener that was dialled puts its BMC's drivers into the WSGI environment.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from dataclasses import dataclass
from typing import Any, Final

import flask
from werkzeug.test import run_wsgi_app

from bcmetal_drivers.emulated.messages import Answer, Request, refusal
from bcmetal_drivers.emulated.systems import RackIndicators, RackManagers, RackSystems
from bcmetal_drivers.emulated.vmedia import RackMedia

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # WebOb, which sushy-tools' own login needs, imports cgi
    from sushy_tools.emulator import main

_KEY: Final = "bcmetal.resource-drivers"


class OneChassis:
    """What a system links to; the layer in front serves it."""

    chassis = ("1",)


@dataclass(frozen=True, slots=True)
class ResourceDrivers:
    systems: RackSystems
    managers: RackManagers
    vmedia: RackMedia
    indicators: RackIndicators
    chassis: OneChassis


class RackApplication(main.Application):  # type: ignore[misc]  # sushy-tools has no types
    """sushy-tools' application, with the drivers of the BMC that was dialled."""

    @property
    def systems(self) -> RackSystems:
        return _dialled().systems

    @property
    def managers(self) -> RackManagers:
        return _dialled().managers

    @property
    def vmedia(self) -> RackMedia:
        return _dialled().vmedia

    @property
    def indicators(self) -> RackIndicators:
        return _dialled().indicators

    @property
    def chassis(self) -> OneChassis:
        return _dialled().chassis


def _dialled() -> ResourceDrivers:
    drivers: ResourceDrivers = flask.request.environ[_KEY]
    return drivers


main.app.__class__ = RackApplication
main.app.logger.setLevel(logging.CRITICAL)  # a refused request is no news here


def ask(drivers: ResourceDrivers, request: Request) -> Answer:
    """What sushy-tools answers; its error bodies are made the standard's."""
    environ: dict[str, Any] = {
        **request.environ,
        "PATH_INFO": request.path,
        "REQUEST_METHOD": "GET" if request.method == "HEAD" else request.method,
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.input_terminated": False,
        "CONTENT_LENGTH": str(len(request.body)),
        _KEY: drivers,
    }
    chunks, line, headers = run_wsgi_app(main.app, environ, buffered=True)
    status, body = int(line.split()[0]), b"".join(chunks)
    try:
        doc = json.loads(body) if body else None
    except ValueError:
        doc = None
    if status >= 400:
        message = (
            doc["error"]["message"] if isinstance(doc, dict) and "error" in doc else body.decode("utf-8", "replace")
        )
        code = {404: "ResourceMissingAtURI", 405: "ActionNotSupported"}.get(status, "GeneralError")
        return refusal(status, code, str(message)[:300])
    kept = {name: value for name, value in headers.items() if name.lower() == "location"}
    return Answer(status, doc, kept, b"" if doc is not None else body)
