"""The test `gpu`: every GPU on the bus answers its maker's tool, without uncorrected errors; NVIDIA's own diagnosis where it is there."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from bcmetal_agent.tasks import look_gpus, look_pci
from bcmetal_agent.tasks.doing import TaskFailed
from bcmetal_agent.tasks.hardware_trial import Trial
from bcmetal_agent.tasks.look_files import printable, whole
from bcmetal_agent.tasks.tools import ToolMissing, run
from bcmetal_agent.wire_tasks import TestResult

_QUERY: Final = (
    "pci.bus_id,temperature.gpu,ecc.errors.uncorrected.volatile.total,remapped_rows.failure,"
    "pcie.link.width.current,pcie.link.width.max"
)
_FIELDS: Final = len(_QUERY.split(","))
_GRACE_S: Final = 600  # dcgmi's levels have times of their own
# dcgmi diag's levels with about what they take (DCGM User Guide, "Diagnostics")
_LEVELS: Final = ((1800, "3"), (120, "2"), (0, "1"))


def gpus(trial: Trial) -> TestResult:
    pci = [one for one in look_pci.devices(trial.machine) if look_gpus.is_gpu(one)]
    wrong = trial.under("count", len(pci), "GPUs on the bus")
    if not pci:
        return TestResult(wrong[0] if wrong else "the machine has no GPU", False if wrong else None, {"count": 0})
    figures: dict[str, Any] = {"count": len(pci)}
    nvidia = [one.address for one in pci if one.vendor_id == look_gpus.NVIDIA]
    if not nvidia:
        return TestResult(
            "; ".join(wrong) or f"{len(pci)} GPUs on the bus; there is no test for their maker's",
            False if wrong else None,
            figures,
        )
    said = run(
        ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
        deadline_s=look_gpus.TOOL_S,
        expect=None,
        doing=trial.doing,
    )
    trial.log(said.text[:20_000])
    told = dict(_rows(said.text))
    for address in nvidia:
        row = told.get(address)
        if row is None:
            wrong.append(f"{address} is on the bus and does not answer nvidia-smi")
            continue
        celsius, uncorrected, remap, width, width_max = row
        figures[address] = {"celsius": celsius, "uncorrected": uncorrected, "link_width": width}
        wrong += trial.over("uncorrected_errors", uncorrected, f"{address} uncorrected errors")
        wrong += trial.over("max_celsius", celsius, f"{address} degrees Celsius")
        if remap:
            wrong.append(f"{address} could not put spare memory in the place of bad rows")
        if width and width_max and width < width_max:
            wrong.append(f"{address} has {width} of {width_max} PCIe lanes")
    diagnosis = _diagnosis(trial, wrong)
    return TestResult(
        "; ".join(wrong) or f"{len(nvidia)} NVIDIA GPUs answer without errors{diagnosis}", not wrong, figures
    )


def _rows(said: str) -> Iterator[tuple[str, list[int | None]]]:
    for row in csv.reader(said.splitlines()[:256]):
        if len(row) == _FIELDS:
            yield look_gpus.pci_address(row[0]), [_figure(value) for value in row[1:]]


def _figure(value: str) -> int | None:
    """remapped_rows.failure is `No`, `Yes` or a number."""
    value = value.strip()
    return {"yes": 1, "no": 0}.get(value.lower(), whole(value))


def _diagnosis(trial: Trial, wrong: list[str]) -> str:
    level = next(level for least_s, level in _LEVELS if trial.duration_s >= least_s)
    try:
        with trial.ticking(f"dcgmi diag -r {level}"):
            ran = run(
                ["dcgmi", "diag", "-r", level, "-j"],
                deadline_s=max(trial.duration_s, 60) + _GRACE_S,
                expect=None,
                doing=trial.doing,
            )
    except ToolMissing:
        return "; dcgmi is not in the ramdisk, nothing was computed"
    except TaskFailed as error:
        wrong.append(str(error))
        return ""
    trial.log(ran.text[:100_000])
    failed = sorted(set(failures(ran.text)))
    wrong += [f"dcgmi: {name} failed" for name in failed[:16]]
    if ran.code and not failed:
        wrong.append(f"dcgmi ended with {ran.code}: {printable(ran.err or ran.out)[:200]}")
    return f", dcgmi level {level} passed"


def failures(said: str) -> Iterator[str]:
    """Names of the tests of which any result is Fail. The document's upper levels differ between DCGM 2, 3 and 4; the tests do not."""
    try:
        doc: Any = json.loads(said)
    except (ValueError, RecursionError):
        return
    waiting = [doc]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            results = one.get("results")
            if isinstance(results, list) and any(
                isinstance(result, dict) and re.fullmatch("fail", str(result.get("status")), re.I) for result in results
            ):
                yield printable(str(one.get("name") or "a test"))[:100]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
