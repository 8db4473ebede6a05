"""A recorded tree behind the real driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bcmetal_drivers.address import parse
from bcmetal_drivers.connection import Credential, Limits, Trust, TrustKind
from bcmetal_drivers.emulated.recorded import RecordedTree
from bcmetal_drivers.emulated.recorded_front import RecordedBmc, RecordedService
from bcmetal_drivers.emulated.recorded_line import driving
from bcmetal_drivers.redfish import RedfishBmc
from recorded.trees import Docs, tree_of

LIMITS = Limits(connect_s=5, read_s=10, total_s=45)


@contextmanager
def driven(
    tree: RecordedTree, folder: Path, *, system: str = "", tls: bool = True, limits: Limits = LIMITS
) -> Iterator[tuple[RedfishBmc, RecordedBmc]]:
    """`system`: the path of the system that is meant, where there are several."""
    with RecordedBmc(tree, folder, tls=tls) as served:
        trust = Trust(TrustKind.FINGERPRINT, served.fingerprint or "") if tls else Trust(TrustKind.NONE)
        credential = Credential(served.username, served.password)
        bmc = RedfishBmc(parse(served.address + system), credential, trust, limits)
        try:
            yield bmc, served
        finally:
            bmc.close()


@contextmanager
def bmc_of(
    docs: Docs, failing: tuple[str, ...] = (), learned: Mapping[str, object] | None = None
) -> Iterator[RedfishBmc]:
    """The driver on a tree of our own, without a network. `failing`: paths that answer 500."""
    service = RecordedService(tree_of(docs))
    service.failing |= {path.lower(): 500 for path in failing}
    with driving(service, Limits(connect_s=2, read_s=2, total_s=20), learned=learned) as bmc:
        yield bmc
