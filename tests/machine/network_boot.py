"""Whole machines through both stages of a network boot: UEFI firmware, dnsmasq's TFTP, Debian's iPXE, our script, kernel and initrd.

Four minutes, half of it the firmware's patience with IPv4 where there is IPv6 alone. So it is not collected with the others:
`pytest tests/machine/network_boot.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from api.site import Site
from bcmetal.boot.dnsmasq import Serving, dnsmasq_config
from bcmetal.boot.media import media_config
from bcmetal.boot.pxe import beside
from bcmetal.cli.ramdisk import default_cache
from bcmetal.settings import Daemon, Network
from bcmetal.store import netboot
from boot.test_pxe import LINE, MAC, Rack
from boot.wire import CLIENT, SERVER, SERVER6, Wire, a_wire, may_make_namespaces
from machine.rack.dhcp import why_no_dhcp
from machine.tiny_linux import READY, TinyLinux
from machine.virtual_machine import MachineSpec, Source, VirtualMachine, why_no_machine
from machine_images import why_no_machine as why_no_images

NO = why_no_machine() or why_no_images() or why_no_dhcp() or (None if may_make_namespaces() else "it needs root")
pytestmark = [pytest.mark.skipif(NO is not None, reason=str(NO)), pytest.mark.timeout(600)]
BOOT_S = 300.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyLinux:
    extra = 'echo "boot-token=$(head -n 2 /etc/bcmetal/boot-token | tail -n 1)"'
    return TinyLinux.build(tmp_path_factory.mktemp("tiny"), default_cache() / "kernels", extra)


@contextlib.contextmanager
def a_tap(wire: Wire) -> Iterator[str]:
    """The machine's end of the wire, as a switch with a port for qemu."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", "-n", wire.client, *words], check=True, timeout=20, capture_output=True)

    ip("addr", "flush", "dev", "wire")
    ip("link", "add", "switch", "type", "bridge")
    ip("tuntap", "add", "tap0", "mode", "tap")
    for port in ("wire", "tap0"):
        ip("link", "set", port, "master", "switch", "up")
    ip("link", "set", "switch", "up")
    ip("addr", "add", f"{CLIENT}/20", "dev", "switch")
    yield "tap0"


@contextlib.contextmanager
def a_server(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "it ended by itself"
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def listening(wire: Wire, rack: Rack) -> Iterator[None]:
    """The media listener at the server's end of the wire."""
    server = uvicorn.Server(media_config(beside(PlainTextResponse("media"), rack.app)))
    with wire.at_server(_dual_stack) as listener:
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listener]),))
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _dual_stack() -> socket.socket:
    return socket.create_server(("::", 8480), family=socket.AF_INET6, dualstack_ipv6=True)


@pytest.mark.parametrize("dhcp", ["static", "proxy", "ipv6"])
def test_a_machine_boots_its_ramdisk_with_its_token_over_the_network(
    dhcp: str, tiny: TinyLinux, tmp_path: Path
) -> None:
    site = Site(tmp_path)
    rack = Rack(site, tmp_path)
    shutil.copy(tiny.kernel, rack.ramdisk / "vmlinuz")
    shutil.copy(tiny.initrd, rack.ramdisk / "initrd")
    rack.manifest(LINE)
    rack.offer()
    doc: dict[str, Any] = {"cidrs": ["10.30.0.0/20"], "agent_url": f"https://{SERVER}:8445", "dhcp": dhcp}
    if dhcp == "ipv6":
        doc = {"cidrs": ["fd00:30::/64"], "agent_url": f"https://[{SERVER6}]:8445", "dhcp": "static"}
    config = tmp_path / "dnsmasq.conf"
    config.write_text(dnsmasq_config(Network.model_validate(doc), Daemon(), Serving("wire")))
    common = ("--keep-in-foreground", "--user=root", "--pid-file")
    ours = ("dnsmasq", *common, f"--conf-file={config}", f"--dhcp-leasefile={tmp_path / 'leases'}")
    with a_wire() as wire, a_tap(wire) as tap, listening(wire, rack), contextlib.ExitStack() as servers:
        servers.enter_context(a_server("ip", "netns", "exec", wire.server, *ours))
        if dhcp == "proxy":  # the network's own server, which knows nothing of booting
            theirs = ("dnsmasq", *common, "--conf-file=/dev/null", "--port=0", "--interface=switch", "--bind-dynamic")
            there = ("--dhcp-range=10.30.2.1,10.30.2.99,255.255.240.0,1h", f"--dhcp-leasefile={tmp_path / 'theirs'}")
            servers.enter_context(a_server("ip", "netns", "exec", wire.client, *theirs, *there))
        space = f"/run/netns/{wire.client}"
        spec = MachineSpec("bare", str(uuid.uuid4()), "S1", MAC, tap=tap, namespace=space, tpm=False, memory_mib=768)
        machine = VirtualMachine(spec, tmp_path / "machine")
        try:
            machine.power_on((Source.NET,))
            said = machine.console.wait_for(READY, BOOT_S)
        finally:
            machine.power_off()
    assert f"boot-token=token={rack.token}" in said
    assert site.read(netboot.served_count, rack.operation_id) == 1
    site.close()
