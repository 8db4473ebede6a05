"""An operation's boot token: minted, sealed, and laid over its place on a medium while that is served.

Its text is in the vault's `sealed` table alone, and in what is sent: on no disk in the clear, and in no log.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr
from sqlalchemy import Connection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bcmetal.decisions import Micros
from bcmetal.errors import VaultError
from bcmetal.store import boot_tokens, sealed
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import Sealed, Store
from bcmetal.vault import Vault
from bcmetal_agent import boot_token

FIELD: Final = "boot-token"
OWNER: Final = "operation"
SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token: what the store keeps of it."""

    sha256: bytes
    sealed: Sealed = field(repr=False)


def fresh(vault: Vault, operation_id: str, now: Micros, entropy: Callable[[int], bytes]) -> Minted:
    """`entropy`: the system's randomness."""
    name = new_id("bt", now, entropy(ENTROPY_BYTES)).removeprefix("bt_")
    secret = base64.urlsafe_b64encode(entropy(SECRET_BYTES)).rstrip(b"=").decode()
    text = f"bcbt_{name}.{secret}"
    return Minted(digest(text), vault.seal(OWNER, OWNER, operation_id, FIELD, SecretStr(text)))


def mint(
    c: Connection,
    operation_id: str,
    node_id: str,
    minted: Minted,
    expires_at: Micros,
    now: Micros,
    *,
    in_clear: bool = True,
) -> int:
    """The operation's next boot goes by this token; its number. Earlier ones end, with the sessions that came with them."""
    n = boot_tokens.mint(c, operation_id, node_id, minted.sha256, expires_at, now, in_clear=in_clear)
    sealed.put(c, [minted.sealed])
    return n


async def token_of(store: Store, vault: Vault, operation_id: str, now: Micros) -> SecretStr | None:
    """The text of the operation's live boot token; None: it has none now. Raises VaultError."""
    row = await store.read(_live, operation_id, now)
    if row is None:
        return None
    live, kept = row
    token = vault.open(kept, OWNER)
    if digest(token.get_secret_value()) != live.sha256:
        raise VaultError(f"the boot token that is sealed for operation {operation_id} is not its newest one")
    return token


def _live(c: Connection, operation_id: str, now: Micros) -> tuple[boot_tokens.BootTokenRow, Sealed] | None:
    live = boot_tokens.live(c, operation_id, now)
    kept = next((row for row in sealed.get(c, OWNER, operation_id) if row.field == FIELD), None)
    return None if live is None or kept is None else (live, kept)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


# ---------------------------------------------------------------- laying it over


def has_place(file: Path, offset: int) -> bool:
    """Whether the file has a token's placeholder there. Raises OSError."""
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(boot_token.SIZE) == boot_token.placeholder()


def patched(chunk: bytes, at: int, piece: bytes, offset: int) -> bytes:
    """`chunk`, which begins at byte `at` of a file, with what it shares with `piece` at `offset` taken from there."""
    first, last = max(at, offset), min(at + len(chunk), offset + len(piece))
    if first >= last:
        return chunk
    return chunk[: first - at] + piece[first - offset : last - offset] + chunk[last - at :]


def laid_over(answer: ASGIApp, piece: bytes, offset: int) -> ASGIApp:
    """`answer` sends a file, or one range of it; what is sent of the bytes at `offset` is `piece`.

    Several ranges at once are not answered as such: the whole file is, which any client takes (RFC 9110, 14.2).
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        at = 0

        async def pass_on(message: Message) -> None:
            nonlocal at
            if message["type"] == "http.response.start":
                at = _begins(message)
            elif message["type"] == "http.response.body":
                chunk = message.get("body", b"")
                message = {**message, "body": patched(chunk, at, piece, offset)}
                at += len(chunk)
            await send(message)

        headers = [(name, value) for name, value in scope["headers"] if name != b"range" or b"," not in value]
        extensions = {k: v for k, v in scope.get("extensions", {}).items() if k != "http.response.pathsend"}
        await answer({**scope, "headers": headers, "extensions": extensions}, receive, pass_on)

    return app


def _begins(message: Message) -> int:
    """The first byte of the file that comes after these headers."""
    said = next((value for name, value in message["headers"] if name.lower() == b"content-range"), b"")
    first = said.removeprefix(b"bytes ").partition(b"-")[0]
    return int(first) if message["status"] == 206 and first.isdigit() else 0
