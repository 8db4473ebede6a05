"""The OpenAPI document, made from the registry and the very models that check the input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bcmetal.answers import ErrorAnswer
from bcmetal.answers_joining import TrustBundle
from bcmetal.api.calls import METHODS
from bcmetal.api.faults import NotJson, TooLarge
from bcmetal.errors import (
    BcmetalError,
    Conflict,
    Internal,
    InvalidInput,
    InvalidState,
    NotFound,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from bcmetal_agent.wire import TRUST_BUNDLE_PATH

VERSION: Final = "3.1.0"
ERRORS: Final[tuple[type[BcmetalError], ...]] = (
    InvalidInput,
    TooLarge,
    NotJson,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    Conflict,
    InvalidState,
    RateLimited,
    Internal,
    Unavailable,
)


def document(version: str) -> dict[str, Any]:
    methods = sorted(METHODS.values(), key=lambda one: one.path)
    inputs: dict[type[BaseModel], None] = dict.fromkeys(one.model for one in methods)
    answers: dict[type[BaseModel], None] = dict.fromkeys((*(one.answer for one in methods), TrustBundle, ErrorAnswer))
    wanted = [(model, "validation") for model in inputs] + [(model, "serialization") for model in answers]
    refs, schemas = models_json_schema(
        wanted,  # type: ignore[arg-type]  # the modes are literals of pydantic's
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    error = refs[ErrorAnswer, "serialization"]
    paths: dict[str, Any] = {
        TRUST_BUNDLE_PATH: {
            "get": {
                "operationId": "trustBundle",
                "tags": ["nodes"],
                "summary": "The roots that nodes trust, and where machines join.",
                "security": [{}],
                "responses": {
                    "200": {
                        "description": "there is an authority",
                        "content": _json(refs[TrustBundle, "serialization"]),
                    },
                    **errors_by_status((Internal, Unavailable), error),
                },
            }
        }
    }
    for one in methods:
        paths[one.path] = {
            "post": {
                "operationId": f"{one.group}.{one.name}",
                "tags": [one.group],
                "summary": one.about.split("\n")[0],
                "description": one.about,
                "requestBody": {"required": True, "content": _json(refs[one.model, "validation"])},
                "responses": {
                    "200": {
                        "description": "done, or asked for",
                        "content": {one.media: {"schema": refs[one.answer, "serialization"]}},
                    },
                    **errors_by_status(ERRORS, error),
                },
            }
        }
    return {
        "openapi": VERSION,
        "info": {"title": "bcmetal", "version": version},
        "security": [{"key": []}, {"certificate": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "an API key"},
                "certificate": {"type": "mutualTLS", "description": "a client certificate of the admins' CA"},
            },
        },
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def errors_by_status(kinds: Iterable[type[BcmetalError]], schema: Any) -> dict[str, Any]:
    """The `responses` of an operation for what it may refuse."""
    by_status: dict[int, list[str]] = {}
    for kind in kinds:
        by_status.setdefault(kind.http, []).append(f"{kind.api_code}: {(kind.__doc__ or '').strip()}")
    return {
        str(status): {"description": " ".join(texts), "content": _json(schema)}
        for status, texts in sorted(by_status.items())
    }
