"""Rules and overlays as data, and the named behaviours made of them."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

import pytest

from bcmetal_drivers.emulated.behaviours import REGISTRY, TABLES, chosen
from bcmetal_drivers.emulated.behaviours.profile import IPMI
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.host_side import Closed
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack, Rule
from bcmetal_drivers.emulated.replies import NULL, Reply, merged
from bcmetal_drivers.resources import BootDevice, BootMode, PowerState
from rack_client import RESET, SESSIONS, SYSTEM, Client, FakeClock, basic, dialling

# ---------------------------------------------------------------- rules


def test_a_rule_looks_at_the_request_and_at_the_machine(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    when = When(equals={"body/ResetType": "ForceRestart", "power": "on"}, lacks=("header/If-Match",))
    rule = bmc.rule(Rule(method="POST", path="Reset$", when=when, answer=Reply(status=409, code="NotNow")))
    assert client.reset("On").status == 204
    assert client.post(RESET, {"ResetType": "ForceRestart"}, If_Match="*").status == 204
    assert client.reset("ForceRestart").status == 409
    assert rack.fired(rule) == 1


def test_a_rule_knows_how_long_ago_a_write_was(bmc: EmulatedBmc, client: Client, clock: FakeClock) -> None:
    recent = When(under={"since/ComputerSystem.Reset": 20.0})
    bmc.rule(Rule(method="POST", path="Reset$", when=recent, answer=Reply(status=503, code="Later")))
    assert client.reset("On").status == 204
    assert client.reset("ForceOff").status == 503
    clock.now += 20
    assert client.reset("ForceOff").status == 204


def test_an_answer_in_the_place_of_a_write_is_no_write(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    bmc.rule(Rule(method="POST", path="Reset$", answer=Reply(status=204), every=2))
    client.reset("On")
    client.reset("ForceOff")
    assert (bmc.machine.power, len(rack.writes)) == (PowerState.ON, 1)


def test_an_answer_may_be_given_to_a_write_that_is_carried_out(rack: Rack, bmc: EmulatedBmc, client: Client) -> None:
    bmc.rule(Rule(method="POST", path="Reset$", answer=Reply(status=500, code="InternalError", applied=True)))
    assert client.reset("On").status == 500
    assert (bmc.machine.power, len(rack.writes)) == (PowerState.ON, 1)


def test_an_answer_may_be_a_patch_of_the_true_one(bmc: EmulatedBmc, client: Client) -> None:
    patch = {"PowerState": NULL, "Boot": None}
    bmc.rule(Rule(method="GET", path=f"{SYSTEM}$", answer=Reply(merge=patch, headers={"X-Odd": "1"})))
    reply = client.get()
    assert (reply.doc["PowerState"], reply.doc["Id"], reply.headers["X-Odd"]) == (None, "1", "1")
    assert "Boot" not in reply.doc


def test_an_effect_comes_after_the_write_that_brought_it(bmc: EmulatedBmc, client: Client) -> None:
    effect = {"boot": {"device": "none", "once": True, "mode": "legacy"}}
    bmc.rule(Rule(method="PATCH", path=SYSTEM, effect=effect))
    assert client.boot_from("Cd").status == 204
    assert bmc.machine.override.device is BootDevice.NONE
    assert bmc.machine.boot_mode is BootMode.LEGACY


def test_a_bmc_restarts_and_flaps(bmc: EmulatedBmc, client: Client, clock: FakeClock) -> None:
    client.login()
    bmc.rule(Rule(method="POST", path="Reset$", times=1, effect={"restart": {"seconds": 30.0, "flaps": 2}}))
    assert client.reset("On").status == 204
    assert client.session is not None
    assert _reachable(bmc) is False
    clock.now += 31
    assert [_reachable(bmc) for _ in range(6)] == [False, True, False, True, True, True]
    with dialling(bmc) as other:
        assert other.get(client.session).status == 404  # sessions are gone


def test_people_change_a_password_and_plant_an_account(bmc: EmulatedBmc, client: Client) -> None:
    before = bmc.password
    bmc.rule(Rule(path=SESSIONS, times=1, before={"password": {}, "account": {"username": "guest"}}))
    client.get(SESSIONS)
    assert bmc.password != before
    names = [
        client.get(f"/redfish/v1/AccountService/Accounts/{slot}", Authorization=_basic(bmc)).doc["UserName"]
        for slot in "12"
    ]
    assert names == [bmc.username, "guest"]


def test_a_rule_goes_over_json_and_back() -> None:
    rule = Rule(when=When(has=("power",)), answer=Reply(status=418), effect={"end_sessions": {}})
    assert Rule.read(asdict(rule)) == rule


def test_an_unknown_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="no such effect: explode"):
        Rule(effect={"explode": {}})


def test_root_on_the_host_needs_no_password_until_the_way_is_closed(
    rack: Rack, bmc: EmulatedBmc, client: Client
) -> None:
    host = bmc.host_side
    slot = host.add_account("mallory")
    host.use_directory("ldap://192.0.2.66")
    host.subscribe("https://192.0.2.66/events")
    host.flash("BIOS", "9.9.9")
    host.put_first("Boot0003")
    service = "/redfish/v1/AccountService"
    assert client.get(f"{service}/Accounts/{slot}").doc["RoleId"] == "Administrator"
    assert client.get(service).doc["LDAP"]["ServiceEnabled"] is True
    assert client.get("/redfish/v1/EventService/Subscriptions").doc["Members@odata.count"] == 1
    assert client.get().doc["BiosVersion"] == "9.9.9"
    assert client.get().doc["Boot"]["BootOrder"][0] == "Boot0003"
    assert rack.writes == []
    host.closed = True
    with pytest.raises(Closed):
        host.add_account("eve")


# ---------------------------------------------------------------- overlays


def test_a_merge_patch_is_as_the_rfc_has_it() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": NULL}, "d": [2]}) == {
        "a": {"c": 2, "e": None},
        "d": [2],
    }


def test_an_overlay_changes_makes_and_takes_away_documents(bmc: EmulatedBmc, client: Client) -> None:
    bmc.overlay(
        {
            r"/redfish/v1/Systems/\d+": {"Model": "<serial> of <mac-1>"},
            "/redfish/v1/Odd": {"@odata.type": "#Odd.v1_0_0.Odd", "Id": "Odd"},
            "/redfish/v1/Chassis": None,
        }
    )
    assert client.get().doc["Model"] == f"{bmc.machine.serial} of {bmc.machine.macs[0]}"
    assert client.get("/redfish/v1/Odd").doc["Id"] == "Odd"
    assert client.get("/redfish/v1/Chassis").status == 404
    assert client.get("/redfish/v1/Chassis/1").status == 200


def test_an_overlay_changes_the_etag_that_a_write_needs(bmc: EmulatedBmc, client: Client) -> None:
    bmc.set(etag=True)
    bmc.overlay({SYSTEM: {"Model": "another"}})
    etag = client.get().headers["ETag"]
    assert client.patch(SYSTEM, {"AssetTag": "x"}, If_Match=etag).status == 204


# ---------------------------------------------------------------- behaviours


def test_behaviours_of_a_name_are_there_once() -> None:
    assert len(REGISTRY) == sum(len(table) for table in TABLES.values())
    for behaviour in REGISTRY.values():
        assert behaviour.about.endswith(".")
        assert chosen([behaviour.name])[-1] is behaviour


def test_every_behaviour_can_be_turned_on_and_leaves_a_bmc_that_serves(clock: FakeClock) -> None:
    rack = Rack(clock=clock)
    for behaviour in REGISTRY.values():
        if behaviour.protocol == IPMI:
            rack.add_ipmi(behaviour.name, behaviours=(behaviour.name,))
        else:
            rack.add_redfish(behaviour.name, behaviours=(behaviour.name,), tls=False)
    assert all(name in rack.bmc(name).behaviours for name in REGISTRY)


def test_a_bmc_keeps_its_behaviours_over_a_restart_of_the_rack(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rack")
    with Rack(folder) as rack:
        rack.add_redfish("one", behaviours=("supermicro", "flaky"))
    with Rack(folder) as again, dialling(again.bmc("one")) as client:
        assert "boot-reverts" in again.bmc("one").behaviours
        boot = client.get().doc["Boot"]
        assert "UsbCd" in boot["BootSourceOverrideTarget@Redfish.AllowableValues"]
        assert client.get("/redfish/v1/").doc["Vendor"] == "Supermicro"


def test_a_behaviour_of_the_other_protocol_is_refused(bmc: EmulatedBmc) -> None:
    with pytest.raises(ValueError, match="ipmi"):
        bmc.behave("ipmi-flag-expires")


def test_an_unknown_behaviour_is_refused(bmc: EmulatedBmc) -> None:
    with pytest.raises(ValueError, match="no such behaviour: explode"):
        bmc.behave("explode")


def test_a_uuid_in_the_other_byte_order_is_the_same_to_who_knows(bmc: EmulatedBmc, client: Client) -> None:
    bmc.behave("uuid-byte-order")
    shown = UUID(client.get().doc["UUID"])
    assert shown != bmc.machine.uuid
    assert UUID(bytes=shown.bytes_le) == bmc.machine.uuid


def _basic(bmc: EmulatedBmc) -> str:
    return basic(bmc.username, bmc.password.get_secret_value())


def _reachable(bmc: EmulatedBmc) -> bool:
    with dialling(bmc) as client:
        try:
            return client.get().status == 200
        except OSError:
            return False
