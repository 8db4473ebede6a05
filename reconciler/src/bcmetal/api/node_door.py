"""The nodes' listener: mutual TLS, and for each call a look at whether the certificate is still good. Renewal, and platform secrets."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bcmetal import __version__
from bcmetal.api.faults import HEADERS
from bcmetal.api.joining import JoinServices, admitted, decoded, message, rules_of, trust_bundle
from bcmetal.api.node_tls import PEER, Connections
from bcmetal.api.pace import Buckets
from bcmetal.api.requests import address_of, install_faults, read_body, trace_of
from bcmetal.api.wire_openapi import PATH as OPENAPI_PATH
from bcmetal.api.wire_openapi import nodes_document
from bcmetal.decisions import Micros
from bcmetal.errors import BcmetalError, Fault, InvalidInput, PermissionDenied
from bcmetal.join.ca import IssuerKind
from bcmetal.join.csr import read_csr
from bcmetal.join.judging import Trust, lower
from bcmetal.join.peers import PeerIdentity, PeerRefused, certificate_from_der, identity_of, issuer_of
from bcmetal.join.renewal import NodeRefused, renew, shown, still_good
from bcmetal.settings import Settings, read_secret
from bcmetal.store import audit, certificates, members
from bcmetal.store.ids import ENTROPY_BYTES, new_id
from bcmetal.store.members import MemberRow
from bcmetal.store.values import NewAudit, Store
from bcmetal_agent import wire

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
BURST: Final = 60  # calls of one node; its root may be anybody's, and each renewal is a row
EACH_S: Final = 0.5


class SecretsRefused(PermissionDenied):
    """Platform secrets are for live nodes of platform trust alone."""


def build_node_app(services: JoinServices) -> FastAPI:
    """The routes of the nodes' listener."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    door = NodeDoor(services)
    for path, answer in ((wire.RENEW_PATH, door.renew), (wire.SECRETS_PATH, door.secrets)):
        app.add_api_route(path, _answering(answer, door.buckets, services), methods=["POST"], response_model=None)

    async def bundle(request: Request) -> Response:
        identity = identity_in(request, services)
        await services.store.write(shown, identity, address_of(request), services.clock())
        return trust_bundle(services)

    async def openapi(request: Request) -> Response:
        return JSONResponse(nodes_document(__version__), headers=HEADERS)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"ok": True}, headers=HEADERS)

    app.add_api_route(wire.TRUST_BUNDLE_PATH, bundle, methods=["GET"], response_model=None)
    app.add_api_route(OPENAPI_PATH, openapi, methods=["GET"], response_model=None)
    app.add_api_route("/healthz", healthz, methods=["GET"], response_model=None)
    install_faults(app, services.entropy)
    return app


def identity_in(request: Request, services: JoinServices) -> PeerIdentity:
    """Who this connection proved to be. Raises NodeRefused."""
    der = request.scope.get(PEER)
    if not isinstance(der, bytes):
        raise NodeRefused("no-certificate")
    authority = services.signing()
    try:
        certificate = certificate_from_der(der)
        identity = identity_of(certificate, authority.trust_domain)
    except PeerRefused as error:
        raise NodeRefused("no-node") from error
    # TLS goes on trusting a root that was retired until the next start; this does not.
    if issuer_of(certificate, authority.node_issuers) is None:
        raise NodeRefused("foreign-issuer")
    if services.clock() >= identity.not_after:  # TLS asked when the connection was opened, which may be long ago
        raise NodeRefused("expired")
    return identity


def _answering(
    answer: Callable[[PeerIdentity, bytes, Request, str, Micros], Awaitable[Response]],
    buckets: Buckets,
    services: JoinServices,
) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        trace_of(request, services.entropy)
        identity, address, now = identity_in(request, services), address_of(request), services.clock()
        # By address too: whoever shows a revoked certificate from elsewhere uses up nothing of the node's.
        buckets.take(f"{identity.node_id} {address}", now)
        raw = await read_body(request, wire.BODY_LIMIT)
        try:
            return await answer(identity, raw, request, address, now)
        except NodeRefused as error:
            log.info("node %s is refused: %s", identity.node_id, error.reason)
            raise

    return route


class NodeDoor:
    """What a node may ask; its certificate was proven by the connection, and is looked up anew for each call."""

    def __init__(self, services: JoinServices) -> None:
        self._services = services
        self.buckets = Buckets(BURST, EACH_S)

    async def renew(self, identity: PeerIdentity, raw: bytes, request: Request, address: str, now: Micros) -> Response:
        """A new certificate for a new key."""
        services = self._services
        read = decoded(wire.Renew, request, raw)
        await services.store.read(_known, identity)
        if isinstance(read, BcmetalError):
            raise read
        if read.expired is not None:
            raise InvalidInput([Fault("expired", "is for a certificate that can open no connection any more")])
        csr = read_csr(read.csr)
        answer = await services.store.write(renew, identity, csr, services.signing(), address, now)
        if answer is None:
            raise NodeRefused("cloned")
        return admitted(answer, services.signing(), now)

    async def secrets(
        self, identity: PeerIdentity, raw: bytes, request: Request, address: str, now: Micros
    ) -> Response:
        """Named values of the site's configuration, for a live node of platform trust that shows a `node` certificate."""
        services = self._services
        peer = await services.store.write(shown, identity, address, now)
        read = decoded(wire.AskSecrets, request, raw)
        if isinstance(read, BcmetalError):
            raise read
        if identity.kind is not IssuerKind.NODE or trust_today(peer.member, services.settings()) is not Trust.PLATFORM:
            raise SecretsRefused
        site = services.settings().sites.get(peer.member.site_id)
        known = {} if site is None else site.secrets
        faults = [
            Fault(f"names[{n}]", "is no secret of this site") for n, name in enumerate(read.names) if name not in known
        ]
        if faults:
            raise InvalidInput(faults)
        names = read.names or tuple(sorted(known))
        found = tuple(wire.Secret(name, read_secret(known[name]).get_secret_value()) for name in names)
        entry = NewAudit(
            new_id("au", now, services.entropy(ENTROPY_BYTES)),
            f"node:{identity.node_id}",
            peer.member.tenant_id,
            address,
            "compute:nodes:secrets",
            f"compute-pool/{peer.member.pool_id}",
            "allowed",
            trace_of(request, services.entropy),
            identity.node_id,
            {"names": list(names)},
        )
        await services.store.write(_release, peer.member, names, identity, entry, now)
        return message(wire.Secrets(found))


def trust_today(member: MemberRow, settings: Settings) -> Trust:
    """The stored trust, or what the pool gives by now where that is less: it is only ever lowered. A pool that is gone gives none."""
    pool = settings.pool(member.pool_id)
    if pool is None or pool.owner != member.tenant_id:
        return Trust.TENANT_OWNED
    return lower(Trust(member.trust), rules_of(settings, pool).trust(member.hosted))


def _known(c: Connection, identity: PeerIdentity) -> None:
    """The serial is one of ours; whether it may still renew, `renew` decides, since a copied key is noticed there."""
    row = certificates.get(c, identity.serial)
    if row is None or row.node_id != identity.node_id:
        raise NodeRefused("unknown-serial")


def _release(
    c: Connection, member: MemberRow, names: tuple[str, ...], identity: PeerIdentity, entry: NewAudit, now: Micros
) -> None:
    """In the transaction that hands them out, the node is looked at once more."""
    members.lock_pool(c, member.pool_id)  # an eviction names what to rotate: all of it
    shown(c, identity, member.address, now)
    members.released(c, member.node_id, names, identity.serial, now)
    audit.add(c, entry, now)


async def close_the_revoked(store: Store, connections: Connections) -> int:
    """Cut what a certificate that is not good any more has open; how many connections."""
    serials = connections.serials()
    if not serials:
        return 0
    good = await store.read(still_good, serials)
    return sum(connections.close(serial) for serial in serials - good)
