"""Bills of materials: what is learned is kept, every mismatch is named, and a fault of the file is named by its place."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmetal.comparing.bom import Bom, parse
from bcmetal.comparing.judging import judge
from bcmetal.comparing.learning import learn
from bcmetal.comparing.spelling import same_model
from bcmetal.errors import InvalidInput
from bcmetal_agent.wire import Identifiers
from bcmetal_agent.wire_inventory import Board, Cpu, Disk, Gpu, Inventory, Nic, Tpm
from unit.compared import AGENT, GIB

BILL = parse(learn(AGENT, name="r3u17"))


def faults(text: str) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    return {fault.path: fault.message for fault in caught.value.faults}


def test_a_machine_is_what_was_learned_from_it() -> None:
    assert judge(BILL, AGENT) == ()
    assert (BILL.cpus.count, BILL.cpus.cores, BILL.memory.modules, BILL.memory.module_gib) == (2, 56, 8, 64)
    assert BILL.disks is not None
    assert [(one.count, one.min_gb, one.max_gb) for one in BILL.disks] == [(1, 470, 490), (3, 3763, 3918)]
    assert BILL.nics is not None
    assert [(one.count, one.links, one.min_mbps) for one in BILL.nics] == [(2, 2, 25000)]


def test_a_sister_machine_matches_too() -> None:
    sister = replace(
        AGENT,
        identifiers=Identifiers("x", "y"),
        memory_bytes=(AGENT.memory_bytes or 0) - GIB,
        disks=tuple(replace(one, serial=f"Z{one.name}", size_bytes=int(one.size_bytes * 1.005)) for one in AGENT.disks),
        firmware=replace(AGENT.firmware, version="2.20.0"),
        notes={"lldp": "nobody spoke"},
    )
    assert judge(BILL, sister) == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"board": replace(AGENT.board, product="PowerEdge R750")},
            "product: found PowerEdge R750, the bill says PowerEdge R760",
        ),
        ({"board": replace(AGENT.board, maker=None)}, "maker: found nothing, the bill says Dell Inc."),
        ({"firmware": replace(AGENT.firmware, boot_mode="legacy")}, "boot mode: found legacy, the bill says uefi"),
        ({"firmware": replace(AGENT.firmware, secure_boot=None)}, "secure boot: found nothing, the bill says on"),
        ({"cpus": AGENT.cpus[:1]}, "CPUs: found 1, the bill says 2"),
        ({"cpus": (AGENT.cpus[0], replace(AGENT.cpus[1], threads=56))}, "CPU 1 threads: found 56, the bill says 112"),
        ({"memory_bytes": 400 * GIB}, "memory: found 400.0 GiB, the bill says 467 GiB or more"),
        ({"dimms": AGENT.dimms[1:]}, "memory modules: found 7, the bill says 8"),
        (
            {"dimms": (replace(AGENT.dimms[0], size_bytes=32 * GIB), *AGENT.dimms[1:])},
            "memory module A0: found 32 GiB, the bill says 64 GiB",
        ),
        (
            {"dimms": (replace(AGENT.dimms[0], speed_mts=4000), *AGENT.dimms[1:])},
            "memory module A0: found 4000 MT/s, the bill says 4800 MT/s or more",
        ),
        (
            {"disks": AGENT.disks[:3]},
            "disks of nvme solid SAMSUNG MZQL23T8HCLS-00A07 3763 to 3918 GB: found 2, the bill says 3",
        ),
        (
            {"disks": (*AGENT.disks, Disk("sda", 10**12, "X1", transport="ata", model="WDC"))},
            "disk that the bill does not name: ata WDC 1000 GB serial X1",
        ),
        (
            {"nics": (AGENT.nics[0], replace(AGENT.nics[1], carrier=False))},
            "links of ConnectX-6 Lx mlx5_core at 25000 Mbit/s or more: found 1, the bill says 2",
        ),
        (
            {"nics": (AGENT.nics[0], replace(AGENT.nics[1], speed_mbps=10000))},
            "links of ConnectX-6 Lx mlx5_core at 25000 Mbit/s or more: found 1, the bill says 2",
        ),
        ({"gpus": AGENT.gpus[:7]}, "GPUs of H100 SXM5 80GB 80 GiB or more: found 7, the bill says 8"),
        ({"tpm": None}, "TPM: found nothing, the bill says one of version 2.0"),
        ({"tpm": Tpm("1.2")}, "TPM version: found 1.2, the bill says 2.0"),
    ],
)
def test_each_mismatch_is_named_and_is_the_only_one(change: dict[str, Any], told: str) -> None:
    assert judge(BILL, replace(AGENT, **change)) == (told,)


def test_sticks_and_a_bmcs_media_are_no_part_of_a_machine() -> None:
    extra = (
        Disk("sdy", 8 * 10**9, "A", transport="usb", removable=True),
        Disk("sdz", 10**9, "B", transport="usb", virtual_medium=True),
        Disk("sdx", 10**12, "C", transport="fc", shared=True),
    )
    assert judge(BILL, replace(AGENT, disks=(*AGENT.disks, *extra))) == ()
    assert learn(replace(AGENT, disks=(*AGENT.disks, *extra)), name="x") == learn(AGENT, name="x")


def test_more_parts_are_no_mismatch_where_the_bill_says_so() -> None:
    more = replace(AGENT, disks=(*AGENT.disks, Disk("sda", 10**12, "X1", transport="ata")))
    assert judge(BILL.model_copy(update={"more": True}), more) == ()


def test_groups_that_overlap_share_the_parts_so_that_all_are_filled() -> None:
    bill = parse(
        '[[disks]]\ncount = 1\ntransport = "nvme"\n[[disks]]\ncount = 2\nmin_gb = 100\n[[disks]]\ncount = 1\nmodel = "MZ1L2480HCHQ"\n'
    )
    assert judge(bill, AGENT) == ()
    assert len(judge(bill, replace(AGENT, disks=AGENT.disks[1:]))) == 1


def test_an_empty_bill_judges_nothing() -> None:
    assert parse("") == Bom()
    assert judge(Bom(), Inventory(Identifiers())) == ()


def test_faults_of_a_file_are_named_by_their_place() -> None:
    found = faults(
        '[memory]\nmin_gb = 4\n[[disks]]\ncount = 1\n[[disks]]\ncount = 0\nmin_gb = "x"\n[tpm]\nversion = "3"\n'
    )
    assert found.keys() == {"memory.min_gb", "disks[1].count", "disks[1].min_gb", "tpm.version"}
    assert "min_gib" in found["memory.min_gb"]
    assert "count" in str(faults("[[disks]]\n"))
    assert "no TOML" in faults("[memory\n")[""]
    assert "longer" in faults("#" * 300_000)[""]
    assert "more than 512" in str(faults("[[gpus]]\ncount = 500\n[[gpus]]\ncount = 13\n"))


words = st.text(max_size=40)
machines = st.builds(
    Inventory,
    identifiers=st.just(Identifiers()),
    board=st.builds(Board, maker=st.none() | words, product=st.none() | words),
    cpus=st.lists(
        st.builds(Cpu, socket=st.integers(0, 3), model=st.none() | words, cores=st.integers(0, 300), threads=st.integers(0, 600)),
        max_size=3,
    ).map(tuple),
    memory_bytes=st.none() | st.integers(0, 2**45),
    disks=st.lists(
        st.builds(
            Disk,
            name=words,
            size_bytes=st.integers(0, 2**50),
            model=st.none() | words,
            transport=st.none() | st.sampled_from(["nvme", "ata"]),
            rotational=st.none() | st.booleans(),
        ),
        max_size=6,
    ).map(tuple),
    nics=st.lists(
        st.builds(Nic, name=words, model=st.none() | words, driver=st.none() | words, carrier=st.none() | st.booleans(), speed_mbps=st.none() | st.integers(0, 800_000)),
        max_size=4,
    ).map(tuple),
    gpus=st.lists(st.builds(Gpu, pci=words, model=st.none() | words, memory_bytes=st.none() | st.integers(0, 2**40)), max_size=4).map(tuple),
    tpm=st.none() | st.builds(Tpm, version=st.none() | words),
)  # fmt: skip


@given(machines, st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_a_machine_says_what_is_learned_is_toml_and_holds_for_it(machine: Inventory, name: str) -> None:
    text = learn(machine, name=name)
    tomllib.loads(text)
    assert judge(parse(text), machine) == ()


def test_a_model_without_a_letter_is_the_same_as_itself_alone() -> None:
    assert same_model("_", "_")
    assert not same_model("_", "-")
    assert not same_model("", "")
