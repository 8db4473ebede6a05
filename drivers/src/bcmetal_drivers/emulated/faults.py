"""Rules that make BMCs misbehave, changeable while they run, each counted when it really fired.

A rule is `{bmc, method, path, when, before, delay, answer, effect}` as data, or one of the named `ACTIONS` for what data cannot say.

    Rule(method="POST", path="ComputerSystem.Reset$", when=When(equals={"body/ResetType": "On"}), answer=Reply(status=204), times=1)
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bcmetal_drivers.emulated.conditions import Facts, When, nothing_known
from bcmetal_drivers.emulated.effects import EFFECTS, Effects
from bcmetal_drivers.emulated.replies import Reply

ANY: Final = "*"
FAILED_LOGIN: Final = "failed-login"  # what IPMI fronts ask for when a login fails; never a command's name

ACT: Final = "act"

ACTIONS: Final = frozenset(
    {
        ACT,  # as `when`, `before`, `delay`, `answer` and `effect` say
        "delay",  # answer `seconds` late
        "drip",  # the answer's body a byte at a time, `seconds` between two
        "drop_before",  # RST before the request is applied
        "drop_after",  # applied, then RST instead of the answer
        "refuse",  # `status`, `code`, `message`, `headers`; IPMI: completion code `code`
        "html",  # an HTML error page with `status`
        "garbage",  # 200 with `body` that is no JSON
        "expire_sessions",  # all tokens die now
        "session_table_full",  # no new session: 503, or `status`
        "task",  # a write is answered 202; the effect comes with the Task's end, after `seconds`; `ends`: see `tasks`
        "etag",  # PATCH demands If-Match: 428 without, 412 stale
        "page",  # collections come in pages of `n`
        "ignore",  # a write is answered 2xx and nothing is done
        "says_erased",  # an erase lies; `lie`: "hidden" (looks erased) or "visible" (completed, still shows data)
        "lock_after",  # the account locks after `n` failed logins for `seconds`
        "cut",  # RST every second request on a kept-alive line
        "hang_up",  # the line is closed after each answer, which does not say so
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fault. `path` is a regular expression, searched for; `times` None: for ever; `after`: let so many matching requests pass first.

    `method` is an HTTP method, an IPMI command's name or `*`. Which of the last fields matter depends on the action (see ACTIONS).
    """

    action: str = ACT
    bmc: str = ANY
    method: str = ANY
    path: str = ".*"
    when: When | None = None
    times: int | None = None
    after: int = 0
    every: int = 1  # of those that pass, each so-manieth
    before: Effects = field(default_factory=dict)
    delay: float = 0.0  # seconds of real time
    answer: Reply | None = None
    effect: Effects = field(default_factory=dict)  # after the request was carried out, or answered in its place
    seconds: float = 0.0
    status: int | None = None
    code: int | str | None = None
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    ends: str = "completed"
    n: int = 1
    lie: str = "hidden"

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"no such action: {self.action}; there are {', '.join(sorted(ACTIONS))}")
        unknown = (self.before.keys() | self.effect.keys()) - EFFECTS
        if unknown:
            raise ValueError(f"no such effect: {', '.join(sorted(unknown))}; there are {', '.join(sorted(EFFECTS))}")
        re.compile(self.path)

    @classmethod
    def read(cls, doc: Mapping[str, Any]) -> Rule:
        """A rule from JSON, as `dataclasses.asdict` makes it."""
        made = dict(doc)
        for name, kind in (("when", When), ("answer", Reply)):
            if made.get(name) is not None:
                made[name] = kind(**made[name])
        return cls(**made)

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the action as a mapping; what was not given is left out."""
        given: dict[str, Any] = {"seconds": self.seconds, "headers": self.headers, "ends": self.ends}
        given |= {"n": self.n, "lie": self.lie}
        optional = {"status": self.status, "code": self.code, "message": self.message, "body": self.body}
        return given | {name: value for name, value in optional.items() if value is not None}

    def concerns(self, bmc: str, method: str, path: str) -> bool:
        return (
            self.bmc in (ANY, bmc)
            and self.method in (ANY, method)
            and re.search(self.path, path, re.DOTALL) is not None
        )

    def at(self, bmc: str) -> Rule:
        """The same for that BMC."""
        return replace(self, bmc=bmc)

    def applies(self, facts: Facts) -> bool:
        return self.when is None or self.when.holds(facts)


class LiveRule:
    """A rule in force, with its counts."""

    def __init__(self, rule_id: int, rule: Rule) -> None:
        self.id = rule_id
        self.rule = rule
        self.seen = 0
        self.fired = 0
        self._lock = threading.Lock()

    @property
    def action(self) -> str:
        return self.rule.action

    @property
    def args(self) -> Mapping[str, Any]:
        return self.rule.args

    def due(self) -> bool:
        """Count a matching request; whether the rule applies to it."""
        with self._lock:
            self.seen += 1
            passed = self.seen - self.rule.after
            return passed > 0 and passed % self.rule.every == 0 and not self._spent()

    def fire(self) -> bool:
        """Count that it takes effect; False when its times are used up."""
        with self._lock:
            if self._spent():
                return False
            self.fired += 1
            return True

    def _spent(self) -> bool:
        return self.rule.times is not None and self.fired >= self.rule.times


class Rules:
    """The rules in force. Cleared ones keep their counts."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._live: dict[int, LiveRule] = {}
        self._by_bmc: dict[str, dict[int, LiveRule]] = {}  # a thousand BMCs have rules of their own
        self._cleared: dict[int, LiveRule] = {}

    def add(self, rule: Rule) -> int:
        with self._lock:
            rule_id = next(self._ids)
            self._live[rule_id] = self._by_bmc.setdefault(rule.bmc, {})[rule_id] = LiveRule(rule_id, rule)
            return rule_id

    def clear(self, rule_id: int | None = None) -> None:
        with self._lock:
            for known in [rule_id] if rule_id is not None else list(self._live):
                live = self._live.pop(known, None)
                if live is not None:
                    self._by_bmc[live.rule.bmc].pop(known)
                    self._cleared[known] = live

    def fired(self, rule_id: int) -> int:
        with self._lock:
            live = self._live.get(rule_id) or self._cleared[rule_id]
        return live.fired

    def matching(self, bmc: str, method: str, path: str, facts: Facts = nothing_known) -> list[LiveRule]:
        """Those that apply to this request, in the order in which they were made. Logins' rules are asked for by `standing`."""
        return [
            live
            for live in self._of(bmc)
            if live.action != "lock_after"
            and live.rule.concerns(bmc, method, path)
            and live.rule.applies(facts)
            and live.due()
        ]

    def _of(self, bmc: str) -> list[LiveRule]:
        with self._lock:
            both = {**self._by_bmc.get(ANY, {}), **self._by_bmc.get(bmc, {})}
        return [both[rule_id] for rule_id in sorted(both)]

    def standing(self, bmc: str, action: str) -> LiveRule | None:
        """The first rule of that action for that BMC, whatever the request."""
        return next((live for live in self._of(bmc) if live.action == action), None)
