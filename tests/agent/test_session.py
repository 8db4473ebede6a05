"""The ramdisk's loop under faults, in a thread of its own, against a door that speaks the wire."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from agent import odd_tasks
from agent.ramdisk_door import REFUSED, Door, a_task, a_token
from bcmetal.decisions import SECOND, Micros
from bcmetal.join import ca
from bcmetal_agent import boot_token, wire_tasks
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.pace import SystemClock
from bcmetal_agent.ramdisk import Places, Ramdisk
from bcmetal_agent.session import BadSite, Session, Site
from bcmetal_agent.working import TABLE
from fake_control_plane import Answer, Call


class Ended(BaseException):
    """The test is over."""


class Hasty(SystemClock):
    """Sleeps a hundredth, and not at all once the test is over."""

    def __init__(self) -> None:
        self.over = False
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.over:
            raise Ended
        time.sleep(min(seconds / 100, 0.1))


@pytest.fixture
def words() -> Iterator[list[str]]:
    """What the agent says on the console."""
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, keep = logging.getLogger("bcmetal_agent"), Keep()
    log.addHandler(keep)
    yield said
    log.removeHandler(keep)


@contextmanager
def an_agent(
    door: Door, tmp_path: Path, table: Mapping[str, tuple[str, str]] = odd_tasks.TABLE, *, no_token: bool = False
) -> Iterator[Hasty]:
    clock, token_file = Hasty(), door.token_file(tmp_path)
    if no_token:
        token_file.write_bytes(boot_token.placeholder())

    def opened(site: Site, token: str, folder: Path) -> Session:
        return Session(site, token, folder, call_s=5, root=tmp_path, clock=_no_step)

    places = Places(token_file, door.site_file(tmp_path), tmp_path / "run", None)
    made = Ramdisk(
        places, lambda: 0.5, clock, opened, tell_s=0.05, alive_s=0.2, table={**TABLE, **table}, power_off=_stay
    )

    def run() -> None:
        try:
            made.run()
        except Ended:
            return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield clock
    finally:
        clock.over = True
        refused = [lambda call: Answer(401, REFUSED)] * 999
        door.faults = {
            path: [*refused] for path in (wire_tasks.NEXT_PATH, wire_tasks.HELLO_PATH, wire_tasks.REPORT_PATH)
        }
        thread.join(20)
        assert not thread.is_alive()


def _stay(kind: str, wait: Callable[[float], object]) -> None:
    pass


def a_session(door: Door, tmp_path: Path, steps: list[float] | None = None) -> Session:
    set_clock = (steps if steps is not None else []).append
    return Session(
        Site.read(door.site_file(tmp_path)), door.token, tmp_path / "run", call_s=5, root=tmp_path, clock=set_clock
    )


def last(door: Door, task: Mapping[str, Any]) -> wire_tasks.Report:
    door.wait_for(lambda: door.ended(task["taskId"]))
    found = door.told[task["taskId"]].last
    assert found is not None
    return found


# ---------------------------------------------------------------- faults on the way


def test_lost_answers_server_errors_and_nonsense_are_waited_out(door: Door, tmp_path: Path) -> None:
    wrong: list[Callable[[Call], Answer | None]] = [
        lambda call: Answer(503, b"{}"),
        lambda call: Answer(200, b"", drop=True),
        lambda call: Answer(200, b"[]"),
        lambda call: Answer(302, b"", (("Location", "https://elsewhere"),)),
        lambda call: Answer(429, b"{}", (("Retry-After", "1"),)),
    ]
    door.faults = {path: [*wrong] for path in (wire_tasks.HELLO_PATH, wire_tasks.NEXT_PATH, wire_tasks.REPORT_PATH)}
    task = a_task("poweroff")
    door.tasks.append(task)
    with an_agent(door, tmp_path):
        assert last(door, task).state == "done"
    assert not any(door.faults[path][:1] == wrong[:1] for path in door.faults)
    assert len({hello.public_key for hello in door.hellos}) == 1


def test_an_end_whose_answer_was_lost_is_told_again(door: Door, tmp_path: Path) -> None:
    task = a_task("reboot")
    door.tasks.append(task)
    door.faults[wire_tasks.REPORT_PATH] = [lambda call: Answer(200, b"", drop=True)] * 3
    with an_agent(door, tmp_path):
        assert last(door, task).error_code == "no-luck"


def test_a_token_that_is_not_taken_is_told_of_and_a_newer_one_is_used(
    door: Door, tmp_path: Path, words: list[str]
) -> None:
    door.token_ended = True
    with an_agent(door, tmp_path) as clock:
        door.wait_for(lambda: len(door.hellos) >= 2)
        assert clock.slept[0] == 30
        fresh = a_token()
        door.token, door.token_ended, door.key, before = fresh, False, None, len({h.public_key for h in door.hellos})
        door.token_file(tmp_path)
        door.wait_for(lambda: door.key is not None)
        assert before == 1
        assert len({hello.public_key for hello in door.hellos}) == 2
    said = "the daemon does not take this boot token (401): the boot token has ended; looking for another"
    assert words.count(said) == 1


def test_a_session_that_ends_in_the_middle_stops_the_task(door: Door, tmp_path: Path) -> None:
    task = a_task("inventory")
    door.tasks.append(task)
    with an_agent(door, tmp_path) as clock:
        door.wait_for(lambda: task["taskId"] in door.told)
        with door.changed:
            door.token_ended = True
        door.wait_for(lambda: 30 in clock.slept)
        assert not any(thread.name.startswith("task") and thread.is_alive() for thread in threading.enumerate())
    assert door.told[task["taskId"]].states[-1] == "running"


def test_a_template_without_a_token_is_told_of_and_waited_for(door: Door, tmp_path: Path, words: list[str]) -> None:
    token = door.token
    with an_agent(door, tmp_path, no_token=True) as clock:
        door.wait_for(lambda: clock.slept.count(30) >= 2)
        assert door.calls == []
        (tmp_path / "boot-token").write_bytes(boot_token.render(token))
        door.wait_for(lambda: door.key is not None)
    said = "there is no boot token that can be used: no token was put on this medium: it is a template"
    assert words[0] == f"{said}; looking for another"
    assert words.count(words[0]) == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1:1", "nothing listens there"),
        ("https://no-such-host.invalid:1", "its name is not found"),
    ],
)
def test_what_is_wrong_with_the_network_is_said_in_plain_words(
    url: str, words: str, door: Door, tmp_path: Path
) -> None:
    path = tmp_path / "site.json"
    path.write_text(json.dumps({"agentUrl": url, "caPem": door.root_pem, "site": "x"}))
    answer = Session(Site.read(path), a_token(), tmp_path / "run", root=tmp_path, clock=_no_step).hello()
    assert isinstance(answer, RetryLater)
    assert words in answer.reason


def _no_step(moment: float) -> None:
    raise AssertionError("the clock was set")


# ---------------------------------------------------------------- tasks


def test_a_task_that_nobody_waits_for_is_stopped(door: Door, tmp_path: Path) -> None:
    task, other = a_task("inventory"), a_task("reboot")
    door.tasks += [task, other]
    with an_agent(door, tmp_path):
        door.wait_for(lambda: task["taskId"] in door.told)
        with door.changed:
            door.go_on = False
            door.tasks.remove(task)
        assert last(door, other).state == "failed"
    assert set(door.told[task["taskId"]].states) == {"running"}
    progress = door.told[task["taskId"]].last
    assert progress is not None
    assert (progress.progress, progress.message) == (10, "for ever")


def test_a_fault_in_a_task_is_told_by_its_class_and_place_and_never_by_its_text(door: Door, tmp_path: Path) -> None:
    secret = a_token()
    broken = a_task("test", {"name": "cpu", "durationS": 1, "limits": {"secret": secret}})
    missing = a_task("erase", {"phase": "inspect", "drives": []})
    door.tasks += [broken, missing]
    with an_agent(door, tmp_path):
        report = last(door, broken)
        assert (report.error_code, report.error_message) == ("agent-fault", "the agent did not expect this: KeyError")
        assert last(door, missing).error_message == "the agent did not expect this: ModuleNotFoundError"
    told = door.told[broken["taskId"]]
    assert "odd_tasks.py" in told.log
    assert "in broken" in told.log
    assert secret not in told.log


def test_a_failed_task_says_why_without_control_characters(door: Door, tmp_path: Path) -> None:
    task = a_task("reboot")
    door.tasks.append(task)
    with an_agent(door, tmp_path):
        report = last(door, task)
    assert (report.error_code, report.error_message) == ("no-luck", "it did not [31m work")


def test_a_long_log_arrives_whole_and_in_order(door: Door, tmp_path: Path) -> None:
    task = a_task("poweroff")
    door.tasks.append(task)
    with an_agent(door, tmp_path):
        last(door, task)
    lines = door.told[task["taskId"]].log.splitlines(keepends=True)
    assert lines[0] == "?[2J?\n"
    assert len(lines) == 1 + 3 * wire_tasks.LOG_CHUNK // len(odd_tasks.LINE)
    assert set(lines[1:]) == {odd_tasks.LINE}


def test_a_result_past_its_bounds_is_the_agents_fault(door: Door, tmp_path: Path) -> None:
    task = a_task("test", {"name": "cpu", "durationS": 1})
    door.tasks.append(task)
    with an_agent(door, tmp_path, {"test": ("agent.odd_tasks", "boundless")}):
        report = last(door, task)
    assert report.error_code == "agent-fault"
    assert report.error_message == "the result is not of its shape: summary: is longer than 1000 characters"


def test_a_task_that_was_begun_before_is_begun_again_and_its_log_goes_on(door: Door, tmp_path: Path) -> None:
    task = a_task("inventory")
    door.tasks.append(task)
    with an_agent(door, tmp_path, {"inventory": ("agent.odd_tasks", "endless"), "poweroff": TABLE["poweroff"]}):
        door.wait_for(lambda: task["taskId"] in door.told)
    door.told[task["taskId"]].log = "x" * 100
    (tmp_path / "run/task.json").write_text(json.dumps({"taskId": task["taskId"], "offset": 100}))
    door.faults.clear()
    with an_agent(door, tmp_path):
        door.wait_for(lambda: "begun this task again" in door.told[task["taskId"]].log)
    assert door.told[task["taskId"]].log.startswith("x" * 100)
    assert len({hello.public_key for hello in door.hellos}) == 1


# ---------------------------------------------------------------- the clock


def test_a_clock_that_is_off_is_set_by_the_daemons(door: Door, tmp_path: Path) -> None:
    steps: list[float] = []
    door.server_time = lambda: datetime.now(UTC) + timedelta(seconds=3)
    assert isinstance(a_session(door, tmp_path, steps).hello(), wire_tasks.Welcome)
    assert steps == []
    door.server_time = lambda: datetime.now(UTC) + timedelta(days=300)
    assert isinstance(a_session(door, tmp_path, steps).hello(), wire_tasks.Welcome)
    assert steps[0] == pytest.approx((datetime.now(UTC) + timedelta(days=300)).timestamp(), abs=20)


@pytest.mark.parametrize("said", ["", "1970-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "2030-01-01T00:00:00"])
def test_a_time_that_cannot_be_is_not_taken(said: str, door: Door, tmp_path: Path) -> None:
    door.faults[wire_tasks.HELLO_PATH] = [
        lambda call: Answer(200, json.dumps({"sessionId": "as_1", "serverTime": said, "status": "welcome"}).encode())
    ]
    session = Session(Site.read(door.site_file(tmp_path)), door.token, tmp_path / "run", root=tmp_path, clock=_no_step)
    assert isinstance(session.hello(), wire_tasks.Welcome)


def a_server_of_tomorrow(door: Door, name: str = "127.0.0.1") -> datetime:
    """The door's certificate begins only then."""
    begins = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    key = ec.generate_private_key(ec.SECP256R1())
    at, issuer, names = Micros(int(begins.timestamp()) * SECOND), door.issuers[ca.IssuerKind.SERVER], (name,)
    door.use_files(ca.issue_server_certificate(issuer, key.public_key(), names, at, 1, 77).chain, key)
    return begins


def test_a_clock_before_the_servers_certificate_goes_forward_to_its_beginning(door: Door, tmp_path: Path) -> None:
    begins = a_server_of_tomorrow(door)
    steps: list[float] = []
    answer = a_session(door, tmp_path, steps).hello()
    assert isinstance(answer, RetryLater)
    assert "the machine's clock was before the server's certificate" in answer.reason
    [step] = steps
    assert abs(step - begins.timestamp()) < 3600  # a certificate begins a little before it was issued
    assert door.hellos == []


def test_nobody_else_moves_the_clock(door: Door, tmp_path: Path) -> None:
    site = Site.read(door.site_file(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    a_server_of_tomorrow(door, "elsewhere")
    misnamed = Session(site, door.token, tmp_path / "run", root=tmp_path, clock=_no_step).hello()
    assert isinstance(misnamed, RetryLater)
    assert "mismatch" in misnamed.reason
    a_server_of_tomorrow(door)
    stranger = Site(site.server, Door(other, door.token).root_pem, "x")
    answer = Session(stranger, door.token, tmp_path / "run", root=tmp_path, clock=_no_step).hello()
    assert isinstance(answer, RetryLater)
    assert "does not hold" in answer.reason
    assert door.hellos == []


# ---------------------------------------------------------------- the image


def test_an_image_is_read_from_any_byte_on(door: Door, tmp_path: Path) -> None:
    session = a_session(door, tmp_path)
    session.hello()
    door.image = bytes(range(256)) * 4096
    for offset in (0, 1, 70_000, len(door.image) - 1, len(door.image)):
        with session.image(offset) as part:
            read = b"".join(iter(lambda: part.read(65536), b""))
        assert read == door.image[offset:]


def test_an_image_that_is_cut_short_or_refused_is_an_error_and_never_an_end(door: Door, tmp_path: Path) -> None:
    session = a_session(door, tmp_path)
    session.hello()
    door.image = bytes(100_000)
    head = (("Content-Range", "bytes 0-99999/100000"), ("Content-Length", "100000"))
    wrong: list[Callable[[Call], Answer | None]] = [
        lambda call: Answer(404, b"{}"),
        lambda call: Answer(206, bytes(10), (("Content-Range", "bytes 5-14/100000"),)),
        lambda call: Answer(206, bytes(10)),
        lambda call: Answer(200, b"", drop=True),
        lambda call: Answer(206, bytes(50_000), head[:1]),
        lambda call: Answer(206, bytes(50_000), head),
    ]
    door.faults[wire_tasks.IMAGE_PATH] = [*wrong]
    for _ in wrong:
        with pytest.raises(OSError):
            _read_all(session)
    assert door.faults[wire_tasks.IMAGE_PATH] == []


def _read_all(session: Session) -> bytes:
    with session.image(0) as part:
        return b"".join(iter(lambda: part.read(65536), b""))


# ---------------------------------------------------------------- what is kept


def test_numbers_rise_whatever_becomes_of_the_agent(door: Door, tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        session = a_session(door, tmp_path)
        assert isinstance(session.hello(), wire_tasks.Welcome)
        assert isinstance(session.next(), wire_tasks.Idle)
        seen.append(door.number)
    (tmp_path / "run/sequence").write_text("")
    session = a_session(door, tmp_path)
    session.hello()
    assert isinstance(session.next(), wire_tasks.Idle)
    seen.append(door.number)
    assert seen == sorted(set(seen))


def test_a_call_that_was_overtaken_is_made_again_in_the_same_session(door: Door, tmp_path: Path) -> None:
    session = a_session(door, tmp_path)
    session.hello()
    door.faults[wire_tasks.NEXT_PATH] = [lambda call: Answer(409, REFUSED)]
    assert isinstance(session.next(), RetryLater)
    assert isinstance(session.next(), wire_tasks.Idle)


def test_the_key_is_for_its_owner_alone_and_for_one_token(door: Door, tmp_path: Path) -> None:
    a_session(door, tmp_path).hello()
    kept = tmp_path / "run/key.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert door.token.partition(".")[2] not in kept.read_text()
    assert base64.b64decode(json.loads(kept.read_text())["key"]) not in b"".join(door.received)
    door.token, door.key = a_token(), None
    a_session(door, tmp_path).hello()
    assert len({hello.public_key for hello in door.hellos}) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"agentUrl": "http://a:1", "caPem": "", "site": "x"}', "[1]"])
def test_an_image_that_does_not_say_whom_to_call_is_told_of(text: str, tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    path.write_text(text)
    with pytest.raises(BadSite, match="is not what `bcmetal ramdisk build` makes"):
        Site.read(path)
