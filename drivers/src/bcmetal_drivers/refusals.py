"""What a BMC's refusal means. Statuses alone do not tell: makers say "session table full" with a 400 and "locked" with a 401."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

from bcmetal_drivers.errors import (
    Busy,
    DriverError,
    LockedOut,
    Malformed,
    PasswordChangeRequired,
    Refused,
    RejectedCredentials,
    ServerFault,
    Unsupported,
)
from bcmetal_drivers.wire import Answer

WORDS_LIMIT: Final = 200
RETRY_AFTER_LIMIT_S: Final = 3600.0
ERROR_AT_MOST: Final = 65536  # bytes of an error that is one

EXTENDED: Final = "@Message.ExtendedInfo"
# Messages that say that all is well, and not that it is "not successful". One that wants a reset for it is a warning by some makers' registries.
WELL: Final = re.compile(
    r"\.(?:(?!\w*(?:Not[A-Z]|(?:No|Non|Un)Success))\w*Success\w*|Created|NoOperation|\w*ResetRequired|Account(?:Modified|Removed)|OperationTransitionedToJob)$"
)

LOCKED: Final = re.compile(
    r"lock(?:ed)?[ -]?out|accountlocked|account\b.{0,40}\blocked|\blocked\b.{0,40}account|login ?delay"
    r"|too many (?:failed|invalid|login)|temporarily (?:blocked|locked)",
    re.IGNORECASE,
)
CHANGE_FIRST: Final = re.compile(
    r"passwordchangerequired|password\b.{0,40}\b(?:must|has to|needs to|should) be (?:changed|reset)|password\b.{0,20}\bexpired",
    re.IGNORECASE,
)
ACCOUNT: Final = re.compile(r"/redfish/v1/[\w./-]{0,199}\w")
TABLE_FULL: Final = re.compile(
    r"session.{0,40}(?:limit|full|maximum|exceed|exhaust)|(?:limit|maximum|max\.?|too many).{0,40}session",
    re.IGNORECASE,
)
NOT_NOW: Final = re.compile(
    r"during ?system ?post|not ?ready|temporarily ?unavailable|service ?in ?unknown ?state|resource ?in ?use"
    r"|shutting ?down|in progress|try again|busy",
    re.IGNORECASE,
)
NOT_THERE: Final = re.compile(r"resource ?(missing|not ?found|.{1,300} (was not found|does not exist))", re.IGNORECASE)
CREDENTIALS: Final = re.compile(r"unauthori[sz]ed|credential|password|authenticat|login|access ?denied", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorView:
    """An error answer as sushy's exceptions expect one: hostile bodies are trimmed to the standard's shape before."""

    status_code: int
    document: Mapping[str, Any]

    def json(self) -> Mapping[str, Any]:
        return self.document


def error_view(answer: Answer) -> ErrorView:
    """In the standard's shape, whatever the body was (DSP0266, "Error responses")."""
    messages = [message for message in _messages(answer) if message]
    error = {
        "code": messages[0].get("MessageId", "Base.1.0.GeneralError") if messages else "Base.1.0.GeneralError",
        "message": words(answer),
        EXTENDED: messages,
    }
    return ErrorView(answer.status_code, {"error": error})


def _document(answer: Answer) -> Mapping[str, Any]:
    try:
        return answer.json()
    except Malformed:
        return {}


def _messages(answer: Answer) -> Iterator[dict[str, Any]]:
    """The standard's messages, with strings where strings belong. Some makers leave out the `error` around them."""
    doc = _document(answer)
    error = doc.get("error", doc if EXTENDED in doc else None)
    if isinstance(error, str):
        yield {"Message": error[:WORDS_LIMIT]}
    if not isinstance(error, dict):
        return
    info = error.get(EXTENDED)
    listed = info if isinstance(info, list) else [info]
    for message in listed[:20]:
        if isinstance(message, dict):
            clean = {
                key: message[key][:WORDS_LIMIT]
                for key in ("MessageId", "Message", "Severity", "MessageSeverity", "Resolution")
                if isinstance(message.get(key), str)
            }
            for key in ("MessageArgs", "RelatedProperties"):
                if isinstance(message.get(key), list):
                    clean[key] = [str(item)[:WORDS_LIMIT] for item in message[key][:20]]
            yield clean
    for key, name in (("code", "MessageId"), ("message", "Message")):
        if isinstance(error.get(key), str) and "GeneralError" not in error[key]:
            yield {name: error[key][:WORDS_LIMIT]}


def words(answer: Answer) -> str:
    """What the BMC says about it, bounded; "" when it says nothing that can be read."""
    found: list[str] = []
    for message in _messages(answer):
        text = message.get("Message") or message.get("MessageId") or ""
        if text and text not in found:
            found.append(text)
    return " · ".join(found)[:WORDS_LIMIT]


def all_words(answer: Answer) -> str:
    """Everything that the error names, for looking into: ids, texts, arguments, related properties."""
    parts: list[str] = []
    for message in _messages(answer):
        parts += [message.get("MessageId", ""), message.get("Message", "")]
        parts += message.get("MessageArgs", []) + message.get("RelatedProperties", [])
    return " ".join(parts)


def says_failure(answer: Answer) -> bool:
    """Whether an answer with a status of success carries an error all the same."""
    if b'"error"' not in answer.content and EXTENDED.encode() not in answer.content:
        return False
    messages = [message for message in _messages(answer) if message]
    said = [(message.get("MessageSeverity") or message.get("Severity") or "").lower() for message in messages]
    if "critical" in said:
        return True
    error = _document(answer).get("error")
    if not isinstance(error, dict | str) or error == "":
        return False  # remarks beside what was done, which is read back
    well = [bool(WELL.search(message.get("MessageId", ""))) for message in messages]
    if any(severity == "warning" and not fine for severity, fine in zip(said, well, strict=True)):
        return True
    return not any(well) and "ok" not in said


def is_only_an_error(answer: Answer) -> bool:
    """Whether an answer with a status of success is an error message in the place of a document."""
    if len(answer.content) > ERROR_AT_MOST or not says_failure(answer):
        return False
    return not any(key.startswith("@odata.") for key in _document(answer))


def says_there_is_none(answer: Answer) -> bool:
    """Whether it says 404 in words alone (ResourceMissingAtURI: HPE Cray's node controller 1.6, Intel BMC 1.93)."""
    return bool(NOT_THERE.search(all_words(answer)))


def retry_after_s(answer: Answer) -> float | None:
    """From now, also where the BMC names a date; None where it says nothing that can be read."""
    value = answer.headers.get("Retry-After")
    if value is None:
        return None
    if value.strip().isdigit():
        return min(float(value.strip()[:9]), RETRY_AFTER_LIMIT_S)
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, moment - time.time()), RETRY_AFTER_LIMIT_S)


def _sentence(answer: Answer, what: str) -> str:
    said = words(answer)
    return f"{answer.url}: {what} ({answer.status_code})" + (f": {said}" if said else "")


def _change_first(answer: Answer, said: str) -> PasswordChangeRequired | None:
    """DSP0266, section "Password change required handling"; makers that lack the message say it in words."""
    if answer.status_code not in (400, 401, 403) or not CHANGE_FIRST.search(said):
        return None
    account = ACCOUNT.search(said)
    where = _sentence(answer, "the password must be changed before anything else")
    return PasswordChangeRequired(where, account=account[0] if account else None)


def refusal(answer: Answer) -> DriverError:
    """Our error for an answer of 400 and above (sessions and 401 aside)."""
    status, said, wait = answer.status_code, all_words(answer), retry_after_s(answer)
    if status in (429, 503):
        return Busy(_sentence(answer, "the BMC is busy"), retry_after_s=wait)
    if status >= 500 and status != 501:
        return ServerFault(_sentence(answer, "the BMC failed"), retry_after_s=wait)
    if status in (405, 501):
        return Unsupported(_sentence(answer, "this BMC does not offer that"))
    if (change := _change_first(answer, said)) is not None:
        return change
    if LOCKED.search(said) and status in (401, 403):
        return LockedOut(_sentence(answer, "the account is locked"), retry_after_s=wait)
    if status in (400, 403, 409, 423) and NOT_NOW.search(said):
        return Busy(_sentence(answer, "not now"), retry_after_s=wait)
    if status == 412:
        return Busy(_sentence(answer, "the resource was changed by another writer"))
    if status == 401:
        return RejectedCredentials(_sentence(answer, "the BMC rejects the user name or the password"))
    what = {403: "the account is not allowed to do that", 404: "there is no such resource"}.get(status, "refused")
    return Refused(_sentence(answer, what))


def login_refusal(answer: Answer) -> DriverError | None:
    """Our error for a session login that did not succeed; None when this BMC has no (usable) session login."""
    status, said, wait = answer.status_code, all_words(answer), retry_after_s(answer)
    if (change := _change_first(answer, said)) is not None:
        return change
    if LOCKED.search(said):
        return LockedOut(_sentence(answer, "the account is locked"), retry_after_s=wait)
    if TABLE_FULL.search(said):
        return Busy(_sentence(answer, "the session table is full"), retry_after_s=wait)
    if status in (401, 403) or (status == 400 and CREDENTIALS.search(said)):
        return RejectedCredentials(_sentence(answer, "the BMC rejects the user name or the password"))
    if status in (404, 405, 501) or (status == 400 and not NOT_NOW.search(said)):
        return None
    if status < 400:
        return None  # it says yes and gives no token
    return refusal(answer)
