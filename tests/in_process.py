"""An application called in process, as ASGI: no socket, one request, its whole answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def doc(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.doc["error"]
        return found

    @property
    def code(self) -> str:
        return str(self.error["code"]) if self.status >= 400 else "OK"

    @property
    def fields(self) -> set[str]:
        return {fault["field"] for fault in self.error["details"]["faults"]}


async def answer_of(
    app: Any,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    method: str,
    address: str,
    query: bytes = b"",
    proven: Mapping[str, Any] | None = None,
    sent: list[dict[str, Any]] | None = None,
    stays: bool = False,
) -> Answered:
    """`proven`: what a listener puts into the scope, such as the peer's certificate. `sent` gets the messages, also where the application raises.

    `stays`: the caller stays on the line until it is answered, else it hangs up once it has said everything.
    """
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "scheme": "https",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": (address, 40000),
        "server": ("127.0.0.1", 8443),
        **(proven or {}),
    }
    messages = [] if sent is None else sent
    got = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not got and stays:
            await asyncio.Event().wait()
        return got.pop(0) if got else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = next(one for one in messages if one["type"] == "http.response.start")
    raw = b"".join(one.get("body", b"") for one in messages if one["type"] == "http.response.body")
    heads = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answered(int(start["status"]), heads, raw)
