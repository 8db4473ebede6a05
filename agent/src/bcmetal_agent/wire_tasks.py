"""The messages between the daemon and its agent in the ramdisk: hello, next, report, and the closed set of tasks.

`hello` carries the boot token as a bearer and binds it to a fresh Ed25519 key, by the TPM where one is on record; from then on that key signs every call
(`statement`), and the token says nothing any more. A task's `params` and a report's `result` are one of the messages below, by the
task's kind. Sizes in bytes, durations in seconds, times RFC 3339 in UTC.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from bcmetal_agent.wire import AtMost, Identifiers, Json, Proof, TpmClaim, Word

HELLO_PATH: Final = "/api/agent/hello"
NEXT_PATH: Final = "/api/agent/next"
REPORT_PATH: Final = "/api/agent/report"
IMAGE_PATH: Final = "/api/agent/image"  # GET, with Range: the image of the task that is under way
SESSION_HEADER: Final = "Bcmetal-Session"
SEQUENCE_HEADER: Final = "Bcmetal-Sequence"
SIGNATURE_HEADER: Final = "Bcmetal-Signature"

TASK_LIMIT: Final = 4 * 2**20  # bytes of the answer to `next`
REPORT_LIMIT: Final = 2**20  # bytes of a report
LOG_CHUNK: Final = 128 * 1024  # characters of a log in one report
POLL_S: Final = 20  # the daemon answers `next` after so long at the latest

Kind = Literal[
    "inventory", "test", "erase", "writeImage", "writeConfigDrive", "setBoot", "rescue", "poweroff", "reboot"
]
Serial = Annotated[str, AtMost(128)]
Line = Annotated[str, AtMost(1000)]
Text = Annotated[str, AtMost(64 * 1024)]
Base64 = Annotated[str, AtMost(4 * 2**20)]
Moment = Annotated[str, AtMost(40)]


def statement(method: str, path: str, session_id: str, sequence: int, body: bytes) -> bytes:
    """What the session's key signs for one call: no signature serves for another path, call or body."""
    digest = hashlib.sha256(body).hexdigest()
    return f"bcmetal/agent-call/v1\n{method}\n{path}\n{session_id}\n{sequence}\n{digest}".encode()


def hello_statement(public_key: bytes) -> bytes:
    """What a TPM's proof at hello is over (`Proof`), instead of a CSR: no proof for a join can be taken for it."""
    return b"bcmetal/agent-hello/v1\0" + public_key


# ---------------------------------------------------------------- the calls


@dataclass(frozen=True)
class Hello:
    """`public_key`: base64 of 32 bytes of Ed25519. `clock`: this machine's time.

    Once `ShowTpm` was the answer: `tpm`, then also `challenge`, or `no_tpm`: why none can be shown.
    """

    public_key: Annotated[str, AtMost(64)]
    identifiers: Identifiers
    version: Word
    clock: Moment
    tpm: TpmClaim | None = None
    challenge: Proof | None = None
    no_tpm: Line | None = None


@dataclass(frozen=True)
class ShowTpm:
    """This machine's TPM is on record: say hello again, with `tpm`, and be challenged."""

    status: Literal["showTpm"] = "showTpm"


@dataclass(frozen=True)
class Welcome:
    """The token is bound to the key. Calls carry a sequence number of one session, each larger than the one before."""

    session_id: Annotated[str, AtMost(64)]
    server_time: Moment
    status: Literal["welcome"] = "welcome"


@dataclass(frozen=True)
class Next:
    """Asks for the present task. A task that was handed out already is handed out again, with fresh secrets."""


@dataclass(frozen=True)
class Task:
    """`params`: the message of its kind, below."""

    task_id: Annotated[str, AtMost(64)]
    kind: Kind
    params: Json = field(repr=False)
    status: Literal["task"] = "task"


@dataclass(frozen=True)
class Idle:
    """Nothing to do now: ask again after `after_s`."""

    after_s: int = 0
    status: Literal["idle"] = "idle"


@dataclass(frozen=True)
class Report:
    """`progress` in thousandths. `log`: the task's log from the character `log_offset` on. `error_code`: a word with hyphens; with
    `failed` only. A report that was made before changes nothing."""

    task_id: Annotated[str, AtMost(64)]
    state: Literal["running", "done", "failed"]
    progress: int = 0
    message: Line | None = None
    result: Json | None = None
    error_code: Annotated[str, AtMost(64)] | None = None
    error_message: Line | None = None
    log: Annotated[str, AtMost(LOG_CHUNK)] | None = None
    log_offset: int = 0


@dataclass(frozen=True)
class Heard:
    """`go_on` False: nobody waits for that task any more, stop it."""

    go_on: bool
    status: Literal["heard"] = "heard"


# ---------------------------------------------------------------- disks


@dataclass(frozen=True)
class DiskRef:
    """A disk of the plan. The agent writes only to a device that agrees with every field given, and to none when two do."""

    serial: Serial
    size_bytes: int
    model: Annotated[str, AtMost(256)] | None = None
    wwn: Annotated[str, AtMost(64)] | None = None


# ---------------------------------------------------------------- tasks: params and results


@dataclass(frozen=True)
class InventoryParams:
    """The result is a `wire_inventory.Inventory`."""


@dataclass(frozen=True)
class TestParams:
    """`name`: cpu, memory, smart, disk-read, disk-speed, network, gpu, clock. `limits`: pass marks by name (see `hardware_tests`)."""

    __test__ = False  # not one of pytest's

    name: Literal["cpu", "memory", "smart", "disk-read", "disk-speed", "network", "gpu", "clock"]
    duration_s: int
    limits: Json = field(default_factory=dict)


@dataclass(frozen=True)
class TestResult:
    """`passed` None: it could not be run here, `summary` says why."""

    __test__ = False

    summary: Line
    passed: bool | None = None
    figures: Json = field(default_factory=dict)


Method = Literal[
    "nvme-crypto", "nvme-block", "nvme-overwrite", "ata-secure", "ata-crypto", "scsi-sanitize", "discard", "overwrite"
]


@dataclass(frozen=True)
class EraseDrive:
    """`methods` in order of preference. `sectors`: byte offsets, multiples of 4096, at which 4096 bytes of `pattern` (base64) are planted
    and read back."""

    disk: DiskRef
    methods: Annotated[tuple[Method, ...], AtMost(16)]
    pattern: Annotated[str, AtMost(6000)]
    sectors: Annotated[tuple[int, ...], AtMost(64)]


@dataclass(frozen=True)
class EraseParams:
    """`plant` writes the pattern and flushes it, `erase` erases, `verify` reads the sectors back after a power cycle.

    `inspect` only says what each drive offers, and what else is there (the result's `unplanned`)."""

    phase: Literal["inspect", "plant", "erase", "verify"]
    drives: Annotated[tuple[EraseDrive, ...], AtMost(256)]


@dataclass(frozen=True)
class DriveOutcome:
    """`state`: done, or why not. `standard` such as `NIST SP 800-88r2 purge`, `clear` or `none`. `samples`: for `verify`, the SHA-256 of the
    4096 bytes at each sector, in the order asked, and `zero` where they are all zeros. `offers`: methods that the drive can do."""

    serial: Serial
    state: Literal[
        "done", "failed", "missing", "read-only", "frozen", "locked", "ambiguous", "shared", "in-use", "unsupported"
    ]
    method: Method | None = None
    standard: Word | None = None
    message: Line | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    samples: Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(64)] = ()
    offers: Annotated[tuple[Method, ...], AtMost(16)] = ()
    not_covered: Annotated[tuple[Word, ...], AtMost(16)] = ()
    drive_log: Annotated[str, AtMost(4096)] | None = None


@dataclass(frozen=True)
class EraseResult:
    """`unplanned`: serials (or names) of disks that are there and not in the plan; nothing was done to them."""

    drives: Annotated[tuple[DriveOutcome, ...], AtMost(256)]
    unplanned: Annotated[tuple[Serial, ...], AtMost(256)] = ()


@dataclass(frozen=True)
class WriteImageParams:
    """The image comes from IMAGE_PATH. `sha256` and `size_bytes` are of what is downloaded; `raw_bytes` is what it unpacks to, where known."""

    disk: DiskRef
    sha256: Annotated[str, AtMost(64)]
    size_bytes: int
    compression: Literal["none", "gzip", "xz", "zstd"] = "none"
    raw_bytes: int | None = None


@dataclass(frozen=True)
class WroteImage:
    """`written_sha256`: of what was written, `read_back_sha256`: of what the disk gives back, past its cache. `took_ms`: milliseconds."""

    device: Word
    downloaded_bytes: int
    written_bytes: int
    written_sha256: Annotated[str, AtMost(64)]
    read_back_sha256: Annotated[str, AtMost(64)]
    took_ms: int
    resumed: int = 0


@dataclass(frozen=True)
class WriteConfigDriveParams:
    """`iso`: base64 of the gzipped ISO 9660 image (label cidata or config-2), whose unpacked SHA-256 is `sha256`. It goes into a partition of
    its own at the end of the disk; the last partition before it grows, if `grow`."""

    disk: DiskRef
    iso: Base64 = field(repr=False)
    sha256: Annotated[str, AtMost(64)]
    grow: bool = True


@dataclass(frozen=True)
class WroteConfigDrive:
    partition: int
    offset_bytes: int
    grown: bool = False


@dataclass(frozen=True)
class SetBootParams:
    """Make the firmware boot this disk's EFI system partition first; `loader` None: \\EFI\\BOOT\\BOOTX64.EFI."""

    disk: DiskRef
    label: Word = "bcmetal"
    loader: Annotated[str, AtMost(256)] | None = None


@dataclass(frozen=True)
class SetBoot:
    """`entry`: the boot variable's number as in Boot0003; absent: the machine booted without UEFI, nothing was to be set."""

    entry: Annotated[str, AtMost(8)] | None = None


@dataclass(frozen=True)
class RescueParams:
    """`password_hash`: crypt(3)'s form. `expires_in_s`: then the account and its sessions end."""

    ssh_keys: Annotated[tuple[Annotated[str, AtMost(4096)], ...], AtMost(64)] = field(default=(), repr=False)
    password_hash: Annotated[str, AtMost(512)] | None = field(default=None, repr=False)
    expires_in_s: int = 0
    user: Word = "rescue"


@dataclass(frozen=True)
class RescueReady:
    """`host_keys`: lines as in known_hosts, without the name."""

    addresses: Annotated[tuple[Annotated[str, AtMost(64)], ...], AtMost(64)]
    port: int
    user: Word
    host_keys: Annotated[tuple[Annotated[str, AtMost(1024)], ...], AtMost(8)]
    fingerprints: Annotated[tuple[Word, ...], AtMost(8)]


@dataclass(frozen=True)
class Nothing:
    """The params, or the result, of a task that has none: poweroff, reboot."""


PARAMS: Final[dict[str, type[Any]]] = {
    "inventory": InventoryParams,
    "test": TestParams,
    "erase": EraseParams,
    "writeImage": WriteImageParams,
    "writeConfigDrive": WriteConfigDriveParams,
    "setBoot": SetBootParams,
    "rescue": RescueParams,
    "poweroff": Nothing,
    "reboot": Nothing,
}
