"""What is sealed for a BMC, opened by whoever has the vault: the oracle of these tests."""

from __future__ import annotations

from bcmetal.opened import Secrets
from bcmetal.states import SideVerb
from bcmetal.store.values import OperationRow
from bcmetal.vault import bmc_binding
from bcmetal_drivers.emulated.rack import EmulatedBmc
from emulated_site import Site


async def stored(site: Site, node_id: str) -> dict[str, str]:
    """The passwords by `slot.password`."""
    work = await site.peek(node_id)
    assert work.node.bmc is not None
    bmc = work.node.bmc
    opened = Secrets(site.vault, work.sealed, "", bmc_binding(bmc.host, bmc.trust_kind, bmc.trust_value))
    return {name: opened[name].get_secret_value() for name in opened if name.endswith("password")}


def present(bmc: EmulatedBmc) -> str:
    """The password that the BMC takes now."""
    return bmc.password.get_secret_value()


async def rotate(site: Site, node_id: str) -> OperationRow:
    operation_id = await site.queue(node_id, SideVerb.ROTATE_BMC_CREDENTIALS)
    await site.settle()
    return await site.operation(operation_id)
