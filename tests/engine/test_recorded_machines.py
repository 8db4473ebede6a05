"""A daemon inspects machines whose BMCs are recorded trees: what its view shows is what the tree's table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bcmetal.states import SideVerb, State, Verb
from bcmetal.store import inventories, views
from bcmetal_drivers.emulated.recorded import RecordedTree
from bcmetal_drivers.emulated.recorded_front import RecordedBmc
from emulated_site import OnASite, Site
from recorded.recordings import recorded
from recorded.tables import TREES
from recorded.trees import MAKERS, tree_of

GIB = 1024**3
BESIDE = 15  # requests of the login, of the BMC's own view, and of a look for media


async def inspected(site: Site, bmc: RecordedBmc) -> str:
    node_id = await site.enroll(bmc)
    assert await site.live(node_id, Verb.INSPECT) is State.INSPECTED
    return node_id


@pytest.mark.recordings
@pytest.mark.parametrize("name", TREES)
def test_a_recorded_machine_is_inspected_and_refreshed(name: str, on_a_site: OnASite, tmp_path: Path) -> None:
    table, tree = TREES[name], recorded(name)

    async def scenario(site: Site) -> None:
        with RecordedBmc(tree, tmp_path, name="m1") as bmc:
            node_id = await inspected(site, bmc)
            assert bmc.requests <= table.requests + BESIDE
            [view] = await site.store.read(views.read, [node_id])
            shown = view.doc["hardware"]
            assert (shown["cpus"], shown["cpuModel"]) == (table.cpus, table.cpu_model)
            assert shown["memoryBytes"] == table.memory_gib * GIB
            assert (shown["drives"], shown["diskBytes"]) == (len(table.drives), sum(table.drives.values()))
            assert (shown["nics"], shown["gpus"], shown["tpm"]) == (
                len(table.macs),
                len(table.gpus),
                table.tpm is not None,
            )
            first = await site.store.read(inventories.latest, node_id)
            await site.queue(node_id, SideVerb.REFRESH)
            await site.settle()
            again = await site.store.read(inventories.latest, node_id)
            assert first is not None
            assert again is not None
            assert again.inventory_id == first.inventory_id, "nothing has changed"
            assert "inventory" not in await site.conditions(node_id)

    on_a_site(scenario)


@pytest.mark.parametrize("tree", ["everything", "beside-a-baseboard", "off", "odd-values"])
def test_a_machine_of_another_maker_is_inspected(tree: str, on_a_site: OnASite, tmp_path: Path) -> None:
    made: RecordedTree = tree_of(MAKERS[tree]())

    async def scenario(site: Site) -> None:
        with RecordedBmc(made, tmp_path, name="m1") as bmc:
            node_id = await inspected(site, bmc)
            [view] = await site.store.read(views.read, [node_id])
            counts = {"everything": (2, 0), "beside-a-baseboard": (1, 8), "off": (None, 0), "odd-values": (1, 0)}
            assert (view.doc["hardware"]["cpus"], view.doc["hardware"]["gpus"]) == counts[tree]

    on_a_site(scenario)
