from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent_machine import UUID, a_card, a_sys
from bcmetal_agent import identifiers, wire

GPU = "GPU-5a3c1e7b-9d2f-4b6a-8c0e-1f2d3c4b5a69"


def read(root: Path, tool: str = "no-such-tool") -> wire.Identifiers:
    return identifiers.read(root, gpu_tool=tool)


def a_tool(folder: Path, script: str) -> str:
    path = folder / "gpu-tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_smbios_and_cards_are_read(tmp_path: Path) -> None:
    found = read(a_sys(tmp_path))
    assert found == wire.Identifiers(UUID, "SN-4711", ("3c:ec:ef:00:11:22",), ())


def test_a_machine_that_tells_nothing_still_has_identifiers(tmp_path: Path) -> None:
    assert read(tmp_path) == wire.Identifiers()


def test_values_are_bounded_and_hold_no_control_characters(tmp_path: Path) -> None:
    dmi = a_sys(tmp_path) / "sys/class/dmi/id"
    (dmi / "product_serial").write_bytes(b"\x1b[31mSN\x00\xff" + b"x" * 5000)
    (dmi / "product_uuid").write_text("   \n")
    found = read(tmp_path)
    assert found.product_uuid is None
    assert found.serial is not None
    assert found.serial.startswith("[31mSN")
    assert found.serial.isprintable()
    assert len(found.serial) == 128
    assert wire.decode(wire.Join, wire.encode(wire.Join("x", found))).identifiers == found


def test_only_network_cards_count(tmp_path: Path) -> None:
    a_sys(tmp_path)
    a_card(tmp_path, "br0", "3c:ec:ef:00:00:01", device=False)
    a_card(tmp_path, "ib0", "3c:ec:ef:00:00:02", type="32")
    (a_card(tmp_path, "eno1v0", "3c:ec:ef:00:00:03") / "device/physfn").mkdir()
    a_card(tmp_path, "eno3", "00:00:00:00:00:00")
    a_card(tmp_path, "eno4", "rubbish")
    a_card(tmp_path, "eno5", "3C:EC:EF:00:00:05")
    assert read(tmp_path).macs == ("3c:ec:ef:00:00:05", "3c:ec:ef:00:11:22")


def test_a_bonds_member_has_its_own_address_and_one_that_was_set_does_not_count(tmp_path: Path) -> None:
    a_sys(tmp_path)
    member = a_card(tmp_path, "eno2", "3c:ec:ef:00:11:22", addr_assign_type="3")
    (member / "bonding_slave").mkdir()
    (member / "bonding_slave/perm_hwaddr").write_text("3c:ec:ef:00:11:23\n")
    a_card(tmp_path, "eno3", "3c:ec:ef:99:99:99", addr_assign_type="3")
    a_card(tmp_path, "eno4", "3c:ec:ef:99:99:98", addr_assign_type="1")
    assert read(tmp_path).macs == ("3c:ec:ef:00:11:22", "3c:ec:ef:00:11:23")


def test_at_most_64_cards(tmp_path: Path) -> None:
    for n in range(70):
        a_card(tmp_path, f"eno{n}", f"3c:ec:ef:00:00:{n:02x}")
    assert len(read(tmp_path).macs) == 64


def test_this_very_machine_can_be_read() -> None:
    found = identifiers.read(gpu_tool="no-such-tool")
    assert wire.decode(wire.Join, wire.encode(wire.Join("x", found))).identifiers == found


def test_gpus_are_asked_for_where_their_tool_is(tmp_path: Path) -> None:
    tool = a_tool(tmp_path, f'echo "$*" >{tmp_path}/asked; echo {GPU}; echo "No devices were found"; echo {GPU}')
    assert read(tmp_path, tool).gpu_uuids == (GPU,)
    assert (tmp_path / "asked").read_text() == "--query-gpu=uuid --format=csv,noheader\n"


def test_a_gpu_tool_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    tool = a_tool(tmp_path, f"echo {GPU}; exec sleep 60")
    began = time.monotonic()
    found = identifiers.read(tmp_path, gpu_tool=tool, gpu_timeout_s=0.5)
    assert time.monotonic() - began < 10
    assert found.gpu_uuids == (GPU,)


def test_a_gpu_tool_that_never_stops_talking_is_cut_off(tmp_path: Path) -> None:
    tool = a_tool(tmp_path, f"echo {GPU}; exec yes")
    began = time.monotonic()
    assert read(tmp_path, tool).gpu_uuids == (GPU,)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("said", ["GPU-1", "MIG-5a3c1e7b-9d2f-4b6a-8c0e-1f2d3c4b5a69", "$(reboot)"])
def test_what_is_no_gpu_is_left_out(tmp_path: Path, said: str) -> None:
    assert read(tmp_path, a_tool(tmp_path, f"echo '{said}'")).gpu_uuids == ()
