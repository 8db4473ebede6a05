"""Who is calling: an API key, or a client certificate that this very connection proved. No header stands for a certificate."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from bcmetal.api.access import Identity
from bcmetal.api.calls import Services
from bcmetal.decisions import SECOND, Micros
from bcmetal.errors import BcmetalError, RateLimited, Unauthenticated
from bcmetal.settings import Settings
from bcmetal.store import keys

FAILURES: Final = 20  # of one address …
WINDOW_S: Final = 60  # … in this time, and every further one is answered with RATE_LIMITED
ADDRESSES: Final = 4096
TOKEN_LIMIT: Final = 512
CERTIFICATE: Final = "bcmetal.client_common_name"  # of the scope, set by `api.tls` alone

_OIDC: Final = re.compile(rb"bearer +eyJ[\w-]+\.[\w-]+\.", re.IGNORECASE)  # how every JSON Web Token begins
_COMMON_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")


class Failures:
    """Failed authentications by address, in fixed windows. What proves itself is never held up by another's failures."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[Micros, int]] = OrderedDict()

    def add(self, address: str, now: Micros) -> BcmetalError:
        """The error to answer with."""
        began, count = self._seen.pop(address, (now, 0))
        if not 0 <= now - began <= WINDOW_S * SECOND:  # below 0: the clock stepped back
            began, count = now, 0
        self._seen[address] = (began, count + 1)
        while len(self._seen) > ADDRESSES:
            self._seen.popitem(last=False)
        if count >= FAILURES:
            left = max(1, (began + WINDOW_S * SECOND - now) // SECOND)
            return RateLimited("too many failed authentications from this address", retryAfterS=left)
        return Unauthenticated()


class Gate:
    """Tells who is calling. Raises Unauthenticated, RateLimited."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._failures = Failures()

    async def identify(self, scope: Mapping[str, Any], address: str) -> Identity:
        now = self._services.clock()
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if values:
            found = await self._by_key(values[0], now) if len(values) == 1 else None
        else:
            found = by_certificate(scope, self._services.settings())
        if found is None:
            error = self._failures.add(address, now)
            if isinstance(error, Unauthenticated) and values and _OIDC.match(values[0].strip()):
                raise Unauthenticated(
                    "sign-in by OIDC is not in this build: use an API key or a client certificate",
                    reason="not-in-this-build",
                )
            raise error
        return found

    async def _by_key(self, header: bytes, now: Micros) -> Identity | None:
        scheme, _, token = header.decode("latin-1").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > TOKEN_LIMIT:
            return None
        row = await self._services.store.read(keys.find_by_sha256, hashlib.sha256(token.encode()).digest())
        if row is None or not row.is_live(now):
            return None
        if row.last_used_at is None or now - row.last_used_at > keys.USED_EVERY_US:
            await self._services.store.write(keys.touch_used, row.key_id, now)
        return Identity(row.identity, row.tenant_id, row.key_id)


def by_certificate(scope: Mapping[str, Any], settings: Settings) -> Identity | None:
    """The connection's own client certificate, whose common name `[[identities]]` gives a tenant."""
    common_name = scope.get(CERTIFICATE)
    if not isinstance(common_name, str) or not _COMMON_NAME.fullmatch(common_name):
        return None
    name = f"cert:{common_name}"
    tenant = settings.tenant_of(name)
    return None if tenant is None else Identity(name, tenant)


async def still_proven(services: Services, who: Identity) -> bool:
    """Whether what proved this identity is good still: for what goes on after its call was answered."""
    if who.key_id is None:
        return services.settings().tenant_of(who.name) == who.tenant_id
    row = await services.store.read(keys.by_id, who.key_id)
    return row is not None and row.is_live(services.clock())
