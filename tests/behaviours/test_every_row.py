"""No behaviour is forgotten: each kind that the field knows has a profile, and each profile a row that a daemon goes through."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from bcmetal_drivers.emulated.behaviours import REGISTRY, TABLES

HERE: Final = Path(__file__).parent
TESTS: Final = HERE.parent

# Kinds of behaviour, by where they are met, and the profiles that show each.
KINDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "sessions, transport": {
        "the session table is full": (
            "session-table-full",
            "session-table-full-400",
            "session-table-of-one",
            "failed-logins-fill-the-table",
        ),
        "tokens expire, lines drop": (
            "token-expires",
            "token-expires-at-writes",
            "keep-alive-dropped",
            "reset-on-second-request",
            "reset-answers-lost",
        ),
        "accounts lock, good passwords are refused": (
            "lockout-after-3",
            "locked-out",
            "spurious-401",
            "spurious-401-at-login",
        ),
        "the password was rotated": ("password-rotated",),
        "sessions where Basic fails, and the other way round": (
            "basic-only",
            "no-session-service",
            "sessions-only",
            "token-never-taken",
        ),
        "silence, slowness, HTML, not ready, restarting": (
            "silent",
            "a-byte-a-second",
            "gateway-timeout-html",
            "not-ready-400",
            "restarts-in-the-middle",
        ),
        "IPv6, certificates, old TLS": (
            "ipv6-literal",
            "certificate-expired",
            "certificate-for-another-name",
            "old-tls",
        ),
        "several systems, changing order": (
            "several-systems",
            "witness-node",
            "hgx-beside-the-host",
            "members-change-their-order",
        ),
        "documents that are hostile": (
            "enormous-documents",
            "links-in-a-circle",
            "nan-in-documents",
            "control-characters",
        ),
    },
    "ETags, writes": {
        "ETags": (
            "etag-required",
            "etag-required-in-silence",
            "etag-refused",
            "etag-empty",
            "etag-weak",
            "etag-by-compression",
            "etag-absent",
            "etag-changes-at-each-read",
        ),
        "where the boot override is written": ("boot-in-settings", "boot-in-sd", "settings-without-boot"),
        "an override that reverts": ("boot-reverts",),
        "too many keys, too few": ("boot-too-many-keys", "boot-too-few-keys"),
        "mode absent, no Continuous, Once used up": (
            "boot-mode-absent",
            "boot-continuous-refused",
            "boot-once-used-up",
        ),
        "which word the virtual CD has": ("cd-is-usbcd", "cd-is-cd", "no-virtual-cd-in-the-list"),
        "refused during POST": ("boot-refused-during-post",),
        "a boot change halts an installed machine": ("boot-change-halts-an-installed-machine",),
    },
    "virtual media": {
        "under the system, the manager, both": ("media-under-managers", "media-under-both"),
        "slots that are of no use": ("slots-without-actions", "slot-that-answers-405"),
        "inserted by a PATCH": ("insert-by-patch",),
        "what an insert wants and refuses": ("insert-wants-protocol", "insert-wants-method", "insert-refuses-inserted"),
        "an eject that lingers, an insert that shows late": (
            "eject-lingers",
            "insert-shows-late",
            "shows-the-image-name-only",
        ),
        "the same URL again": ("same-url-boots-nothing",),
        "ejects that are refused": ("eject-of-nothing-refused", "eject-wants-a-body", "insert-while-the-eject-runs"),
        "plain URLs": ("plain-urls-only",),
        "inserted, and not mapped": ("medium-not-mapped",),
        "media pulled under a running machine": ("eject-hangs-a-running-machine",),
    },
    "tasks, firmware, BIOS": {
        "a Task that is gone, or not there yet": ("task-purged", "task-404-at-first", "accepted-without-a-task"),
        "completed with errors": ("task-fails", "task-completed-with-errors", "erase-completed-with-errors"),
        "the BMC restarts after an update": ("bmc-restarts-after-update", "update-changes-nothing"),
        "after a reboot only, 500 meanwhile": ("bios-after-a-reboot", "bios-change-lost"),
        "an action without a body": ("reset-wants-a-body",),
    },
    "power": {
        "late, null, unknown, absent": (
            "power-lags",
            "power-null",
            "power-word-unknown",
            "power-absent",
            "power-never-told",
        ),
        "a state of passage that does not pass": ("powering-on-until-told", "powering-on-for-ever"),
        "already there": ("already-there-409", "already-there-400"),
        "an On that is refused or does nothing": ("on-refused-after-off", "on-does-nothing-twice", "on-does-nothing"),
        "resets that are ignored or not offered": (
            "graceful-shutdown-ignored",
            "no-restart-offered",
            "force-on-only",
        ),
        "a look that fails": ("power-read-fails",),
    },
    "identity, inventory": {
        "serials and UUIDs": (
            "serial-is-the-boards",
            "serial-shared-by-blades",
            "uuid-byte-order",
            "uuid-from-the-nic",
        ),
        "NICs": ("nics-none-listed", "nics-under-adapters-only", "nics-that-are-none", "one-bad-nic"),
        "values of other types, or none": (
            "numbers-as-strings",
            "arrays-for-scalars",
            "capacity-null",
            "off-reports-no-cpus",
        ),
        "sections that are missing": ("sections-404", "sections-400", "sections-time-out"),
        "another's name on the machine": ("manufacturer-is-another",),
        "a device missing until the BMC is reset": ("device-missing-until-the-bmc-is-reset",),
    },
    "IPMI": {
        "boot flags lapse": ("ipmi-flag-expires",),
        "flags and persistence are lost, makers' selectors": (
            "ipmi-forgets-uefi",
            "ipmi-loses-flags-once",
            "ipmi-forgets-persistence",
            "ipmi-supermicro-selectors",
        ),
        "suites, and privilege of the account": (
            "ipmi-suite-3-only",
            "ipmi-suite-17-ignored",
            "ipmi-suite-17-only",
            "ipmi-no-encryption",
            "ipmi-1.5-only",
            "ipmi-cipher-0",
            "ipmi-operator-account",
        ),
        "busy codes, and time between commands": (
            "ipmi-busy",
            "ipmi-a-second-between-commands",
            "ipmi-already-there-d5",
            "ipmi-power-lags",
            "ipmi-answers-lost",
        ),
        "numeric and long names and passwords": ("ipmi-password-of-16-bytes",),
        "logins fail after power-on, sessions are forgotten": (
            "ipmi-logins-fail-after-power-on",
            "ipmi-forgets-sessions",
        ),
        "a stale serial console": ("ipmi-stale-console",),
        "a bad FRU": ("ipmi-fru-checksum", "ipmi-fru-garbled", "ipmi-fru-absent"),
    },
}

# What happens on the machine itself is no behaviour of a BMC: these tests show it, with a real agent.
ON_THE_MACHINE: Final[Mapping[str, tuple[str, ...]]] = {
    "the answer to an agent's task is lost": (
        "faults_on_the_machine/test_starts.py::test_every_second_answer_may_be_lost_and_each_task_is_done_once",
    ),
    "two pollers resume one node": ("engine/test_two_daemons.py", "agent_life/test_every_effect_inside.py"),
    "an erase that does not erase": (
        "faults_on_the_machine/test_erases.py::test_a_drive_that_says_erased_and_is_not_fails_with_its_serial",
        "faults_on_the_machine/test_erases.py::test_a_drive_that_is_gone_before_the_plan_ends_it_before_anything_is_written",
        "faults_on_the_machine/test_erases.py::test_an_agent_that_is_told_to_say_yes_does_not_release_a_machine",
    ),
    "the root disk among what is none": ("unit/test_comparing_root_device.py",),
    "a stream cut at half, a checksum, a full disk": (
        "faults_on_the_machine/test_deploys.py::test_an_image_that_does_not_arrive_whole_leaves_a_disk_that_starts_nothing",
        "faults_on_the_machine/test_deploys.py::test_an_image_that_is_cut_now_and_then_arrives",
        "faults_on_the_machine/test_deploys.py::test_an_image_that_unpacks_to_more_than_its_disk_is_stopped_there",
    ),
}


def _named_in_rows() -> set[str]:
    """The first argument of each `Row(…)` and `….behave(…)`, and what `behaviours=(…)` names, in the files of rows and of faults on machines."""
    found: set[str] = set()
    for path in (*HERE.glob("test_*.py"), *(TESTS / "faults_on_the_machine").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "behaviours"]
            named = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if named in ("Row", "behave"):
                given += node.args[:1]
            found |= {
                str(constant.value)
                for value in given
                for constant in ast.walk(value)
                if isinstance(constant, ast.Constant)
            }
    return found


@pytest.mark.parametrize("kind", [name for kinds in KINDS.values() for name in kinds])
def test_a_kind_has_profiles(kind: str) -> None:
    profiles = next(kinds[kind] for kinds in KINDS.values() if kind in kinds)
    assert profiles
    assert set(profiles) <= set(REGISTRY)


@pytest.mark.parametrize("table", list(TABLES))
def test_every_profile_has_a_row(table: str) -> None:
    assert {behaviour.name for behaviour in TABLES[table]} - _named_in_rows() == set()


@pytest.mark.parametrize("kind", list(ON_THE_MACHINE))
def test_a_kind_on_the_machine_has_its_tests(kind: str) -> None:
    for known in ON_THE_MACHINE[kind]:
        file, _, name = known.partition("::")
        text = (TESTS / file).read_text()
        assert f"def {name or 'test_'}" in text, known


def test_every_row_names_a_profile() -> None:
    assert _named_in_rows() - set(REGISTRY) == set()
