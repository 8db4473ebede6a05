"""How often a login may fail: an account's at most twice in ten minutes, so that nobody is locked out of a BMC by us.

A password that was accepted after it was last refused is not expected to fail, and may always be tried. A person's new password has
one more try than the daemon has. A lock-out is waited for: a login during it makes it longer at some BMCs.
"""

from __future__ import annotations

from typing import Final

from bcmetal.decisions import SECOND, Micros
from bcmetal.store.logins import Tries
from bcmetal_drivers.errors import LockedOut, Permanent, Transient

WINDOW_S: Final = 600
AT_MOST: Final = 2
LOCKED_FIRST_S: Final = 60.0
LOCKED_LAST_S: Final = 600.0


class LoginBudget(Permanent):
    """Logins with this account failed twice in ten minutes: none is tried again so soon."""

    code = "login-budget"


class RefusedOnce(Transient):
    """The BMC refused a password that it took before; it is asked once more before that is believed."""

    code = "bmc-login-doubted"


class BeingChanged(Transient):
    """The BMC's password is being changed."""

    code = "bmc-credentials-changing"


def refusal(tries: Tries, now: Micros, *, person: bool = False) -> LoginBudget | LockedOut | None:
    """Why this login must not be tried now. `person`: somebody just gave this password."""
    if tries.locked_until is not None and tries.locked_until > now:
        wait_s = (tries.locked_until - now) / SECOND
        return LockedOut(f"the account is locked: the next login is tried in {wait_s:.0f} s", retry_after_s=wait_s)
    if tries.good:
        return None
    extra = 1 if person and not tries.password_rejected else 0
    if len(tries.rejected_at) < AT_MOST + extra:
        return None
    free_at = tries.rejected_at[-AT_MOST] + WINDOW_S * SECOND
    return LoginBudget(retry_after_s=max(1.0, (free_at - now) / SECOND))


def locked_until(tries: Tries, now: Micros, retry_after_s: float | None) -> Micros:
    """Until when a lock-out is waited for: as the BMC says, else a minute, and twice that each time it lasts longer."""
    guessed = min(LOCKED_LAST_S, LOCKED_FIRST_S * 2.0 ** min(tries.locks, 10))
    return Micros(now + int((retry_after_s or guessed) * SECOND))
