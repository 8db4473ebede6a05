"""What the daemon can answer or raise.

    BcmetalError
    ├── InvalidInput       400  all faults of an input at once, each with its path
    ├── Unauthenticated    401
    ├── PermissionDenied   403
    ├── NotFound           404  also what belongs to another tenant: one body for both
    ├── Conflict           409
    │   └── Lost                another writer moved the node first
    ├── InvalidState       409  the table does not allow it now
    ├── RateLimited        429
    ├── Unavailable        503
    ├── Internal           500  a bug
    ├── Stale                   a claim's epoch is past: nothing was written (never leaves the engine)
    ├── VaultError         500  a secret cannot be sealed or opened
    └── StartRefused            the daemon refuses to start (never leaves the process)

`str(error)` is safe to show. `LAST_ERRORS` is the vocabulary of `lastError.code`, with the hint that `bcmetal why` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


class BcmetalError(Exception):
    """Something went wrong."""

    api_code = "INTERNAL"
    http = 500
    retryable = False

    def __init__(self, message: str = "", **details: object) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.details: Mapping[str, object] = details


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input: `path` such as `bmc.address`, and what to do about it."""

    path: str
    message: str


class InvalidInput(BcmetalError):
    """The input is not valid."""

    api_code = "INVALID_INPUT"
    http = 400

    def __init__(self, faults: Sequence[Fault], message: str = "") -> None:
        text = message or "; ".join(f"{f.path}: {f.message}" if f.path else f.message for f in faults)
        super().__init__(text, faults=[{"field": f.path, "message": f.message} for f in faults])
        self.faults = tuple(faults)


class Unauthenticated(BcmetalError):
    """No credential was given, or one that proves nothing."""

    api_code = "UNAUTHENTICATED"
    http = 401


class PermissionDenied(BcmetalError):
    """The identity may not do this here."""

    api_code = "PERMISSION_DENIED"
    http = 403


class NotFound(BcmetalError):
    """There is no such resource in this tenant and pool."""

    api_code = "NOT_FOUND"
    http = 404


class Conflict(BcmetalError):
    """The request conflicts with what is stored."""

    api_code = "CONFLICT"
    http = 409


class Lost(Conflict):
    """Another writer changed the node first; read it again."""

    retryable = True


class InvalidState(BcmetalError):
    """The state table does not allow this now."""

    api_code = "INVALID_STATE"
    http = 409


class RateLimited(BcmetalError):
    """Too many requests."""

    api_code = "RATE_LIMITED"
    http = 429
    retryable = True


class Unavailable(BcmetalError):
    """The daemon cannot answer now."""

    api_code = "UNAVAILABLE"
    http = 503
    retryable = True


class Internal(BcmetalError):
    """A fault of the daemon; its log has the rest under the trace id."""


class Stale(BcmetalError):
    """The claim is no longer ours; nothing was written."""


class VaultError(BcmetalError):
    """A secret cannot be sealed or opened with this vault."""


class StartRefused(BcmetalError):
    """The daemon does not start."""


@dataclass(frozen=True, slots=True)
class LastErrorKind:
    """What a `lastError.code` means. `retryable`: the engine tries again inside the step, until the budget ends."""

    meaning: str
    retryable: bool
    hint: str  # one sentence with the command that helps; NODE stands for the node's name


def _kinds(*rows: tuple[str, str, bool, str]) -> Mapping[str, LastErrorKind]:
    return MappingProxyType({code: LastErrorKind(meaning, again, hint) for code, meaning, again, hint in rows})


# fmt: off
LAST_ERRORS: Final = _kinds(
    # code                        meaning                                                     retried  hint
    ("bmc-error",                 "the BMC failed in a way that has no name of its own",        False, "Look at the message, then `bcmetal retry NODE`."),
    ("bmc-unreachable",           "the BMC cannot be reached",                                  True,  "Check the cable and the address: `bcmetal node show NODE`, mend it with `bcmetal node update NODE --address …`."),
    ("bmc-timeout",               "the BMC did not answer in time",                             True,  "If it stays slow, restart the BMC, then `bcmetal retry NODE`."),
    ("bmc-busy",                  "the BMC is busy or its session table is full",               True,  "Close other sessions on the BMC; bcmetal goes on by itself."),
    ("bmc-fault",                 "the BMC answered with a fault of its own",                   True,  "If it lasts, restart the BMC, then `bcmetal retry NODE`."),
    ("bmc-locked-out",            "the account is locked for some time",                        True,  "Wait for the lock-out to pass, or set another account with `bcmetal node credentials NODE --username NAME`."),
    ("bmc-answer-lost",           "the answer to a write was lost; its effect is looked for",   True,  "bcmetal reads the state back before it repeats anything."),
    ("bmc-credentials-rejected",  "the BMC rejects the user name or password",                  False, "Set the right ones with `bcmetal node credentials NODE --username NAME`, then `bcmetal retry NODE`."),
    ("bmc-password-change-required", "the BMC takes the password, and then nothing but a new one", False, "`bcmetal node rotate-credentials NODE` gives it a new one, then `bcmetal retry NODE`; or change it at the BMC's own page and tell bcmetal: `bcmetal node credentials NODE --username NAME`."),
    ("bmc-certificate-untrusted", "the BMC's certificate is not trusted",                       False, "Compare its fingerprint with the BMC's own page, then `bcmetal node update NODE --fingerprint SHA256`."),
    ("bmc-insecure-transport",    "the BMC offers only a transport that is not allowed here",   False, "Allow it for this network in the configuration, or turn on TLS at the BMC."),
    ("bmc-not-this-service",      "the host answers, but is no BMC of this kind",               False, "Check the address and its scheme with `bcmetal node show NODE`."),
    ("bmc-no-such-system",        "the BMC has no system of that id",                           False, "The message lists the ids that it has; choose one with `bcmetal node update NODE --address …`."),
    ("bmc-ambiguous-system",      "the BMC has several systems and none was named",             False, "The message lists their ids; enrol each with its system id."),
    ("bmc-bad-address",           "the BMC's address is of no known form",                      False, "Mend it with `bcmetal node update NODE --address …`."),
    ("bmc-unsupported",           "this BMC does not offer what the step needs",                False, "See `bcmetal inventory NODE` for what it offers; another profile may not need it."),
    ("bmc-refused",               "the BMC understood and refused",                             False, "The message holds its reason; after mending it, `bcmetal retry NODE`."),
    ("bmc-malformed-answer",      "the BMC's answer is not what the standard says",             False, "Look for a firmware update of the BMC, then `bcmetal retry NODE`."),
    ("bmc-not-as-asked",          "the BMC acknowledged and then showed something else",        False, "Look at the BMC's own log, then `bcmetal retry NODE`."),
    ("bmc-task-failed",           "the BMC took it, and its task failed",                       False, "The message says what its task said. Look at the BMC's own log, then `bcmetal retry NODE`."),
    ("bmc-in-use",                "this BMC and system already belong to a node",               False, "Find the other node in your own pools with `bcmetal node list`, or ask the site's admins."),
    ("login-budget",              "logins failed twice in ten minutes: no more are tried now",  False, "Set the right password with `bcmetal node credentials NODE --username NAME`: a new one may be tried at once, else wait ten minutes."),
    ("bmc-login-doubted",         "the BMC refused a password that it took before",             True,  "bcmetal asks once more before it believes that; nothing is to be done."),
    ("bmc-credentials-changing",  "the BMC's password is being changed",                        True,  "bcmetal goes on by itself once the new password was proven; `bcmetal timeline NODE` shows the rotation."),
    ("credential-not-for-here",   "the configuration has no such credential for this network",  False, "List the BMC's network at the credential in the configuration, or set the BMC's own with `bcmetal node credentials NODE --username NAME`."),
    ("label-not-found",           "no line of the list of labels is this BMC's",                False, "Say which with `bcmetal node update NODE --label bmc-mac=…` or `--label serial=…`, or give its password: `bcmetal node credentials NODE --username NAME`."),
    ("recovery-not-exercised",    "nobody proved that the vault's key can be recovered",        False, "On the daemon's host: `bcmetal vault recovery export FILE`, then `bcmetal vault recovery verify FILE`; then again."),
    ("identity-conflict",         "another node holds this machine's identity",                 False, "Compare both machines; remove the wrong one with `bcmetal remove`."),
    ("identity-changed",          "the machine's identity is not the one that was enrolled",    False, "If its board or BMC was swapped: `bcmetal node update NODE --accept-identity --reason …`; else find out which machine this is."),
    ("boot-mode",                 "the boot mode is not the profile's and could not be set",    False, "Set it in the machine's setup, then `bcmetal retry NODE`."),
    ("firmware-update",           "a firmware is not the one that was asked for",               False, "The message names the component; look at the BMC's own log, then `bcmetal retry NODE`."),
    ("raid",                      "the RAID layout of the profile could not be made",           False, "The message says what is missing or what the controller refused; then `bcmetal retry NODE`."),
    ("bios-rejected",             "the machine's firmware did not take a BIOS setting",         False, "The message names the settings; mend them in the profile, then `bcmetal retry NODE`."),
    ("profile-mismatch",          "the hardware is not what the profile demands",               False, "`bcmetal inventory NODE` shows what was found; mend the machine or choose another profile."),
    ("power-unknown",             "the BMC does not say whether the machine is on",             False, "Nothing is forced meanwhile. Reset the BMC, then `bcmetal retry NODE`."),
    ("power-not-reached",         "the machine did not reach the power state asked for",        False, "Look at the machine's console, then `bcmetal retry NODE`."),
    ("image-not-found",           "the image's address answers that there is none",             False, "Mend the image's address in the configuration or the request, then deploy again."),
    ("image-refused",             "the image's address is not allowed, or refuses us",          False, "Allow its host by `images_from` in [daemon], or use a named image."),
    ("image-unreachable",         "the image's server cannot be reached",                       True,  "Check the image server; bcmetal goes on by itself."),
    ("image-checksum",            "the image is not the one that its checksum names",           False, "Compare the checksum with its publisher's, then deploy again."),
    ("image-too-large",           "the image is larger than the site allows, or than the disk", False, "Raise `image_limit_bytes`, name another disk, or use a smaller image."),
    ("media-not-fetched",         "the BMC inserted the medium but never fetched it",           False, "Check that the BMC reaches `media_url` of its network, and that its virtual media are attached to the host (iDRAC: attach mode), then `bcmetal retry NODE`."),
    ("image-format",              "the image is not of the form that was named",               False, "Name its `format` as it is: iso, raw or qcow2. A qcow2 with a backing file is never taken."),
    ("image-truncated",           "the image ended before its end",                             False, "Compare the image with its publisher's, then deploy again."),
    ("image-stalled",             "the image stopped coming to the machine",                    False, "Look at the network between the machine and the daemon, then `bcmetal retry NODE`."),
    ("image-unpack",              "the image could not be unpacked",                            False, "Compare the image and its compression with its publisher's, then deploy again."),
    ("ramdisk-missing",           "this site has no ramdisk to boot",                           False, "`bcmetal ramdisk build` on the daemon's host makes it; then `bcmetal retry NODE`."),
    ("agent-silent",              "the ramdisk was started and its agent never called",         False, "Look at the machine's console: the ramdisk says there what it waits for. Where it shows no ramdisk, look whether virtual media are attached to the host (iDRAC: attach mode). Then `bcmetal retry NODE`."),
    ("agent-task-failed",         "the agent could not do what it was asked",                   False, "The message says what failed, `bcmetal log NODE TASK` what it logged. Then `bcmetal retry NODE`."),
    ("agent-malformed-answer",    "the agent's answer is not what it should be",                False, "Build the ramdisk anew for this version: `bcmetal ramdisk build`, then `bcmetal retry NODE`."),
    ("boot-token-conflict",       "somebody else used this machine's boot tokens, three times", False, "Somebody reads the network that the machine boots from: find out who, then `bcmetal retry NODE`."),
    ("machine-is-on",             "a machine that is not ours to switch off runs",              False, "Power it off first (`bcmetal power off NODE`), or commission it with its serial confirmed."),
    ("hardware-test",             "a hardware test failed",                                     False, "The message names the test, `bcmetal log NODE test-…` shows it; mend the machine, then `bcmetal retry NODE`."),
    ("no-root-device",            "no disk can take the system",                                False, "The message lists the disks; choose one by `bcmetal node update NODE --root-device …`, then deploy again."),
    ("no-room-for-config-drive",  "the image leaves no place for a config drive",               False, "Use an image with a GPT and room behind its last partition, or a larger disk."),
    ("disk-missing",              "a disk of the plan is not there any more",                   False, "Look at the disk and its cable, then `bcmetal retry NODE`."),
    ("disk-ambiguous",            "two disks look like the one of the plan",                    False, "Unplug the twin, then `bcmetal retry NODE`."),
    ("disk-shared",               "a disk that other machines may see too is never written",    False, "Disconnect shared storage, then `bcmetal retry NODE`."),
    ("disk-in-use",               "a disk of the plan is in use in the ramdisk",                False, "Start again: `bcmetal retry NODE`."),
    ("disk-read-only",            "a disk of the plan takes no writes",                         False, "Replace the disk, then `bcmetal retry NODE`."),
    ("disk-write-failed",         "a disk failed while it was written",                         False, "Replace the disk, then `bcmetal retry NODE`."),
    ("disk-read-back-differs",    "a disk does not give back what was written",                 False, "Replace the disk, then `bcmetal retry NODE`."),
    ("no-sign-of-life",           "the machine started and never gave its sign of life",        False, "Look at the machine's console; see `sign_of_life` of the pool. With `agent`: `bcmetal request list` shows whether its join waits for a person."),
    ("erase-unsupported",         "no allowed method can erase this drive",                     False, "Use a profile with `erase: none`, or sign a waiver: `bcmetal retire NODE --waive-erase REASON`."),
    ("erase-shared-drive",        "a drive that another node sees too is never erased",         False, "Disconnect shared storage; if the drive was moved here, `bcmetal refresh` the node that it came from, then `bcmetal retry NODE`."),
    ("erase-failed",              "an erase ended without success",                             False, "Replace the drive, or sign a waiver, then `bcmetal retry NODE`."),
    ("erase-not-verified",        "an erase is claimed and the drive does not show it",         False, "Treat the drive as holding data: retry, replace it, or sign a waiver."),
    ("erase-drive-missing",       "a drive that may hold data is not there",                    False, "Put it back, or sign a waiver for its serial, then `bcmetal retry NODE`."),
    ("baseline-changed",          "the BMC is not as it was when the machine was commissioned", False, "The message names what changed and could not be put back; mend it at the BMC, then `bcmetal retry NODE`."),
    ("hand-over",                 "the BMC could not be handed over as asked",                  False, "Retire with `--keep-credentials` or `--discard-credentials`."),
    ("not-in-this-build",         "this build does not have it",                                False, "See the change log for what this version offers."),
    ("observe-mode",              "the pool only observes: nothing may be written",             False, "Set the pool's mode to `manage` in the configuration."),
    ("ground-lost",               "a step lost its ground more than three times",               False, "Look at the timeline: `bcmetal timeline NODE`, then `bcmetal retry NODE`."),
    ("deadline",                  "the operation's time budget is used up",                     False, "See what it waited for: `bcmetal why NODE`, then `bcmetal retry NODE`."),
    ("aborted",                   "somebody aborted it",                                        False, "Go on with any verb that `bcmetal why NODE` lists."),
    ("unsure",                    "it is not known whether an act had its effect",              False, "Look at the machine, then `bcmetal retry NODE`."),
    ("vault",                     "a secret cannot be opened with this vault's key",            False, "Give the daemon the vault key that sealed it, or set the secret again."),
    ("internal",                  "a fault of bcmetal itself",                                  False, "Please report it, with the daemon's log under the operation's id."),
)
# fmt: on


def hint_for(code: str, node_name: str) -> str:
    """The sentence that helps, with the node's name in it."""
    kind = LAST_ERRORS.get(code, LAST_ERRORS["internal"])
    return kind.hint.replace("NODE", node_name)
