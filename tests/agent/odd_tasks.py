"""Tasks that behave in ways that the shipped ones should not."""

from __future__ import annotations

import time

from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.wire_tasks import LOG_CHUNK, InventoryParams, Nothing, TestParams, TestResult

LINE = "é" * 63 + "\n"


def endless(params: InventoryParams, doing: Doing) -> Nothing:
    """Until somebody says stop."""
    doing.progress(10, "for ever")
    while True:
        doing.check()
        time.sleep(0.02)


def broken(params: TestParams, doing: Doing) -> TestResult:
    raise KeyError(params.limits["secret"])


def unlucky(params: Nothing, doing: Doing) -> Nothing:
    raise TaskFailed("no-luck", "it\ndid not\x1b[31m work")


def talkative(params: Nothing, doing: Doing) -> Nothing:
    """More than fits into three reports, with what no log may hold."""
    doing.log("\x1b[2J\ud800\n")
    for _ in range(3 * LOG_CHUNK // len(LINE)):
        doing.log(LINE)
    return Nothing()


def boundless(params: TestParams, doing: Doing) -> TestResult:
    return TestResult("x" * 2000)


TABLE = {
    "inventory": ("agent.odd_tasks", "endless"),
    "test": ("agent.odd_tasks", "broken"),
    "poweroff": ("agent.odd_tasks", "talkative"),
    "reboot": ("agent.odd_tasks", "unlucky"),
    "erase": ("agent.no_such_module", "erase"),
}
