"""The line that a machine joins by: where to, the pin of whom it will find there, and where its token lies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bcmetal.text import at_port, clean
from bcmetal_agent.wire import TRUST_BUNDLE_PATH

if TYPE_CHECKING:
    from bcmetal.cli.session import Session

JOIN_PORT: Final = 8445
NODE_PORT: Final = 8444
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
NO_CA: Final = (
    "there is no certificate authority yet, so that no machine can join: run `bcmetal ca init` on the daemon's host"
)


@dataclass(frozen=True, slots=True)
class JoinLine:
    """`pins` empty: there is no authority yet; several: its root is being changed, the one that counts now first."""

    servers: tuple[str, ...]
    node_servers: tuple[str, ...]
    pins: tuple[str, ...]

    def text(self, token_file: str) -> str:
        words = ["bcmetal-agent", "join", "--server", self.servers[0], "--node-server", self.node_servers[0]]
        words += ["--ca", self.pins[0], "--token-file", token_file]
        return " ".join(shlex.quote(clean(word)) for word in words)

    def notes(self) -> list[str]:
        """What the reader has to know of the line beside it."""
        found = []
        if urlsplit(self.servers[0]).hostname in LOOPBACK:
            found.append(
                "machines cannot reach this host by that name: give theirs with --server, or as the network's agent_url"
            )
        if len(self.servers) > 1:
            found.append("other networks: --server " + " or ".join(map(clean, self.servers[1:])))
        if len(self.pins) > 1:
            found.append(
                f"the root is being changed: this pin is good until it is; the other root is {' or '.join(self.pins[1:])}"
            )
        return found


def join_line(session: Session, server: str | None, node_server: str | None) -> JoinLine:
    """As the daemon tells it; where it names no address for machines, its own host with the usual ports."""
    from bcmetal.client import ApiError

    try:
        told: Mapping[str, Any] = session.client.read(TRUST_BUNDLE_PATH)
    except ApiError as e:
        if e.code != "UNAVAILABLE":
            raise
        told = {}
    servers = [server] if server else _texts(told.get("agents"))
    servers = servers or [at_port(session.client.profile.address, JOIN_PORT)]
    node_servers = [node_server] if node_server else []
    if not node_servers and server is None:
        node_servers = _texts(told.get("nodes"))
    if not node_servers:
        node_servers = [at_port(servers[0], NODE_PORT)]
    return JoinLine(tuple(servers), tuple(node_servers), tuple(map(pin_of_pem, _texts(told.get("roots")))))


def pin_of_pem(pem: str) -> str:
    """`sha256:…` of the root's DER. Raises ClientFault."""
    import hashlib
    import ssl

    from bcmetal.client import ClientFault

    try:
        der = ssl.PEM_cert_to_DER_cert(pem.strip())
    except ValueError as e:
        raise ClientFault("the daemon's trust bundle holds something that is no certificate") from e
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
