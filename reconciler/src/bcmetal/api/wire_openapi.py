"""The OpenAPI documents of the agents' and the nodes' listeners, made from the dataclasses that the agent and the daemon share.

A message is read as strictly as its schema says: unknown fields are refused, absent ones are left out of answers.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.alias_generators import to_camel

from bcmetal.answers import ErrorAnswer
from bcmetal.api.faults import NotJson, TooLarge
from bcmetal.api.openapi import VERSION, errors_by_status
from bcmetal.errors import (
    BcmetalError,
    Conflict,
    Internal,
    InvalidInput,
    NotFound,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from bcmetal_agent import wire, wire_tasks

PATH: Final = "/api/openapi.json"
INTEGER_END: Final = 2**53

Json = dict[str, Any]
Faults = tuple[type[BcmetalError], ...]

_ALWAYS: Final[Faults] = (Internal, Unavailable)
_BODY: Final[Faults] = (InvalidInput, TooLarge, NotJson)


class _Schemas:
    """Schemas of messages by name; an object that others hold too stands there once for each direction."""

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}

    def ref(self, kind: type[Any], *, sent: bool) -> Json:
        """`sent`: by the daemon, where a field with a default is present too, unless it is None."""
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}  # its place is taken before its fields may ask for it
            self.found[name] = self._object(kind, sent)
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, kind: type[Any], sent: bool) -> Json:
        hints = get_type_hints(kind, include_extras=True)
        properties, required = {}, []
        for one in dataclasses.fields(kind):
            name = to_camel(one.name)
            properties[name] = self._of(hints[one.name], (), sent)
            given = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
            if given or (sent and one.default is not None):
                required.append(name)
            elif isinstance(one.default, str | int):  # a flag too
                properties[name] = {**properties[name], "default": one.default}
        return {
            "type": "object",
            "title": kind.__name__,
            "description": " ".join((kind.__doc__ or "").split()),
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _of(self, hint: Any, marks: Sequence[Any], sent: bool) -> Json:
        origin = get_origin(hint)
        limit = next((mark.limit for mark in marks if isinstance(mark, wire.AtMost)), None)
        if origin is Annotated:
            inner, *own = get_args(hint)
            return self._of(inner, own, sent)
        if origin in (Union, types.UnionType):
            (inner,) = (one for one in get_args(hint) if one is not type(None))
            found = self._of(inner, (), sent)
            return found if sent else {"anyOf": [found, {"type": "null"}]}
        if origin is Literal:
            return {"type": "string", "enum": list(get_args(hint))}
        if origin is tuple:
            items = self._of(get_args(hint)[0], (), sent)
            return {"type": "array", "items": items} | ({} if limit is None else {"maxItems": limit})
        if hint is str:
            return {"type": "string"} | ({} if limit is None else {"maxLength": limit})
        if hint is bool:
            return {"type": "boolean"}
        if origin is dict:
            return {"type": "object"}
        if hint is int:
            return {"type": "integer", "minimum": 0, "exclusiveMaximum": INTEGER_END}
        return self.ref(hint, sent=sent)


@dataclasses.dataclass(frozen=True, slots=True)
class _Operation:
    """`answers`: status → the messages that it may be; none: bytes."""

    id: str
    about: str
    answers: Mapping[int, tuple[type[Any], ...]]
    faults: Faults
    security: tuple[Mapping[str, Sequence[str]], ...]
    message: type[Any] | None = None


_SIGNED: Final[tuple[Mapping[str, Sequence[str]], ...]] = ({"session": [], "sequence": [], "signature": []},)
_ANYBODY: Final[tuple[Mapping[str, Sequence[str]], ...]] = ({},)
_AS_NODE: Final[tuple[Mapping[str, Sequence[str]], ...]] = ({"node": []},)

_JOIN: Final = _Operation(
    "join",
    "Join a pool. Without a token only where the pool takes such joins. A retry sends the very same message.",
    {200: (wire.Admitted, wire.Challenge), 202: (wire.Deferred,)},
    (*_BODY, Unauthenticated, PermissionDenied, RateLimited, *_ALWAYS),
    ({"token": []}, {}),
    wire.Join,
)
_RENEW_LATE: Final = _Operation(
    "renewExpired",
    "Renew a certificate that is past its end, by the old key's signature. Whatever is wrong with it is one 401.",
    {200: (wire.Admitted,), 202: (wire.Deferred,)},
    (TooLarge, Unauthenticated, RateLimited, *_ALWAYS),
    _ANYBODY,
    wire.Renew,
)
_ROOTS: Final = _Operation(
    "trustBundle",
    "The roots, to be compared with a pin.",
    {200: (wire.TrustBundle,)},
    _ALWAYS,
    _ANYBODY,
)
_RENEW: Final = _Operation(
    "renew",
    "A new certificate for a new key. `expired` is for the agents' listener.",
    {200: (wire.Admitted,)},
    (*_BODY, Unauthenticated, RateLimited, *_ALWAYS),
    _AS_NODE,
    wire.Renew,
)
_SECRETS: Final = _Operation(
    "secrets",
    "Platform secrets of the site, for a live node of platform trust that shows a `node` certificate.",
    {200: (wire.Secrets,)},
    (*_BODY, Unauthenticated, PermissionDenied, RateLimited, *_ALWAYS),
    _AS_NODE,
    wire.AskSecrets,
)
_ROOTS_AS_NODE: Final = dataclasses.replace(_ROOTS, faults=(Unauthenticated, *_ALWAYS), security=_AS_NODE)

_HELLO: Final = _Operation(
    "hello",
    "Begin a session of the ramdisk's agent. The boot token is bound to the key; with a second key it is void. "
    "Where the machine's TPM is on record, it is asked for and challenged first.",
    {200: (wire_tasks.Welcome, wire.Challenge, wire_tasks.ShowTpm)},
    (*_BODY, Unauthenticated, PermissionDenied, RateLimited, *_ALWAYS),
    ({"bootToken": []},),
    wire_tasks.Hello,
)
_CALL: Final[Faults] = (Unauthenticated, PermissionDenied, Conflict, RateLimited, *_ALWAYS)
_NEXT: Final = _Operation(
    "next",
    f"The present task, as soon as there is one. Idle after {wire_tasks.POLL_S} seconds at the latest.",
    {200: (wire_tasks.Task, wire_tasks.Idle)},
    (*_BODY, *_CALL),
    _SIGNED,
    wire_tasks.Next,
)
_REPORT: Final = _Operation(
    "report",
    "What became of a task so far. The same report again changes nothing.",
    {200: (wire_tasks.Heard,)},
    (*_BODY, *_CALL),
    _SIGNED,
    wire_tasks.Report,
)
_IMAGE: Final = _Operation(
    "image",
    "The image of the task that is under way. Whole, or the range that is asked for.",
    {200: (), 206: ()},
    (TooLarge, *_CALL, NotFound),
    _SIGNED,
)

_AGENTS: Final = {
    wire.JOIN_PATH: ("post", _JOIN),
    wire.RENEW_PATH: ("post", _RENEW_LATE),
    wire.TRUST_BUNDLE_PATH: ("get", _ROOTS),
    wire_tasks.HELLO_PATH: ("post", _HELLO),
    wire_tasks.NEXT_PATH: ("post", _NEXT),
    wire_tasks.REPORT_PATH: ("post", _REPORT),
    wire_tasks.IMAGE_PATH: ("get", _IMAGE),
}
_NODES: Final = {
    wire.RENEW_PATH: ("post", _RENEW),
    wire.SECRETS_PATH: ("post", _SECRETS),
    wire.TRUST_BUNDLE_PATH: ("get", _ROOTS_AS_NODE),
}


def agents_document(version: str) -> Json:
    """Of the listener that machines join by."""
    return _document(version, "bcmetal, the agents' listener", _AGENTS)


def nodes_document(version: str) -> Json:
    """Of the listener for machines that have joined."""
    return _document(version, "bcmetal, the nodes' listener", _NODES)


def _document(version: str, title: str, operations: Mapping[str, tuple[str, _Operation]]) -> Json:
    schemas = _Schemas()
    error = ErrorAnswer.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas.found |= error.pop("$defs")
    schemas.found[ErrorAnswer.__name__] = error
    paths = {path: {how: _operation(one, schemas)} for path, (how, one) in operations.items()}
    kinds = {name for _, one in operations.values() for scheme in one.security for name in scheme}
    schemes: dict[str, Json] = {
        "token": {"type": "http", "scheme": "bearer", "description": "a join token"},
        "node": {"type": "mutualTLS", "description": "the node's own certificate"},
        "bootToken": {"type": "http", "scheme": "bearer", "description": "the boot token of the medium"},
        "session": _header(wire_tasks.SESSION_HEADER, "the session's id, from hello"),
        "sequence": _header(wire_tasks.SEQUENCE_HEADER, "a number larger than that of the call before"),
        "signature": _header(wire_tasks.SIGNATURE_HEADER, "base64 of the session key's signature over this very call"),
    }
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas.found,
            "securitySchemes": {name: schemes[name] for name in sorted(kinds)},
        },
    }


def _header(name: str, about: str) -> Json:
    return {"type": "apiKey", "in": "header", "name": name, "description": about}


def _operation(one: _Operation, schemas: _Schemas) -> Json:
    answers: dict[str, Json] = {}
    for status, kinds in one.answers.items():
        if not kinds:
            binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            answers[str(status)] = {"description": "the bytes", "content": binary}
            continue
        refs = [schemas.ref(kind, sent=True) for kind in kinds]
        schema = refs[0] if len(refs) == 1 else {"oneOf": refs}
        names = " or ".join(kind.__name__ for kind in kinds)
        answers[str(status)] = {"description": names, "content": {"application/json": {"schema": schema}}}
    faults = errors_by_status(one.faults, {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"})
    first, _, rest = one.about.partition(". ")
    found: Json = {
        "operationId": one.id,
        "summary": f"{first.rstrip('.')}.",
        **({"description": rest} if rest else {}),
        "security": [dict(scheme) for scheme in one.security],
        "responses": {**answers, **faults},
    }
    if one.message is not None:
        content = {"application/json": {"schema": schemas.ref(one.message, sent=False)}}
        found["requestBody"] = {"required": True, "content": content}
    return found
