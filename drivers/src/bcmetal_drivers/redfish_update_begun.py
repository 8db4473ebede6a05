"""An update begun at the UpdateService, whichever way the image goes there: asked for once, its Task found even where none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import sushy.exceptions

from bcmetal_drivers.door import tolerated
from bcmetal_drivers.errors import DriverError, MaybeSent, Refused, Unsupported
from bcmetal_drivers.redfish_actions import NEXT_FORM
from bcmetal_drivers.redfish_document import link
from bcmetal_drivers.redfish_tasks import of_accepted, started
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.refusals import all_words, refusal
from bcmetal_drivers.resources import Job, JobState
from bcmetal_drivers.wire import Answer

SIMPLE_UPDATE: Final = "#UpdateService.SimpleUpdate"
NO_TASK: Final = "the BMC took the image and names no task: its versions will tell"
FORM_WORDS: Final = ("TransferProtocol", "ImageURI", "ApplyTime", "UpdateParameters", "OemParameters", "ImageType")


def service(tree: Tree) -> tuple[str, dict[str, Any]]:
    """The UpdateService, with its path. Raises Unsupported, Refused where it is switched off."""
    path = link(tree.root(), "UpdateService")
    service = tree.find(path)
    if path is None or service is None:
        raise Unsupported(f"{tree.address}: this BMC has no update service")
    if service.get("ServiceEnabled") is False:
        raise Refused(f"{tree.address}: the BMC's update service is switched off")
    return path, service


Ask = Callable[[dict[str, object]], Answer]


def begin(tree: Tree, what: str, forms: dict[str, dict[str, object]], ask: Ask) -> Job:
    """The first form that is not refused; the one that was taken before comes first. A lost answer is looked for among the Tasks.

    Once a form was taken nothing is raised; what cannot be seen then is RUNNING, or UNKNOWN without a Task.
    """
    known = tree.learned.get(what)
    order = sorted(forms, key=lambda name: name != known)
    before = frozenset(_tasks(tree))
    for name in order:
        try:
            answer = ask(forms[name])
        except MaybeSent:
            ref = _new_task(tree, before)
            if ref is None:
                raise
            return of_accepted(tree.door, ref)
        except sushy.exceptions.HTTPError as error:
            if not _wants_another_form(error) or name == order[-1]:
                raise
            continue
        tree.learned[what] = name
        return _job(tree, answer, before)
    raise Unsupported(f"{tree.address}: no form of update is known")


def _wants_another_form(error: Any) -> bool:
    """A refusal that speaks of the image or of its target is the last word."""
    if error.status_code not in NEXT_FORM or not isinstance(refusal(error.answer), Refused):
        return False
    said = all_words(error.answer)
    return any(word in said for word in FORM_WORDS) or not any(
        word in said for word in ("Target", "image", "Image", "version", "signature")
    )


def _job(tree: Tree, answer: Answer, before: frozenset[str]) -> Job:
    """Of what the BMC took. No error leaves: it would say that nothing was begun, and the update would be asked for once more."""
    with tolerated(DriverError):
        job = started(tree.door, answer)
        if job.ref:
            return job
    ref = _new_task(tree, before)
    return of_accepted(tree.door, ref) if ref else Job("", JobState.UNKNOWN, None, NO_TASK)


def _new_task(tree: Tree, before: frozenset[str]) -> str | None:
    """The one Task that was not there before; None where there is none, or more than one."""
    new: list[str] = []
    with tolerated(DriverError):
        new = [path for path in _tasks(tree) if path not in before]
    return new[0] if len(new) == 1 else None


def _tasks(tree: Tree) -> Iterable[str]:
    with tolerated(Refused, Unsupported):
        collection = link(tree.find(link(tree.root(), "Tasks")), "Tasks")
        return tree.members(collection) if collection else ()
    return ()
