"""Every verb and side operation, against a real daemon process and the emulated rack: TLS, an API key and a client certificate, a BMC
with sessions, one that knows Basic only, and one that speaks IPMI."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

import in_memory
from bcmetal.demo.process import DaemonProcess
from bcmetal.demo.site import IPMI_POOL, POOL, TENANT, Site, emulated_site
from bcmetal_drivers.emulated.rack import EmulatedBmc
from bcmetal_drivers.resources import PowerAction, PowerState

pytestmark = pytest.mark.slow
SETTLED_WITHIN_S = 60.0
POLL_S = 0.05


def admins_ca(folder: Path, common_name: str) -> tuple[Path, Path]:
    """A CA, and a client's certificate with its key in one file."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admins")])

    def signed(subject: x509.Name, public: ec.EllipticCurvePublicKey, ca: bool) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )

    pem = serialization.Encoding.PEM
    ca_file, client_file = folder / "admins-ca.pem", folder / "client.pem"
    ca_file.write_bytes(signed(ca_name, ca_key.public_key(), True).public_bytes(pem))
    client = signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]), key.public_key(), False)
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    client_file.write_bytes(client.public_bytes(pem) + private)
    client_file.chmod(0o600)
    return ca_file, client_file


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who calls the API over TLS, with a key or with a certificate."""

    address: str
    ca: Path
    key: SecretStr | None = None
    certificate: Path | None = None

    def call(self, group: str, method: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        there = urlsplit(self.address)
        line = http.client.HTTPSConnection(there.hostname or "", there.port, context=context, timeout=20)
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key.get_secret_value()}"
        try:
            line.request("POST", f"/api/compute/{group}/{method}", json.dumps({"tenantId": TENANT, **body}), headers)
            answer = line.getresponse()
            doc: dict[str, Any] = json.loads(answer.read())
            return answer.status, doc
        finally:
            line.close()


@dataclass(frozen=True, slots=True)
class Node:
    """One node as its caller sees it."""

    caller: Caller
    pool: str
    name: str

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        status, doc = self.caller.call("metal", method, {"poolId": self.pool, "nodeId": self.name, **given})
        assert status == 200, (method, doc)
        return doc

    def refused(self, method: str, **given: Any) -> str:
        status, doc = self.caller.call("metal", method, {"poolId": self.pool, "nodeId": self.name, **given})
        assert status == 409, (method, status, doc)
        assert doc["error"]["details"]["allowedVerbs"] is not None
        return str(doc["error"]["details"].get("reason"))

    def rests(self) -> dict[str, Any]:
        """The view once nothing is under way."""
        ends = time.monotonic() + SETTLED_WITHIN_S
        while time.monotonic() < ends:
            queued = [one for one in self.ask("timeline")["operations"] if one["status"] in ("queued", "running")]
            view = self.ask("get")  # after the timeline: what ended in between is in it
            if not view.get("operation") and not queued:
                return view
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name} does not come to rest: {self.ask('get')}")

    def until(self, what: str, seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The view in which `seen` holds, which is to come soon."""
        ends = time.monotonic() + SETTLED_WITHIN_S
        while time.monotonic() < ends:
            view = self.ask("get")
            if seen(view):
                return view
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name} does not {what}: {self.ask('get')}")

    def stays(self, state: str, for_s: float) -> None:
        ends = time.monotonic() + for_s
        while time.monotonic() < ends:
            assert self.ask("get")["state"] == state
            time.sleep(POLL_S)

    def does(self, method: str, state: str, **given: Any) -> dict[str, Any]:
        self.ask(method, **given)
        view = self.rests()
        assert view["state"] == state, (method, view["state"], view.get("lastError"))
        return view


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Caller, Caller]]:
    """A running site, a caller with a key, and one with a certificate."""
    with (
        in_memory.a_folder(tmp_path_factory.mktemp("site")) as folder,
        emulated_site(folder, redfish=4, ipmi=2) as first,
    ):
        ca_file, client_file = admins_ca(folder, "oncall")
        first.daemon.stop()
        config = first.config.read_text().replace("[daemon]\n", f'[daemon]\nclient_ca = "{ca_file}"\n', 1)
        config += f"""
[[identities]]
name = "cert:oncall"
tenant = "{TENANT}"

[[grants]]
to = "cert:oncall"
role = "admin"
on = "site/demo"
"""
        first.config.write_text(config)
        with DaemonProcess(first.config, folder / "daemon-2.log") as daemon:
            key = SecretStr((folder / "admin.key").read_text().strip())
            with_key = Caller(daemon.address, folder / "api.crt", key=key)
            with_certificate = Caller(daemon.address, folder / "api.crt", certificate=client_file)
            yield first, with_key, with_certificate


def enrolled(caller: Caller, bmc: EmulatedBmc, pool: str, name: str, password: SecretStr | None = None) -> Node:
    secret = (password or bmc.password).get_secret_value()
    given: dict[str, Any] = {"address": bmc.address, "username": bmc.username, "password": secret}
    if bmc.fingerprint:
        given["tls"] = {"fingerprint": bmc.fingerprint}
    status, doc = caller.call("metal", "enroll", {"poolId": pool, "name": name, "bmc": given})
    assert status == 200, doc
    return Node(caller, pool, name)


@pytest.mark.parametrize(
    ("which", "by", "basic"), [(0, "key", False), (1, "certificate", True)], ids=["key-sessions", "certificate-basic"]
)
def test_a_redfish_machine_by_every_verb(site: tuple[Site, Caller, Caller], which: int, by: str, basic: bool) -> None:
    running, with_key, with_certificate = site
    caller = with_key if by == "key" else with_certificate
    bmc = running.redfish[which]
    if basic:
        bmc.set(session_service=False)
    node = enrolled(caller, bmc, POOL, f"by-{by}")
    assert node.rests()["state"] == "inspected"
    assert node.does("inspect", "inspected")["identity"]["serial"] == bmc.machine.serial
    assert node.ask("inventory")["inventory"]
    assert node.does("refresh", "inspected")
    assert node.does("adopt", "deployed")["disks"] == "foreign"
    assert node.does("release", "available", confirmErase=bmc.machine.serial)["disks"] == "clean"
    assert node.does("commission", "available")["disks"] == "clean"
    assert node.ask("plan", verb="deploy", input={"image": {"name": "demo"}, "kind": "iso"})["plan"]["steps"]
    image = {"image": {"name": "demo"}, "kind": "iso"}
    assert node.does("deploy", "deployed", **image)
    assert bmc.machine.boots[-1].medium_sha256 == running.images["demo"].sha256
    assert node.refused("deploy", **image) == "needs-rebuild"
    assert node.does("deploy", "deployed", rebuild=True, **image)
    assert node.does("setPower", "deployed", action="off")["power"]["observed"] == "off"
    assert node.does("setPower", "deployed", action="on")["power"]["observed"] == "on"
    assert node.does("setPower", "deployed", action="cycle")["power"]["observed"] == "on"
    assert node.does("rescue", "rescued")
    assert bmc.machine.boots[-1].medium_sha256 == running.images["rescue"].sha256
    assert node.does("rescue", "rescued")
    assert node.does("unrescue", "deployed")
    assert bmc.machine.media is None
    assert node.does("setProtected", "deployed", on=True, reason="audit")
    assert node.refused("release") == "protected"
    assert node.does("setProtected", "deployed", on=False)
    node.ask("setMaintenance", on=True, reason="fan")
    node.ask("release")
    node.stays("releasing", 0.5)
    node.ask("setMaintenance", on=False)
    assert node.rests()["state"] == "available"
    assert not any(drive.holds_data for drive in bmc.machine.drives.values())
    assert node.ask("update", name=f"by-{by}-renamed")["name"] == f"by-{by}-renamed"
    node = Node(caller, POOL, f"by-{by}-renamed")
    assert node.does("update", "available", bmc={"address": bmc.address, "tls": {"fingerprint": bmc.fingerprint}})[
        "bmc"
    ]["address"].startswith("redfish://")
    assert node.does("service", "available", steps=["powerCycle"])["power"]["observed"] == "off"
    assert node.refused("inspect") in ("not-allowed-now", "None")
    view = node.does("retire", "retired")
    assert view["bmc"]["credentialsSet"] is False
    assert bmc.machine.power is PowerState.OFF
    assert node.ask("remove")
    status, _ = caller.call("metal", "get", {"poolId": POOL, "nodeId": node.name})
    assert status == 404


def test_an_ipmi_machine_by_every_verb_that_it_has(site: tuple[Site, Caller, Caller]) -> None:
    running, caller, _ = site
    bmc = running.ipmi[0]
    node = enrolled(caller, bmc, IPMI_POOL, "by-ipmi")
    assert node.rests()["state"] == "inspected"
    serial = bmc.machine.serial
    assert node.does("commission", "available", confirmErase=serial)["disks"] == "foreign"
    assert node.refused("deploy", image={"name": "demo"}, kind="iso", confirmErase=serial) == "no-virtual-media"
    assert node.does("setPower", "available", action="on")["power"]["observed"] == "on"
    assert node.does("setPower", "available", action="softOff")["power"]["observed"] == "off"
    assert node.does("refresh", "available")
    assert node.does("retire", "retired", confirmErase=serial)


def test_an_abort_a_retry_and_new_credentials(site: tuple[Site, Caller, Caller]) -> None:
    running, caller, _ = site
    bmc = running.redfish[2]
    node = enrolled(caller, bmc, POOL, "aborted", SecretStr("not-the-one"))
    view = node.rests()
    assert (view["state"], view["lastError"]["code"]) == ("inspect-failed", "bmc-credentials-rejected")
    assert view["lastError"]["hint"]
    node.ask("setBmcCredentials", username=bmc.username, password=bmc.password.get_secret_value())
    assert node.rests()["state"] == "inspect-failed"
    assert node.does("retry", "inspected")
    bmc.set(power_lag_s=5.0)
    bmc.machine.set_power(PowerAction.ON)
    node.ask("commission")
    node.until("touch the machine", lambda view: bool(view["operation"]["touched"]))
    node.ask("abort")
    bmc.set(power_lag_s=0.0)
    view = node.rests()
    assert view["lastError"]["code"] == "aborted"
    assert view["state"] in ("commission-failed", "inspected")
    assert node.does("commission", "available")


def test_a_frozen_site_waits_and_everything_is_audited(site: tuple[Site, Caller, Caller]) -> None:
    running, caller, _ = site
    bmc = running.redfish[3]
    node = enrolled(caller, bmc, POOL, "frozen")
    node.rests()
    scope = {"scopeKind": "pool", "scopeId": POOL}
    status, doc = caller.call("freeze", "set", {**scope, "reason": "heat"})
    assert status == 200, doc
    node.ask("commission")
    held = node.until("say that it is frozen", lambda view: "frozen" in (view["operation"]["waitingFor"] or ""))
    assert held["state"] == "commissioning"
    status, doc = caller.call("freeze", "lift", scope)
    assert status == 200, doc
    assert node.rests()["state"] == "available"
    status, doc = caller.call("audit", "list", {"poolId": POOL})
    assert status == 200, doc
    actions = {entry["action"] for entry in doc["entries"]}
    assert {"compute:metal:enroll", "compute:metal:commission"} <= actions, actions
