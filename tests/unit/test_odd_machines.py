"""Machines whose BMCs spell, list, show and count otherwise than the standard: driven all the same, and never on a guess that was not looked at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.errors import DriverError, Malformed, NotAsAsked, Refused, ServerFault, Unsupported
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.redfish_power import power_of
from bcmetal_drivers.resources import BootDevice, BootMode, PowerAction, PowerState
from raw_bmc import DOCS, LIMITS, RESET, ROOT, SYSTEM, Asked, RawBmc, a_credential, a_raw_bmc, answer, error

TARGET, ENABLED, MODE = "BootSourceOverrideTarget", "BootSourceOverrideEnabled", "BootSourceOverrideMode"
ALLOWED = "@Redfish.AllowableValues"
SLOTS = f"{SYSTEM}/VirtualMedia"
MANAGERS = "/redfish/v1/Managers"
URL = "http://10.0.0.5/media/1.iso"


class Odd:
    """A BMC of documents. `refuses` answers a write in the place of the BMC; what is patched is merged, `posted` sees each action."""

    def __init__(self, boot: dict[str, Any] | None = None, resets: Any = None, **docs: dict[str, Any]) -> None:
        reset: dict[str, Any] = {"target": RESET}
        if resets is not None:
            reset[f"ResetType{ALLOWED}"] = resets
        system = {"Id": "1", "PowerState": "Off", "Boot": boot or {}, "Actions": {"#ComputerSystem.Reset": reset}}
        self.docs: dict[str, Any] = {ROOT: {**DOCS[ROOT], "Managers": {"@odata.id": MANAGERS}}, SYSTEM: system, **docs}
        self.docs.setdefault(MANAGERS, {"Members": []})
        self.refuses: Callable[[str, str, dict[str, Any]], bytes | None] = lambda method, path, body: None
        self.posted: Callable[[str, dict[str, Any]], None] = lambda path, body: None
        self.written: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Iterable[bytes]:
        if asked.method == "GET":
            doc = self.docs.get(asked.path.rstrip("/") if asked.path != ROOT else ROOT)
            if doc is None:
                return [error("Base.1.0.ResourceMissingAtURI", status=404)]
            return [doc if isinstance(doc, bytes) else answer(doc)]
        body = json.loads(asked.body or b"{}")
        self.written.append(body)
        refused = self.refuses(asked.method, asked.path, body)
        if refused is not None:
            return [refused]
        if asked.method == "PATCH":
            self.docs[asked.path]["Boot"] |= body.get("Boot", {})
        else:
            self.posted(asked.path, body)
        return [answer(None, 204)]

    @property
    def system(self) -> dict[str, Any]:
        doc: dict[str, Any] = self.docs[SYSTEM]
        return doc


@contextmanager
def driven(odd: Odd) -> Iterator[tuple[RedfishBmc, RawBmc]]:
    with a_raw_bmc(odd) as bmc:
        address = BmcAddress("redfish+http", "127.0.0.1", bmc.port, SYSTEM)
        driver = RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS)
        try:
            yield driver, bmc
        finally:
            driver.close()


# ---------------------------------------------------------------- power


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("ON", PowerState.ON),
        ("off", PowerState.OFF),
        ("Powering On", PowerState.POWERING_ON),
        ("poweringOff", PowerState.POWERING_OFF),
        ("Unknown", PowerState.UNKNOWN),
        (True, PowerState.UNKNOWN),
        (None, PowerState.UNKNOWN),
    ],
)
def test_a_power_state_is_known_however_it_is_spelled(word: object, state: PowerState) -> None:
    assert power_of({"PowerState": word}) is state


@pytest.mark.parametrize(
    ("offered", "asked"),
    [([], "On"), (["on", "FORCEOFF"], "on"), (["forceon"], "forceon"), (["ForceRestart"], "On"), ([None, 7], "On")],
    ids=["empty", "another-case", "force-on", "not-listed", "no-words"],
)
def test_a_machine_is_switched_on_by_the_word_that_its_bmc_lists_and_by_the_standards_where_the_list_is_of_no_use(
    offered: list[Any], asked: str
) -> None:
    odd = Odd(resets=offered)
    with driven(odd) as (driver, _):
        driver.set_power(PowerAction.ON)
    assert [body for body in odd.written if "ResetType" in body] == [{"ResetType": asked}]


def test_a_reset_that_is_listed_and_refused_gives_way_to_the_next_that_does_the_same() -> None:
    odd = Odd(resets=["ForceRestart", "PowerCycle"])
    odd.system["PowerState"] = "On"
    unknown = error("Base.1.8.ActionParameterValueNotInList", status=400)
    odd.refuses = lambda method, path, body: unknown if body.get("ResetType") == "ForceRestart" else None
    with driven(odd) as (driver, bmc):
        driver.set_power(PowerAction.CYCLE)
        assert [json.loads(one.body)["ResetType"] for one in bmc.effects] == ["ForceRestart", "PowerCycle"]


def test_a_restart_that_is_not_listed_is_not_asked_for() -> None:
    odd = Odd(resets=["On", "ForceOff"])
    odd.system["PowerState"] = "On"
    with driven(odd) as (driver, bmc):
        with pytest.raises(Unsupported):
            driver.set_power(PowerAction.CYCLE)
        assert bmc.effects == []


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        (["GracefulShutdown", "Off"], ["GracefulShutdown"]),
        (["GracefulShutdown", "Off", "ForceOff"], ["GracefulShutdown", "Off"]),
        (["off", "forceoff"], ["off"]),
        (["Off"], []),
        (None, ["GracefulShutdown"]),
    ],
    ids=["alone", "beside-force-off", "another-case", "off-alone", "no-list"],
)
def test_an_off_is_a_soft_one_only_where_it_is_offered_beside_a_hard_one(
    offered: list[str] | None, asked: list[str]
) -> None:
    odd = Odd(resets=offered)
    odd.system["PowerState"] = "On"
    odd.refuses = lambda method, path, body: error("Base.1.8.ActionParameterValueNotInList", status=400)
    with driven(odd) as (driver, bmc):
        with pytest.raises(Refused if asked else Unsupported):
            driver.set_power(PowerAction.SOFT_OFF)
        assert [json.loads(one.body)["ResetType"] for one in bmc.effects] == asked


# ---------------------------------------------------------------- boot


def a_boot(**changes: Any) -> dict[str, Any]:
    return {
        TARGET: "None",
        ENABLED: "Disabled",
        MODE: "UEFI",
        f"{TARGET}{ALLOWED}": ["None", "Pxe", "Cd", "Hdd"],
        **changes,
    }


@pytest.mark.parametrize(
    ("boot", "word"),
    [
        (a_boot(**{f"{TARGET}{ALLOWED}": ["none", "PXE", "CD"]}), "CD"),
        (a_boot(**{f"{TARGET}{ALLOWED}": []}), "Cd"),
        (a_boot(**{f"{TARGET}{ALLOWED}": [], "BootSourceOverrideSupported": ["None", "UsbCd"]}), "UsbCd"),
        (a_boot(**{TARGET: None, ENABLED: None}), "Cd"),
    ],
    ids=["another-case", "an-empty-list", "the-old-list", "nulls"],
)  # fmt: skip
def test_the_cd_is_armed_by_the_word_that_the_bmc_has_for_it(boot: dict[str, Any], word: str) -> None:
    odd = Odd(boot)
    with driven(odd) as (driver, _):
        driver.boot_once(BootDevice.CD)
        assert odd.system["Boot"][TARGET] == word
        assert driver.boot_override().device is BootDevice.CD


@pytest.mark.parametrize("shown", [{TARGET: "pxe", ENABLED: "once"}, {TARGET: "PXE", ENABLED: "ONCE", MODE: "uefi"}])
def test_an_override_is_known_however_it_is_spelled(shown: dict[str, str]) -> None:
    with driven(Odd(a_boot(**shown))) as (driver, _):
        override = driver.boot_override()
    assert (override.device, override.once, override.mode) == (BootDevice.PXE, True, BootMode.UEFI)


def test_where_no_word_is_listed_the_next_is_tried_after_a_refusal() -> None:
    odd = Odd(a_boot(**{f"{TARGET}{ALLOWED}": None}))
    refusal = error("Base.1.8.PropertyValueNotInList", status=400)
    odd.refuses = lambda method, path, body: refusal if body["Boot"].get(TARGET) == "Cd" else None
    with driven(odd) as (driver, _):
        driver.boot_once(BootDevice.CD)
    assert (odd.system["Boot"][TARGET], odd.system["Boot"][ENABLED]) == ("UsbCd", "Once")


@pytest.mark.parametrize("status", [422, 500])
def test_a_bmc_that_falls_over_too_few_keys_is_told_all_three(status: int) -> None:
    odd = Odd(a_boot())
    fallen = error("Base.1.8.InternalError", status=status)
    odd.refuses = lambda method, path, body: fallen if MODE not in body["Boot"] else None
    with driven(odd) as (driver, _):
        driver.boot_once(BootDevice.PXE)
        assert driver.boot_override().device is BootDevice.PXE
        driver.clear_boot_override()
        assert driver.boot_override().device is BootDevice.NONE


def test_a_500_after_which_the_override_stands_is_success_and_one_without_is_not() -> None:
    odd = Odd(a_boot())

    def fallen(method: str, path: str, body: dict[str, Any]) -> bytes:
        odd.system["Boot"] |= body["Boot"]
        return error("Base.1.8.InternalError", status=500)

    odd.refuses = fallen
    with driven(odd) as (driver, bmc):
        driver.boot_once(BootDevice.PXE)
        assert len(bmc.effects) == 1
    odd = Odd(a_boot())
    odd.refuses = lambda method, path, body: error("Base.1.8.InternalError", status=500)
    with driven(odd) as (driver, _), pytest.raises(ServerFault):
        driver.boot_once(BootDevice.PXE)


# ---------------------------------------------------------------- virtual media


def a_slot(path: str = f"{SLOTS}/1", **shown: Any) -> dict[str, Any]:
    actions = {
        f"#VirtualMedia.{name}": {"target": f"{path}/Actions/VirtualMedia.{name}"}
        for name in ("InsertMedia", "EjectMedia")
    }
    return {"@odata.id": path, "Id": "1", "Name": "Virtual Media", "Actions": actions, **shown}  # fmt: skip


def with_slots(*slots: dict[str, Any], **collection: Any) -> Odd:
    odd = Odd()
    odd.system["VirtualMedia"] = {"@odata.id": SLOTS}
    odd.docs[SLOTS] = {"Members": [{"@odata.id": slot["@odata.id"]} for slot in slots], **collection}
    odd.docs |= {slot["@odata.id"]: slot for slot in slots}

    def posted(path: str, body: dict[str, Any]) -> None:
        doc = odd.docs[path.partition("/Actions/")[0]]
        doc |= (
            {"Image": body["Image"], "Inserted": True} if "InsertMedia" in path else {"Image": None, "Inserted": False}
        )

    odd.posted = posted
    return odd


@pytest.mark.parametrize(
    "shown",
    [
        {"Inserted": True},
        {"Inserted": True, "Image": "", "ConnectedVia": "NotConnected"},
        {"Inserted": "false", "Image": "http://10.0.0.9/old.iso"},
        {"Image": "http://10.0.0.9/old.iso", "ImageName": "old.iso", "ConnectedVia": "NotConnected"},
        {"Inserted": None, "Image": None},
    ],
    ids=["filled-with-nothing", "not-connected", "a-word", "the-last-image", "nulls"],
)
def test_a_slot_that_only_looks_filled_is_empty_and_takes_a_medium(shown: dict[str, Any]) -> None:
    odd = with_slots(a_slot(MediaTypes=["CD", "DVD"], **shown))
    with driven(odd) as (driver, _):
        assert [slot.inserted for slot in driver.inserted()] == [False]
        assert driver.insert(URL).shows(URL)
        assert not [body for body in odd.written if body == {}]  # nothing was ejected


@pytest.mark.parametrize("status", [None, 400, 404, 500])
def test_a_slot_in_doubt_is_sent_one_eject_whatever_comes_of_it(status: int | None) -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"], Inserted=True), a_slot(f"{SLOTS}/2", MediaTypes=["CD"], Inserted=False))
    odd.posted = lambda path, body: None  # it goes on to show the same
    if status is not None:
        odd.refuses = lambda method, path, body: error("Base.1.8.GeneralError", status=status)
    with driven(odd) as (driver, bmc):
        assert [(slot.inserted, slot.in_doubt) for slot in driver.inserted()] == [(False, True), (False, False)]
        driver.eject()
        assert [one.path for one in bmc.effects] == [f"{SLOTS}/1/Actions/VirtualMedia.EjectMedia"]


def test_a_slot_that_says_that_nothing_is_connected_is_in_no_doubt() -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"], Inserted=True, ConnectedVia="NotConnected"))
    with driven(odd) as (driver, bmc):
        driver.eject()
        assert bmc.effects == []


@pytest.mark.parametrize(
    "shown",
    [
        {"Inserted": False, "ConnectedVia": "URI"},
        {"Inserted": None, "ConnectedVia": "URI"},
        {"Inserted": "true"},
        {"Inserted": "True", "ConnectedVia": "NotConnected"},
    ],
    ids=["connected-and-not-inserted", "null", "a-word", "connected-later"],
)
def test_a_medium_that_went_in_is_seen_in_whatever_is_told_of_it(shown: dict[str, Any]) -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"]))
    odd.posted = lambda path, body: odd.docs[f"{SLOTS}/1"].update({"Image": body["Image"], **shown})
    with driven(odd) as (driver, _):
        assert driver.insert(URL).shows(URL)


@pytest.mark.parametrize(
    ("told", "is_cd"),
    [
        ({"MediaTypes": "CD"}, True),
        ({"MediaTypes": None}, True),
        ({"MediaTypes": [], "Name": "Remote 1"}, True),
        ({"MediaTypes": None, "Name": "Virtual Floppy"}, False),
        ({"MediaTypes": ["Floppy", "USBStick"]}, False),
    ],
    ids=["a-word", "null", "empty", "floppy-by-name", "others"],
)
def test_a_slot_that_tells_no_kind_may_be_one_for_a_cd(told: dict[str, Any], is_cd: bool) -> None:
    with driven(with_slots(a_slot(**told))) as (driver, _):
        if is_cd:
            assert driver.insert(URL).shows(URL)
        else:
            with pytest.raises(Unsupported):
                driver.insert(URL)


def test_a_medium_is_found_where_the_slots_are_numbered_anew_by_it() -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"]))

    def posted(path: str, body: dict[str, Any]) -> None:
        moved = a_slot(f"{SLOTS}/2", MediaTypes=["CD"], Image=body["Image"], Inserted=True)
        del odd.docs[f"{SLOTS}/1"]
        odd.docs |= {f"{SLOTS}/2": moved, SLOTS: {"Members": [{"@odata.id": f"{SLOTS}/2"}]}}

    odd.posted = posted
    with driven(odd) as (driver, _):
        assert driver.insert(URL).path == f"{SLOTS}/2"


def test_a_slot_that_vanishes_with_its_medium_is_not_as_asked() -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"]), a_slot(f"{SLOTS}/2", MediaTypes=["CD"]))
    odd.posted = lambda path, body: odd.docs.pop(f"{SLOTS}/1")
    with driven(odd) as (driver, _), pytest.raises(NotAsAsked, match="nothing"):
        driver.insert(URL)


# ---------------------------------------------------------------- accounts


def test_what_an_account_says_in_words_is_what_it_says_in_truths() -> None:
    service = "/redfish/v1/AccountService"
    odd = Odd()
    odd.docs[ROOT]["AccountService"] = {"@odata.id": service}
    said: tuple[dict[str, Any], ...] = (
        {"Enabled": "False", "Locked": "True"},
        {"Enabled": True, "Locked": 0},
        {"Locked": "perhaps"},
    )
    for n, words in enumerate(said):
        odd.docs[f"{service}/Accounts/{n}"] = {"Id": str(n), "UserName": f"user{n}", **words}
    members = [{"@odata.id": f"{service}/Accounts/{n}"} for n in range(len(said))]
    odd.docs |= {
        service: {"Accounts": {"@odata.id": f"{service}/Accounts"}},
        f"{service}/Accounts": {"Members": members},
    }
    with driven(odd) as (driver, _):
        found = [(account.enabled, account.locked) for account in driver.accounts()]
    assert found == [(False, True), (True, False), (True, None)]


# ---------------------------------------------------------------- lists

TWO = [{"@odata.id": f"{SLOTS}/1"}, None, {"@odata.id": f"{SLOTS}/1/"}, {}]


@pytest.mark.parametrize(
    "collection",
    [
        {"Members": TWO},
        {"Members": TWO, "Members@odata.count": 4},
        {"Members": TWO, "Members@odata.count": "9"},
        {"Members": TWO, "Members@odata.nextLink": f"{SLOTS}/"},
        {"Members": TWO, "Members@odata.nextLink": ""},
    ],
    ids=["nulls-and-twice", "counted", "counts-more", "next-is-itself", "next-is-nothing"],
)
def test_a_list_of_slots_that_lies_is_taken_for_what_is_there(collection: dict[str, Any]) -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"]), **collection)
    with driven(odd) as (driver, _):
        assert driver.insert(URL).shows(URL)
        assert len(driver.inserted()) == 1


@pytest.mark.parametrize(
    ("collection", "kind"),
    [
        ({"Members": [{"@odata.id": SYSTEM}, {"@odata.id": f"{SYSTEM}/"}, None], "Members@odata.count": 3}, None),
        ({"Members": [{"@odata.id": SYSTEM}], "Members@odata.count": 2}, Malformed),
    ],
    ids=["the-same-twice", "one-is-missing"],
)
def test_one_system_listed_twice_is_one_and_one_of_two_is_not_guessed(
    collection: dict[str, Any], kind: type[DriverError] | None
) -> None:
    odd = Odd()
    odd.docs[ROOT]["Systems"] = {"@odata.id": "/redfish/v1/Systems"}
    odd.docs["/redfish/v1/Systems"] = collection
    with a_raw_bmc(odd) as bmc:
        address = BmcAddress("redfish+http", "127.0.0.1", bmc.port)
        driver = RedfishBmc(address, a_credential(), Trust(TrustKind.NONE), LIMITS)
        try:
            if kind is None:
                assert driver.power_state() is PowerState.OFF
            else:
                with pytest.raises(kind):
                    driver.power_state()
        finally:
            driver.close()


def test_managers_that_are_named_and_not_there_give_way_to_those_that_are() -> None:
    odd = Odd()
    odd.system["Links"] = {"ManagedBy": [{"@odata.id": f"{MANAGERS}/Self"}]}
    slot = a_slot(f"{MANAGERS}/1/VirtualMedia/CD", MediaTypes=["CD"])
    odd.docs |= {
        MANAGERS: {"Members": [{"@odata.id": f"{MANAGERS}/1"}], "Members@odata.count": 2},
        f"{MANAGERS}/1": {"Id": "1", "VirtualMedia": {"@odata.id": f"{MANAGERS}/1/VirtualMedia"}},
        f"{MANAGERS}/1/VirtualMedia": {"Members": [{"@odata.id": slot["@odata.id"]}]},
        slot["@odata.id"]: slot,
    }
    with driven(odd) as (driver, _):
        assert [found.path for found in driver.inserted()] == [slot["@odata.id"]]


def test_a_resource_that_is_answered_204_is_not_there() -> None:
    odd = with_slots(a_slot(MediaTypes=["CD"]), a_slot(f"{SLOTS}/2", MediaTypes=["CD"]))
    odd.docs[f"{SLOTS}/1"] = answer(None, 204)
    with driven(odd) as (driver, _):
        assert [found.path for found in driver.inserted()] == [f"{SLOTS}/2"]
        odd.docs[SYSTEM] = answer(None, 204)
        with pytest.raises(Refused, match=SYSTEM):
            driver.power_state()
