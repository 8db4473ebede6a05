"""Routes that sushy-tools lacks: sessions, Tasks, the manager's network and its reset."""

from __future__ import annotations

import contextlib
from typing import Final

from bcmetal_drivers.emulated.account_service import change_first
from bcmetal_drivers.emulated.accounts import Login
from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.sessions import Session, TableFull
from bcmetal_drivers.emulated.systems import MANAGER
from bcmetal_drivers.emulated.tasks import PATH as TASKS

SESSIONS: Final = f"{ROOT}/SessionService/Sessions"


# ---------------------------------------------------------------- sessions


def session_service(inside: Interior, call: Call) -> Answer:
    timeout = int(inside.quirks.session_timeout_s)
    return resource(
        f"{ROOT}/SessionService",
        "SessionService.v1_1_9",
        "Session Service",
        ServiceEnabled=True,
        SessionTimeout=timeout,
        Sessions=link(SESSIONS),
    )


def list_sessions(inside: Interior, call: Call) -> Answer:
    return collection(SESSIONS, "Session", [f"{SESSIONS}/{session.id}" for session in inside.sessions.listed()])


def open_session(inside: Interior, call: Call) -> Answer:
    wanted = call.request.json()
    username, password = wanted.get("UserName"), wanted.get("Password")
    if not isinstance(username, str) or not isinstance(password, str):
        raise Refusal(400, "PropertyMissing", "UserName and Password are required properties.")
    verdict = inside.accounts.check(username, password)
    if verdict is Login.LOCKED:
        raise Refusal(403, "AccountLocked", "The account is locked; try again later.")
    if verdict is Login.BAD:
        if inside.quirks.failed_logins_take_room:
            with contextlib.suppress(TableFull):
                inside.sessions.open(username)
        raise Refusal(401, "InsufficientPrivilege", "The user name or the password is wrong.")
    try:
        session = inside.sessions.open(username)
    except TableFull:
        raise Refusal(503, "SessionLimitExceeded", "The session establishment failed: too many sessions.") from None
    answer = _session(session)
    account = inside.accounts.named(username)
    if account is not None and account.must_change:
        answer.doc |= change_first(account).doc["error"]
    return Answer(201, answer.doc, {"X-Auth-Token": session.token, "Location": f"{SESSIONS}/{session.id}"})


def show_session(inside: Interior, call: Call, session_id: str) -> Answer:
    return _session(_known_session(inside, session_id))


def close_session(inside: Interior, call: Call, session_id: str) -> Answer:
    if not inside.sessions.close(session_id):
        raise not_found(f"{SESSIONS}/{session_id}")
    return Answer(204)


def _session(session: Session) -> Answer:
    return resource(f"{SESSIONS}/{session.id}", "Session.v1_7_0", "User Session", UserName=session.username)


def _known_session(inside: Interior, session_id: str) -> Session:
    for session in inside.sessions.listed():
        if session.id == session_id:
            return session
    raise not_found(f"{SESSIONS}/{session_id}")


# ---------------------------------------------------------------- Tasks


def task_service(inside: Interior, call: Call) -> Answer:
    return resource(f"{ROOT}/TaskService", "TaskService.v1_2_1", "Task Service", ServiceEnabled=True, Tasks=link(TASKS))


def list_tasks(inside: Interior, call: Call) -> Answer:
    return collection(TASKS, "Task", [task.path for task in inside.tasks.listed() if task.shown])


def show_task(inside: Interior, call: Call, task_id: str) -> Answer:
    task = inside.tasks.find(task_id)
    if task is None:
        raise not_found(f"{TASKS}/{task_id}")
    return Answer(200, inside.tasks.document(task))


def watch_task(inside: Interior, call: Call, task_id: str) -> Answer:
    """The monitor: 202 while it runs, then what it came to."""
    answer = show_task(inside, call, task_id)
    if answer.doc["TaskState"] == "Running":
        answer.status, answer.headers = 202, {"Location": f"{ROOT}/TaskService/TaskMonitors/{task_id}"}
    elif answer.doc["TaskState"] == "Exception":
        raise Refusal(500, "GeneralError", "The operation failed.")
    return answer


def remove_task(inside: Interior, call: Call, task_id: str) -> Answer:
    if not inside.tasks.purge(task_id):
        raise not_found(f"{TASKS}/{task_id}")
    return Answer(204)


# ---------------------------------------------------------------- manager


def list_manager_nics(inside: Interior, call: Call) -> Answer:
    path = f"{ROOT}/Managers/{MANAGER}/EthernetInterfaces"
    return collection(path, "EthernetInterface", [f"{path}/1"])


def show_manager_nic(inside: Interior, call: Call) -> Answer:
    first = next(iter(inside.machines.values())).macs[0]
    mac = f"{first[:-2]}{int(first[-2:], 16) ^ 0x80:02x}"
    address = {"Address": inside.host, "SubnetMask": "255.0.0.0", "AddressOrigin": "Static"}
    return resource(
        f"{ROOT}/Managers/{MANAGER}/EthernetInterfaces/1",
        "EthernetInterface.v1_9_0",
        "Manager NIC",
        MACAddress=mac,
        PermanentMACAddress=mac,
        IPv4Addresses=[address],
        HostName=inside.name,
    )


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"/SessionService", session_service),
    ("GET", r"/SessionService/Sessions", list_sessions),
    ("POST", r"/SessionService/Sessions", open_session),
    ("GET", r"/SessionService/Sessions/([^/]+)", show_session),
    ("DELETE", r"/SessionService/Sessions/([^/]+)", close_session),
    ("GET", r"/TaskService", task_service),
    ("GET", r"/TaskService/Tasks", list_tasks),
    ("GET", r"/TaskService/Tasks/([^/]+)", show_task),
    ("DELETE", r"/TaskService/Tasks/([^/]+)", remove_task),
    ("GET", r"/TaskService/TaskMonitors/([^/]+)", watch_task),
    ("GET", rf"/Managers/{MANAGER}/EthernetInterfaces", list_manager_nics),
    ("GET", rf"/Managers/{MANAGER}/EthernetInterfaces/1", show_manager_nic),
)
