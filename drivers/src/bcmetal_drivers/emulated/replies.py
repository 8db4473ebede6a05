"""What a rule answers, and JSON merge patches (RFC 7396) over true answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bcmetal_drivers.emulated.machine import Machine
from bcmetal_drivers.emulated.messages import Answer, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer in the place of the true one, or changes to it (`merge`, and whatever is given with `applied`).

    Without `applied` the request is not looked at beyond its login: a write that is answered 2xx then is acknowledged and not done.
    """

    status: int | None = None
    code: str | None = None  # a refusal in the standard's form
    message: str = "The service refuses."
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # JSON
    text: str | None = None  # no JSON
    merge: Mapping[str, Any] | None = None
    applied: bool = False

    @property
    def passes(self) -> bool:
        """Whether the request is carried out."""
        return self.applied or self.merge is not None

    def answer(self) -> Answer:
        if self.code is not None:
            return refusal(self.status or 400, self.code, self.message, self.headers)
        if self.text is not None:
            return Answer(self.status or 200, None, dict(self.headers), self.text.encode(), "text/html")
        return Answer(self.status or (204 if self.body is None else 200), self.body, dict(self.headers))

    def over(self, true: Answer) -> Answer:
        """The true answer, changed."""
        if self.code is not None or self.text is not None:
            return self.answer()
        doc = true.doc if self.body is None else self.body
        if self.merge is not None and isinstance(doc, dict):
            doc = merged(doc, self.merge)
        headers = {**true.headers, **self.headers}
        return Answer(self.status or true.status, doc, headers, true.body, true.content_type)


NULL: Final = "<null>"


def merged(doc: Any, patch: Any) -> Any:
    """RFC 7396, and `NULL` for a null. Neither is changed."""
    if not isinstance(patch, Mapping):
        return None if patch == NULL else patch
    made = dict(doc) if isinstance(doc, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


class Overlay:
    """Merge patches over a BMC's documents, each for the paths that its regular expression matches in full.

    A patch of None takes the document away. One that names its `@odata.type` makes it where there is none. A null inside takes a member
    away; "<null>" puts a null there. In strings `<uuid>`, `<uuid-swapped>`, `<serial>`, `<board-serial>`, `<sku>`, `<system>`,
    `<mac-1>`, `<MAC-1>` (upper case) and `<mac-1-bare>` stand for the machine's.
    """

    def __init__(self) -> None:
        self._patches: list[tuple[re.Pattern[str], Any]] = []

    def add(self, patches: Mapping[str, Any]) -> None:
        self._patches += [(re.compile(path), patch) for path, patch in patches.items()]

    def clear(self) -> None:
        self._patches.clear()

    def concerns(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern, _ in self._patches)

    def over(self, path: str, doc: Any, machine: Machine) -> Any:
        """The document as shown; None: there is none."""
        for pattern, patch in self._patches:
            if not pattern.fullmatch(path):
                continue
            if patch is None:
                doc = None
            elif doc is not None or "@odata.type" in patch:
                doc = merged(doc, _filled(patch, machine))
        return doc


def _filled(value: Any, machine: Machine) -> Any:
    if isinstance(value, Mapping):
        return {_words(key, machine): _filled(one, machine) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(one, machine) for one in value]
    return _words(value, machine) if isinstance(value, str) else value


def _words(text: str, machine: Machine) -> str:
    if "<" not in text:
        return text
    for word, value in _placeholders(machine):
        text = text.replace(f"<{word}>", value)
    return text


def _placeholders(machine: Machine) -> Iterable[tuple[str, str]]:
    hardware = machine.hardware
    yield from (
        ("uuid", str(machine.uuid)),
        ("uuid-swapped", str(type(machine.uuid)(bytes=machine.uuid.bytes_le))),
        ("serial", machine.serial),
        ("board-serial", hardware.board_serial),
        ("sku", hardware.sku),
        ("system", hardware.system_id),
    )
    for n, mac in enumerate(machine.macs, 1):
        yield from ((f"mac-{n}", mac), (f"MAC-{n}", mac.upper()), (f"mac-{n}-bare", mac.replace(":", "")))
