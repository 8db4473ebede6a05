"""What a step's outcome says of a BMC's credentials: their condition, and what becomes of a rotation that ended in its middle."""

from __future__ import annotations

from collections.abc import Sequence

from bcmetal.errors import hint_for
from bcmetal.line import BoundLine
from bcmetal.login_budget import LoginBudget
from bcmetal.store.logins import LEFT, ROTATING
from bcmetal.store.values import Fact, MoveSealed, SetCondition, Work
from bcmetal.workflows.machine import Line, Machine
from bcmetal_drivers.errors import (
    DriverError,
    LockedOut,
    PasswordChangeRequired,
    RejectedCredentials,
    UntrustedCertificate,
)


def credentials_condition(error: DriverError, node_name: str) -> SetCondition | None:
    """What an error says of the credentials, and what helps; None: nothing."""
    said = f"{error}. {hint_for(error.code, node_name)}"
    if isinstance(error, RejectedCredentials | LoginBudget):
        return SetCondition("credentials", "error", "error", "rejected", said)
    if isinstance(error, PasswordChangeRequired):
        return SetCondition("credentials", "error", "error", "expired", said)
    if isinstance(error, LockedOut):
        return SetCondition("credentials", "warning", "warning", "locked", said)
    return None


def credentials_accepted(line: Line) -> list[Fact]:
    """A login of this step was accepted. To be applied before what the step found later."""
    accepted = isinstance(line, BoundLine) and line.accepted
    return [SetCondition("credentials", "ok", "info", "", "")] if accepted else []


def note_refusal(machine: Machine, error: DriverError) -> None:
    """The conditions that this error sets."""
    found = credentials_condition(error, machine.node.name)
    if found is not None:
        machine.note(found)
    if isinstance(error, RejectedCredentials):
        machine.tell("security.bmc-credentials.rejected")
    elif isinstance(error, UntrustedCertificate):
        machine.condition("certificate", "error", error.code, str(error))


def left_by_a_rotation(work: Work, facts: Sequence[Fact]) -> list[Fact]:
    """A rotation that ended in its middle holds up nobody any more; the password that it may have set is kept for the next one."""
    bmc = work.node.bmc
    if bmc is None or not any(row.owner_id == bmc.bmc_id and row.slot == ROTATING for row in work.sealed):
        return []
    settled = any(isinstance(fact, MoveSealed) and fact.slot == ROTATING for fact in facts)
    return [] if settled else [MoveSealed(bmc.bmc_id, accept=True, slot=ROTATING, to=LEFT)]
