"""A site whose BMCs come with a list of labels, and nodes that are enrolled by it."""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from bcmetal.store import nodes
from bcmetal.store.values import NewBmc, NewNode
from bcmetal_drivers.emulated.rack import EmulatedBmc
from emulated_site import Site, a_site
from emulated_site_config import POOL, TENANT

OURS = "bcmetal"


def a_list(path: Path, lines: Iterable[tuple[str, str, str, str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("bmc_mac", "serial", "username", "password"))
    writer.writerows(lines)
    path.touch(0o600)
    path.write_text(out.getvalue())


def config(folder: Path, on_enroll: str = 'on_enroll = "claim:fleet"') -> str:
    """The tables of both credentials; the list and the password are files that are there."""
    key, labels = folder / "fleet.pw", folder / "labels.csv"
    key.touch(0o600)
    key.write_text(secrets.token_urlsafe(12))
    if not labels.exists():
        a_list(labels, [])
    return f"""
[credentials.fleet]
username = "{OURS}"
password = "file:{key}"
networks = ["bmc"]

[credentials.factory]
manifest = "{labels}"
networks = ["bmc"]
{on_enroll}
"""


@asynccontextmanager
async def a_listed_site(folder: Path, on_enroll: str = 'on_enroll = "claim:fleet"') -> AsyncIterator[Site]:
    async with a_site(folder, places={"more": config(folder, on_enroll)}) as site:
        yield site


def label_of(bmc: EmulatedBmc, serial: str) -> tuple[str, str, str, str]:
    return ("", serial, bmc.username, bmc.password.get_secret_value())


async def enroll_by(
    site: Site,
    bmc: EmulatedBmc,
    credential: str,
    labels: dict[str, str] | None = None,
    trust: tuple[str, str] = ("pin-first", ""),
    system: str | None = None,
) -> str:
    """A node that uses a credential of the configuration; its certificate is pinned by the first inspect."""
    node_id = site.new_id("nd")
    scheme = bmc.address.partition(":")[0]
    new = NewNode(
        node_id,
        TENANT,
        "site-a",
        POOL,
        bmc.name if system is None else system.casefold(),
        site.new_id("bm"),
        NewBmc("bmc", scheme, bmc.host, bmc.port, *(trust if scheme == "redfish" else ("system", "")), credential),
        system_path=None if system is None else f"/redfish/v1/Systems/{system}",
        labels=labels or {},
    )
    await site.store.write(nodes.insert, new, site.clock.now())
    return node_id
