"""Logins, sessions, accounts."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import Reply

LOGIN: Final = "/Sessions$"
WITH_TOKEN: Final = When(equals={"auth": "session"})

BEHAVIOURS: Final = (
    Behaviour(
        name="session-table-full",
        about="The session table is full for the first five logins, each answered 503.",
        rules=(
            Rule(
                method="POST", path=LOGIN, times=5,
                answer=Reply(status=503, code="SessionLimitExceeded", message="Too many sessions.", headers={"Retry-After": "5"}),
            ),
        ),
    ),
    Behaviour(
        name="session-table-full-400",
        about="A full session table is said by a 400 with a vendor's own code (AMI MegaRAC).",
        rules=(
            Rule(
                method="POST", path=LOGIN, times=5,
                answer=Reply(status=400, code="Ami.1.0.SessionLimit", message="The maximum number of sessions was reached."),
            ),
        ),
    ),
    Behaviour(
        name="session-table-of-one",
        about="There is room for one session, kept for half an hour: a second login, or one not closed, locks everybody out.",
        quirks={"session_limit": 1},
    ),
    Behaviour(
        name="failed-logins-fill-the-table",
        about="Each login takes up room until it expires, failed ones too: every client's retry makes it worse.",
        quirks={"session_limit": 2, "failed_logins_take_room": True, "session_timeout_s": 300.0},
    ),
    Behaviour(
        name="token-expires",
        about="All tokens die in the middle of the work, every twenty reads.",
        rules=(Rule(method="GET", when=WITH_TOKEN, every=20, action="expire_sessions"),),
    ),
    Behaviour(
        name="token-expires-at-writes",
        about="The token is found dead when something is written.",
        rules=(Rule(method="POST", path="/Actions/", when=WITH_TOKEN, every=2, action="expire_sessions"),),
    ),
    Behaviour(
        name="lockout-after-3",
        about="Three failed logins in a row lock the account for ten minutes.",
        quirks={"lock_after": 3, "lock_s": 600.0},
    ),
    Behaviour(
        name="locked-out",
        about="Somebody else's failed logins have locked the account: a good password is refused for ten minutes.",
        rules=(
            Rule(
                method="POST", path=LOGIN, times=3,
                answer=Reply(status=403, code="AccountLocked", message="The account is locked; try again later."),
            ),
        ),
    ),
    Behaviour(
        name="spurious-401",
        about="A good token is answered 401 now and then (HPE iLO 5, GB200), the session still being there.",
        rules=(
            Rule(
                when=WITH_TOKEN, method="GET", every=15,
                answer=Reply(status=401, code="NoValidSession", message="There is no valid session."),
            ),
        ),
    ),
    Behaviour(
        name="spurious-401-at-login",
        about="A login with the good password is answered 401 once, when the session was lost; the next one is taken (GB200).",
        rules=(
            Rule(method="GET", when=WITH_TOKEN, after=10, times=1, action="expire_sessions"),
            Rule(
                method="POST", path=LOGIN, after=1, times=1,
                answer=Reply(status=401, code="InsufficientPrivilege", message="The user name or the password is wrong."),
            ),
        ),
    ),
    Behaviour(
        name="password-rotated",
        about="Somebody changes the password at the BMC's own page while we have a session, just before the first write.",
        rules=(Rule(method="POST", path="/Actions/", times=1, before={"password": {}}),),
    ),
    Behaviour(
        name="basic-only",
        about="There is a session service, and no login succeeds there (405); Basic does.",
        rules=(
            Rule(
                method="POST", path=LOGIN,
                answer=Reply(status=405, code="OperationNotAllowed", message="The method POST is not allowed here."),
            ),
        ),
    ),
    Behaviour(
        name="no-session-service",
        about="The service has no sessions at all, Basic only.",
        quirks={"session_service": False},
    ),
    Behaviour(
        name="sessions-only",
        about="Basic is refused, a session is the only way in.",
        quirks={"basic": False},
    ),
    Behaviour(
        name="token-never-taken",
        about="A login gives a token that no request is taken with: Basic works.",
        rules=(
            Rule(
                when=WITH_TOKEN,
                answer=Reply(status=401, code="NoValidSession", message="There is no valid session."),
            ),
        ),
    ),
)  # fmt: skip
