"""Looking at a BMC before it is enrolled: what is told, what is sent, and where nobody is let look."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from api.site import POOL, Site
from bcmetal.api.app import build_app
from bcmetal.clock import SystemClock
from bcmetal.diagnosis import Seen
from bcmetal.doctor import Doctor, Visit
from bcmetal.line import Lines
from bcmetal.settings import Settings
from bcmetal.store.logins import stranger
from bcmetal_drivers.address import parse
from bcmetal_drivers.connection import BmcAddress, Trust, TrustKind
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.rack import EmulatedBmc, Rack
from bcmetal_drivers.errors import Unreachable
from bcmetal_drivers.first_look import RedfishSeen
from bcmetal_drivers.ipmi_offered import IpmiSeen
from in_process import Answered
from raw_bmc import RawBmc, Script, a_certificate, a_raw_bmc, answer

ROOT = "/redfish/v1/"
WRONG = secrets.token_hex(8)


@contextmanager
def a_doctor(site: Site, resolved: Sequence[str] = (), settings: Settings | None = None) -> Iterator[Doctor]:
    """At a site whose BMCs are on loopback. `resolved`: what every host name leads to. `settings`: what it finds when it logs in."""

    def resolver(host: str, port: int) -> Sequence[str]:
        if not resolved:
            raise OSError(host)
        return resolved

    lines = Lines(site.store, SystemClock(), site.vault, lambda: settings or site.settings)
    made = Doctor(lines, resolver)
    site.app = build_app(replace(site.services, doctor=made))
    try:
        yield made
    finally:
        made.close()
        site.run(lines.close())


@pytest.fixture
def there(site: Site) -> Iterator[Site]:
    site.change(lambda doc: doc["networks"].update(loop={"cidrs": ["127.0.0.0/8"], "tls": "pin-first"}))
    with a_doctor(site):
        yield site


def look(site: Site, address: str, who: str = "admin", **bmc: Any) -> Answered:
    return site.metal("doctor", {"bmc": {"address": address, **bmc}}, who)


def seen(site: Site, address: str, **bmc: Any) -> dict[str, Any]:
    answered = look(site, address, **bmc)
    assert answered.status == 200, answered.raw
    return dict(answered.doc)


def with_a_credential(site: Site, folder: Path, username: str, password: str) -> None:
    file = folder / "fleet.password"
    file.write_text(password)
    file.chmod(0o600)
    fleet = {"username": username, "password": f"file:{file}", "networks": ["bmc", "loop"]}
    site.change(lambda doc: doc["credentials"].update(fleet=fleet))


@contextmanager
def a_bmc(*behaviours: str, ipmi: bool = False) -> Iterator[EmulatedBmc]:
    rack = Rack(seed=1)
    made = (rack.add_ipmi if ipmi else rack.add_redfish)("r3u17", behaviours=behaviours)
    with rack:
        yield made


def at(bmc: EmulatedBmc) -> str:
    address = parse(bmc.address)
    return f"{address.host}:{address.port}"


def raw(script: Script, folder: Path) -> Any:
    return a_raw_bmc(script, a_certificate(folder).context)


def a_root(**more: Any) -> dict[str, Any]:
    return {"@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "RedfishVersion": "1.9.0", **more}


# ---------------------------------------------------------------- what is told


def test_a_self_signed_bmc_is_told_with_its_certificate_and_nothing_vouches_for_it(there: Site) -> None:
    with a_bmc() as bmc:
        found = seen(there, at(bmc))
    redfish = found["redfish"]
    assert (redfish["there"], redfish["product"], redfish["redfishVersion"]) == (True, "Contoso BMC", "1.15.0")
    assert redfish["uuid"]
    certificate = redfish["certificate"]
    assert (certificate["fingerprint"], certificate["selfSigned"]) == (bmc.fingerprint, True)
    assert certificate["names"] == [parse(bmc.address).host]
    assert certificate["notBefore"] < certificate["notAfter"]
    assert certificate["trusted"] is None
    assert abs(redfish["clockSkewS"]) < 10
    assert found["login"] is None
    assert found["warnings"] == []
    assert not found["ipmi"]["there"]


def test_a_fingerprint_is_compared_and_a_wrong_one_is_a_warning(there: Site) -> None:
    with a_bmc() as bmc:
        right = seen(there, at(bmc), tls={"fingerprint": bmc.fingerprint})
        wrong = seen(there, at(bmc), tls={"fingerprint": "0" * 64})
    assert right["redfish"]["certificate"]["trusted"] is True
    assert wrong["redfish"]["certificate"]["trusted"] is False
    assert wrong["redfish"]["certificate"]["mistrust"]["code"] == "bmc-certificate-untrusted"
    assert "not the pinned one" in wrong["warnings"][0]


def test_an_expired_certificate_and_a_clock_that_is_wrong_are_warnings(there: Site, tmp_path: Path) -> None:
    date = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)
    certificate = a_certificate(tmp_path, valid_days=(-30, -2))
    with a_raw_bmc(lambda _: [answer(a_root(Vendor="Supermicro"), Date=date)], certificate.context) as bmc:
        found = seen(there, f"127.0.0.1:{bmc.port}")
    assert any("has expired" in one for one in found["warnings"])
    assert any("s behind" in one for one in found["warnings"])
    assert found["redfish"]["clockSkewS"] < -86400 * 365
    assert ["all_boot_keys"] in [one["differs"] for one in found["behaviours"]]


def test_nothing_that_authorises_is_sent_without_a_credential(there: Site, tmp_path: Path) -> None:
    with raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        seen(there, f"127.0.0.1:{bmc.port}")
    _harmless(bmc)
    assert bmc.asked


def _harmless(bmc: RawBmc) -> None:
    assert {(one.method, one.path) for one in bmc.asked} <= {("GET", ROOT)}
    assert not any({"authorization", "x-auth-token", "cookie"} & one.headers.keys() for one in bmc.asked)


def test_cipher_suite_0_is_a_warning(there: Site) -> None:
    with a_bmc("ipmi-cipher-0", ipmi=True) as bmc:
        found = seen(there, bmc.address)
    assert found["ipmi"]["there"]
    assert found["ipmi"]["versions"] == ["2.0"]
    assert found["ipmi"]["cipherSuites"] == [0, 3, 17]
    assert [one for one in found["warnings"] if "cipher suite 0" in one]
    with a_bmc(ipmi=True) as bmc:
        found = seen(there, bmc.address)
    assert (found["ipmi"]["cipherSuites"], found["warnings"]) == ([3, 17], [])


def test_an_address_where_nothing_is_is_an_answer(there: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = seen(there, f"127.0.0.1:{port}")
    assert found["redfish"]["trouble"]["code"] == "bmc-unreachable"
    assert not found["ipmi"]["there"]
    assert found["redfish"]["certificate"] is None


def test_what_is_no_bmc_is_told_with_what_it_shows(there: Site, tmp_path: Path) -> None:
    with raw(lambda _: [answer(b"<html>a printer</html>")], tmp_path) as bmc:
        found = seen(there, f"127.0.0.1:{bmc.port}")
    assert not found["redfish"]["there"]
    assert found["redfish"]["certificate"]["subject"] == "CN=raw bmc"
    with a_raw_bmc(lambda _: []) as plain:
        found = seen(there, f"127.0.0.1:{plain.port}")
    assert found["redfish"]["trouble"]["code"] == "bmc-insecure-transport"


def test_a_redirect_to_another_host_is_not_followed(there: Site, tmp_path: Path) -> None:
    with raw(lambda _: [answer(a_root())], tmp_path) as other:
        away = f"https://127.0.0.2:{other.port}{ROOT}"
        with raw(lambda _: [answer(status=302, Location=away)], tmp_path) as bmc:
            found = seen(there, f"127.0.0.1:{bmc.port}")
        assert not found["redfish"]["there"]
        assert "another origin" in found["redfish"]["trouble"]["message"]
        assert other.connections == 0
    _harmless(bmc)


def test_a_bmc_that_is_flaky_is_asked_again_and_told_to_be_so(there: Site, tmp_path: Path) -> None:
    turns = iter((503, 200))

    def script(_: object) -> Iterable[bytes]:
        return [answer(a_root(), status=next(turns))]

    with raw(script, tmp_path) as bmc:
        found = seen(there, f"127.0.0.1:{bmc.port}")
    assert (found["redfish"]["there"], found["redfish"]["tries"]) == (True, 2)
    assert any("unsteady" in one for one in found["warnings"])


def test_a_bmc_that_drops_every_request_is_an_answer(there: Site, tmp_path: Path) -> None:
    def script(_: object) -> Iterable[bytes]:
        raise ConnectionResetError

    with raw(script, tmp_path) as bmc:
        found = seen(there, f"127.0.0.1:{bmc.port}")
    assert found["redfish"]["trouble"]["code"] == "bmc-unreachable"
    assert found["redfish"]["certificate"]["fingerprint"]


def test_texts_of_a_bmc_are_bounded_and_printable(there: Site, tmp_path: Path) -> None:
    evil = "\x1b[31m\u202e" + "x" * 5000
    with raw(lambda _: [answer(a_root(Vendor=evil, Product=evil, UUID=evil))], tmp_path) as bmc:
        found = seen(there, f"127.0.0.1:{bmc.port}")
    for name in ("vendor", "product", "uuid", "maker"):
        assert found["redfish"][name].isprintable()
        assert len(found["redfish"][name]) <= 256


# ---------------------------------------------------------------- with a credential


def test_a_login_tells_what_the_bmc_claims_and_what_it_lacks(there: Site, tmp_path: Path) -> None:
    with a_bmc() as bmc:
        with_a_credential(there, tmp_path, bmc.username, bmc.password.get_secret_value())
        found = seen(there, at(bmc), tls={"fingerprint": bmc.fingerprint}, credentialRef="fleet")
        boots = list(bmc.machine.boots)
    login = found["login"]
    assert login["ok"], login
    assert {"Power", "VirtualMedia", "BootOnce"} <= set(login["capabilities"])
    assert not set(login["lacks"]) & set(login["capabilities"])
    assert all(login["lacks"].values())
    assert login["session"] == "session"
    assert login["account"]["enabled"] is True
    assert bmc.password.get_secret_value() not in str(found)
    assert boots == []


def test_over_ipmi_too(there: Site, tmp_path: Path) -> None:
    with a_bmc(ipmi=True) as bmc:
        with_a_credential(there, tmp_path, bmc.username, bmc.password.get_secret_value())
        login = seen(there, bmc.address, credentialRef="fleet")["login"]
    assert login["ok"], login
    assert "Power" in login["capabilities"]
    assert "IPMI" in login["lacks"]["VirtualMedia"]


def test_a_shared_credential_is_not_sent_to_a_certificate_that_nobody_vouched_for(there: Site, tmp_path: Path) -> None:
    with_a_credential(there, tmp_path, "admin", WRONG)
    with raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        bare = seen(there, f"127.0.0.1:{bmc.port}", credentialRef="fleet")
        assert bare["login"]["trouble"]["code"] == "credential-not-for-here"
        assert "bmc.tls.fingerprint" in bare["login"]["trouble"]["message"]
        wrong = seen(there, f"127.0.0.1:{bmc.port}", credentialRef="fleet", tls={"fingerprint": "0" * 64})
        assert wrong["login"]["trouble"]["code"] == "bmc-certificate-untrusted"
    _harmless(bmc)


def test_failed_logins_count_within_the_budget_and_an_enrolment_takes_them_over(there: Site, tmp_path: Path) -> None:
    with a_bmc() as bmc:
        with_a_credential(there, tmp_path, bmc.username, WRONG)
        tls = {"fingerprint": bmc.fingerprint}
        codes = [seen(there, at(bmc), tls=tls, credentialRef="fleet")["login"]["trouble"]["code"] for _ in range(4)]
        assert codes == ["bmc-credentials-rejected", "bmc-credentials-rejected", "login-budget", "login-budget"]
        counted = _counted(there, stranger(parse(at(bmc)).host))
        assert counted == 4, "each under the account and under the password"
        node = there.metal(
            "enroll", {"bmc": {"address": at(bmc), "tls": tls, "credentialRef": "fleet"}, "inspect": False}
        )
        assert node.status == 200, node.raw
        assert _counted(there, stranger(parse(at(bmc)).host)) == 0
        assert seen(there, at(bmc), tls=tls, credentialRef="fleet")["login"]["trouble"]["code"] == "login-budget"


def _counted(site: Site, bmc_id: str) -> int:
    counting = text("SELECT count(*) FROM bmc_logins WHERE bmc_id = :bmc_id")
    return int(site.read(lambda c: c.execute(counting, {"bmc_id": bmc_id}).scalar_one()))


def test_the_same_bmc_by_name_and_by_address_has_one_budget(site: Site, tmp_path: Path) -> None:
    site.change(lambda doc: doc["networks"]["bmc"].update(cidrs=["10.20.0.0/16", "127.0.0.0/8"]))
    with a_bmc() as bmc:
        host, port = parse(bmc.address).host, parse(bmc.address).port
        site.change(lambda doc: doc["networks"].update(loop={"cidrs": ["10.40.0.0/16"], "tls": "pin-first"}))
        with_a_credential(site, tmp_path, bmc.username, WRONG)
        asked: dict[str, Any] = {"tls": {"fingerprint": bmc.fingerprint}, "credentialRef": "fleet"}
        by_name = f"a.bmc.example:{port}"
        with a_doctor(site, [host]):
            logins = [seen(site, address, **asked)["login"] for address in (by_name, at(bmc), by_name, at(bmc))]
            assert [one["trouble"]["code"] for one in logins][2:] == ["login-budget", "login-budget"]
            assert _counted(site, stranger(host)) == 4
            node = site.metal("enroll", {"bmc": {"address": by_name, **asked}, "inspect": False})
            assert node.status == 200, node.raw
            assert _counted(site, stranger(host)) == 0
            assert seen(site, by_name, **asked)["login"]["trouble"]["code"] == "login-budget"


def test_a_lock_that_shows_when_accounts_are_read_is_told_and_counts(there: Site, tmp_path: Path) -> None:
    with a_bmc() as bmc:
        with_a_credential(there, tmp_path, bmc.username, bmc.password.get_secret_value())
        asked: dict[str, Any] = {"tls": {"fingerprint": bmc.fingerprint}, "credentialRef": "fleet"}
        bmc.rule(Rule(action="refuse", method="GET", path="/Accounts$", status=403, message="The account is locked."))
        troubles = [seen(there, at(bmc), **asked)["login"]["trouble"] for _ in range(2)]
    assert [one["code"] for one in troubles] == ["bmc-locked-out"] * 2
    assert "the next login is tried in" in troubles[1]["message"], "the BMC is left alone"


def test_a_credential_that_is_taken_away_meanwhile_is_not_sent(there: Site, tmp_path: Path) -> None:
    with raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        fingerprint = seen(there, f"127.0.0.1:{bmc.port}")["redfish"]["certificate"]["fingerprint"]
        there.change(lambda doc: doc["credentials"].clear())
        none = there.settings
        with_a_credential(there, tmp_path, "admin", WRONG)
        with a_doctor(there, settings=none):
            asked = {"tls": {"fingerprint": fingerprint}, "credentialRef": "fleet"}
            login = seen(there, f"127.0.0.1:{bmc.port}", **asked)["login"]
    assert (login["ok"], login["trouble"]["code"]) == (False, "credential-not-for-here")
    assert "no credential fleet" in login["trouble"]["message"]
    _harmless(bmc)


def test_a_login_goes_by_the_protocol_that_the_address_names(there: Site, tmp_path: Path) -> None:
    """Where both are there, or the other one alone."""
    pool, network = there.settings.pools[POOL], there.settings.networks["loop"]
    with a_doctor(there) as doctor, a_bmc(ipmi=True) as ipmi, raw(lambda _: [answer(a_root())], tmp_path) as other:
        with_a_credential(there, tmp_path, ipmi.username, ipmi.password.get_secret_value())
        place = parse(ipmi.address)
        redfish = BmcAddress("redfish", "127.0.0.1", other.port)
        both = Seen(place.host, RedfishSeen(redfish), IpmiSeen(), ipmi.address, there.now(), trusted=False)
        login = there.run(doctor.log_in(Visit(place, network, None), both, "fleet", pool))
        assert login["ok"], login
        down = replace(both, redfish=RedfishSeen(redfish, trouble=Unreachable("down")))
        visit = Visit(redfish, network, Trust(TrustKind.SYSTEM))
        login = there.run(doctor.log_in(visit, down, "fleet", pool))
        assert (login["ok"], login["trouble"]["code"]) == (False, "bmc-unreachable")
        assert other.connections == 0


# ---------------------------------------------------------------- where nobody is let look


ELSEWHERE = (
    "192.0.2.1",
    "169.254.169.254",
    "10.9.0.1",
    "[::ffff:127.0.0.1]",
    "metadata.example",
    "redfish://10.99.0.1",
)
LED_TO = ("127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "0.0.0.0")


def test_only_addresses_of_the_bmcs_networks_are_looked_at(there: Site) -> None:
    for address in ELSEWHERE:
        answered = look(there, address)
        assert (answered.status, answered.code) == (400, "INVALID_INPUT"), answered.raw
        assert answered.error["details"]["faults"][0]["field"] == "bmc.address"


def test_a_wide_network_opens_no_range_for_special_uses(site: Site, tmp_path: Path) -> None:
    site.change(lambda doc: doc["networks"].update(wide={"cidrs": ["0.0.0.0/0", "::/0"], "tls": "pin-first"}))
    with a_doctor(site), raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        for host in ("127.0.0.1", "[::ffff:127.0.0.1]"):
            answered = look(site, f"{host}:{bmc.port}")
            assert (answered.status, answered.code) == (400, "INVALID_INPUT"), answered.raw
            assert "special uses" in str(answered.error)
        assert bmc.connections == 0


def test_a_listed_name_that_leads_elsewhere_is_refused(site: Site, tmp_path: Path) -> None:
    with raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        for leads_to in LED_TO:
            with a_doctor(site, [leads_to]):
                answered = look(site, f"a.bmc.example:{bmc.port}")
            assert (answered.status, answered.code) == (400, "INVALID_INPUT"), answered.raw
            assert "cidrs" in str(answered.error)
        assert bmc.connections == 0


def test_a_listed_name_is_resolved_once_and_its_address_is_what_is_connected_to(site: Site, tmp_path: Path) -> None:
    site.change(lambda doc: doc["networks"]["bmc"].update(cidrs=["127.0.0.1/32"]))
    with a_doctor(site, ["127.0.0.1"]), raw(lambda _: [answer(a_root())], tmp_path) as bmc:
        found = seen(site, f"a.bmc.example:{bmc.port}")
    assert (found["address"], found["redfish"]["there"]) == ("127.0.0.1", True)
    with a_doctor(site):
        assert "not found" in str(look(site, "a.bmc.example").error)


def test_faults_of_the_input_name_field_and_remedy(there: Site) -> None:
    no_such = look(there, "127.0.0.1", credentialRef="no-such")
    assert no_such.error["details"]["faults"][0]["field"] == "bmc.credentialRef"
    elsewhere = look(there, "127.0.0.1", credentialRef="fleet")
    assert "add it to its networks" in str(elsewhere.error)


def test_looks_are_audited_and_refused_ones_too(there: Site) -> None:
    look(there, "192.0.2.1")
    look(there, "127.0.0.1:1", "reader")
    seen(there, "127.0.0.1:1")
    rows = there.post("/api/compute/audit/list", {"tenantId": "tenant-a"}).doc
    entries = [one for one in rows.get("entries", ()) if one["action"] == "compute:metal:doctor"]
    outcomes = [one["outcome"] for one in entries]
    assert "allowed" in outcomes
    assert "refused" in outcomes


def test_an_identity_has_a_rate(there: Site) -> None:
    codes = {look(there, "127.0.0.1:1").code for _ in range(30)}
    assert codes == {"OK", "RATE_LIMITED"}
