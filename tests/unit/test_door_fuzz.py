"""Whatever a BMC answers, with whatever status and headers: nothing but a DriverError leaves the driver."""

from __future__ import annotations

import gzip
import inspect
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress, Limits, Trust, TrustKind
from bcmetal_drivers.errors import DriverError
from bcmetal_drivers.learned import FIELDS
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction
from raw_bmc import RESET, ROOT, SESSIONS, SYSTEM, Asked, Reset, a_credential, a_raw_bmc, answer

SEEDS = 160
LIMITS = Limits(connect_s=2, read_s=1, total_s=2)
MANAGER, ACCOUNTS, MEDIA = "/redfish/v1/Managers/1", "/redfish/v1/AccountService/Accounts", f"{SYSTEM}/VirtualMedia"
TASK, INSERT, EJECT = "/redfish/v1/TaskService/Tasks/1", f"{MEDIA}/Cd/Insert", f"{MEDIA}/Cd/Eject"


def at(path: str) -> dict[str, str]:
    return {"@odata.id": path}


TREE: dict[str, dict[str, Any]] = {
    ROOT: {
        "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot",
        "RedfishVersion": "1.6.0",
        "Vendor": "Contoso",
        "Systems": at("/redfish/v1/Systems"),
        "Managers": at("/redfish/v1/Managers"),
        "AccountService": at("/redfish/v1/AccountService"),
        "Links": {"Sessions": at(SESSIONS)},
    },
    "/redfish/v1/Systems": {"Members": [at(SYSTEM)], "Members@odata.count": 1},
    SYSTEM: {
        "@odata.id": SYSTEM,
        "Id": "1",
        "UUID": "38947555-7742-3448-3784-823347823834",
        "PowerState": "On",
        "Status": {"Health": "OK"},
        "Boot": {
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "Hdd"],
        },
        "Actions": {
            "#ComputerSystem.Reset": {"target": RESET, "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"]}
        },
        "VirtualMedia": at(MEDIA),
        "SecureBoot": at(f"{SYSTEM}/SecureBoot"),
        "Bios": at(f"{SYSTEM}/Bios"),
        "Links": {"ManagedBy": [at(MANAGER)], "Chassis": []},
    },
    f"{SYSTEM}/SecureBoot": {"SecureBootEnable": False, "SecureBootCurrentBoot": "Disabled"},
    f"{SYSTEM}/Bios": {"Attributes": {"ProcTurbo": "On", "Cores": 8}},
    MEDIA: {"Members": [at(f"{MEDIA}/Cd")], "Members@odata.count": 1},
    f"{MEDIA}/Cd": {
        "Id": "Cd",
        "MediaTypes": ["CD"],
        "Inserted": False,
        "Image": None,
        "Actions": {"#VirtualMedia.InsertMedia": {"target": INSERT}, "#VirtualMedia.EjectMedia": {"target": EJECT}},
    },
    "/redfish/v1/Managers": {"Members": [at(MANAGER)]},
    MANAGER: {"Id": "1", "Model": "BMC 200", "FirmwareVersion": "1.0", "DateTime": "2026-01-01T00:00:00Z"},
    "/redfish/v1/AccountService": {"Accounts": at(ACCOUNTS), "MinPasswordLength": 8},
    ACCOUNTS: {"Members": [at(f"{ACCOUNTS}/1")]},
    f"{ACCOUNTS}/1": {"Id": "1", "UserName": "admin", "RoleId": "Administrator", "Enabled": True},
    TASK: {"@odata.type": "#Task.v1_4_0.Task", "@odata.id": TASK, "TaskState": "Completed"},
}  # fmt: skip

ODD: list[Any] = [
    *(None, True, 0, -1, 10**30, 1e308, "", "x" * 5000, [], {}, [None, 1, "a", {}], {"@odata.id": 5}),
    *({"@odata.id": "http://elsewhere/redfish/v1"}, {"@odata.id": SYSTEM}, "\x00\x1b[2J\ud800", "//a/b", "OK"),
]
STATUSES = (
    200,
    200,
    200,
    201,
    202,
    204,
    206,
    301,
    304,
    400,
    401,
    403,
    404,
    405,
    409,
    412,
    415,
    428,
    429,
    500,
    501,
    503,
    504,
    599,
    999,
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("Location", "http://elsewhere/redfish/v1"),
    ("Location", TASK),
    ("Location", "\xff\xfe"),
    ("Location", ""),
    ("ETag", ""),
    ("ETag", 'W/"\xe9"'),
    ("Retry-After", "0"),
    ("Retry-After", "soon"),
    ("X-Auth-Token", "\xe9"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Content-Type", "text/html; charset=utf-7"),
    ("Set-Cookie", "a=b"),
)


def changed(luck: random.Random, doc: Any) -> Any:
    """The document with one of its values replaced or dropped."""
    places: list[tuple[Any, Any]] = []
    waiting = [doc]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            keys: Iterable[Any] = one if isinstance(one, dict) else range(len(one))
            for key in keys:
                places.append((one, key))
                waiting.append(one[key])
    if not places:
        return luck.choice(ODD)
    parent, key = luck.choice(places)
    if luck.random() < 0.3:
        del parent[key]
    else:
        parent[key] = luck.choice(ODD)
    return doc


def a_script(luck: random.Random) -> Callable[[Asked], Iterable[bytes]]:
    """Serves the tree; about every third answer is disturbed."""

    def honest(asked: Asked) -> tuple[Any, int, dict[str, str]]:
        if asked.method == "POST" and asked.path == SESSIONS:
            return {"@odata.id": f"{SESSIONS}/1"}, 201, {"X_Auth_Token": "t", "Location": f"{SESSIONS}/1"}
        if asked.method != "GET":
            return (TREE[TASK], 202, {"Location": TASK}) if luck.random() < 0.3 else (None, 204, {})
        doc = TREE.get(asked.path)
        if doc is None:
            return {"error": {"code": "Base.1.0.ResourceMissingAtURI"}}, 404, {}
        return json.loads(json.dumps(doc)), 200, {"ETag": '"1"'}

    def script(asked: Asked) -> Iterator[bytes]:
        doc, status, headers = honest(asked)
        kind = luck.randrange(12)
        if kind == 0:
            status = luck.choice(STATUSES)
        elif kind == 1:
            name, value = luck.choice(HEADERS)
            headers = {**headers, name.replace("-", "_"): value}
        elif kind == 2:
            doc = changed(luck, doc) if doc is not None else luck.choice(ODD)
        raw = json.dumps(doc).encode() if doc is not None else b""
        if kind == 3:
            raw = luck.choice(
                (raw[: len(raw) // 2], raw + raw, b"\xff" + raw, b"<html>", gzip.compress(raw, mtime=0), b"\x00")
            )
        if kind == 4 and luck.random() < 0.2:
            raise Reset
        head = answer(raw, status).split(b"\r\n\r\n", 1)[0].decode()
        more = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        yield "\r\n".join([head, *more, "", ""]).encode("latin-1") + raw

    return script


def calls(bmc: RedfishBmc) -> list[Callable[[], object]]:
    """Every method that needs nothing, and those whose arguments we know."""
    plain = [
        method
        for name, method in inspect.getmembers(bmc, inspect.ismethod)
        if not name.startswith("_")
        and name != "close"
        and all(p.default is not p.empty for p in inspect.signature(method).parameters.values())
    ]
    password = SecretStr("".join(random.choices("abcdefgh", k=12)))
    return [
        *plain,
        *(lambda action=action: bmc.set_power(action) for action in PowerAction),
        *(lambda device=device: bmc.boot_once(device, BootMode.UEFI) for device in BootDevice),
        lambda: bmc.insert("http://127.0.0.1/image.iso"),
        lambda: bmc.set_secure_boot(True),
        lambda: bmc.set_boot_mode(BootMode.LEGACY),
        lambda: bmc.set_password("admin", password),
        lambda: bmc.set_bios({"ProcTurbo": "Off"}),
        lambda: bmc.erase("S1"),
        lambda: bmc.erase_job(TASK),
    ]


def outcome(call: Callable[[], object]) -> str | None:
    """What the DriverError says; None when there was none."""
    try:
        call()
    except DriverError as error:
        return str(error)
    return None


@pytest.mark.parametrize("chunk", range(4))
def test_nothing_but_a_driver_error_leaves_the_driver(chunk: int) -> None:
    answered = refused = 0
    for seed in range(chunk, SEEDS, 4):
        luck = random.Random(seed)
        with a_raw_bmc(a_script(luck), logs_in=False) as raw:
            address = BmcAddress("redfish+http", "127.0.0.1", raw.port, luck.choice((None, SYSTEM)))
            learned = {name: luck.choice(ODD) for name in FIELDS if luck.random() < 0.3}
            bmc = RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS, learned)
            try:
                for call in luck.sample(calls(bmc), 2):
                    said = outcome(call)
                    answered += said is None
                    refused += said is not None
                    assert said is None or (said.isprintable() and len(said) <= 400), seed
                    json.dumps(bmc.learned())
            finally:
                bmc.close()
    assert answered > 5, "all was disturbed: the test shows nothing"
    assert refused > 5, "nothing was disturbed: the test shows nothing"
