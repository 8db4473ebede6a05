"""What is learned of a BMC: tried first the next time, forgotten when it turns out wrong, and harmless whatever a store gives back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import RejectedCredentials
from bcmetal_drivers.learned import FIELDS, forget_another, merged, read
from bcmetal_drivers.redfish import RedfishBmc
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import PowerAction
from raw_bmc import (
    DOCS,
    LIMITS,
    RESET,
    ROOT,
    SESSIONS,
    SYSTEM,
    Asked,
    RawBmc,
    a_credential,
    a_raw_bmc,
    answer,
    documents,
    error,
    get,
)

TRUST = Trust(TrustKind.NONE)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=8), JSON) | JSON)
def test_whatever_the_store_gives_back_is_read_as_far_as_it_makes_sense(given: Any) -> None:
    known = read(given)
    assert set(known) <= set(FIELDS)
    assert read(json.loads(json.dumps(known))) == known


def test_a_value_that_is_not_of_its_kind_is_dropped_alone() -> None:
    given = {
        "login": "basic",
        "sessions": "//elsewhere/redfish",
        "keepAlive": 0,
        "etag": ["none"],
        "spacingS": float("nan"),
        "media": {"Inserted": True, "Nested": {"a": 1}},
        "ipmiSuite": True,
        "unheard": 1,
    }
    assert read(given) == {"login": "basic", "media": {"Inserted": True}}
    assert read({"spacingS": 10**400}) == read({"spacingS": -1}) == {}
    assert read({"spacingS": 99999}) == {"spacingS": 10.0}


def test_what_was_learned_ends_with_the_firmware_and_not_with_a_firmware_that_is_not_told() -> None:
    memory: dict[str, Any] = {"etag": "none", "systems": {SYSTEM: "u"}, "root": object()}
    forget_another(memory, "Contoso", "BMC 200", "1.0")
    forget_another(memory, "Contoso", None, None)
    assert memory["etag"] == "none"
    forget_another(memory, "Contoso", "BMC 200", "1.1")
    assert memory["etag"] is None
    assert memory["systems"] == {SYSTEM: "u"}, "who the systems are is no behaviour of a firmware"
    assert memory["who"] == {"maker": "Contoso", "model": "BMC 200", "firmware": "1.1"}
    assert "root" in memory


def test_two_conversations_add_to_each_other_and_what_was_wrong_goes() -> None:
    stored = {"login": "session", "etag": "none", "systems": {"/a": "1"}}
    found = {"etag": None, "media": {"Inserted": True}, "systems": {"/b": "2"}}
    assert merged(stored, found) == {
        "login": "session",
        "media": {"Inserted": True},
        "systems": {"/a": "1", "/b": "2"},
    }


# ---------------------------------------------------------------- logins


def a_conversation(bmc: RawBmc, memory: dict[str, Any]) -> dict[str, Any]:
    """One door, opened with what was learned before and closed again; what is learned now."""
    with_door = Door(address_of(bmc), a_credential(), Trust(TrustKind.NONE), LIMITS, memory)
    try:
        get(with_door)
    finally:
        with_door.close()
    return read(with_door.memory)


def address_of(bmc: RawBmc) -> BmcAddress:
    return BmcAddress("redfish+http", "127.0.0.1", bmc.port)


def logins(bmc: RawBmc) -> list[str]:
    """How the password was sent, in order."""
    found = []
    for asked in bmc.asked:
        if asked.method == "POST" and asked.path.endswith("Sessions"):
            found.append("session")
        elif "authorization" in asked.headers:
            found.append("basic")
    return found


def without_sessions(asked: Asked) -> Iterable[bytes]:
    if asked.path == ROOT:
        return [answer({"RedfishVersion": "1.6.0"})]
    return documents(DOCS)(asked)


def test_a_bmc_without_sessions_is_not_asked_again_whether_it_has_some() -> None:
    with a_raw_bmc(without_sessions, logs_in=False) as bmc:
        learned = a_conversation(bmc, {})
        assert learned == {"login": "basic"}
        before = len(bmc.asked)
        a_conversation(bmc, learned)
        assert [asked.path for asked in bmc.asked[before:]] == [SYSTEM]


def test_where_sessions_are_opened_is_not_looked_up_again() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc:
        learned = a_conversation(bmc, {})
        assert learned == {"login": "session", "sessions": SESSIONS}
        before = len(bmc.asked)
        a_conversation(bmc, learned)
        assert ROOT not in [asked.path for asked in bmc.asked[before:]]


def test_a_place_for_sessions_that_is_no_more_is_looked_up_anew_and_costs_no_login() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc:
        learned = a_conversation(bmc, {"login": "session", "sessions": "/redfish/v1/Sessions"})
        assert learned == {"login": "session", "sessions": SESSIONS}
        assert [asked.path for asked in bmc.seen("POST")] == ["/redfish/v1/Sessions", SESSIONS]


def refusing(challenge: dict[str, str], sessions: bool) -> Any:
    """Answers every request that is not logged in by a session with 401."""

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == ROOT and sessions:
            return [answer(DOCS[ROOT])]
        if asked.path == ROOT:
            return [answer({"RedfishVersion": "1.6.0"})]
        if "x-auth-token" in asked.headers:
            return documents(DOCS)(asked)
        return [answer(None, 401, **challenge)]

    return script


BASIC = {"WWW_Authenticate": 'Basic realm="bmc"'}
OTHER = {"WWW_Authenticate": 'X-Auth-Token realm="bmc"'}


@pytest.mark.parametrize(
    ("challenge", "sessions"),
    [(BASIC, True), (BASIC, False), ({}, False)],
    ids=["offers-basic", "offers-only-basic", "no-sessions"],
)
def test_a_password_that_basic_refuses_costs_one_login_where_basic_was_learned(
    challenge: dict[str, str], sessions: bool
) -> None:
    with a_raw_bmc(refusing(challenge, sessions)) as bmc:
        with pytest.raises(RejectedCredentials) as rejected:
            a_conversation(bmc, {"login": "basic"})
        assert logins(bmc) == ["basic"]
        assert rejected.value.logins == 1


@pytest.mark.parametrize("challenge", [OTHER, {}], ids=["offers-another", "offers-nothing"])
def test_a_bmc_that_gave_up_basic_is_logged_in_by_a_session(challenge: dict[str, str]) -> None:
    with a_raw_bmc(refusing(challenge, sessions=True)) as bmc:
        assert a_conversation(bmc, {"login": "basic"})["login"] == "session"
        assert logins(bmc) == ["basic", "session"]


@pytest.mark.parametrize(("challenge", "counted"), [(OTHER, 1), ({}, 2)], ids=["offers-another", "offers-nothing"])
def test_a_login_that_fails_in_both_ways_says_how_many_the_bmc_counted(challenge: dict[str, str], counted: int) -> None:
    refusal = error("Base.1.0.ResourceAtUriUnauthorized", status=401)

    def script(asked: Asked) -> Iterable[bytes]:
        return [refusal] if asked.method == "POST" else refusing(challenge, sessions=True)(asked)

    with a_raw_bmc(script, logs_in=False) as bmc:
        with pytest.raises(RejectedCredentials) as rejected:
            a_conversation(bmc, {"login": "basic"})
        assert logins(bmc) == ["basic", "session"]
        assert rejected.value.logins == counted


# ---------------------------------------------------------------- systems


def a_tree(bmc: RawBmc, path: str | None, learned: dict[str, Any]) -> Tree:
    address = replace(address_of(bmc), system_path=path)
    return Tree(Door(address, a_credential(), Trust(TrustKind.NONE), LIMITS), address, learned)


def chassis(*systems: tuple[str, str, bool]) -> Any:
    """Systems by name, with their UUID, and whether they are hosts."""
    place = "/redfish/v1/Systems"
    reset = {"#ComputerSystem.Reset": {"target": "/reset"}}
    docs: dict[str, Any] = {
        ROOT: {**DOCS[ROOT], "Systems": {"@odata.id": place}},
        place: {"Members": [{"@odata.id": f"{place}/{name}"} for name, _, _ in systems]},
    }
    for name, uuid, host in systems:
        more = {"Actions": reset, "Boot": {"BootOrder": []}, "Bios": {"@odata.id": "/bios"}} if host else {}
        docs[f"{place}/{name}"] = {"Id": name, "UUID": uuid, **more}
    return documents(docs)


def system_of(tree: Tree) -> tuple[str, str]:
    try:
        with tree.door.call():
            return tree.system()["Id"], tree.system_path().rpartition("/")[2]
    finally:
        tree.door.close()


def test_a_system_whose_place_another_took_is_found_by_its_uuid() -> None:
    learned = {"systems": {"/redfish/v1/Systems/1": "aa"}}
    with a_raw_bmc(chassis(("1", "bb", True), ("2", "aa", True))) as bmc:
        assert system_of(a_tree(bmc, "/redfish/v1/Systems/1", learned)) == ("2", "2")
    with a_raw_bmc(chassis(("2", "bb", True), ("3", "aa", True))) as bmc:
        assert system_of(a_tree(bmc, "/redfish/v1/Systems/1", learned)) == ("3", "3")


def test_a_system_with_a_new_uuid_that_no_other_has_stays_where_it_was_named() -> None:
    with a_raw_bmc(chassis(("1", "cc", True), ("2", "bb", True))) as bmc:
        tree = a_tree(bmc, "/redfish/v1/Systems/1", {"systems": {"/redfish/v1/Systems/1": "aa"}})
        assert system_of(tree) == ("1", "1")
        assert tree.lasting()["systems"] == {"/redfish/v1/Systems/1": "cc"}


def test_beside_a_board_of_gpus_the_host_is_the_one_that_can_be_started_and_booted() -> None:
    with a_raw_bmc(chassis(("HGX_Baseboard_0", "aa", False), ("System_0", "bb", True))) as bmc:
        assert system_of(a_tree(bmc, None, {})) == ("System_0", "System_0")


def test_the_reset_that_was_taken_is_asked_for_first_the_next_time() -> None:
    """A BMC that names no reset types and knows only one of two words for a restart."""

    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == RESET:
            taken = json.loads(asked.body)["ResetType"] == "PowerCycle"
            return [answer(None, 204) if taken else error("Base.1.0.ActionParameterValueNotInList")]
        system = {**DOCS[SYSTEM], "Actions": {"#ComputerSystem.Reset": {"target": RESET}}}
        return documents({**DOCS, SYSTEM: system})(asked)

    with a_raw_bmc(script) as bmc:
        learned: dict[str, Any] = {}
        for _ in range(2):
            driver = RedfishBmc(replace(address_of(bmc), system_path=SYSTEM), a_credential(), TRUST, LIMITS, learned)
            driver.set_power(PowerAction.CYCLE)
            learned = dict(driver.learned())
            driver.close()
        assert learned["resets"] == {"cycle": "PowerCycle"}
        asked = [json.loads(one.body)["ResetType"] for one in bmc.seen("POST", RESET)]
        assert asked == ["ForceRestart", "PowerCycle", "PowerCycle"]
