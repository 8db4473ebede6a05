"""The configuration: what is taken, what is refused, and in which words."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from bcmetal.boot.policy import fetch_policy
from bcmetal.decisions import PoolMode
from bcmetal.errors import InvalidInput, VaultError
from bcmetal.settings import Settings, check, load, refused_reload
from bcmetal.settings_grants import ROLES, Action, Role

SAMPLE = Path(__file__).parents[2] / "config" / "bcmetal.toml"


@pytest.fixture
def doc() -> dict[str, Any]:
    return tomllib.loads(SAMPLE.read_text(encoding="utf-8"))


@pytest.fixture
def restored_environment() -> Iterator[None]:
    before = os.environ.get("CREDENTIALS_DIRECTORY")
    yield
    os.environ.pop("CREDENTIALS_DIRECTORY", None)
    if before is not None:
        os.environ["CREDENTIALS_DIRECTORY"] = before


def faults(doc: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        check(doc)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_the_sample_is_a_valid_configuration() -> None:
    settings = load(SAMPLE)
    pool = settings.pool("gpu")
    assert pool is not None
    policy = pool.policy(settings)
    assert (policy.owner, policy.mode, policy.has_rescue_iso) == ("tenant-a", PoolMode.MANAGE, True)
    assert policy.commission_erases
    assert policy.release_erases


def test_the_sample_shows_every_setting_of_this_build() -> None:
    text = SAMPLE.read_text(encoding="utf-8")
    settings = load(SAMPLE)
    tables: list[BaseModel] = [
        settings.daemon,
        settings.networks["bmc"],
        settings.pools["gpu"],
        settings.profiles.commission["standard"],
    ]
    tables += [
        settings.credentials["fleet"],
        settings.images["rescue"],
        settings.profiles.release["purge"],
        settings.grants[0],
    ]
    for table in tables:
        for name in type(table).model_fields:
            assert name in text, f"the sample says nothing of {name}"


def test_all_faults_are_named_at_once_each_by_its_path(doc: dict[str, Any]) -> None:
    doc["daemon"]["api_listen"] = "8443"
    doc["daemon"]["databse"] = "sqlite:///x"
    doc["networks"]["bmc"]["cidrs"] = ["10.20.0.1/16"]
    doc["pools"]["gpu"]["site"] = "fra2"
    doc["pools"]["gpu"]["mode"] = "watch"
    doc["credentials"]["fleet"]["networks"] = ["bmc", "lab"]
    doc["grants"][0]["on"] = "site/nowhere"
    del doc["profiles"]["release"]["purge"]["erase"]
    found = faults(doc)
    assert set(found) == {
        "daemon.api_listen",
        "daemon.databse",
        "networks.bmc.cidrs[0]",
        "pools.gpu.site",
        "pools.gpu.mode",
        "credentials.fleet.networks[1]",
        "grants[0].on",
        "profiles.release.purge.erase",
    }
    assert "did you mean database?" in found["daemon.databse"]
    assert "[sites.fra2]" in found["pools.gpu.site"]


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (("daemon",), "backup", {"every_s": 900}),
        (("pools", "gpu"), "gates", {"before_boot": "https://switch.example/vlan"}),
    ],
)
def test_what_this_build_does_not_have_is_said_to_come_later(
    doc: dict[str, Any], place: tuple[str, ...], name: str, value: object
) -> None:
    table = doc
    for part in place:
        table = table[part]
    table[name] = value
    assert faults(doc) == {".".join((*place, name)): "this build does not have it yet: leave it out"}


@pytest.mark.parametrize("erase", ["bmc", [], ["shred"], 7])
def test_an_erase_is_none_or_a_list_of_methods(doc: dict[str, Any], erase: object) -> None:
    doc["profiles"]["commission"]["standard"]["erase"] = erase
    assert list(faults(doc)) == ["profiles.commission.standard.erase"]


def test_what_only_the_agent_could_do_is_refused_in_a_pool_without_one(doc: dict[str, Any]) -> None:
    doc["pools"]["gpu"] |= {"agent": "none", "sign_of_life": "none"}
    found = faults(doc)
    assert set(found) == {"pools.gpu.commission", "pools.gpu.release"}
    assert all('agent = "bcd"' in fault for fault in found.values())


def test_pass_marks_are_those_that_a_test_judges_by(doc: dict[str, Any]) -> None:
    doc["profiles"]["commission"]["standard"]["tests"]["limits"] = {"smart": {"wear": 80}, "luck": {"dice": 6}}
    place = "profiles.commission.standard.tests.limits"
    assert set(faults(doc)) == {f"{place}.smart.wear", f"{place}.luck"}


def test_a_key_that_opens_nothing_is_refused_when_it_is_read(doc: dict[str, Any]) -> None:
    doc["profiles"]["commission"]["standard"]["hold_keys"] = ["ssh-rsa nope"]
    found = faults(doc)
    assert set(found) == {"profiles.commission.standard.hold_keys[0]"}
    assert "no SSH key" in found["profiles.commission.standard.hold_keys[0]"]


def test_a_hold_names_who_may_log_in(doc: dict[str, Any]) -> None:
    del doc["profiles"]["commission"]["standard"]["hold_keys"]
    assert set(faults(doc)) == {"profiles.commission.standard.hold_keys"}


def test_a_firmware_baseline_is_there_and_its_images_have_checksums(doc: dict[str, Any]) -> None:
    doc["profiles"]["commission"]["standard"]["firmware"] = "q3"
    assert set(faults(doc)) == {"profiles.commission.standard.firmware"}
    doc["firmware"] = {
        "q3": {"BIOS": {"version": "2.15", "url": "https://mirror.example/bios.exe"}, "BMC": {"version": "7"}}
    }
    assert set(faults(doc)) == {"firmware.q3.BIOS.sha256"}
    doc["firmware"]["q3"]["BIOS"]["sha256"] = "ab" * 32
    assert "mirror.example" in check(doc).image_hosts()


def test_a_raid_layout_has_drives_enough_and_goes_with_an_erase(doc: dict[str, Any]) -> None:
    profile = doc["profiles"]["commission"]["standard"]
    profile["raid"] = [{"raid": "RAID5", "count": 2}]
    assert "needs at least 3" in faults(doc)["profiles.commission.standard.raid[0]"]
    profile |= {"raid": [{"raid": "RAID1", "count": 2}], "erase": "none"}
    assert set(faults(doc)) == {"profiles.commission.standard.raid"}


def test_a_bios_setting_is_a_plain_value_under_a_plain_name(doc: dict[str, Any]) -> None:
    doc["profiles"]["commission"]["standard"]["bios"] = {"BootRetryCount": 3, "QuietBoot": True, "a b": "x", "Deep": {}}
    assert set(faults(doc)) == {"profiles.commission.standard.bios.a b", "profiles.commission.standard.bios.Deep"}


def test_a_password_in_the_file_is_refused_and_not_repeated(doc: dict[str, Any]) -> None:
    planted = secrets.token_hex(12)
    doc["credentials"]["fleet"]["password"] = planted
    found = faults(doc)
    assert list(found) == ["credentials.fleet.password"]
    assert planted not in str(found)


def test_the_vaults_key_cannot_be_sealed_by_itself(doc: dict[str, Any]) -> None:
    doc["daemon"]["vault_key"] = "sealed:vault"
    assert "before anything can be unsealed" in faults(doc)["daemon.vault_key"]


def test_an_image_without_a_checksum_is_refused(doc: dict[str, Any]) -> None:
    del doc["images"]["rescue"]["sha256"]
    assert "sha256" in faults(doc)["images.rescue.sha256"]


def test_one_network_address_has_one_name(doc: dict[str, Any]) -> None:
    doc["networks"]["other"] = {"cidrs": ["10.20.0.0/16"]}
    assert "[networks.bmc]" in faults(doc)["networks.other.cidrs[0]"]


def test_a_certificates_identity_needs_a_tenant(doc: dict[str, Any]) -> None:
    doc["identities"] = []
    assert "[[identities]]" in faults(doc)["grants[0].to"]


def test_a_grant_says_what_it_allows(doc: dict[str, Any]) -> None:
    del doc["grants"][0]["role"]
    doc["grants"][1]["actions"] = ["erase", "everything"]
    assert set(faults(doc)) == {"grants[0].role", "grants[1].actions[1]"}


def test_a_file_that_is_no_toml_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[daemon\n")
    with pytest.raises(InvalidInput, match="line 1"):
        load(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_the_narrowest_network_holds_an_address(doc: dict[str, Any]) -> None:
    doc["networks"]["lab"] = {"cidrs": ["10.20.9.0/24"], "names": ["bmc1.bmc.fra1.example"]}
    settings = check(doc)

    def name_of(host: str) -> str | None:
        network = settings.network_for(host)
        return None if network is None else network.name

    assert name_of("10.20.9.1") == "lab"
    assert name_of("10.20.8.1") == "bmc"
    assert name_of("fd00:20::1") == "bmc"
    assert name_of("192.0.2.1") is None
    assert name_of("r1.bmc.fra1.example") == "bmc"
    assert name_of("BMC1.bmc.fra1.example.") == "lab"
    assert name_of("bmc.fra1.example") is None
    assert name_of("evil-bmc.fra1.example") is None


def test_the_hosts_of_named_images_may_be_fetched_from(doc: dict[str, Any]) -> None:
    doc["images"]["local"] = {"url": "http://127.0.0.1:8000/x.iso", "sha256": "0" * 64, "format": "iso"}
    policy = fetch_policy(check(doc))
    assert {"mirror.example", "10.40.0.0/24", "127.0.0.1"} <= set(policy.allowed)
    assert policy.limit_bytes == doc["daemon"]["image_limit_bytes"]


def test_the_digest_tells_pools_apart_and_not_daemons(doc: dict[str, Any]) -> None:
    before = check(doc).digest()
    doc["daemon"]["api_listen"] = "127.0.0.1:1"
    assert check(doc).digest() == before
    doc["pools"]["gpu"]["erase_on_arrival"] = True
    assert check(doc).digest() != before


def test_a_pool_with_nodes_cannot_vanish_or_change_its_owner(doc: dict[str, Any]) -> None:
    old = check(doc)
    doc["pools"]["gpu"]["owner"] = "tenant-b"
    changed = check(doc)
    del doc["pools"]["gpu"]
    del doc["grants"][1:]
    gone = check(doc)
    for new in (changed, gone):
        assert [fault.path for fault in refused_reload(old, new, {"gpu"})] == ["pools.gpu"]
        assert refused_reload(old, new, ()) == []


def test_what_needs_a_restart_is_not_taken_by_a_reload(doc: dict[str, Any]) -> None:
    old = check(doc)
    doc["daemon"]["api_listen"] = "127.0.0.1:1"
    doc["daemon"]["images_from"] = []
    assert [fault.path for fault in refused_reload(old, check(doc), ())] == ["daemon.api_listen"]


def test_roles_grow() -> None:
    assert ROLES[Role.READER] < ROLES[Role.OPERATOR] < ROLES[Role.ADMIN] == set(Action)


class _Vault:
    def open(self, sealed: Any, purpose: str, bind: str = "") -> SecretStr:
        return SecretStr(f"{purpose}/{sealed}/{bind}")


def _fleet(doc: dict[str, Any], password: str) -> Settings:
    doc["credentials"]["fleet"]["password"] = password
    return check(doc)


def test_a_credential_reads_its_password_from_where_it_lies(
    doc: dict[str, Any], tmp_path: Path, restored_environment: None
) -> None:
    wanted = secrets.token_hex(12)
    path = tmp_path / "fleet"
    path.write_text(wanted + "\n")
    path.chmod(0o600)
    os.environ["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    for place in (f"file:{path}", "credential:fleet"):
        found = _fleet(doc, place).credentials["fleet"].password_from(_Vault())
        assert found.get_secret_value() == wanted
    path.chmod(0o644)
    with pytest.raises(VaultError, match="others can read"):
        _fleet(doc, f"file:{path}").credentials["fleet"].password_from(_Vault())
    with pytest.raises(VaultError, match="cannot be read"):
        _fleet(doc, "credential:none").credentials["fleet"].password_from(_Vault())


def test_a_sealed_password_is_opened_by_the_vault(doc: dict[str, Any]) -> None:
    settings = _fleet(doc, "sealed:shared")
    with pytest.raises(VaultError, match="bcmetal credential set shared"):
        settings.credentials["fleet"].password_from(_Vault())
    settings.take_sealed({"shared": "row"})
    assert settings.credentials["fleet"].password_from(_Vault()).get_secret_value() == "credential/row/"


def test_a_pool_that_waits_for_an_agent_runs_one(doc: dict[str, Any]) -> None:
    doc["pools"]["gpu"] |= {"sign_of_life": "agent", "agent": "none"}
    assert 'say agent = "bcd"' in faults(doc)["pools.gpu.sign_of_life"]


def test_how_a_pool_speaks_ipmi(doc: dict[str, Any], tmp_path: Path) -> None:
    doc["pools"]["gpu"]["ipmi"] = {"privilege": "OPERATOR", "suites": [3], "legacy": True, "kg": f"file:{tmp_path}/kg"}
    pool = check(doc).pool("gpu")
    assert pool is not None
    assert (pool.ipmi.privilege, pool.ipmi.suites, pool.ipmi.legacy) == ("OPERATOR", (3,), True)
    doc["pools"]["gpu"]["ipmi"] = {"privilege": "KING", "suites": [0], "kg": "a secret as it is"}
    assert faults(doc).keys() >= {"pools.gpu.ipmi.privilege", "pools.gpu.ipmi.suites[0]", "pools.gpu.ipmi.kg"}
