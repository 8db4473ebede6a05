"""A Redfish service tree that was recorded from a BMC: its documents by path, and what was written over them since.

A recording is a folder, or a tar archive of one, that holds `…/redfish/v1/…/index.json`; one without `redfish/v1` in any of its paths (the
short form of DMTF's mockups) begins at the service root. Paths are matched without regard to case and to a slash at their end, since
BMCs mix both in their links.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any, Final

ROOT: Final = "/redfish/v1"
DOCUMENT_LIMIT: Final = 16 * 1024 * 1024
DOCUMENTS: Final = 50_000
_INDEX: Final = "index.json"


class NoRecording(ValueError):
    """What was named holds no service root."""


class RecordedTree:
    """`documents`: path to what is served there: an object, or bytes that are no JSON and are served as they are."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = {key(path): doc for path, doc in documents.items()}
        self._written: dict[str, dict[str, Any]] = {}
        if not isinstance(self._documents.get(key(ROOT)), dict):
            raise NoRecording(f"there is no service root ({ROOT}) in it")

    @classmethod
    def read(cls, where: Path) -> RecordedTree:
        """From a folder or a tar archive. Raises NoRecording."""
        found = dict(_in_folder(where) if where.is_dir() else _in_archive(where))
        if not any(_service_path(name) for name in found):
            found = {f"{ROOT[1:]}/{name}": content for name, content in _without_top(found)}
        return cls({path: _parsed(content) for name, content in found.items() if (path := _service_path(name))})

    def copy(self) -> RecordedTree:
        """The same recording, with nothing written over it."""
        return RecordedTree(self._documents)

    def all(self) -> Mapping[str, Any]:
        """The recording's documents by their paths in lower case; not to be changed."""
        return self._documents

    def __contains__(self, path: str) -> bool:
        return key(path) in self._documents

    def __iter__(self) -> Iterator[str]:
        """The paths, in lower case."""
        return iter(self._documents)

    def document(self, path: str) -> Any:
        """A copy of what is there now; None where there is nothing."""
        doc = self._documents.get(key(path))
        over = self._written.get(key(path))
        return deepcopy(doc) if over is None else merged(doc, over)

    def write(self, path: str, patch: Mapping[str, Any]) -> None:
        """Lay a patch over a document; arrays are replaced."""
        before = self._written.get(key(path))
        self._written[key(path)] = dict(patch) if before is None else _both(before, patch)


def key(path: str) -> str:
    return path.partition("#")[0].rstrip("/").lower() or "/"


def dig(doc: Any, *names: str) -> Any:
    """What stands under these keys, one in the other; None where there is nothing."""
    for name in names:
        doc = doc.get(name) if isinstance(doc, dict) else None
    return doc


def merged(doc: Any, patch: Any) -> Any:
    """As a JSON merge patch (RFC 7396), but that a null is a value here: Redfish has no way to remove a property by PATCH."""
    if not isinstance(patch, Mapping):
        return deepcopy(patch)
    made = dict(deepcopy(doc)) if isinstance(doc, Mapping) else {}
    for name, value in patch.items():
        made[name] = merged(made.get(name), value)
    return made


def _both(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    both: dict[str, Any] = merged(first, then)
    return both


# ---------------------------------------------------------------- reading


def _in_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for n, found in enumerate(sorted(folder.rglob(_INDEX))):
        if n >= DOCUMENTS or found.stat().st_size > DOCUMENT_LIMIT:
            raise NoRecording(f"{folder}: it is larger than any service tree")
        yield found.relative_to(folder).as_posix(), found.read_bytes()


def _in_archive(archive: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(archive) as opened:
            for n, member in enumerate(opened):
                if n >= DOCUMENTS or member.size > DOCUMENT_LIMIT:
                    raise NoRecording(f"{archive}: it is larger than any service tree")
                if member.isfile() and PurePosixPath(member.name).name == _INDEX:
                    content = opened.extractfile(member)
                    if content is not None:
                        yield member.name, content.read()
    except (OSError, tarfile.TarError) as error:
        raise NoRecording(f"{archive}: it is neither a folder nor a tar archive") from error


def _service_path(name: str) -> str | None:
    """`some/where/redfish/v1/Systems/index.json` is served at /redfish/v1/Systems."""
    parts = PurePosixPath(name).parts[:-1]
    for n in range(len(parts) - 1):
        if parts[n].lower() == "redfish" and parts[n + 1].lower() == "v1":
            return "/" + "/".join(parts[n:])
    return None


def _without_top(found: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
    """From the folder on that holds the shortest path: the service root's."""
    top = min((PurePosixPath(name).parts[:-1] for name in found), key=len, default=())
    return ((str(PurePosixPath(*PurePosixPath(name).parts[len(top) :])), content) for name, content in found.items())


def _parsed(content: bytes) -> Any:
    try:
        doc = json.loads(content.decode("utf-8-sig"))
    except ValueError:
        return content
    return doc if isinstance(doc, dict) else content
