"""`[[grants]]` and `[[identities]]`: who may do what, and where."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import StringConstraints

from bcmetal.settings_tables import Table
from bcmetal.settings_words import IdentityName, TenantId


class Action(StrEnum):
    """What a grant may allow: `compute:metal:<action>`, and the groups beside it. What concerns joining is granted on pools only."""

    READ = "read"
    ENROLL = "enroll"
    OPERATE = "operate"
    POWER = "power"
    RESCUE = "rescue"
    ERASE = "erase"
    ERASE_WAIVER = "erase-waiver"
    RETIRE = "retire"
    CREDENTIALS = "credentials"
    AUDIT = "audit"
    FREEZE = "freeze"
    JOIN_CREATE = "join-tokens:create"
    JOIN_READ = "join-tokens:read"
    JOIN_REVOKE = "join-tokens:revoke"


class Role(StrEnum):
    READER = "reader"
    OPERATOR = "operator"
    ADMIN = "admin"


A = Action
ROLES: Final[Mapping[Role, frozenset[Action]]] = {
    Role.READER: frozenset({A.READ}),
    Role.OPERATOR: frozenset({A.READ, A.ENROLL, A.OPERATE, A.POWER, A.RESCUE}),
    Role.ADMIN: frozenset(Action),
}


class IdentityEntry(Table):
    """The tenant of an identity. A certificate's needs one; a key's tenant is stored with the key."""

    name: IdentityName
    tenant: TenantId


class Grant(Table):
    to: IdentityName
    on: Annotated[str, StringConstraints(pattern=r"^(site|compute-pool)/.+$")]
    role: Role | None = None
    actions: frozenset[Action] = frozenset()

    @property
    def allows(self) -> frozenset[Action]:
        return self.actions | (ROLES[self.role] if self.role is not None else frozenset())
