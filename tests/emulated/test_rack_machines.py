"""Power, boot, media and the oracle, asked over Redfish and judged by the machine itself."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path

from bcmetal_drivers.emulated import serve
from bcmetal_drivers.emulated.rack import EmulatedBmc, Machine, Rack
from bcmetal_drivers.resources import PowerState
from rack_client import CD, EJECT, INSERT, SYSTEM, Client, FakeClock, a_media_server, dialling


def booted(machine: Machine) -> list[tuple[str, str | None]]:
    return [(boot.device, boot.url) for boot in machine.boots]


# ---------------------------------------------------------------- power


def test_power_obeys_at_once(machine: Machine, client: Client) -> None:
    assert client.get().doc["PowerState"] == "Off"
    assert client.reset("On").status == 204
    assert (client.get().doc["PowerState"], machine.power) == ("On", PowerState.ON)
    assert client.reset("ForceOff").status == 204
    assert (client.get().doc["PowerState"], machine.power) == ("Off", PowerState.OFF)


def test_a_lagging_machine_shows_that_it_is_on_its_way(
    bmc: EmulatedBmc, machine: Machine, clock: FakeClock, client: Client
) -> None:
    bmc.set(power_lag_s=20.0)
    client.reset("On")
    assert client.get().doc["PowerState"] == "PoweringOn"
    assert machine.boots == []
    clock.now += 20
    assert client.get().doc["PowerState"] == "On"
    assert [boot.at for boot in machine.boots] == [1020.0]
    client.reset("ForceOff")
    assert client.get().doc["PowerState"] == "PoweringOff"
    clock.now += 21
    assert client.get().doc["PowerState"] == "Off"


def test_on_twice_boots_once(machine: Machine, client: Client) -> None:
    client.reset("On")
    client.reset("On")
    assert len(machine.boots) == 1


def test_a_restart_boots_again_and_is_refused_when_off(machine: Machine, client: Client) -> None:
    assert client.reset("ForceRestart").status == 409
    client.reset("On")
    assert client.reset("ForceRestart").status == 204
    assert len(machine.boots) == 2


def test_a_machine_that_ignores_acpi_stays_on(bmc: EmulatedBmc, machine: Machine, client: Client) -> None:
    bmc.set(ignores_soft_off=True)
    client.reset("On")
    assert client.reset("GracefulShutdown").status == 204
    assert machine.power is PowerState.ON


def test_a_bmc_may_refuse_the_state_that_is_there(bmc: EmulatedBmc, client: Client) -> None:
    assert client.reset("ForceOff").status == 204
    bmc.set(refuse_same_power=True)
    assert client.reset("ForceOff").status == 409


def test_an_unknown_reset_is_refused(machine: Machine, client: Client) -> None:
    assert client.reset("Explode").status == 400
    assert machine.power is PowerState.OFF


def test_an_nmi_reaches_a_running_machine(machine: Machine, client: Client) -> None:
    client.reset("On")
    assert client.reset("Nmi").status == 204
    assert (machine.nmis, len(machine.boots)) == (1, 1)


# ---------------------------------------------------------------- boot


def test_once_is_used_up_by_one_boot(machine: Machine, client: Client) -> None:
    assert client.boot_from("Pxe").status == 204
    assert client.get().doc["Boot"]["BootSourceOverrideEnabled"] == "Once"
    client.reset("On")
    boot = client.get().doc["Boot"]
    assert (boot["BootSourceOverrideEnabled"], boot["BootSourceOverrideTarget"]) == ("Disabled", "None")
    client.reset("ForceRestart")
    assert booted(machine) == [("pxe", None), ("disk", None)]


def test_continuous_lasts(machine: Machine, client: Client) -> None:
    client.boot_from("Pxe", "Continuous")
    client.reset("On")
    client.reset("ForceRestart")
    assert booted(machine) == [("pxe", None), ("pxe", None)]
    client.patch(SYSTEM, {"Boot": {"BootSourceOverrideEnabled": "Disabled"}})
    assert machine.would_boot() == ("disk", None)


def test_a_value_that_is_not_allowed_changes_nothing(machine: Machine, client: Client) -> None:
    client.boot_from("Pxe")
    assert client.boot_from("Floppy").status == 400
    assert client.patch(SYSTEM, {"Boot": {"BootNext": "Boot0001"}}).status == 400
    assert machine.would_boot() == ("pxe", None)


def test_a_boot_mode_stays(machine: Machine, client: Client) -> None:
    assert client.patch(SYSTEM, {"Boot": {"BootSourceOverrideMode": "Legacy"}}).status == 204
    client.reset("On")
    assert client.get().doc["Boot"]["BootSourceOverrideMode"] == "Legacy"
    assert machine.boots[0].mode == "legacy"


def test_where_the_virtual_cd_is_called_usb_cd_the_other_one_is_empty(
    bmc: EmulatedBmc, machine: Machine, client: Client
) -> None:
    bmc.set(cd_name="UsbCd")
    machine.insert("http://127.0.0.1/a.iso", "00")
    client.boot_from("Cd")
    assert machine.would_boot() == ("disk", None)
    client.boot_from("UsbCd")
    assert client.get().doc["Boot"]["BootSourceOverrideTarget"] == "UsbCd"
    assert machine.would_boot() == ("cd", "http://127.0.0.1/a.iso")


def test_a_bmc_may_want_the_boot_in_its_settings(bmc: EmulatedBmc, machine: Machine, client: Client) -> None:
    bmc.set(boot_settings=True)
    assert client.boot_from("Pxe").status == 400
    settings = client.get().doc["@Redfish.Settings"]["SettingsObject"]["@odata.id"]
    assert client.patch(settings, {"Boot": {"BootSourceOverrideTarget": "Pxe"}}).status == 204
    assert machine.would_boot() == ("pxe", None)


def test_secure_boot_comes_into_force_with_the_next_boot(client: Client) -> None:
    path = f"{SYSTEM}/SecureBoot"
    assert client.patch(path, {"SecureBootEnable": True}).status == 204
    assert client.get(path).doc["SecureBootCurrentBoot"] == "Disabled"
    client.reset("On")
    assert client.get(path).doc["SecureBootCurrentBoot"] == "Enabled"


# ---------------------------------------------------------------- media


def test_a_medium_is_downloaded_from_the_bmcs_own_address(bmc: EmulatedBmc, machine: Machine, client: Client) -> None:
    with a_media_server() as media:
        assert client.post(INSERT, {"Image": media.url}).status == 204
        assert media.clients == [bmc.host]
    slot = client.get(CD).doc
    assert (slot["Inserted"], slot["Image"]) == (True, media.url)
    client.boot_from("Cd")
    assert machine.would_boot() == ("cd", media.url)
    client.reset("On")
    assert machine.boots[0].medium_sha256 == hashlib.sha256(media.body).hexdigest()
    assert client.post(EJECT).status == 204
    assert machine.media is None
    assert client.get(CD).doc["Image"] is None
    client.reset("ForceRestart")
    assert booted(machine) == [("cd", media.url), ("disk", None)]


def test_media_come_over_https_too(tmp_path: Path, machine: Machine, client: Client) -> None:
    serve.certificate(tmp_path / "media.pem", "127.0.0.1", "media")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "media.pem")
    with a_media_server(tls=context) as media:
        assert client.post(INSERT, {"Image": media.url}).status == 204
    medium = machine.medium()
    assert medium is not None
    assert medium.sha256 == hashlib.sha256(media.body).hexdigest()


def test_a_failed_download_is_an_error_and_inserts_nothing(machine: Machine, client: Client) -> None:
    with a_media_server() as media:
        absent = media.url.rpartition("/")[0] + "/absent.iso"
        assert client.post(INSERT, {"Image": absent}).status == 400
    assert client.post(INSERT, {"Image": media.url}).status == 502  # nobody listens there any more
    assert client.post(INSERT, {"Image": "http://192.0.2.1/a.iso"}).status == 400  # not loopback: not even tried
    assert client.post(INSERT, {"Image": "ftp://127.0.0.1/a.iso"}).status == 400
    assert client.post(INSERT, {}).status == 400
    assert machine.media is None


def test_armed_for_a_cd_that_is_not_there_it_boots_the_disk(machine: Machine, client: Client) -> None:
    client.boot_from("Cd")
    client.reset("On")
    assert booted(machine) == [("disk", None)]


def test_an_insert_on_one_bmc_does_not_appear_on_another(rack: Rack, client: Client) -> None:
    other = rack.add_redfish("two")
    with a_media_server() as media:
        client.post(INSERT, {"Image": media.url})
    assert other.machine.media is None
    with dialling(other) as second:
        assert second.get(CD).doc["Inserted"] is False


def test_a_medium_does_not_appear_in_the_other_slot(client: Client) -> None:
    with a_media_server() as media:
        client.post(INSERT, {"Image": media.url})
    assert client.get(f"{SYSTEM}/VirtualMedia/Floppy").doc["Inserted"] is False


def test_slots_may_be_under_the_manager(bmc: EmulatedBmc, machine: Machine, client: Client) -> None:
    bmc.set(media_at="managers")
    assert "VirtualMedia" not in client.get().doc
    assert client.get(CD).status == 404
    slots = client.get("/redfish/v1/Managers/bmc").doc["VirtualMedia"]["@odata.id"]
    first = client.get(slots).doc["Members"][0]["@odata.id"]
    target = client.get(first).doc["Actions"]["#VirtualMedia.InsertMedia"]["target"]
    assert target.startswith("/redfish/v1/Managers/bmc/")
    with a_media_server() as media:
        assert client.post(target, {"Image": media.url}).status == 204
    assert machine.media == media.url


def test_a_slot_may_be_written_instead_of_acted_on(bmc: EmulatedBmc, machine: Machine, client: Client) -> None:
    bmc.set(media_insert="patch")
    assert "Actions" not in client.get(CD).doc
    with a_media_server() as media:
        assert client.post(INSERT, {"Image": media.url}).status == 404
        assert client.patch(CD, {"Image": media.url, "Inserted": True}).status == 204
    assert machine.media == media.url
    assert client.patch(CD, {"Image": None}).status == 204
    assert machine.media is None


# ---------------------------------------------------------------- several systems, identity


def test_two_systems_behind_one_bmc_are_two_machines(rack: Rack) -> None:
    bmc = rack.add_redfish("blades", systems=2)
    first, second = bmc.machines
    assert bmc.address.endswith(str(bmc.port))
    with dialling(bmc) as client:
        paths = [member["@odata.id"] for member in client.get("/redfish/v1/Systems").doc["Members"]]
        docs = [client.get(path).doc for path in paths]
        assert [doc["SerialNumber"] for doc in docs] == [first.serial, second.serial]
        assert [doc["UUID"] for doc in docs] == [str(first.uuid), str(second.uuid)]
        client.post(f"{paths[1]}/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert (first.power, second.power) == (PowerState.OFF, PowerState.ON)
    assert rack.writes[-1].machine == second.name
    assert not set(first.macs) & set(second.macs)
    assert not set(first.drives) & set(second.drives)


def test_macs_are_universally_administered_and_shown(machine: Machine, client: Client) -> None:
    members = client.get(f"{SYSTEM}/EthernetInterfaces").doc["Members"]
    shown = [client.get(member["@odata.id"]).doc["MACAddress"] for member in members]
    assert tuple(shown) == machine.macs
    assert all(int(mac[:2], 16) & 0b11 == 0 for mac in shown)


def test_every_link_leads_somewhere(client: Client) -> None:
    todo, seen = ["/redfish/v1"], set[str]()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        reply = client.get(path)
        assert reply.status == 200, path
        todo += [link for link in links(reply.doc) if link not in seen]
    assert len(seen) > 30


def links(doc: object) -> Iterator[str]:
    if isinstance(doc, dict):
        for name, value in doc.items():
            if name == "@odata.id":
                yield str(value).rstrip("/")
            yield from links(value)
    elif isinstance(doc, list):
        for value in doc:
            yield from links(value)
