"""What can go wrong at a BMC.

    DriverError
    ├── Transient            worth trying again, with backoff
    │   ├── Unreachable      no route, refused, name not found, TLS handshake cut off
    │   ├── TimedOut         a deadline passed while connecting, reading or in total
    │   ├── Busy             503, 429, a full session table, IPMI busy codes, "not during POST"
    │   ├── ServerFault      another 5xx, or an answer that is cut short
    │   ├── LockedOut        the account is locked; waits for the lock-out to pass
    │   └── MaybeSent        a write whose answer was lost: look before repeating
    └── Permanent            trying again changes nothing
        ├── RejectedCredentials
        ├── PasswordChangeRequired   the login is right, and good for a new password only
        ├── UntrustedCertificate
        ├── InsecureTransport    the BMC offers only what the node's settings do not allow
        ├── NotThisService       the host answers, but it is no Redfish service (or no IPMI)
        ├── NoSuchSystem         the system id does not exist there
        ├── AmbiguousSystem      several systems and none was named
        ├── BadAddress           an address that no driver understands
        ├── Unsupported          this model does not offer the capability
        ├── Refused              the BMC understood and said no (4xx that is none of the above)
        │   └── TaskFailed       the BMC took it, and the Task that it began failed
        ├── Malformed            an answer that is not what the standard says
        └── NotAsAsked           acknowledged, and read back as something else

`str(error)` is safe to show: it holds no secret and is bounded. The address or URL and what was wrong are part of it.
The daemon maps each class to a `lastError.code`; drivers know no HTTP API.
"""

from __future__ import annotations

MESSAGE_LIMIT = 400


class DriverError(Exception):
    """Something went wrong at a BMC."""

    code = "bmc-error"

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        text = message or (self.__doc__ or "").strip()
        printable = "".join(c if c.isprintable() else " " for c in text)
        super().__init__(printable[:MESSAGE_LIMIT])
        self.retry_after_s = retry_after_s


class Transient(DriverError):
    """The BMC could not answer now."""


class Unreachable(Transient):
    """The BMC cannot be reached."""

    code = "bmc-unreachable"


class TimedOut(Transient):
    """The BMC did not answer in time."""

    code = "bmc-timeout"


class Busy(Transient):
    """The BMC is busy."""

    code = "bmc-busy"


class ServerFault(Transient):
    """The BMC failed to answer."""

    code = "bmc-fault"


class LockedOut(Transient):
    """The BMC's account is locked for some time."""

    code = "bmc-locked-out"


class MaybeSent(Transient):
    """A write was sent and its answer was lost."""

    code = "bmc-answer-lost"


class Permanent(DriverError):
    """The BMC will not do this, however often it is asked."""


class RejectedCredentials(Permanent):
    """The BMC rejects the user name or the password. `logins`: how many failed ones that was, for whoever keeps a budget."""

    code = "bmc-credentials-rejected"

    def __init__(self, message: str = "", *, logins: int = 1) -> None:
        super().__init__(message or "the BMC rejects the user name or the password")
        self.logins = logins


class PasswordChangeRequired(Permanent):
    """The BMC takes the password, and then nothing but a new one.

    `account` is the path of the account, where the BMC names it: all that it lets this login read and write.
    """

    code = "bmc-password-change-required"

    def __init__(self, message: str = "", *, account: str | None = None) -> None:
        super().__init__(message or "the BMC takes this password, and then nothing but a new one")
        self.account = account


class UntrustedCertificate(Permanent):
    """The BMC's certificate is not trusted."""

    code = "bmc-certificate-untrusted"


class InsecureTransport(Permanent):
    """The BMC offers only a transport that is not allowed here."""

    code = "bmc-insecure-transport"


class NotThisService(Permanent):
    """The host answers, but not as the expected kind of BMC."""

    code = "bmc-not-this-service"


class NoSuchSystem(Permanent):
    """The BMC has no system of that id."""

    code = "bmc-no-such-system"


class AmbiguousSystem(Permanent):
    """The BMC has several systems; one must be named."""

    code = "bmc-ambiguous-system"


class BadAddress(Permanent):
    """The address is of no known form."""

    code = "bmc-bad-address"


class Unsupported(Permanent):
    """This BMC does not offer the capability."""

    code = "bmc-unsupported"


class Refused(Permanent):
    """The BMC refused."""

    code = "bmc-refused"


class TaskFailed(Refused):
    """The BMC took it, and its task failed."""

    code = "bmc-task-failed"


class Malformed(Permanent):
    """The BMC's answer is not what the standard says."""

    code = "bmc-malformed-answer"


class NotAsAsked(Permanent):
    """The BMC acknowledged, and then showed something else."""

    code = "bmc-not-as-asked"
