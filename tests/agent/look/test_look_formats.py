"""What firmware, switches, disks and GPUs' tools say, read by us: their standards' examples, and whatever else they might send."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.look.recorded import Told, a_program, a_structure, tables
from bcmetal_agent.tasks import look_gpus, look_lldp, look_smart, look_smbios, look_tpm
from bcmetal_agent.tasks.look_files import Machine, natural
from bcmetal_agent.wire_inventory import Neighbour

# ---------------------------------------------------------------- SMBIOS


def test_structures_are_read_until_the_table_stops_making_sense() -> None:
    whole = tables()
    kinds = [one.kind for one in look_smbios.structures(whole)]
    assert kinds == [0, 1, 2, 3, 4, 4, 17, 17, 17, 127]
    assert [one.kind for one in look_smbios.structures(whole[:-200])] == kinds[:7]
    assert list(look_smbios.structures(b"\x01\x03\0\0\0\0")) == []
    assert list(look_smbios.structures(a_structure(1, 1, b"\1")[:-1])) == []


def test_a_string_that_is_not_there_and_one_that_means_nothing_are_absent() -> None:
    one = look_smbios.Structure(1, 1, b"\x01\x06\0\0\x07\x01", ("Not Specified",))
    assert (one.text(4), one.text(5), one.text(99), one.integer(4, 4)) == (None, None, None, None)


def test_modules_of_one_locator_are_told_apart_by_their_banks() -> None:
    size = bytearray(0x1B - 4)
    struct.pack_into("<H", size, 0x0C - 4, 0x8000 | 512)  # in KiB
    size[0x10 - 4], size[0x11 - 4] = 1, 2
    table = b"".join(a_structure(17, n, bytes(size), "DIMM 0", f"P{n} CHANNEL A") for n in range(2))
    found = look_smbios.dimms(look_smbios.structures(table))
    assert [(one.slot, one.size_bytes) for one in found] == [
        ("P0 CHANNEL A DIMM 0", 2**19),
        ("P1 CHANNEL A DIMM 0", 2**19),
    ]


@given(
    st.binary(max_size=300)
    | st.integers(0, 900).map(lambda n: tables()[:n])
    | st.binary(max_size=40).map(lambda b: tables()[:100] + b + tables())
)
@settings(max_examples=100, deadline=None)
def test_no_table_is_too_bad_to_be_read(table: bytes) -> None:
    found = tuple(look_smbios.structures(table))
    look_smbios.board(Machine(Path("/nowhere")), found)
    look_smbios.dimms(found)
    look_smbios.processors(found)
    look_smbios.bios(Machine(Path("/nowhere")), found)


# ---------------------------------------------------------------- LLDP


def a_tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value


LLDPDU = b"".join(
    [
        a_tlv(1, b"\x04" + bytes.fromhex("3cecef001120")),
        a_tlv(2, b"\x05Ethernet1/7"),
        a_tlv(3, b"\x00\x78"),
        a_tlv(4, b"r3u17 port 1"),
        a_tlv(5, b"leaf-3a\x1b[31m"),
        a_tlv(127, b"\x00\x80\xc2\x01" + b"\x00\x64"),
        a_tlv(127, b"\x00\x80\xc2\x03" + b"\x00\x0a\x04prod"),
        a_tlv(0, b""),
    ]
)


def test_a_switch_tells_who_it_is() -> None:
    assert look_lldp.parse(LLDPDU) == Neighbour(
        chassis="3c:ec:ef:00:11:20",
        system="leaf-3a [31m",
        port="Ethernet1/7",
        port_description="r3u17 port 1",
        vlans=(10, 100),
    )


def test_a_chassis_may_be_an_address_and_a_farewell_is_nobody() -> None:
    v4 = a_tlv(1, b"\x05\x01\x0a\x00\x00\x01") + a_tlv(2, b"\x07xe-0/0/1") + a_tlv(3, b"\x00\x78")
    found = look_lldp.parse(v4)
    assert found is not None
    assert (found.chassis, found.port) == ("10.0.0.1", "xe-0/0/1")
    assert look_lldp.parse(v4[:-2] + b"\0\0") is None
    assert look_lldp.parse(a_tlv(2, b"\x07x") + v4) is None


@given(st.binary(max_size=200) | st.integers(0, len(LLDPDU)).map(lambda n: LLDPDU[:n]))
@settings(max_examples=100, deadline=None)
def test_no_frame_is_too_bad_to_be_read(frame: bytes) -> None:
    look_lldp.parse(frame)


def test_a_frame_is_heard_on_the_wire() -> None:
    try:
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(look_lldp.ETHERTYPE))
    except PermissionError:
        pytest.skip("raw sockets need CAP_NET_RAW")
    frame = bytes.fromhex("0180c200000e") + bytes.fromhex("3cecef001120") + b"\x88\xcc" + LLDPDU
    done = threading.Event()

    def speak() -> None:
        while not done.wait(0.05):
            sender.send(frame)

    with sender:
        sender.bind(("lo", look_lldp.ETHERTYPE))
        thread = threading.Thread(target=speak)
        thread.start()
        try:
            heard = look_lldp.listen(["lo"], lambda: None, 20.0)
        finally:
            done.set()
            thread.join()
    assert heard["lo"].port == "Ethernet1/7"


def test_a_silent_wire_is_listened_to_no_longer_than_asked() -> None:
    began = time.monotonic()
    try:
        assert look_lldp.listen(["lo"], lambda: None, 0.2) == {}
    except PermissionError:
        pytest.skip("raw sockets need CAP_NET_RAW")
    assert time.monotonic() - began < 10
    assert look_lldp.listen([], lambda: None, 60) == {}


def test_cards_that_heard_nobody_are_named() -> None:
    drivers = {"ens1": "mlx5_core", "ens2": "i40e", "ens3": None}
    assert look_lldp.silence(drivers, {"ens2": 1}) == "no switch spoke to ens1, ens3"
    assert "may keep LLDP to itself" in str(look_lldp.silence(drivers, ["ens1"]))
    assert look_lldp.silence(drivers, list(drivers)) is None


# ---------------------------------------------------------------- disks' health


ATA = {
    "smart_status": {"passed": True},
    "temperature": {"current": 31},
    "power_on_time": {"hours": 41000},
    "ata_smart_attributes": {
        "table": [
            {"id": 5, "name": "Reallocated_Sector_Ct", "raw": {"value": 3}},
            {"id": 197, "name": "Current_Pending_Sector", "raw": {"value": 0x5_0000_0008}},
            {"id": 9, "raw": {"value": 7}},
            {"id": "x", "raw": None},
        ]
    },
}
NVME = {
    "smart_status": {"passed": False, "nvme": {"value": 5}},
    "nvme_smart_health_information_log": {
        "critical_warning": 5,
        "available_spare": 3,
        "available_spare_threshold": 10,
        "percentage_used": 104,
        "media_errors": 12,
    },
}


def test_an_ata_disk_that_is_well_tells_its_figures() -> None:
    found = look_smart.judged(*look_smart.read_smartctl(json.dumps(ATA)))
    assert found == look_smart.Health(
        "ok", {"passed": 1, "reallocated": 3, "pending": 8, "temperature_c": 31, "power_on_hours": 41000}
    )


def test_an_nvme_disk_that_is_at_its_end_says_why() -> None:
    found = look_smart.judged(*look_smart.read_smartctl(json.dumps(NVME)))
    assert found.word == "failing"
    assert found.why == (
        "its self-assessment failed; critical warning 0x05: spare below its limit, reliability degraded; "
        "3 % spare, the maker's limit is 10 %"
    )
    assert (found.figures["percent_used"], found.figures["media_errors"]) == (104, 12)


def test_nvme_cli_says_the_same_in_both_its_forms() -> None:
    flat = {
        "critical_warning": 0,
        "temperature": 310,
        "avail_spare": 100,
        "spare_thresh": 10,
        "percent_used": 1,
        "media_errors": 0,
    }
    new = {**flat, "critical_warning": {"value": 0, "available_spare": 0}}
    for doc in (flat, new):
        found = look_smart.judged(*look_smart.read_nvme_cli(json.dumps(doc)))
        assert (found.word, found.figures["temperature_c"], found.figures["spare_percent"]) == ("ok", 37, 100)


@pytest.mark.parametrize(
    "said", ["", "{", "[]", "7", "null", '{"smart_status": 3}', "[" * 5000, '{"ata_smart_attributes": {"table": [3]}}']
)
def test_a_disk_that_says_nonsense_is_unknown(said: str) -> None:
    assert look_smart.judged(*look_smart.read_smartctl(said)).word == "unknown"
    assert look_smart.judged(*look_smart.read_nvme_cli(said)).word == "unknown"


def test_smartctl_is_asked_and_nvme_cli_where_it_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCMETAL_AGENT_PATH", f"{tmp_path / 'bin'}")
    a_program(tmp_path / "bin", "nvme", """echo '{"critical_warning": 0, "percent_used": 7}'""")
    assert look_smart.ask_all(["nvme0n1"], Told())["nvme0n1"].figures == {"critical_warning": 0, "percent_used": 7}
    a_program(tmp_path / "bin", "smartctl", f"echo '{json.dumps(ATA)}'; exit 64")  # 64: its log holds errors
    assert look_smart.ask_all(["sda", "sdb"], Told())["sdb"].word == "ok"


# ---------------------------------------------------------------- GPUs and TPMs


def test_nvidias_tool_names_its_cards() -> None:
    first, second = look_gpus.parse_nvidia(
        "00000000:3B:00.0, NVIDIA H100 80GB HBM3, GPU-5a3c1e7b-9d2f, 81559, 1654922003311\n"
        "00000000:5E:00.0, NVIDIA H100 80GB HBM3, [N/A], [Unknown Error], [N/A]\nnonsense\n"
    )
    assert (first.pci, first.uuid, first.memory_bytes, first.serial) == (
        "0000:3b:00.0",
        "GPU-5a3c1e7b-9d2f",
        81559 * 2**20,
        "1654922003311",
    )
    assert (second.uuid, second.memory_bytes, second.serial) == (None, None, None)


def test_amds_tool_names_its_cards_whatever_capitals_it_uses() -> None:
    doc = {
        "card0": {
            "PCI Bus": "0000:C1:00.0",
            "Card Series": "MI300X",
            "Unique ID": "0x1d",
            "VRAM Total Memory (B)": "206141652992",
        },
        "system": 3,
    }
    (one,) = look_gpus.parse_amd(json.dumps(doc))
    assert (one.pci, one.model, one.uuid, one.memory_bytes) == ("0000:c1:00.0", "MI300X", "0x1d", 206141652992)
    assert look_gpus.parse_amd("rubbish") == []


def test_a_tpm_tells_its_maker_and_firmware() -> None:
    told = [(0x100, 0x322E3000), (0x105, 0x4E544300), (0x10B, 0x00070002), (0x10C, 0x00030000)]
    body = struct.pack("!BII", 1, 6, len(told)) + b"".join(struct.pack("!II", *one) for one in told)
    answer = struct.pack("!HII", 0x8001, 10 + len(body), 0) + body
    assert look_tpm.parse(answer) == ("NTC", "7.2.3.0")
    assert look_tpm.parse(answer[:35]) == ("NTC", None)
    for bad in (b"", answer[:18], answer[:6] + b"\0\0\1\1" + answer[10:]):
        with pytest.raises(ValueError, match="answer"):
            look_tpm.parse(bad)


def test_names_with_numbers_are_sorted_as_people_do() -> None:
    assert sorted(["eth10", "eth2", "2", "x"], key=natural) == ["2", "eth2", "eth10", "x"]
