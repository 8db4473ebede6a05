"""`python -m bcmetal_drivers.emulated --tree PATH`: recorded trees as BMCs, until SIGTERM or SIGINT."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bcmetal_drivers.emulated.control import write_private
from bcmetal_drivers.emulated.recorded import NoRecording, RecordedTree
from bcmetal_drivers.emulated.recorded_front import RecordedBmc


def serve(trees: Sequence[Path], state: Path | None) -> int:
    """`state` keeps certificates and passwords; None: a folder that goes when we end. The signals are blocked by the caller."""
    with ExitStack() as stack:
        folder = state or Path(stack.enter_context(TemporaryDirectory(prefix="recorded-")))
        folder.mkdir(parents=True, exist_ok=True)
        where = []
        for n, path in enumerate(trees, 1):
            try:
                tree = RecordedTree.read(path)
            except NoRecording as error:
                sys.stderr.write(f"{error}\n")
                return 1
            bmc = stack.enter_context(RecordedBmc(tree, folder, name=f"recorded-{n:02d}"))
            secret = folder / f"{bmc.name}.password"
            write_private(secret, bmc.password.get_secret_value())
            where.append(
                {
                    "name": bmc.name,
                    "tree": str(path),
                    "address": bmc.address,
                    "username": bmc.username,
                    "password_file": str(secret),
                    "fingerprint": bmc.fingerprint,
                }
            )
        sys.stdout.write(json.dumps({"bmcs": where}) + "\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0
