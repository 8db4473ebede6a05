"""Who the machine and its BMC are, by Redfish. Values are raw: what they are worth is for the reader to say."""

from __future__ import annotations

from collections.abc import Iterable

from bcmetal_drivers.redfish_around import is_a_board
from bcmetal_drivers.redfish_chassis import Look, around
from bcmetal_drivers.redfish_document import key, links, text
from bcmetal_drivers.redfish_maker import maker_of, manager_of
from bcmetal_drivers.redfish_nics import Nics
from bcmetal_drivers.redfish_parts import Part, said, serial_of
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.resources import BmcInfo, Identity


def identity(tree: Tree) -> Identity:
    """A NIC that cannot be read is left out."""
    with tree.reading() as reading:
        look = around(Look(tree, reading, tree.system()))
        nics = Nics()
        nics.read(look)
        return identity_of(look, nics.nics)


def identity_of(look: Look, found: Iterable[Part]) -> Identity:
    system = look.system
    return Identity(
        system_path=look.tree.system_path(),
        product_uuid=text(system, "UUID"),
        serial=serial_of(system) or _chassis_serial(look) or text(system, "SerialNumber"),
        sku=text(system, "SKU"),
        manufacturer=text(system, "Manufacturer"),
        model=text(system, "Model"),
        hostname=text(system, "HostName"),
        asset_tag=text(system, "AssetTag"),
        macs=tuple(dict.fromkeys(str(nic["mac"]) for nic in found)),
    )


def _chassis_serial(look: Look) -> str | None:
    """For a system without one, or with a word in its place: of the only chassis that it names, where that holds no other system.

    Where that is a board of it (NVIDIA GB200 names its BMC's), of the only chassis around it that is none.
    """
    named = links(look.system, "Links", "Chassis")
    own = [doc for path, doc in look.chassis if len(named) == 1 and key(path) == key(named[0])]
    if any(is_a_board(doc) for doc in own):
        here = key(look.tree.system_path())
        around = [doc for _, doc in look.chassis if here in map(key, links(doc, "Links", "ComputerSystems"))]
        own = [doc for doc in around if not is_a_board(doc)]
    shared = any(len(links(doc, "Links", "ComputerSystems")) > 1 for doc in own)
    return serial_of(own[0]) if len(own) == 1 and not shared else None


def bmc_info(tree: Tree) -> BmcInfo:
    """The maker is the root's Vendor, else what the manager says of itself; the system's Manufacturer, who need not be the BMC's, is last."""
    with tree.reading():
        doc = manager_of(tree)
        root = tree.root()
        tree.known_as(maker_of(root, doc), text(doc, "Model"), text(doc, "FirmwareVersion"))
        return BmcInfo(
            maker=maker_of(root, doc) or _of_the_system(tree),
            model=said(doc, "Model") or text(root, "Product"),
            firmware=text(doc, "FirmwareVersion"),
            certificate_fp=tree.door.certificate_fp,
            clock=text(doc, "DateTime"),
        )


def _of_the_system(tree: Tree) -> str | None:
    return said(tree.find(tree.system_path()), "Manufacturer")
