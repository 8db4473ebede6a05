"""What an OpenAPI document promises, asked of an application: requests by schemathesis, sent in process, and its checks of the answers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from join.site import JoinSite

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def narrowed(document: Mapping[str, Any], things: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The same document, in whose request bodies the fields that name a thing name one that there is."""
    found: dict[str, Any] = copy.deepcopy(dict(document))
    for schema in _inputs(found):
        for name, values in things.items():
            if name in schema.get("properties", {}):
                schema["properties"][name] = {"enum": list(values)}
    return found


def closed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document, whose answers hold nothing that it does not name."""
    found: dict[str, Any] = copy.deepcopy(dict(document))
    inputs = [id(schema) for schema in _inputs(found)]
    for schema in found["components"]["schemas"].values():
        if id(schema) not in inputs and schema.get("additionalProperties") is True:
            schema["additionalProperties"] = False
    return found


def _inputs(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    schemas = document["components"]["schemas"]
    names = []
    for path in document["paths"].values():
        for operation in path.values():
            if "requestBody" in operation:
                ref = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                names.append(str(ref).rpartition("/")[2])
    return [schemas[name] for name in names]


@dataclass
class Fuzzed:
    document: dict[str, Any]
    schema: Any = field(init=False)

    def __post_init__(self) -> None:
        self.schema = schemathesis.openapi.from_dict(self.document)

    def cases(self, path: str, right: bool, method: str = "POST") -> st.SearchStrategy[Case[Any]]:
        mode = GenerationMode.POSITIVE if right else GenerationMode.NEGATIVE
        found: st.SearchStrategy[Case[Any]] = self.schema[path][method].as_strategy(generation_mode=mode)
        return found

    def check(
        self,
        site: JoinSite,
        app: Any,
        case: Case[Any],
        headers: Mapping[str, str],
        address: str = "192.0.2.7",
        expected: Sequence[int] = (),
        **more: Any,
    ) -> int:
        """The answer's status, which the document declares, with a body of its schema. Raises schemathesis' findings.

        `expected`: statuses from 500 that are no finding here.
        """
        wanted = case.as_transport_kwargs(base_url="https://bcmetal.test")
        wanted["headers"] = {**wanted.get("headers", {}), **headers}
        request = requests.Request(
            **{name: wanted[name] for name in ("method", "url", "headers", "params", "json", "data") if name in wanted}
        ).prepare()
        body = request.body or b""
        assert isinstance(body, str | bytes)
        raw = body.encode() if isinstance(body, str) else body
        sent = {name: str(value) for name, value in request.headers.items() if name.lower() != "host"}
        answer = site.run(
            site.send(app, case.formatted_path, raw, sent, address=address, method=case.method.upper(), **more)
        )
        response = Response(
            status_code=answer.status,
            headers={name: [value] for name, value in answer.headers.items()},
            content=answer.raw,
            request=request,
            elapsed=0.0,
            verify=True,
        )
        checks = [one for one in CHECKS if answer.status not in expected or one is not not_a_server_error]
        case.validate_response(response, checks=checks)
        return answer.status
