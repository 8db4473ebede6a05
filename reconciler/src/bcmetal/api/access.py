"""Who may do what: grants on pools and sites, and what another tenant may know (nothing).

A pool belongs to one tenant. An identity of another tenant sees it only by a grant on the pool or its site; without one the answer is the
same as for a pool that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bcmetal.errors import NotFound, PermissionDenied
from bcmetal.settings import Pool, Settings, Site
from bcmetal.settings_grants import Action
from bcmetal.states import Verb

# What a grant must allow for each workflow. A retry needs what the verb that it does again needs.
WORKFLOW_ACTIONS: Final[Mapping[Verb, Action]] = {
    Verb.INSPECT: Action.OPERATE,
    Verb.COMMISSION: Action.ERASE,
    Verb.DEPLOY: Action.OPERATE,
    Verb.SERVICE: Action.OPERATE,
    Verb.RESCUE: Action.RESCUE,
    Verb.UNRESCUE: Action.RESCUE,
    Verb.RELEASE: Action.ERASE,
    Verb.RETIRE: Action.RETIRE,
}

OF_THE_POOL_ALONE: Final = frozenset({Action.JOIN_CREATE, Action.JOIN_READ, Action.JOIN_REVOKE})


@dataclass(frozen=True, slots=True)
class Identity:
    """`name` is `key:NAME` or `cert:COMMON-NAME`; `key_id` names the API key that proved it."""

    name: str
    tenant_id: str
    key_id: str | None = None


def actions_on_site(settings: Settings, who: Identity, site_id: str) -> frozenset[Action]:
    return _granted(settings, who, {f"site/{site_id}"})


def actions_on_pool(settings: Settings, who: Identity, pool: Pool) -> frozenset[Action]:
    """A grant on the site reaches the metal of its pools, not who joins them: that is the pool's own."""
    on_the_pool = _granted(settings, who, {f"compute-pool/{pool.name}"})
    return on_the_pool | (_granted(settings, who, {f"site/{pool.site}"}) - OF_THE_POOL_ALONE)


def owned_pool(settings: Settings, who: Identity, tenant_id: str, pool_id: str) -> Pool:
    """The pool, for what only an identity of the tenant that owns it may do. Raises NotFound."""
    pool = settings.pool(pool_id)
    if pool is None or pool.owner != tenant_id or who.tenant_id != tenant_id:
        raise NotFound
    return pool


def _granted(settings: Settings, who: Identity, places: Collection[str]) -> frozenset[Action]:
    found: frozenset[Action] = frozenset()
    for grant in settings.grants:
        if grant.to == who.name and grant.on in places:
            found |= grant.allows
    return found


def pool_of(settings: Settings, who: Identity, tenant_id: str, pool_id: str) -> Pool:
    """The pool, if it is the tenant's and the identity may know of it. Raises NotFound."""
    pool = settings.pool(pool_id)
    if pool is None or pool.owner != tenant_id:
        raise NotFound
    if who.tenant_id != pool.owner and not actions_on_pool(settings, who, pool):
        raise NotFound
    return pool


def site_of(settings: Settings, who: Identity, site_id: str) -> Site:
    """The site, if it is the identity's tenant's, or a grant names it. Raises NotFound."""
    site = settings.sites.get(site_id)
    if site is None or (who.tenant_id != site.owner and not actions_on_site(settings, who, site_id)):
        raise NotFound
    return site


def require(allowed: Collection[Action], wanted: Collection[Action], who: Identity, place: str) -> None:
    """Raises PermissionDenied that names what is missing."""
    missing = sorted(action.value for action in wanted if action not in allowed)
    if missing:
        raise PermissionDenied(f"{who.name} may not {', '.join(missing)} on {place}", actions=missing, resource=place)


def actions_for(verb: Verb, given: Mapping[str, Any]) -> frozenset[Action]:
    """What a workflow needs with this input, as it is stored: a rebuild erases, a waiver is signed."""
    found = {WORKFLOW_ACTIONS[verb]}
    if verb is Verb.DEPLOY and given.get("rebuild"):
        found.add(Action.ERASE)
    if given.get("eraseWaiver") is not None:
        found.add(Action.ERASE_WAIVER)
    return frozenset(found)


def pools_allowing(settings: Settings, who: Identity, tenant_id: str, action: Action) -> list[Pool]:
    """The tenant's pools on which the identity may do this. Raises NotFound, or PermissionDenied within the own tenant, when there is none."""
    owned = [pool for pool in settings.pools.values() if pool.owner == tenant_id]
    allowed = {pool.name: actions_on_pool(settings, who, pool) for pool in owned}
    found = [pool for pool in owned if action in allowed[pool.name]]
    if found:
        return found
    if who.tenant_id != tenant_id and not any(allowed.values()):
        raise NotFound
    raise PermissionDenied(f"{who.name} may not {action} on any pool of {tenant_id}", actions=[action.value])


def whole_tenant(settings: Settings, who: Identity, tenant_id: str, action: Action) -> None:
    """For what is kept by tenant: the action must be granted on every pool of the tenant, or on a site that it owns. Raises as above."""
    sites = [name for name, site in settings.sites.items() if site.owner == tenant_id]
    if any(action in actions_on_site(settings, who, name) for name in sites):
        return
    allowed = {pool.name for pool in pools_allowing(settings, who, tenant_id, action)}
    if any(pool.owner == tenant_id and pool.name not in allowed for pool in settings.pools.values()):
        raise PermissionDenied(f"{who.name} may not {action} on every pool of {tenant_id}", actions=[action.value])
