"""Secrets that were planted in inputs are found nowhere but sealed."""

from __future__ import annotations

import json
import logging
import secrets
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from api.site import POOL, TENANT, Site

PLANTED_BYTES = 18


def _rows(c: Connection) -> str:
    tables = c.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
    return "\n".join(str(c.execute(text(f'SELECT * FROM "{name}"')).all()) for name in tables)  # noqa: S608


@pytest.fixture
def planted() -> str:
    return "Planted." + secrets.token_hex(PLANTED_BYTES)


def test_a_password_is_in_no_answer_row_event_or_log(
    site: Site, planted: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[bytes] = []
    bmc = {"address": "redfish://10.20.3.17", "username": planted[:40], "password": planted}
    enrolled = site.metal("enroll", {"name": "n1", "bmc": bmc, "inspect": False, "idempotencyKey": "k1"})
    answers.append(enrolled.raw)
    node_id = enrolled.doc["nodeId"]
    given: dict[str, Any] = {"username": "root", "password": planted, "idempotencyKey": "k2"}
    answers.append(site.of(node_id, "setBmcCredentials", **given).raw)
    answers.append(site.of(node_id, "setBmcCredentials", "reader", **given).raw)
    answers.append(site.of(node_id, "rescue", passwordHash=planted).raw)
    answers.append(site.of(node_id, "plan", verb="setBmcCredentials", input={"username": "u", "password": planted}).raw)
    answers += [site.of(node_id, name).raw for name in ("get", "timeline")]
    answers.append(site.post("/api/compute/audit/export", {"tenantId": TENANT}).raw)
    site.events()
    everywhere = b"\n".join(answers).decode() + site.read(_rows) + caplog.text
    assert planted not in everywhere
    assert planted[:40] not in everywhere
    for file in tmp_path.iterdir():
        if file.is_file():
            assert planted.encode() not in file.read_bytes(), file.name


@pytest.mark.parametrize(
    "body",
    [
        '{"bmc": {"password": ["%s"]}}',
        '{"bmc": {"password": {"%s": 1}}}',
        '{"bmc": {"address": "redfish://root:%s@10.20.3.17", "username": "u", "password": "%s\\u0000"}}',
        '{"bmc": {"address": "%s"}}',
        '{"bmc": "%s"',
        '{"tenantId": "%s "}',
    ],
)
def test_an_error_repeats_nothing_that_could_be_a_password(
    site: Site, planted: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place = f'"tenantId": "{TENANT}", "poolId": "{POOL}", '
    raw = (
        body.replace("%s", planted).replace("{", "{" + place, 1)
        if "tenantId" not in body
        else body.replace("%s", planted)
    )
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {site.keys['admin']}"}
    answer = site.send("/api/compute/metal/enroll", raw.encode(), headers)
    assert answer.code == "INVALID_INPUT"
    assert planted not in answer.raw.decode() + caplog.text + str(site.audited())


def test_a_key_is_in_no_log_and_no_answer(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    site.enroll()
    key = site.keys["admin"]
    assert key not in caplog.text + site.read(_rows)


def test_a_fault_of_ours_says_nothing_of_the_inside(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def broken(c: Connection) -> None:
        c.execute(text("DROP TABLE node_views"))

    site.enroll()
    site.write(broken)
    with pytest.raises(OperationalError, match="node_views"):  # goes on to the server, after the answer was sent
        site.metal("list")
    status = next(one["status"] for one in site.sent if one["type"] == "http.response.start")
    answer = b"".join(one.get("body", b"") for one in site.sent).decode()
    assert status == 500
    assert "INTERNAL" in answer
    assert "node_views" not in answer
    trace_id = json.loads(answer)["error"]["traceId"]
    assert f"a fault of bcmetal itself, trace {trace_id}" in caplog.text


def test_a_vault_that_does_not_open_is_a_fault_of_ours_and_no_details(site: Site, planted: str) -> None:
    bmc = {"address": "redfish://10.20.3.17/redfish/v1/Systems/1", "username": "u", "password": planted}
    site.metal("enroll", {"bmc": bmc, "inspect": False})

    def spoil(c: Connection) -> None:
        c.execute(text("UPDATE bmcs SET proven_at = 1"))
        c.execute(text("UPDATE sealed SET key_id = 'gone'"))

    site.write(spoil)
    second = {**bmc, "address": "redfish://10.20.3.17/redfish/v1/Systems/2"}
    answer = site.metal("enroll", {"bmc": second, "inspect": False})
    assert answer.code == "CONFLICT"  # what cannot be compared is another password
    assert planted not in answer.raw.decode()
