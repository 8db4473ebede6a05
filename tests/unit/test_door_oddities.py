"""What the field's BMCs do to HTTP and JSON beside their documents: redirected writes, cut answers, sessions that are told in odd places."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest

from bcmetal_drivers.errors import DriverError, Malformed, MaybeSent, Refused, ServerFault
from bcmetal_drivers.redfish_tasks import started, wait_for
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import JobState
from raw_bmc import (
    DOCS,
    RESET,
    ROOT,
    SESSIONS,
    SYSTEM,
    Asked,
    Script,
    a_door,
    a_raw_bmc,
    answer,
    at,
    documents,
    get,
    post,
)

NEW = f"{RESET}/"  # where the BMC wants it
TASK = "/redfish/v1/TaskService/Tasks/7"


def then(path: str, *answers: bytes, others: Script) -> Script:
    """`path` is answered with these in turn, the last one for ever."""
    queue = list(answers)

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path != path:
            return others(asked)
        return [queue.pop(0) if len(queue) > 1 else queue[0]]

    return script


# ---------------------------------------------------------------- redirects of writes


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_write_that_belongs_elsewhere_in_the_bmc_goes_there_as_it_is(status: int, method: str) -> None:
    script = at(RESET, [answer(None, status, Location=NEW)])
    with a_raw_bmc(then(NEW, answer(None, 204), others=script)) as bmc, a_door(bmc) as door:
        with door.call():
            getattr(door, method.lower())(RESET, data={"ResetType": "On"})
        first, second = bmc.effects
    assert (first.method, first.path, second.method, second.path) == (method, RESET, method, NEW)
    assert json.loads(second.body) == {"ResetType": "On"}
    assert second.headers["x-auth-token"] == first.headers["x-auth-token"]


def test_a_write_is_not_sent_to_another_host() -> None:
    with a_raw_bmc(documents(DOCS)) as elsewhere:
        script = at(RESET, [answer(None, 307, Location=f"http://127.0.0.1:{elsewhere.port}{RESET}")])
        with a_raw_bmc(script) as bmc, a_door(bmc) as door:
            with pytest.raises(Malformed, match="another origin"):
                post(door)
            assert len(bmc.effects) == 1
        assert elsewhere.asked == []


@pytest.mark.parametrize(("status", "kind"), [(301, Refused), (302, Refused), (307, Malformed), (308, Malformed)])
def test_a_write_that_is_sent_round_in_a_circle_or_may_have_been_done_is_an_error(
    status: int, kind: type[DriverError]
) -> None:
    with a_raw_bmc(at(RESET, [answer(None, status, Location=RESET)])) as bmc, a_door(bmc) as door:
        with pytest.raises(kind, match=f"{RESET}.*{status}"):
            post(door)
        assert len(bmc.effects) == (1 if kind is Refused else 4)


def test_a_write_whose_outcome_is_told_elsewhere_was_done() -> None:
    with a_raw_bmc(at(RESET, [answer(None, 303, Location=SYSTEM)])) as bmc, a_door(bmc) as door:
        post(door)
        assert len(bmc.effects) == 1


def test_a_login_follows_to_where_sessions_are_and_to_no_other_host() -> None:
    there = f"{SESSIONS}/"
    token = answer({"Id": "5"}, 201, X_Auth_Token="a-token")
    script = at(SESSIONS, [answer(None, 308, Location=there)])
    with a_raw_bmc(then(there, token, others=script), logs_in=False) as bmc:
        with a_door(bmc) as door:
            assert get(door) == DOCS[SYSTEM]
        assert not [asked for asked in bmc.asked if "authorization" in asked.headers]
        assert [asked.path for asked in bmc.seen("DELETE")] == [f"{SESSIONS}/5"]
    with a_raw_bmc(documents(DOCS)) as elsewhere:
        script = at(SESSIONS, [answer(None, 307, Location=f"http://127.0.0.1:{elsewhere.port}{SESSIONS}")])
        with (
            a_raw_bmc(script, logs_in=False) as bmc,
            a_door(bmc) as door,
            pytest.raises(Malformed, match="another origin"),
        ):
            get(door)
        assert elsewhere.asked == []


def test_a_root_that_is_there_without_its_slash_only_is_found() -> None:
    docs = {"/redfish/v1": DOCS[ROOT], SYSTEM: DOCS[SYSTEM]}
    with a_raw_bmc(documents(docs)) as bmc, a_door(bmc) as door, door.call():
        assert Tree(door, door.address).root() == DOCS[ROOT]
        assert door.get(SYSTEM).json() == DOCS[SYSTEM]


# ---------------------------------------------------------------- cut, padded, garbled

WHOLE = json.dumps(DOCS[SYSTEM]).encode()


def closing(body: bytes, length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "cut",
    [
        answer(WHOLE[:20]),
        answer(WHOLE[:20] + b"\r\n"),
        answer(WHOLE[:20] + b"\0" * 300),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n" + WHOLE[:20] + b"\r\n0\r\n\r\n",
    ],
    ids=["by-length", "with-a-line-break", "padded", "chunked"],
)
def test_a_document_that_ends_in_its_middle_is_asked_for_once_more(cut: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [cut], [answer(WHOLE)])) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
    with a_raw_bmc(at(SYSTEM, [cut])) as bmc, a_door(bmc) as door:
        with pytest.raises(Malformed, match=SYSTEM):
            get(door)
        assert len(bmc.seen("GET", SYSTEM)) == 2


def test_an_answer_whose_line_ends_in_its_middle_is_asked_for_once_more_and_a_write_is_not() -> None:
    looks: list[bytes] = [closing(WHOLE[:20], len(WHOLE)), answer(WHOLE)]

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path not in (SYSTEM, RESET):
            yield from documents(DOCS)(asked)
            return
        now = closing(b"{", 90) if asked.path == RESET else looks.pop(0) if len(looks) > 1 else looks[0]
        yield now
        if b"close" in now:
            raise OSError("the line ends here")

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
        assert len(bmc.seen("GET", SYSTEM)) == 2
        with pytest.raises(MaybeSent):
            post(door)
        assert len(bmc.effects) == 1


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"], ids=["plain", "with-a-mark"])
@pytest.mark.parametrize("after", [b"\0", b"\0" * 64, b"\0" * 300, b"\r\n\0\n", b" "])
def test_what_is_sent_after_a_document_to_fill_a_buffer_costs_nothing(before: bytes, after: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [answer(before + WHOLE + after)])) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
        assert len(bmc.seen("GET", SYSTEM)) == 1


def test_the_rest_of_an_answer_that_was_longer_than_it_said_is_no_answer_to_the_next() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == ROOT and asked.connection == 1:
            return [answer(DOCS[ROOT])]
        if asked.path == SYSTEM and asked.connection == 1:
            return [b"rest of another}", answer(WHOLE)]
        return documents(DOCS)(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
        assert bmc.connections == 2


# ---------------------------------------------------------------- yes that means no, and no that means yes


def said(*messages: dict[str, str], bare: bool = False) -> bytes:
    info = {"@Message.ExtendedInfo": list(messages)}
    return answer(info if bare else {"error": {"code": "Base.1.0.GeneralError", **info}})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (said({"MessageId": "Base.1.8.InternalError", "Message": "no", "MessageSeverity": "Critical"}), "no"),
        (said({"MessageId": "Base.1.8.InternalError", "Message": "no", "Severity": "critical"}, bare=True), "no"),
        (said({"MessageId": "Base.1.8.Success"}, {"MessageId": "X.1.0.Fault", "Message": "n", "Severity": "Critical"}), "n"),
        (said({"MessageId": "Base.1.8.PropertyNotWritable", "Message": "ro", "Severity": "Warning"}), "ro"),
        (said({"MessageId": "X.1.0.NotSuccessful", "Message": "n"}), "n"),
        (said({"MessageId": "X.1.0.EraseNotCompletedSuccessfully", "Message": "n", "Severity": "Warning"}), "n"),
        (said({"MessageId": "X.1.0.UpdateUnSuccessful", "Message": "n"}), "n"),
        (said({"MessageId": "X.1.0.Unsuccessful", "Message": "n"}), "n"),
        (answer({"error": "it did not work"}), "it did not work"),
    ],
    ids=[
        "critical", "critical-without-error", "critical-beside-success", "warning",
        "not-successful", "not-completed", "un-successful", "unsuccessful", "a-string",
    ],
)  # fmt: skip
def test_a_success_that_says_otherwise_in_its_body_is_a_refusal(body: bytes, words: str) -> None:
    with a_raw_bmc(at(RESET, [body])) as bmc, a_door(bmc) as door, pytest.raises(Refused, match=words):
        post(door)


@pytest.mark.parametrize(
    "body",
    [
        said({"MessageId": "SMC.1.0.AllDone", "Message": "fine", "Severity": "OK"}),
        said({"MessageId": "iLO.2.14.SystemResetRequired", "Severity": "Warning"}),
        said({"MessageId": "iLO.2.14.ImportCertSuccessful"}),
        said({"MessageId": "X.1.0.NotificationSentSuccessfully"}),
        said({"MessageId": "Base.1.8.AccountModified"}),
        said({"MessageId": "Base.1.8.PropertyNotWritable", "Message": "ro", "Severity": "Warning"}, bare=True),
        said({"MessageId": "Base.1.8.Success"}, bare=True),
        answer({"error": None}),
        answer({"error": ""}),
    ],
    ids=["ok", "reset-required", "successful", "sent-successfully", "modified", "remark", "bare", "null", "empty"],
)
def test_a_success_that_says_so_in_a_makers_words_is_one(body: bytes) -> None:
    with a_raw_bmc(at(RESET, [body])) as bmc, a_door(bmc) as door:
        post(door)


def test_messages_in_the_place_of_a_document_are_no_document() -> None:
    critical = said({"MessageId": "Base.1.8.InternalError", "Message": "no luck", "Severity": "Critical"}, bare=True)
    with a_raw_bmc(at(SYSTEM, [critical])) as bmc, a_door(bmc) as door, pytest.raises(ServerFault, match="no luck"):
        get(door)


# ---------------------------------------------------------------- sessions


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({}, "https://bmc-7.example/redfish/v1/SessionService/Sessions/9"),
        ({}, f"{SESSIONS}/9?x=1#y"),
        ({"@odata.id": "https://[fe80::1%25eth0]:8443/redfish/v1/SessionService/Sessions/9"}, None),
        ({"@odata.id": f"{SESSIONS}/9"}, SESSIONS),
        ({"Id": "9"}, "http://["),
        ({"Id": "9"}, None),
    ],
    ids=["another-host", "a-fragment", "with-a-zone", "of-the-collection", "no-url", "id-alone"],
)
def test_a_session_is_ended_wherever_the_bmc_tells_its_place(body: dict[str, str], location: str | None) -> None:
    headers = {"X_Auth_Token": "a-token", **({"Location": location} if location else {})}
    with a_raw_bmc(at(SESSIONS, [answer(body, 201, **headers)]), logs_in=False) as bmc:
        with a_door(bmc) as door:
            get(door)
        (ended,) = bmc.seen("DELETE")
    assert ended.path.partition("?")[0] == f"{SESSIONS}/9"
    assert ended.headers["x-auth-token"] == "a-token"


def test_a_token_that_stands_in_the_body_alone_is_used() -> None:
    body = {"@odata.id": f"{SESSIONS}/3", "X-Auth-Token": "of-the-body"}
    with a_raw_bmc(at(SESSIONS, [answer(body, 201)]), logs_in=False) as bmc:
        with a_door(bmc) as door:
            get(door)
        assert bmc.seen("GET", SYSTEM)[0].headers["x-auth-token"] == "of-the-body"
        assert not [asked for asked in bmc.asked if "authorization" in asked.headers]


# ---------------------------------------------------------------- Tasks


@pytest.mark.parametrize(
    "accepted",
    [
        lambda port: answer(None, 202, Location=f"https://bmc-7.example:8443{TASK}"),
        lambda port: answer(None, 202, Location=f"http://127.0.0.1:{port}{TASK}#/Messages"),
        lambda port: answer({"@odata.type": "#Task.v1_4_0.Task", "@odata.id": f"https://bmc-7.example{TASK}"}, 202),
        lambda port: answer({"TaskMonitor": TASK}, 202),
        lambda port: answer({"Location": TASK}, 202),
    ],
    ids=["another-host", "a-fragment", "in-the-task", "monitor-in-the-body", "location-in-the-body"],
)
def test_a_task_is_found_at_this_bmc_by_its_path_alone(accepted: Callable[[int], bytes]) -> None:
    done = answer({"@odata.type": "#Task.v1_4_0.Task", "@odata.id": TASK, "TaskState": "Completed"})

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == RESET:
            return [accepted(bmc.port)]
        return [done] if asked.path == TASK else documents(DOCS)(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc) as door, door.call():
        wait_for(door, door.post(RESET, data={}))
        assert len(bmc.seen("GET", TASK)) == 1


@pytest.mark.parametrize(
    "accepted",
    [
        answer(None, 202, Location="http://["),
        answer({"@odata.type": "#Task.v1_4_0.Task", "@odata.id": f"{TASK}\x1b[2J"}, 202),
        answer({"TaskMonitor": f"{TASK}\u2028"}, 202),
    ],
    ids=["no-url", "an-escape", "a-line-break"],
)
def test_a_place_that_is_none_leaves_the_job_unknown(accepted: bytes) -> None:
    with a_raw_bmc(at(RESET, [accepted])) as bmc, a_door(bmc) as door, door.call():
        job = started(door, door.post(RESET, data={}))
        assert (job.state, job.ref) == (JobState.UNKNOWN, "")


@pytest.mark.parametrize(
    ("place", "ref"), [(TASK, TASK), (f"https://bmc-7.example{TASK}", TASK), (f"{TASK}\x1b[2J", ""), (7, "")]
)
def test_a_task_that_is_over_at_once_is_known_by_its_path_alone(place: object, ref: str) -> None:
    done = {"@odata.type": "#Task.v1_4_0.Task", "@odata.id": place, "TaskState": "Completed"}
    with a_raw_bmc(at(RESET, [answer(done)])) as bmc, a_door(bmc) as door, door.call():
        job = started(door, door.post(RESET, data={}))
        assert (job.state, job.ref) == (JobState.DONE, ref)
