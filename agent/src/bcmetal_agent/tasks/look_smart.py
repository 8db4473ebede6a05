"""What disks say of their own health, by smartctl; NVMe ones by nvme-cli where smartctl is not there.

A controller that hides its disks (RAID) hides their health too: then it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.look_files import printable, whole
from bcmetal_agent.tasks.tools import ToolMissing, run

ASK_S: Final = 60.0  # a disk that has to spin up, or retries what it cannot read
AT_ONCE: Final = 8
OK, FAILING, UNKNOWN = "ok", "failing", "unknown"

Figures = dict[str, int]
_ATTRIBUTES: Final = {
    5: "reallocated",
    187: "uncorrectable",
    197: "pending",
    198: "offline_uncorrectable",
    199: "crc_errors",
}
_NVME: Final = {
    "critical_warning": "critical_warning",
    "media_errors": "media_errors",
    "percentage_used": "percent_used",
    "available_spare": "spare_percent",
    "available_spare_threshold": "spare_threshold_percent",
    "num_err_log_entries": "error_log_entries",
    "unsafe_shutdowns": "unsafe_shutdowns",
}
_NVME_CLI: Final = {
    "critical_warning": "critical_warning",
    "media_errors": "media_errors",
    "percent_used": "percent_used",
    "avail_spare": "spare_percent",
    "spare_thresh": "spare_threshold_percent",
    "num_err_log_entries": "error_log_entries",
    "unsafe_shutdowns": "unsafe_shutdowns",
    "power_on_hours": "power_on_hours",
}


@dataclass(frozen=True, slots=True)
class Health:
    """`figures` hold `passed` (0 or 1, the disk's own assessment) where it makes one. `why`: what was wrong, or why it is unknown."""

    word: str
    figures: Figures
    why: str | None = None


def ask_all(disks: Sequence[str], doing: Doing) -> dict[str, Health]:
    """Device name (sda) → its health. Raises Stopped."""
    with ThreadPoolExecutor(AT_ONCE, "smart") as pool:
        return dict(zip(disks, pool.map(lambda name: ask(name, doing), disks), strict=True))


def ask(name: str, doing: Doing) -> Health:
    """Unknown where no program is there to ask it. Raises Stopped."""
    try:
        ran = run(["smartctl", "-j", "-a", f"/dev/{name}"], deadline_s=ASK_S, expect=None, doing=doing)
        return judged(*read_smartctl(ran.text))
    except ToolMissing as missing:
        if not name.startswith("nvme"):
            return Health(UNKNOWN, {}, str(missing))
    except TaskFailed as error:
        return Health(UNKNOWN, {}, str(error))
    try:
        ran = run(["nvme", "smart-log", "-o", "json", f"/dev/{name}"], deadline_s=ASK_S, doing=doing)
        return judged(*read_nvme_cli(ran.text))
    except TaskFailed as error:
        return Health(UNKNOWN, {}, str(error))


def judged(figures: Figures, why: str | None) -> Health:
    """Failing is what the disk itself calls so; figures that only might matter are for the pass marks of the test."""
    wrong = own_verdict(figures)
    if wrong:
        return Health(FAILING, figures, "; ".join(wrong))
    if "passed" in figures or "critical_warning" in figures:
        return Health(OK, figures)
    return Health(UNKNOWN, figures, why or "it does not assess itself")


def own_verdict(figures: Mapping[str, int]) -> list[str]:
    wrong = []
    if figures.get("passed") == 0:
        wrong.append("its self-assessment failed")
    if figures.get("critical_warning"):
        wrong.append(f"critical warning 0x{figures['critical_warning']:02x}: {', '.join(warnings(figures))}")
    threshold = figures.get("spare_threshold_percent", 0)
    if threshold <= 100 and figures.get("spare_percent", 100) < threshold:
        wrong.append(f"{figures['spare_percent']} % spare, the maker's limit is {threshold} %")
    return wrong


def warnings(figures: Mapping[str, int]) -> list[str]:
    """NVM Express Base 2.0, figure 207."""
    bits = (
        "spare below its limit",
        "temperature",
        "reliability degraded",
        "read-only",
        "backup failed",
        "PMR read-only",
    )
    found = figures.get("critical_warning", 0)
    return [word for n, word in enumerate(bits) if found >> n & 1] or ["reserved bits"]


def read_smartctl(said: str) -> tuple[Figures, str | None]:
    """Figures, and what smartctl complained of."""
    doc = _object(said)
    figures: Figures = {}
    passed = _at(doc, "smart_status", "passed")
    if isinstance(passed, bool):
        figures["passed"] = int(passed)
    figures |= _picked(_at(doc, "nvme_smart_health_information_log"), _NVME)
    table = _at(doc, "ata_smart_attributes", "table")
    for row in table[:256] if isinstance(table, list) else ():
        name, value = _ATTRIBUTES.get(whole(_at(row, "id")) or 0), whole(_at(row, "raw", "value"))
        if name and value is not None:
            figures[name] = value & 0xFFFFFFFF  # some firmware keeps other counters in the upper bytes
    for name, path in (
        ("grown_defects", ("scsi_grown_defect_list",)),
        ("read_uncorrected", ("scsi_error_counter_log", "read", "total_uncorrected_errors")),
        ("write_uncorrected", ("scsi_error_counter_log", "write", "total_uncorrected_errors")),
        ("percent_used", ("scsi_percentage_used_endurance_indicator",)),
        ("percent_used", ("endurance_used", "current_percent")),
        ("temperature_c", ("temperature", "current")),
        ("power_on_hours", ("power_on_time", "hours")),
    ):
        value = whole(_at(doc, *path))
        if value is not None:
            figures.setdefault(name, value)
    messages = _at(doc, "smartctl", "messages")
    first = _at(messages[0], "string") if isinstance(messages, list) and messages else None
    return figures, printable(first)[:300] if isinstance(first, str) else None


def read_nvme_cli(said: str) -> tuple[Figures, str | None]:
    doc = _object(said)
    figures = _picked(doc, _NVME_CLI)
    warning = _at(doc, "critical_warning", "value")  # an object of bits since nvme-cli 2.4
    if whole(warning) is not None:
        figures["critical_warning"] = whole(warning) or 0
    kelvin = whole(_at(doc, "temperature"))
    if kelvin and kelvin >= 273:
        figures["temperature_c"] = kelvin - 273
    return figures, None


def _picked(source: Any, wanted: Mapping[str, str]) -> Figures:
    found = ((ours, whole(_at(source, theirs))) for theirs, ours in wanted.items())
    return {ours: value for ours, value in found if value is not None}


def _object(said: str) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return None


def _at(doc: Any, *path: str) -> Any:
    for name in path:
        doc = doc.get(name) if isinstance(doc, dict) else None
    return doc
