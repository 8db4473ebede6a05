"""A bearer's secret is in one answer and nowhere else: no log, no error, no event, no row, no file, in no encoding."""

from __future__ import annotations

import base64
import logging
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, select

from bcmetal.join.bearers import parse_bearer
from bcmetal_agent.wire import JOIN_PATH
from in_process import Answered
from join.site import Box, JoinSite, Member, a_box


def encodings(secret: str) -> Iterator[bytes]:
    """As it is, percent-encoded as a whole, hexadecimal, backwards, and in base64 whatever it stands behind."""
    raw = secret.encode()
    yield raw
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    yield "".join(f"%{byte:02x}" for byte in raw).encode()
    yield urllib.parse.quote(secret, safe="").encode()
    yield raw.hex().encode()
    yield raw[::-1]
    yield base64.urlsafe_b64decode(secret + "=")  # the 32 bytes themselves
    yield base64.urlsafe_b64decode(secret + "=").hex().encode()
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + raw)
        yield encoded[4 if shift else 0 : -4]


def is_hidden(secrets: Iterable[str], where: bytes) -> bool:
    return not any(form in where for secret in secrets for form in encodings(secret))


@pytest.fixture
def everything_said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Every logger, at its most talkative."""
    caplog.set_level(logging.DEBUG)
    for name in ("bcmetal", "sqlalchemy.engine", "sqlalchemy.pool", "fastapi", "uvicorn", "uvicorn.access", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    return caplog


def live(site: JoinSite) -> tuple[list[str], list[Answered]]:
    """A life of tokens, with all that goes well and wrong; the bearers' secrets, and every answer but those that show one."""
    bearers, answers = [], []

    def minted(**asked: Any) -> str:
        bearers.append(site.token(**asked))
        return bearers[-1]

    first = site.call("joinTokens/create", ttlSeconds=600, idempotencyKey="once").doc["token"]
    bearers.append(first)
    box, blank = a_box(), Box("03000200-0400-0500-0006-000700080009", None, ("3c:ec:ef:77:00:01",))
    answers += [site.call("joinTokens/create", ttlSeconds=600, idempotencyKey="once")]
    answers += [site.call("joinTokens/create", ttlSeconds=600, idempotencyKey="once", allowReclaim=True)]
    joined = site.join(first, box)
    member = Member(joined.doc["nodeId"], joined.doc["certificate"], box.key)
    answers += [joined, site.join(first, box), site.join(first, a_box(2))]
    waits = minted(maxUses=2)
    request = site.join(waits, blank)
    answers += [request, site.call("joinRequests/approve", requestId=request.doc["requestId"]), site.join(waits, blank)]
    answers += [site.join(waits, a_box(3), csr="no request"), site.join(waits, a_box(3), identifiers={"serial": "\n"})]
    unknown: dict[str, Any] = {waits: 1}
    answers += [site.join(waits, a_box(3), attestor="magic"), site.join(waits, a_box(3), **unknown)]
    answers += [
        site.join(waits, a_box(3), csr=waits),
        site.join(waits, a_box(3), identifiers={"gpuUuids": [waits[:60]]}),
    ]
    pinned = minted(expect={"serial": "SN17X"})
    answers += [site.join(pinned, a_box(4))]
    parsed = parse_bearer(pinned)
    assert parsed is not None
    answers += [site.call("joinTokens/revoke", tokenId=parsed.token_id), site.join(pinned, a_box(4))]
    answers += [site.call("joinTokens/revoke", tokenId=pinned), site.call("joinTokens/list", cursor=pinned)]
    answers += [site.join(pinned[:-1], a_box(4)), site.join(pinned + "A", a_box(4))]
    answers += [site.post(f"joinTokens/{pinned}"), in_the_url(site, waits)]
    answers += [site.call("joinTokens/list", includeInactive=True), site.call("nodes/list")]
    answers += [site.call("joinRequests/list", includeInactive=True), site.call("nodes/get", nodeId=member.node_id)]
    answers += [site.secrets_for(member), site.renew(member, box.rekeyed())]
    site.keys["bearer"] = waits  # as an API key it is nobody
    answers += [site.call("nodes/list", "bearer")]
    return [bearer.partition(".")[2] for bearer in bearers], answers


def in_the_url(site: JoinSite, bearer: str) -> Answered:
    """It is no place for one: it is not even looked at there."""
    answer = site.run(
        site.send(site.joins, JOIN_PATH, b"{}", {"Content-Type": "application/json"}, query=f"token={bearer}".encode())
    )
    assert answer.status == 401
    return answer


def test_the_secret_is_nowhere_but_in_its_one_answer(site: JoinSite, everything_said: pytest.LogCaptureFixture) -> None:
    secrets, answers = live(site)
    assert len(secrets) == 3
    statuses = [one.status for one in answers]
    assert {200, 202, 400, 401, 403, 404, 409} <= {*statuses}, statuses
    for answer in answers:
        assert is_hidden(secrets, answer.raw)
        assert is_hidden(secrets, str(answer.headers).encode())
    assert everything_said.records
    assert is_hidden(secrets, everything_said.text.encode())
    for record in everything_said.records:  # also what a formatter would leave out
        assert is_hidden(secrets, repr(record.__dict__).encode())
    assert is_hidden(secrets, repr(site.events("")).encode())
    rows = site.read(whole_database)
    assert rows.count(b"jt_") > 5
    assert is_hidden(secrets, rows)
    for file in files_of(site):
        assert is_hidden(secrets, file.read_bytes())


def whole_database(c: Connection) -> bytes:
    """Every row of every table, bytes as bytes."""
    tables = MetaData()
    tables.reflect(c)
    found = bytearray()
    for table in tables.sorted_tables:
        for row in c.execute(select(table)):
            for value in row:
                found += value if isinstance(value, bytes | memoryview) else str(value).encode()
                found += b"\0"
    return bytes(found)


def files_of(site: JoinSite) -> list[Path]:
    """SQLite's pages, its journal among them: also what was deleted."""
    if not site.url.startswith("sqlite:///"):
        return []
    path = Path(site.url.removeprefix("sqlite:///"))
    found = [one for one in path.parent.iterdir() if one.name.startswith(path.name) and one.stat().st_size]
    assert path in found
    return found


def test_the_search_finds_what_it_looks_for() -> None:
    """Else it would show nothing."""
    secret = base64.urlsafe_b64encode(bytes(range(100, 132))).rstrip(b"=").decode()
    for shown in (
        f"bcjt_jt_0.{secret}",
        base64.b64encode(f"Bearer bcjt_jt_0.{secret}".encode()).decode(),
        base64.b64encode(f"xBearer bcjt_jt_0.{secret}".encode()).decode(),
        base64.b64encode(f"xxBearer bcjt_jt_0.{secret}".encode()).decode(),
        urllib.parse.quote(f"bcjt_jt_0.{secret}"),
        secret.encode().hex(),
    ):
        assert not is_hidden([secret], shown.encode())
    assert is_hidden([secret], b"something else")


def test_what_holds_a_secret_does_not_show_it(one_site: JoinSite) -> None:
    bearer = one_site.token()
    secret = bearer.partition(".")[2]
    parsed = parse_bearer(bearer)
    assert parsed is not None
    for shown in (repr(parsed), str(parsed), f"{parsed!s} {parsed.secret}", repr(vars_of(parsed))):
        assert is_hidden([secret], shown.encode())


def vars_of(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}
