"""What was asked of a machine, as far as it chooses the steps of a workflow: by the BMC alone, or with the agent in the ramdisk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bcmetal.settings import Pool, Settings
from bcmetal.settings_profiles import CommissionProfile, ReleaseProfile
from bcmetal.store.values import NodeRow


@dataclass(frozen=True, slots=True)
class Asked:
    """`scheme`: the BMC's, None while it was never reached; `cred_ref`: the credential of the configuration that it uses; `profile`: that
    of the last commission. Nothing here may change while the workflow runs, but for these."""

    input: Mapping[str, Any]
    pool: Pool
    settings: Settings
    scheme: str | None
    cred_ref: str | None = None
    profile: str | None = None

    @property
    def has_label(self) -> bool:
        """The BMC still has the password of its label, or is to be found in the list of them."""
        found = self.settings.credentials.get(self.cred_ref or "")
        return found is not None and found.of_one_machine

    @property
    def has_agent(self) -> bool:
        return self.pool.agent != "none"

    @property
    def commission_profile(self) -> CommissionProfile | None:
        return self.settings.profiles.commission.get(str(self.input.get("profile") or self.pool.commission))

    @property
    def commissioned_by(self) -> CommissionProfile | None:
        """What the machine was made by, for verbs whose own profile is of another kind."""
        return self.settings.profiles.commission.get(self.profile or self.pool.commission)

    @property
    def release_profile(self) -> ReleaseProfile | None:
        return self.settings.profiles.release.get(str(self.input.get("profile") or self.pool.release))

    @property
    def inspects_deep(self) -> bool:
        """IPMI tells next to nothing of a machine, so the agent looks by default."""
        deep = self.input.get("deep")
        return self.has_agent and (bool(deep) if deep is not None else self.scheme == "ipmi")

    @property
    def commissions_by_agent(self) -> bool:
        profile = self.commission_profile
        if profile is None or not self.has_agent:
            return False
        return bool(profile.agent_methods or profile.bom) or profile.tests != type(profile.tests)()

    @property
    def deploys_by_agent(self) -> bool:
        return self.input.get("kind") == "image"

    @property
    def rescues_by_agent(self) -> bool:
        return bool(self.input.get("sshKeys") or self.input.get("passwordHash"))

    @property
    def releases_by_agent(self) -> bool:
        """A release or a retire whose profile lists a method of the agent's."""
        profile = self.release_profile
        return self.has_agent and profile is not None and bool(profile.agent_methods)


def asked_of(node: NodeRow | None, given: Mapping[str, Any], pool: Pool, settings: Settings) -> Asked:
    """Of a node that is only now enrolled, nothing is known."""
    if node is None:
        return Asked(given, pool, settings, None)
    scheme = node.bmc.scheme or None if node.bmc is not None else None
    cred_ref = node.bmc.cred_ref if node.bmc is not None else None
    return Asked(given, pool, settings, scheme, cred_ref, node.profile)
