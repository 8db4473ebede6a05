"""`bcmetal bom` against the application itself, over TLS: from a node's deep inventory to a file, and back to its sisters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bcmetal.comparing.bom import parse
from bcmetal.store import nodes
from bcmetal.store.values import StoreInventory
from bcmetal_agent import wire
from bcmetal_agent.wire_inventory import Inventory, Neighbour
from cli.join_door import Door
from join.site import a_box
from unit.compared import AGENT


def a_node(door: Door, n: int, seen: Inventory | None) -> str:
    node_id = door.site.enrolled(a_box(n))
    if seen is not None:
        fact = StoreInventory(door.site.new_id("iv"), "agent", f"d{n}", {}, wire.to_doc(seen))
        door.site.write(nodes.apply, node_id, [fact], door.site.now())
    return node_id


def test_a_bill_is_learned_from_one_machine_and_others_are_held_to_it(door: Door, tmp_path: Path) -> None:
    good, bad = a_node(door, 1, AGENT), a_node(door, 2, replace(AGENT, gpus=AGENT.gpus[1:]))
    never = a_node(door, 3, None)
    file = tmp_path / "gpu8.toml"
    made = door.run("bom", "learn", good, "--output", str(file))
    assert made.code == 0, made.err
    assert parse(file.read_text()).gpus is not None
    assert door.run("bom", "learn", good).out == file.read_text()
    assert door.run("bom", "learn", good, "--output", str(file)).code == 1  # a file that is there is somebody's
    assert door.run("bom", "check", str(file), good).code == 0
    found = door.run("bom", "check", str(file), good, bad, never)
    assert found.code == 1
    assert "GPUs of H100 SXM5 80GB 80 GiB or more: found 7, the bill says 8" in found.out
    assert "not looked at from inside yet" in found.err
    results = door.run("bom", "check", str(file), good, bad, "--json").doc["results"]
    assert [len(one["mismatches"]) for one in results] == [0, 1]


def test_a_file_with_a_fault_is_refused_by_its_place(door: Door, tmp_path: Path) -> None:
    node, file = a_node(door, 1, AGENT), tmp_path / "x.toml"
    file.write_text("[cpus]\ncount = -1\n")
    found = door.run("bom", "check", str(file), node)
    assert found.code == 2
    assert "cpus.count" in found.err


def test_a_machine_that_was_never_seen_from_inside_teaches_nothing(door: Door) -> None:
    found = door.run("bom", "learn", a_node(door, 1, None))
    assert found.code == 1
    assert "bcmetal inspect" in found.err


def test_what_the_agent_saw_is_shown_with_the_inventory(door: Door) -> None:
    seen = replace(
        AGENT,
        complaints=("nvme nvme0: timeout\x1b[31m",),
        notes={"lldp": "raw sockets are not to be had"},
        nics=(replace(AGENT.nics[0], neighbour=Neighbour(system="leaf-3a", port="Ethernet1/7")), *AGENT.nics[1:]),
    )
    shown = door.run("inventory", a_node(door, 1, seen))
    assert shown.code == 0, shown.err
    for words in (
        "2 × Intel(R) Xeon(R) Platinum 8480+, 56 cores",
        "8 × H100 SXM5 80GB",
        "S64GNE0R2",
        "leaf-3a Ethernet1/7",
        "the kernel complains: nvme nvme0: timeout",
        "lldp: raw sockets are not to be had",
        "secure boot on",
    ):
        assert words in shown.out
    assert "\x1b" not in shown.out
    assert "no inventory yet" in door.run("inventory", a_node(door, 2, None)).out
