"""The join call, and renewal after a certificate's end: what a machine may ask before it is anybody.

Size, rate, bearer; nothing of the input is judged, and nothing is told, before the bearer is proven. An unknown, wrong, revoked, expired or
used-up token is one 401, whatever else was wrong; what the machine is not let in for is one 403. The reason goes to `security.join.refused`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from cryptography import x509
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bcmetal import __version__
from bcmetal.api.agents import AgentDoor, add_agent_routes
from bcmetal.api.auth import Failures
from bcmetal.api.faults import HEADERS, NotJson
from bcmetal.api.pace import Buckets, Seldom
from bcmetal.api.requests import address_of, install_faults, read_body, trace_of
from bcmetal.api.wire_openapi import PATH as OPENAPI_PATH
from bcmetal.api.wire_openapi import agents_document
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import BcmetalError, Fault, InvalidInput, RateLimited, Unavailable
from bcmetal.join.admission import (
    Admitted,
    Answer,
    Ask,
    JoinRefused,
    TokenRefused,
    admit,
    first_look,
)
from bcmetal.join.authority import NO_CA, Authority
from bcmetal.join.bearers import parse_bearer
from bcmetal.join.challenging import Challenged, TpmCase, read_case
from bcmetal.join.claims import claim_of
from bcmetal.join.csr import CsrRefused, csr_der, read_csr
from bcmetal.join.judging import PoolRules
from bcmetal.join.renewal import NodeRefused, identity_after_the_end, renew_after_the_end
from bcmetal.join.tpm_certificates import vendor_of
from bcmetal.join.tpm_structures import TpmRefused
from bcmetal.settings import Pool, Settings
from bcmetal.store import join_tokens, outbox
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.join_tokens import TokenRow
from bcmetal.store.values import NewEvent, Store
from bcmetal.store.views import stamp
from bcmetal_agent import wire

log = logging.getLogger(__name__)

T = TypeVar("T")
RETRY_DEFERRED_S: Final = 15
BURST: Final = 300
EACH_S: Final = 10.0
WRONG_SECRET: Final = "wrong-secret"  # noqa: S105 - a reason
REFUSAL_TOLD_EVERY_S: Final = 10


@dataclass(frozen=True, slots=True)
class JoinServices:
    """`authority()` None: there is no CA yet. `vendors()`: certificates of TPM makers' CAs."""

    store: Store
    settings: Callable[[], Settings]
    authority: Callable[[], Authority | None]
    vendors: Callable[[], tuple[x509.Certificate, ...]]
    clock: Callable[[], Micros]
    entropy: Callable[[int], bytes]
    wake: Callable[[str | None], None]

    def signing(self) -> Authority:
        """Raises Unavailable."""
        found = self.authority()
        if found is None:
            raise Unavailable(NO_CA)
        return found


def rules_of(settings: Settings, pool: Pool) -> PoolRules:
    """The pool owned by its site's owner is the platform's, but for a custom site, which is a tenant's own."""
    site = settings.sites[pool.site]
    return PoolRules(
        pool_id=pool.name,
        tenant_id=pool.owner,
        site_id=pool.site,
        attestors=frozenset(pool.attestors),
        tokenless=frozenset(pool.tokenless),
        ek_allow=pool.ek_allow,
        custom=site.custom,
        platform_owned=not site.custom and pool.owner == site.owner,
        platform_operated=pool.kubernetes.platform_operated,
    )


def build_join_app(services: JoinServices, agents: AgentDoor | None = None) -> FastAPI:
    """The routes of the agents' listener: of machines that join, and of agents in the ramdisk."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    door = JoinDoor(services)
    for path, answer in ((wire.JOIN_PATH, door.join), (wire.RENEW_PATH, door.renew)):
        app.add_api_route(path, _answering(answer, door.buckets, services), methods=["POST"], response_model=None)

    async def bundle(request: Request) -> Response:
        return trust_bundle(services)

    async def openapi(request: Request) -> Response:
        return JSONResponse(agents_document(__version__), headers=HEADERS)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"ok": True}, headers=HEADERS)

    app.add_api_route(wire.TRUST_BUNDLE_PATH, bundle, methods=["GET"], response_model=None)
    app.add_api_route(OPENAPI_PATH, openapi, methods=["GET"], response_model=None)
    app.add_api_route("/healthz", healthz, methods=["GET"], response_model=None)
    if agents is not None:
        add_agent_routes(app, agents)
    install_faults(app, services.entropy)
    return app


def _answering(
    answer: Callable[[Request, bytes, str, Micros], Awaitable[Response]], buckets: Buckets, services: JoinServices
) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        trace_of(request, services.entropy)
        raw = await read_body(request, wire.BODY_LIMIT)
        now, address = services.clock(), address_of(request)
        buckets.take(address, now)
        return await answer(request, raw, address, now)

    return route


def trust_bundle(services: JoinServices) -> Response:
    """The roots, for whoever compares them with a pin."""
    return message(wire.TrustBundle(services.signing().roots))


def message(answer: Any, status: int = 200) -> Response:
    return Response(wire.encode(answer), status, HEADERS, media_type="application/json")


def decoded(kind: type[T], request: Request, raw: bytes) -> T | BcmetalError:
    """The message, or the fault that it has: told only to a caller who may know."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        return NotJson([], NotJson.__doc__ or "")
    try:
        return wire.decode(kind, raw)
    except wire.BadMessage as error:
        return InvalidInput([Fault(error.path, error.message)])


def admitted(answer: Admitted, authority: Authority, now: Micros) -> Response:
    return message(
        wire.Admitted(
            node_id=answer.node_id,
            certificate=answer.chain,
            trust_bundle=authority.trust_bundle,
            renew_after=stamp(answer.renew_after_at) or "",
            server_time=stamp(now) or "",
        )
    )


def deferred(request_id: str, now: Micros) -> Response:
    return message(wire.Deferred(request_id, RETRY_DEFERRED_S, stamp(now) or ""), 202)


class JoinDoor:
    """The join call's state between calls: who guessed, who calls too often. Everything else is in the store."""

    def __init__(self, services: JoinServices) -> None:
        self._services = services
        self.buckets = Buckets(BURST, EACH_S)
        self._by_address = Failures()
        self._by_token = Failures()
        self._told = Seldom(REFUSAL_TOLD_EVERY_S)

    async def join(self, request: Request, raw: bytes, address: str, now: Micros) -> Response:
        """Admitted, deferred or challenged; see the module."""
        services = self._services
        read = decoded(wire.Join, request, raw)
        token = await self._token(request, address, now)
        pool = self._pool(token, read)
        if pool is None:
            raise self._unproven(address, None, now)
        if isinstance(read, BcmetalError):
            raise read
        try:
            answer = await self._asked(token, pool, read, address, now)
        except (JoinRefused, TokenRefused) as error:
            await self._tell(pool, token, error.reason, read.attestor, address, now)
            raise
        except TpmRefused as error:
            await self._tell(pool, token, error.reason, read.attestor, address, now)
            raise InvalidInput([Fault("tpm", str(error))]) from error
        if isinstance(answer, Admitted):
            services.wake(answer.node_id)
            return admitted(answer, services.signing(), now)
        if isinstance(answer, Challenged):
            return message(answer.message())
        return deferred(answer.request_id, now)

    async def _token(self, request: Request, address: str, now: Micros) -> TokenRow | None:
        """The token whose secret came; None: none was sent. Raises TokenRefused, RateLimited."""
        given = [value for name, value in request.scope["headers"] if name == b"authorization"]
        if not given:
            return None
        scheme, _, text = given[0].decode("latin-1").strip().partition(" ")
        bearer = parse_bearer(text.strip()) if len(given) == 1 and scheme.lower() == "bearer" else None
        if bearer is None:
            raise self._unproven(address, None, now)
        row = await self._services.store.read(join_tokens.get, bearer.token_id)
        if not bearer.proves(None if row is None else row.secret_sha256) or row is None:
            if row is not None:
                pool = self._services.settings().pool(row.pool_id)
                if pool is not None:
                    await self._tell(pool, row, WRONG_SECRET, "", address, now)
            # Counted alike for an id that there is not: else the 429 would tell which there are.
            raise self._unproven(address, bearer.token_id, now)
        if row.revoked_at is not None:
            pool = self._services.settings().pool(row.pool_id)
            if pool is not None:
                await self._tell(pool, row, "revoked", "", address, now)
            raise TokenRefused("revoked")
        return row

    def _pool(self, token: TokenRow | None, read: wire.Join | BcmetalError) -> Pool | None:
        """The token's pool; without one, the pool that is named, if it takes such joins."""
        settings = self._services.settings()
        if token is not None:
            pool = settings.pool(token.pool_id)
            return pool if pool is not None and pool.owner == token.tenant_id else None
        if isinstance(read, BcmetalError) or read.pool_id is None:
            return None
        pool = settings.pool(read.pool_id)
        if pool is None or pool.owner != read.tenant_id or pool.agent == "none":
            return None
        return pool if read.attestor in pool.tokenless else None

    async def _asked(self, token: TokenRow | None, pool: Pool, read: wire.Join, address: str, now: Micros) -> Answer:
        services, settings = self._services, self._services.settings()
        if token is not None and (read.tenant_id is not None or read.pool_id is not None):
            raise InvalidInput([Fault("poolId", "is for a join without a token: the token names its pool")])
        case = self._tpm(read, now)
        claim = claim_of(read.identifiers, case.ek_sha256 if case is not None else None, settings.joining.placeholders)
        try:
            known: str | None = hashlib.sha256(csr_der(read.csr)).hexdigest()
        except CsrRefused:
            known = None  # told below, once the token is known to have a use left
        answer = await services.store.read(first_look, pool.name, token, known, claim.sha256, now)
        if answer is not None:
            return answer
        csr = read_csr(read.csr)
        if read.attestor not in pool.attestors:
            raise JoinRefused("attestor")
        ask = Ask(
            pool=rules_of(settings, pool),
            token_id=None if token is None else token.token_id,
            attestor=read.attestor,
            csr=csr,
            claim=claim,
            tpm=case,
            address=address,
            settings=settings.joining,
        )
        return await services.store.write(admit, ask, services.signing(), services.entropy, now)

    def _tpm(self, read: wire.Join, now: Micros) -> TpmCase | None:
        if read.attestor != "tpm":
            faults = [Fault(name, "is for the attestor tpm") for name in ("tpm", "challenge") if getattr(read, name)]
            if faults:
                raise InvalidInput(faults)
            return None
        if read.tpm is None:
            raise InvalidInput([Fault("tpm", "is missing: the attestor tpm needs it")])
        case = read_case(read.tpm, read.challenge)
        if case.claim.ek_certificate is None:
            return case
        moment = datetime.fromtimestamp(now / SECOND, UTC)
        return replace(case, vendor=vendor_of(case.claim.ek_certificate, self._services.vendors(), moment))

    async def renew(self, request: Request, raw: bytes, address: str, now: Micros) -> Response:
        """Renewal by the old key's signature, where the certificate ended and no connection can be made with it."""
        services = self._services
        read = decoded(wire.Renew, request, raw)
        if isinstance(read, BcmetalError) or read.expired is None:
            raise self._unproven(address, None, now)
        try:
            csr = read_csr(read.csr)
            identity = identity_after_the_end(read.expired, csr, services.signing())
            answer = await services.store.write(
                renew_after_the_end,
                identity,
                csr,
                services.signing(),
                services.settings().joining,
                services.entropy,
                address,
                now,
            )
        except (NodeRefused, CsrRefused) as error:
            log.info("a renewal from %s is refused: %s", address, error.reason)
            raise self._unproven(address, None, now) from None
        if answer is None:
            raise self._unproven(address, None, now)
        if isinstance(answer, Admitted):
            return admitted(answer, services.signing(), now)
        return deferred(answer.request_id, now)

    def _unproven(self, address: str, token_id: str | None, now: Micros) -> BcmetalError:
        """The one 401, and for whoever goes on guessing a 429. What proves itself is never held up by it."""
        errors = [self._by_address.add(address, now)]
        if token_id is not None:
            errors.append(self._by_token.add(token_id, now))
        return next((one for one in errors if isinstance(one, RateLimited)), TokenRefused("unproven"))

    async def _tell(
        self, pool: Pool, token: TokenRow | None, reason: str, attestor: str, address: str, now: Micros
    ) -> None:
        """The refusal's true reason, as an event; the same one not more often than the feed bears."""
        token_id = None if token is None else token.token_id
        told = (pool.name, token_id, reason, "" if reason == WRONG_SECRET else address)  # a guesser has many addresses
        if not self._told.now(told, now):
            return
        log.info("a join of pool %s from %s is refused: %s (token %s)", pool.name, address, reason, token_id)
        data = {"reason": reason, "tokenId": token_id, "attestor": attestor or None, "address": address}
        id_ = new_id("ev", now, self._services.entropy(ENTROPY_BYTES))
        data = {name: value for name, value in data.items() if value is not None}
        event = NewEvent(id_, None, pool.owner, pool.name, pool.site, "security.join.refused", data)
        await self._services.store.write(outbox.add, [event], now)
