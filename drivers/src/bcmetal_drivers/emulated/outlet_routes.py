"""Routes to the ways out of a Redfish BMC: directories of users, event subscriptions, network protocols."""

from __future__ import annotations

from typing import Any, Final

from bcmetal_drivers.emulated.interior import ROOT, Call, Handler, Interior, collection, link, resource
from bcmetal_drivers.emulated.messages import Answer, Refusal, not_found
from bcmetal_drivers.emulated.outlets import Outlets
from bcmetal_drivers.emulated.systems import MANAGER

EVENTS: Final = f"{ROOT}/EventService"
SUBSCRIPTIONS: Final = f"{EVENTS}/Subscriptions"
PROTOCOLS: Final = f"{ROOT}/Managers/{MANAGER}/NetworkProtocol"
DIRECTORY_WORDS: Final[dict[str, type]] = {"ServiceEnabled": bool, "ServiceAddresses": list}


def directories_shown(outlets: Outlets) -> dict[str, Any]:
    """For the account service's document."""
    return {
        name: {"ServiceEnabled": one.enabled, "ServiceAddresses": list(one.addresses)}
        for name, one in outlets.directories.items()
    }


def change_directory(outlets: Outlets, name: str, wanted: object) -> None:
    if not isinstance(wanted, dict) or not wanted:
        raise Refusal(400, "PropertyValueTypeError", f"{name} is an object.")
    for key, value in wanted.items():
        if key not in DIRECTORY_WORDS or not isinstance(value, DIRECTORY_WORDS[key]):
            raise Refusal(400, "PropertyNotWritable", f"{name}/{key} cannot be written.")
    one = outlets.directories[name]
    one.enabled = wanted.get("ServiceEnabled", one.enabled)
    one.addresses = [str(address) for address in wanted.get("ServiceAddresses", one.addresses)]


def show_events(inside: Interior, call: Call) -> Answer:
    test = {"#EventService.SubmitTestEvent": {"target": f"{EVENTS}/Actions/EventService.SubmitTestEvent"}}
    stream = {"ServerSentEventUri": f"{EVENTS}/SSE"} if inside.quirks.events_stream else {}
    return resource(
        EVENTS,
        "EventService.v1_10_0",
        "Event Service",
        ServiceEnabled=True,
        Subscriptions=link(SUBSCRIPTIONS),
        Actions=test,
        **stream,
    )


def list_subscriptions(inside: Interior, call: Call) -> Answer:
    known = inside.outlets.subscriptions
    return collection(SUBSCRIPTIONS, "EventDestination", [f"{SUBSCRIPTIONS}/{name}" for name in known])


def show_subscription(inside: Interior, call: Call, name: str) -> Answer:
    destination = inside.outlets.subscriptions.get(name)
    if destination is None:
        raise not_found(f"{SUBSCRIPTIONS}/{name}")
    return resource(
        f"{SUBSCRIPTIONS}/{name}",
        "EventDestination.v1_13_1",
        "Event Destination",
        Destination=destination,
        Protocol="Redfish",
        SubscriptionType="RedfishEvent",
    )


def subscribe(inside: Interior, call: Call) -> Answer:
    destination = call.request.json().get("Destination")
    if not isinstance(destination, str):
        raise Refusal(400, "PropertyMissing", "Destination must be given.")
    name = inside.outlets.subscribe(destination)
    answer = show_subscription(inside, call, name)
    return Answer(201, answer.doc, {"Location": f"{SUBSCRIPTIONS}/{name}"})


def remove_subscription(inside: Interior, call: Call, name: str) -> Answer:
    if inside.outlets.subscriptions.pop(name, None) is None:
        raise not_found(f"{SUBSCRIPTIONS}/{name}")
    return Answer(204)


def show_protocols(inside: Interior, call: Call) -> Answer:
    shown = {name: {"ProtocolEnabled": on} for name, on in inside.outlets.protocols.items()}
    return resource(PROTOCOLS, "ManagerNetworkProtocol.v1_10_1", "Network Protocol", HostName=inside.name, **shown)


def change_protocols(inside: Interior, call: Call) -> Answer:
    """All of it or nothing."""
    wanted: dict[str, bool] = {}
    for name, value in call.request.json().items():
        on = value.get("ProtocolEnabled") if isinstance(value, dict) else None
        if name not in inside.outlets.protocols or not isinstance(on, bool):
            raise Refusal(400, "PropertyNotWritable", f"{name} cannot be written.")
        wanted[name] = on
    inside.outlets.protocols.update(wanted)
    return show_protocols(inside, call)


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", r"/EventService", show_events),
    ("GET", r"/EventService/Subscriptions", list_subscriptions),
    ("POST", r"/EventService/Subscriptions", subscribe),
    ("GET", r"/EventService/Subscriptions/([^/]+)", show_subscription),
    ("DELETE", r"/EventService/Subscriptions/([^/]+)", remove_subscription),
    ("GET", rf"/Managers/{MANAGER}/NetworkProtocol", show_protocols),
    ("PATCH", rf"/Managers/{MANAGER}/NetworkProtocol", change_protocols),
)
