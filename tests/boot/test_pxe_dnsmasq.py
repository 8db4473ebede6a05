"""What sends a machine to its iPXE script: dnsmasq's configuration, read and served by the real dnsmasq, and the lines for other servers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

from bcmetal.boot.dnsmasq import CannotServe, Serving, dnsmasq_config, snippet
from bcmetal.cli.main import cli
from bcmetal.settings import Daemon, Network, check
from boot.wire import BIOS, EFI, SERVER, SERVER6, Wire, a_wire, may_make_namespaces

Dhcp = Literal["existing", "proxy", "static"]
URL = f"http://{SERVER}:8480/boot/ipxe/${{netX/mac:hexhyp}}"
URL6 = f"http://[{SERVER6}]:8480/boot/ipxe/${{netX/mac:hexhyp}}"
needs_dnsmasq = pytest.mark.skipif(shutil.which("dnsmasq") is None, reason="dnsmasq is not installed")
needs_namespaces = pytest.mark.skipif(not may_make_namespaces(), reason="network namespaces need root")


def a_network(
    dhcp: Dhcp, cidrs: tuple[str, ...] = ("10.30.0.0/20", "fd00:30::/64"), agent: str = f"https://{SERVER}:8445"
) -> Network:
    settings = check(
        {
            "sites": {"fra1": {"owner": "platform"}},
            "networks": {"provisioning": {"cidrs": list(cidrs), "agent_url": agent, "dhcp": dhcp}},
        }
    )
    return settings.networks["provisioning"]


def written(dhcp: Dhcp, serving: Serving | None = None) -> str:
    return dnsmasq_config(a_network(dhcp), Daemon(), serving or Serving(addresses=(ip_address(SERVER6),)))


@needs_dnsmasq
@pytest.mark.parametrize("dhcp", ["existing", "proxy", "static"])
def test_dnsmasq_takes_each_configuration(dhcp: Dhcp, tmp_path: Path) -> None:
    file = tmp_path / "dnsmasq.conf"
    file.write_text(written(dhcp))
    told = subprocess.run(["dnsmasq", "--test", f"--conf-file={file}"], capture_output=True, text=True, timeout=20)
    assert told.returncode == 0, told.stderr


@contextmanager
def served(dhcp: Dhcp, folder: Path) -> Iterator[Wire]:
    file = folder / "dnsmasq.conf"
    file.write_text(written(dhcp, Serving("wire", (ip_address(SERVER6),), tftp_root=str(folder))))
    with a_wire() as wire:
        server = wire.popen(
            "dnsmasq",
            "-k",
            "--user=root",
            "--no-ping",
            f"--conf-file={file}",
            f"--dhcp-leasefile={folder / 'leases'}",
            "--pid-file",
        )
        try:
            yield wire
        finally:
            server.terminate()
            server.communicate(timeout=10)


@needs_dnsmasq
@needs_namespaces
def test_a_static_network_gives_an_address_and_both_stages_by_ipv4_and_ipv6(tmp_path: Path) -> None:
    with served("static", tmp_path) as wire:
        for arch, program in ((BIOS, "undionly.kpxe"), (EFI, "ipxe.efi")):
            offer = wire.ask(arch)
            assert (offer.file, offer.next_server) == (program, SERVER)
            assert 8 <= int(offer.address.split(".")[2]) <= 15, "the upper half of the range"
            assert 3 not in offer.options, "no router was named, and dnsmasq's host is none"
            assert wire.ask(arch, ipxe=True).file == URL
        assert wire.ask_six(EFI)[59].decode() == f"tftp://[{SERVER6}]/ipxe.efi"
        assert wire.ask_six(EFI, ipxe=True)[59].decode() == URL6


@needs_dnsmasq
@needs_namespaces
def test_a_proxy_gives_no_address_and_sends_ipxe_on(tmp_path: Path) -> None:
    with served("proxy", tmp_path) as wire:
        for arch, program in ((BIOS, "undionly.kpxe"), (EFI, "ipxe.efi")):
            offer = wire.ask(arch)
            assert offer.address == "0.0.0.0"
            assert offer.options[60] == b"PXEClient"
            told = wire.ask_proxy(arch, offer)
            assert (told.file, told.next_server) == (program, SERVER)
            assert wire.ask(arch, ipxe=True).file == URL


def test_an_existing_network_gets_tftp_alone() -> None:
    text = written("existing")
    assert "dhcp-" not in text.replace("bcmetal pxe dhcp-snippet", "")
    assert "tftp-root=/usr/lib/ipxe\n" in text


@pytest.mark.parametrize("kind", ["isc", "kea"])
def test_a_snippet_has_both_stages_of_both_families(kind: Literal["isc", "kea"]) -> None:
    text = snippet(kind, a_network("existing"), Daemon(), Serving(addresses=(ip_address(SERVER6),)))
    for part in (URL, URL6, "undionly.kpxe", '"ipxe.efi"', f"tftp://[{SERVER6}]/ipxe.efi", SERVER):
        assert part in text


def test_keas_classes_are_json_of_which_each_excludes_the_ones_before() -> None:
    text = snippet("kea", a_network("existing", ("10.30.0.0/20",)), Daemon(), Serving())
    classes = json.loads(text.split("\n", 1)[1])["client-classes"]
    assert [one["name"] for one in classes] == ["bcmetal-ipxe", "bcmetal-efi", "bcmetal-bios"]
    assert all(one["test"].startswith(f"not ({classes[0]['test']})") for one in classes[1:])


def test_a_media_url_of_the_network_is_what_ipxe_is_sent_to() -> None:
    doc = {
        "sites": {"fra1": {"owner": "platform"}},
        "networks": {
            "p": {
                "cidrs": ["10.30.0.0/20"],
                "agent_url": "https://bc.example:8445",
                "media_url": "https://bc.example:8481",
                "dhcp": "proxy",
            }
        },
    }
    text = dnsmasq_config(check(doc).networks["p"], Daemon(), Serving())
    assert "dhcp-boot=tag:ipxe,https://bc.example:8481/boot/ipxe/" in text


def test_an_ipv6_only_network_is_served_whole() -> None:
    network = a_network("static", ("fd00:30::/64",), f"https://[{SERVER6}]:8445")
    text = dnsmasq_config(network, Daemon(), Serving())
    assert URL6 in text
    assert "dhcp-range=fd00:30::1000,fd00:30::1fff,slaac,64,1h\n" in text
    assert "10." not in text


@pytest.mark.parametrize(
    ("dhcp", "cidrs", "serving", "says"),
    [
        ("static", ("fd00:30::/48",), Serving(addresses=(ip_address(SERVER6),)), "--range"),
        ("static", ("10.30.0.0/30",), Serving(), "--range"),
        ("static", ("fd00:30::/64",), Serving(), "--address"),
        ("proxy", ("fd00:30::/64",), Serving(addresses=(ip_address(SERVER6),)), "IPv4 alone"),
        ("static", ("10.30.0.0/20",), Serving(ranges=((ip_address("10.31.0.1"), ip_address("10.31.0.9")),)), "inside"),
        ("static", ("10.30.0.0/20",), Serving(ranges=((ip_address("10.30.0.9"), ip_address("10.30.0.1")),)), "inside"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(dhcp: Dhcp, cidrs: tuple[str, ...], serving: Serving, says: str) -> None:
    with pytest.raises(CannotServe, match=says):
        dnsmasq_config(a_network(dhcp, cidrs), Daemon(), serving)


@pytest.mark.parametrize("text", ["a\nport=53", "a,b", 'a"', "", "-x", "/etc/../$(x)", "a b"])
def test_no_word_begins_an_option_of_its_own(text: str) -> None:
    texts: dict[str, Callable[[str], Serving]] = {
        "interface": lambda word: Serving(interface=word),
        "TFTP folder": lambda word: Serving(tftp_root=word),
        "EFI program": lambda word: Serving(efi_program=word),
        "BIOS program": lambda word: Serving(bios_program=word),
    }
    for name, serving_with in texts.items():
        with pytest.raises(CannotServe, match=name):
            serving_with(text)


CONFIG = """
[sites.fra1]
owner = "platform"

[networks.bmc]
cidrs = ["10.20.0.0/16"]
media_url = "http://10.20.0.5:8480"

[networks.provisioning]
cidrs = ["10.30.0.0/20"]
agent_url = "https://10.30.0.5:8445"
dhcp = "static"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "bcmetal.toml"
    file.write_text(CONFIG)
    return file


def test_the_commands_take_the_only_provisioning_network(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "dnsmasq.conf"
    words = ["pxe", "dnsmasq", "--config", str(config), "--range", "10.30.4.1-10.30.4.99", "--router", "10.30.0.1"]
    told = CliRunner().invoke(cli, [*words, "-o", str(out)])
    assert told.exit_code == 0, told.output
    assert "dhcp-range=10.30.4.1,10.30.4.99,255.255.240.0,1h\n" in out.read_text()
    assert "dhcp-option=option:router,10.30.0.1\n" in out.read_text()
    told = CliRunner().invoke(cli, ["pxe", "dhcp-snippet", "provisioning", "--for", "isc", "--config", str(config)])
    assert told.exit_code == 0
    assert f'filename "{URL}";' in told.output


@pytest.mark.parametrize(
    "words",
    [
        ["dnsmasq", "bmc"],
        ["dnsmasq", "nowhere"],
        ["dnsmasq", "--range", "10.30.4.1"],
        ["dnsmasq", "--range", "10.30.4.1-fd00::1"],
        ["dnsmasq", "--router", "fd00::1"],
        ["dnsmasq", "--tftp-root", "here"],
        ["dhcp-snippet", "bmc", "--for", "kea"],
    ],
)
def test_wrong_words_are_wrong_usage_in_one_line(config: Path, words: list[str]) -> None:
    told = CliRunner().invoke(cli, ["pxe", *words, "--config", str(config)])
    assert told.exit_code == 2
    assert "Traceback" not in told.output
