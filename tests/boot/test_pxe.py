"""What iPXE is told on the media listener: the site's ramdisk while an operation of that very machine waits for it, and else the way to its disk."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from api.site import Site
from bcmetal.boot import token_file
from bcmetal.boot.media import media_config
from bcmetal.boot.pxe import LOCAL_BOOT, beside, mac_of, new_key, pxe_app, script
from bcmetal.decisions import SECOND, Micros
from bcmetal.store import boot_tokens, media, netboot, nodes, sealed
from bcmetal.store.values import Identifier, SetIdentifiers
from bcmetal_agent import boot_token
from in_process import Answered, answer_of

MAC = "3c:ec:ef:01:02:03"
KERNEL, INITRD = os.urandom(9_000), os.urandom(700_001)
LINE = "console=tty0 console=ttyS0,115200 quiet loglevel=4 panic=60"
MACHINE = "10.30.0.77"


class Rack:
    """A site with a ramdisk and a provisioning network, and one machine whose inspect is under way."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.ramdisk = folder / "ramdisk"
        self.ramdisk.mkdir()
        (self.ramdisk / "vmlinuz").write_bytes(KERNEL)
        (self.ramdisk / "initrd").write_bytes(INITRD)
        self.manifest(LINE)

        def provisioned(doc: dict[str, Any]) -> None:
            doc["daemon"]["ramdisk_folder"] = str(self.ramdisk)
            doc["networks"]["provisioning"] = {
                "cidrs": ["10.30.0.0/20", "fd00:30::/64", "127.0.0.0/8"],
                "agent_url": "https://10.30.0.5:8445",
            }

        site.change(provisioned)
        self.app = pxe_app(site.store, site.now, lambda: site.settings, site.vault)
        self.node_id = site.enroll(bootMac=MAC)
        self.operation_id = str(site.of(self.node_id, "inspect").doc["operation"]["id"])
        self.token = ""
        self.key = new_key(os.urandom(10))

    def manifest(self, command_line: str) -> None:
        sizes = {name: {"size": (self.ramdisk / name).stat().st_size} for name in ("vmlinuz", "initrd")}
        (self.ramdisk / "ramdisk.json").write_text(json.dumps({"commandLine": command_line, "files": sizes}))

    def offer(self, lasts_s: int = 3600) -> str:
        site = self.site
        until = Micros(site.now() + lasts_s * SECOND)
        minted = token_file.fresh(site.vault, self.operation_id, site.now(), os.urandom)
        site.write(token_file.mint, self.operation_id, self.node_id, minted, until, site.now())
        self.token = site.vault.open(minted.sealed, token_file.OWNER).get_secret_value()
        site.write(netboot.offer, self.key, self.node_id, self.operation_id, until, site.now())
        return self.key

    def get(self, path: str, by: str = MACHINE, method: str = "GET", **more: Any) -> Answered:
        return self.site.run(answer_of(self.app, path, b"", {}, method=method, address=by, **more))

    def boots(self, mac: str = MAC, by: str = MACHINE) -> bool:
        answer = self.get(f"/boot/ipxe/{mac}", by)
        assert answer.status == 200, "iPXE stops at an error"
        assert answer.raw.startswith(b"#!ipxe\n")
        assert answer.headers["cache-control"] == "no-store"
        return answer.raw != LOCAL_BOOT.encode()


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    site = Site(tmp_path)
    yield Rack(site, tmp_path)
    site.close()


def test_a_machine_boots_the_ramdisk_only_while_its_operation_offers_it(rack: Rack) -> None:
    assert not rack.boots(), "the operation does not wait for its ramdisk yet"
    key = rack.offer()
    assert rack.boots()
    assert rack.get(f"/boot/ipxe/{MAC}").raw.decode() == script(key, LINE)
    rack.site.write(netboot.end, rack.operation_id, rack.site.now())
    assert not rack.boots()
    assert rack.get(f"/boot/kernel/{key}").status == rack.get(f"/boot/initrd/{key}").status == 404


def test_an_offer_ends_with_its_time_with_its_operation_and_with_the_nodes_media(rack: Rack) -> None:
    rack.offer(lasts_s=60)
    rack.site.skip(61)
    assert not rack.boots()
    rack.key = new_key(os.urandom(10))
    rack.offer()
    assert rack.boots()
    rack.site.write(media.end_of_node, rack.node_id, rack.site.now())
    assert not rack.boots()
    rack.key = new_key(os.urandom(10))
    rack.offer()
    assert rack.site.of(rack.node_id, "abort").status == 200
    rack.site.write(_ended, rack.operation_id, rack.site.now())
    assert not rack.boots()


def _ended(c: Any, operation_id: str, now: int) -> None:
    c.exec_driver_sql("UPDATE operations SET ended_at = ? WHERE operation_id = ?", (now, operation_id))


def test_a_new_offer_takes_the_place_of_the_one_before(rack: Rack) -> None:
    first = rack.offer()
    rack.key = new_key(os.urandom(10))
    second = rack.offer()
    assert second in rack.get(f"/boot/ipxe/{MAC}").raw.decode()
    assert rack.get(f"/boot/initrd/{first}").status == 404
    assert rack.get(f"/boot/initrd/{second}").status == 200


def test_the_script_names_its_files_by_relative_addresses_and_tries_twice() -> None:
    text = script("0" * 16, LINE)
    assert text.isascii()
    assert "http" not in text, "whatever led to the script leads on"
    kernel, initrd, boot = text.splitlines()[1:]
    assert kernel.count(f"kernel /boot/kernel/{'0' * 16} initrd=initrd {LINE}") == 2
    assert initrd.count(f"initrd --name initrd /boot/initrd/{'0' * 16}") == 2
    assert all(line.endswith("|| exit 1") for line in (kernel, initrd, boot))


@pytest.mark.parametrize("said", [MAC, MAC.upper(), MAC.replace(":", "-")])
def test_a_mac_is_known_in_each_of_its_forms(rack: Rack, said: str) -> None:
    rack.offer()
    assert rack.boots(said)


@pytest.mark.parametrize(
    "said",
    ["", "3c:ec:ef:01:02:04", MAC.replace(":", ""), "3c:ec-ef:01:02:03", f"{MAC}/", f"{MAC}\n", f"../{MAC}", "${uuid}"],
)
def test_any_other_word_goes_on_to_the_local_disk(rack: Rack, said: str) -> None:
    rack.offer()
    assert not rack.boots(said)


@given(st.text(max_size=40))
def test_what_is_no_mac_never_becomes_one(said: str) -> None:
    mac = mac_of(said)
    assert mac is None or (len(mac) == 17 and set(mac) <= set("0123456789abcdef:"))


def test_a_machine_is_also_known_by_a_mac_that_an_inventory_found(rack: Rack) -> None:

    rack.offer()
    found = Identifier("mac", "3c:ec:ef:0a:0b:0c", "3C:EC:EF:0A:0B:0C", "agent", True)
    rack.site.write(nodes.apply, rack.node_id, [SetIdentifiers("agent", (found,))], rack.site.now())
    assert rack.boots("3c:ec:ef:0a:0b:0c")


def test_two_machines_that_claim_one_mac_are_both_given_nothing(rack: Rack, tmp_path: Path) -> None:
    rack.offer()
    assert rack.boots()
    site = rack.site
    other = site.enroll("r3u18", bootMac=MAC, bmc={"address": "redfish://10.20.3.18"})
    operation = str(site.of(other, "inspect").doc["operation"]["id"])
    minted = token_file.fresh(site.vault, operation, site.now(), os.urandom)
    site.write(token_file.mint, operation, other, minted, Micros(site.now() + 60 * SECOND), site.now())
    site.write(netboot.offer, new_key(os.urandom(10)), other, operation, None, site.now())
    assert not rack.boots()


def test_only_an_asker_in_a_provisioning_network_gets_anything(rack: Rack) -> None:
    key = rack.offer()
    for by in (MACHINE, "::ffff:10.30.0.77", "fd00:30::77", "fd00:30::77%eth0"):
        assert rack.boots(by=by), by
        assert rack.get(f"/boot/initrd/{key}", by).status == 200
    for by in ("10.20.3.17", "192.0.2.7", "10.30.200.1", "fd00:31::1", "nowhere"):
        assert not rack.boots(by=by), by
        assert rack.get(f"/boot/initrd/{key}", by).status == 404
        assert rack.get(f"/boot/kernel/{key}", by).status == 404


def test_the_kernel_is_the_sites(rack: Rack) -> None:
    answer = rack.get(f"/boot/kernel/{rack.offer()}")
    assert (answer.status, answer.raw) == (200, KERNEL)


def test_the_initrd_is_the_sites_with_the_token_behind_it_and_nothing_on_the_disk_has_it(
    rack: Rack, tmp_path: Path
) -> None:
    path = f"/boot/initrd/{rack.offer()}"
    answer = rack.get(path)
    assert answer.status == 200
    assert answer.headers["content-length"] == str(len(answer.raw))
    assert answer.raw[: len(INITRD)] == INITRD
    padding, archive = answer.raw[len(INITRD) :][: -len(INITRD) % 512], answer.raw[len(INITRD) + -len(INITRD) % 512 :]
    assert not any(padding)
    there = tmp_path / "unpacked"
    there.mkdir()
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed: nothing else unpacks it here")
    subprocess.run([busybox, "cpio", "-i", "-d"], input=archive, cwd=there, check=True, timeout=30, capture_output=True)
    file = there / boot_token.IN_INITRD.lstrip("/")
    assert file.stat().st_mode & 0o777 == 0o400
    assert boot_token.parse(file.read_bytes()) == rack.token
    shutil.rmtree(there)
    kept = b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    assert rack.token.encode() not in kept


def test_a_head_says_how_long_it_is_and_counts_nothing(rack: Rack) -> None:
    path = f"/boot/initrd/{rack.offer()}"
    head, whole = rack.get(path, method="HEAD"), None
    assert (head.status, head.raw) == (200, b"")
    assert rack.site.read(netboot.served_count, rack.operation_id) == 0
    whole = rack.get(path)
    assert int(head.headers["content-length"]) == len(whole.raw)
    assert rack.site.read(netboot.served_count, rack.operation_id) == 1


def test_a_token_that_is_over_is_offered_no_longer(rack: Rack) -> None:
    key = rack.offer()
    rack.site.write(boot_tokens.end, rack.operation_id, rack.site.now())
    assert not rack.boots()
    assert rack.get(f"/boot/initrd/{key}").status == 404


def test_without_the_operations_token_there_is_no_initrd(rack: Rack) -> None:
    key = rack.offer()
    rack.site.write(sealed.drop, rack.operation_id)
    assert rack.get(f"/boot/initrd/{key}").status == 404


@pytest.mark.parametrize("line", ["quiet\nchain http://192.0.2.1/", "quiet && shell", "${uuid}", "a || b"])
def test_a_command_line_that_is_more_than_arguments_reaches_no_script(
    rack: Rack, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    rack.offer()
    rack.manifest(line)
    assert not rack.boots()
    assert "command line" in caplog.text


def test_a_ramdisk_that_is_not_whole_is_not_offered(rack: Rack, caplog: pytest.LogCaptureFixture) -> None:
    key = rack.offer()
    (rack.ramdisk / "initrd").write_bytes(INITRD[:-1])
    assert not rack.boots()
    assert rack.get(f"/boot/initrd/{key}").status == 404
    (rack.ramdisk / "ramdisk.json").unlink()
    assert not rack.boots()
    assert "bcmetal ramdisk build" in caplog.text
    assert rack.token not in caplog.text


@pytest.mark.parametrize("path", ["/boot/", "/boot/kernel/", "/boot/initrd/../../etc/passwd", "/boot/other/0"])
def test_there_is_nothing_else_under_it(rack: Rack, path: str) -> None:
    rack.offer()
    assert rack.get(path).status == 404
    assert rack.get(f"/boot/initrd/{rack.key}", query=b"a=b").status == 404
    assert rack.get(f"/boot/ipxe/{MAC}", method="POST").status == 404


def test_both_share_a_listener_and_a_file_that_shrank_is_no_whole_answer(
    rack: Rack, caplog: pytest.LogCaptureFixture
) -> None:
    key = rack.offer()
    app = beside(PlainTextResponse("media"), rack.app)

    async def scenario() -> None:
        server = uvicorn.Server(media_config(app))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            task = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                assert not task.done()
                await asyncio.sleep(0.005)
            try:
                assert await asyncio.to_thread(_fetched, port, "/m/x.iso") == b"media"
                assert b"/boot/kernel/" in await asyncio.to_thread(_fetched, port, f"/boot/ipxe/{MAC}")
                whole = await asyncio.to_thread(_fetched, port, f"/boot/initrd/{key}")
                assert whole.startswith(INITRD)
                with pytest.raises(http.client.IncompleteRead):
                    await asyncio.to_thread(_shrinking, port, f"/boot/initrd/{key}", rack)
            finally:
                server.should_exit = True
                await task

    big = os.urandom(24 * 1024 * 1024)
    (rack.ramdisk / "initrd").write_bytes(INITRD + big)
    rack.manifest(LINE)
    with caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        rack.site.run(scenario())


def _fetched(port: int, path: str) -> bytes:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        line.request("GET", path)
        return line.getresponse().read()
    finally:
        line.close()


def _shrinking(port: int, path: str, rack: Rack) -> bytes:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        line.request("GET", path)
        answer = line.getresponse()
        answer.read(1)
        os.truncate(rack.ramdisk / "initrd", 1000)
        return answer.read()
    finally:
        line.close()
