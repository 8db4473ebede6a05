"""One call of a method, and the registry of methods that the routes, the OpenAPI document and the tests read."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from starlette.responses import Response

from bcmetal.answers import Answer
from bcmetal.api.access import Identity
from bcmetal.api.pace import Buckets
from bcmetal.boot.shelf import Shelf
from bcmetal.consoles import Consoles
from bcmetal.decisions import Micros, PoolPolicy
from bcmetal.doctor import Doctor
from bcmetal.errors import Internal
from bcmetal.events import Feed
from bcmetal.models_words import Change, Input
from bcmetal.settings import Pool, Settings
from bcmetal.settings_grants import Action
from bcmetal.states import Verb
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.values import Idempotency, Json, NewAudit, NodeRow, Store
from bcmetal.vault import Vault

DOCTOR_BURST, DOCTOR_EACH_S = 20, 0.5  # a rack in one go, then a BMC each two seconds

I = TypeVar("I", bound=Input)  # noqa: E741 - the input
I_co = TypeVar("I_co", bound=Input, covariant=True)


@dataclass(frozen=True, slots=True)
class Services:
    """What the API needs of the daemon. `entropy(n)`: n bytes of the system's randomness; `wake(node_id)`: something is due."""

    store: Store
    settings: Callable[[], Settings]
    vault: Vault
    clock: Callable[[], Micros]
    entropy: Callable[[int], bytes]
    wake: Callable[[str | None], None]
    steps_of: Callable[[Verb, NodeRow | None, Json, Pool], Sequence[str]]  # of a verb with this input at this node
    version: str
    feed: Feed | None = None  # None: no /events
    roots: Callable[[], Sequence[str]] = tuple  # as PEM, first the one to pin; empty: there is no CA yet
    shelf: Shelf | None = None  # None: no images here
    consoles: Consoles | None = None  # None: none is opened here
    doctor: Doctor | None = None  # None: no BMC is looked at from here before it is enrolled
    doctor_pace: Buckets = field(default_factory=lambda: Buckets(DOCTOR_BURST, DOCTOR_EACH_S))  # of each identity
    held: Callable[[], bool] = lambda: False  # nothing is served: this daemon disagrees with another one


@dataclass(frozen=True, slots=True)
class Method:
    """`actions(input)`: what must be granted on the pool; None: the method's own function authorises. `media`: of the answer."""

    group: str
    name: str
    model: type[Input]
    answer: type[Answer]
    run: Callable[[Call[Any]], Awaitable[Json | Response]]
    actions: Callable[[Any], frozenset[Action]] | None
    media: str = "application/json"

    @property
    def path(self) -> str:
        return f"/api/compute/{self.group}/{self.name}"

    @property
    def mutates(self) -> bool:
        return issubclass(self.model, Change)

    @property
    def about(self) -> str:
        return (self.run.__doc__ or "").strip()


@dataclass(frozen=True, slots=True)
class Call(Generic[I_co]):
    """A call that was authenticated, parsed and, where the method says so, authorised. `now` is taken once."""

    services: Services
    method: Method
    input: I_co
    body: Mapping[str, Any]  # the JSON that `input` was made from
    who: Identity
    address: str
    trace_id: str
    now: Micros
    settings: Settings
    pool: Pool | None = field(default=None)

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def its_pool(self) -> Pool:
        if self.pool is None:
            raise Internal("the method is not about a pool")
        return self.pool

    @property
    def policy(self) -> PoolPolicy:
        return self.its_pool.policy(self.settings)

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now, self.services.entropy(ENTROPY_BYTES))

    def audit(self, resource: str, outcome: str, node_id: str | None = None, doc: Json | None = None) -> NewAudit:
        tenant = self.pool.owner if self.pool is not None else self.who.tenant_id
        action = f"compute:{self.method.group}:{self.method.name}"
        return NewAudit(
            self.new_id("au"),
            self.who.name,
            tenant,
            self.address,
            action,
            resource,
            outcome,
            self.trace_id,
            node_id,
            doc or {},
        )

    def idempotency(self) -> Idempotency | None:
        key = self.body.get("idempotencyKey")
        if key is None:
            return None
        rest = {name: value for name, value in self.body.items() if name != "idempotencyKey"}
        # The input may hold a password, so that a plain hash of it would be an oracle for guesses.
        digest = self.services.vault.digest("idempotency", canonical(rest))
        return Idempotency(str(self.body["tenantId"]), self.who.name, str(key), self.method.path, digest)


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


METHODS: Final[dict[str, Method]] = {}  # by path


def method(
    group: str,
    model: type[I],
    answer: type[Answer],
    actions: Action | Callable[[I], frozenset[Action]] | None,
    name: str | None = None,
    media: str = "application/json",
) -> Callable[[Callable[[Call[I]], Awaitable[Json | Response]]], Callable[[Call[I]], Awaitable[Json | Response]]]:
    """Register a function as a method; its name is the function's in camelCase. The docstring goes into the OpenAPI document."""

    def register(
        run: Callable[[Call[I]], Awaitable[Json | Response]],
    ) -> Callable[[Call[I]], Awaitable[Json | Response]]:
        needed = (lambda _: frozenset({actions})) if isinstance(actions, Action) else actions
        first, *rest = run.__name__.strip("_").split("_")
        made = Method(group, name or first + "".join(map(str.title, rest)), model, answer, run, needed, media)
        METHODS[made.path] = made
        return run

    return register
