"""Routes to the event log of a Redfish BMC, and to the stream of its events."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.systems import MANAGER
from bcmetal_drivers.emulated.upkeep import Entry

SERVICES: Final = f"{ROOT}/Managers/{MANAGER}/LogServices"
AUDIT, SEL = f"{SERVICES}/AuditLog", f"{SERVICES}/SEL"
ENTRIES: Final = f"{SEL}/Entries"
STREAM: Final = f"{ROOT}/EventService/SSE"


def list_services(inside: Interior, call: Call) -> Answer:
    return collection(SERVICES, "LogService", [AUDIT, SEL])


def show_audit(inside: Interior, call: Call) -> Answer:
    return resource(
        AUDIT,
        "LogService.v1_7_0",
        "Audit Log",
        ServiceEnabled=True,
        Entries=link(f"{AUDIT}/Entries"),
        LogEntryType="Event",
    )


def show_audit_entries(inside: Interior, call: Call) -> Answer:
    return collection(f"{AUDIT}/Entries", "LogEntry", [])


def show_sel(inside: Interior, call: Call) -> Answer:
    return resource(
        SEL,
        "LogService.v1_7_0",
        "System Event Log",
        ServiceEnabled=True,
        LogEntryType="SEL",
        OverWritePolicy="WrapsWhenFull",
        Entries=link(ENTRIES),
        Actions={"#LogService.ClearLog": {"target": f"{SEL}/Actions/LogService.ClearLog"}},
    )


def list_entries(inside: Interior, call: Call) -> Answer:
    newest_first = inside.quirks.log_order == "newest"
    entries = sorted(inside.upkeep.entries, key=lambda entry: entry.number, reverse=newest_first)
    answer = collection(ENTRIES, "LogEntry", [])
    if inside.quirks.log_inline:
        answer.doc["Members"] = [_entry(entry) for entry in entries]
    else:
        answer.doc["Members"] = [link(f"{ENTRIES}/{entry.number}") for entry in entries]
    answer.doc["Members@odata.count"] = len(entries)
    return answer


def show_entry(inside: Interior, call: Call, number: str) -> Answer:
    for entry in inside.upkeep.entries:
        if str(entry.number) == number:
            return Answer(200, _entry(entry))
    raise not_found(f"{ENTRIES}/{number}")


def clear(inside: Interior, call: Call) -> Answer:
    """The clearing is noted, as many BMCs do."""
    inside.upkeep.clear()
    inside.upkeep.tell("The event log was cleared.")
    return Answer(204)


def _entry(entry: Entry) -> dict[str, Any]:
    doc: dict[str, Any] = resource(
        f"{ENTRIES}/{entry.number}",
        "LogEntry.v1_16_0",
        f"Log Entry {entry.number}",
        EntryType="SEL",
        Created=entry.at,
        Severity=entry.severity,
        Message=entry.message,
    ).doc
    return doc | ({"SensorType": entry.sensor} if entry.sensor else {})


def listen(inside: Interior, call: Call) -> Answer:
    if not inside.quirks.events_stream:
        raise not_found(STREAM)
    last = call.request.header("Last-Event-ID") or ""
    stream = inside.upkeep.stream(int(last) if last.isdigit() else None)
    return Answer(200, stream=stream, content_type="text/event-stream")


def submit_test(inside: Interior, call: Call) -> Answer:
    said = call.request.json().get("Message", "A test event.")
    if not isinstance(said, str):
        raise Refusal(400, "PropertyValueTypeError", "Message is a text.")
    inside.upkeep.tell(said[:200])
    return Answer(204)


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", rf"/Managers/{MANAGER}/LogServices", list_services),
    ("GET", rf"/Managers/{MANAGER}/LogServices/AuditLog", show_audit),
    ("GET", rf"/Managers/{MANAGER}/LogServices/AuditLog/Entries", show_audit_entries),
    ("GET", rf"/Managers/{MANAGER}/LogServices/SEL", show_sel),
    ("GET", rf"/Managers/{MANAGER}/LogServices/SEL/Entries", list_entries),
    ("GET", rf"/Managers/{MANAGER}/LogServices/SEL/Entries/(\d+)", show_entry),
    ("POST", rf"/Managers/{MANAGER}/LogServices/SEL/Actions/LogService\.ClearLog", clear),
    ("GET", r"/EventService/SSE", listen),
    ("POST", r"/EventService/Actions/EventService\.SubmitTestEvent", submit_test),
)
