"""The whole command line against a real daemon process and an emulated rack: real HTTP, TLS on, real BMC protocols."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmetal.demo.site import IPMI_POOL, Site
from bcmetal.install.local import create_key, revoke_key
from cli.running import Ran, Run, invoke

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)


def enroll(run: Run, site: Site, n: int, name: str, *more: str) -> Ran:
    bmc = site.redfish[n]
    words = ["node", "enroll", bmc.address, "--name", name, "--username", bmc.username, "--password-file", "-"]
    trust = ["--fingerprint", bmc.fingerprint]
    return run(*words, *trust, *more, stdin=bmc.password.get_secret_value() + "\n")


@pytest.fixture
def node(site: Site, run: Run) -> Iterator[str]:
    """An inspected node of a name of its own, on the first BMC; retired and forgotten afterwards."""
    name = f"node-{next(_numbers)}"
    answer = enroll(run, site, 0, name, "--wait", "--timeout", "60s")
    assert answer.code == 0, answer.err
    yield name
    run("node", "protect", "off", name)
    run("node", "maintenance", "off", name)
    run("retire", name, "--wait", "--timeout", "60s")
    removed = run("remove", name, "--yes")
    assert removed.code in (0, 4), removed.err


def view_of(run: Run, name: str) -> dict[str, object]:
    found = run("node", "show", name, "--json").doc["results"][0]
    assert isinstance(found, dict)
    return found


def test_a_machine_goes_its_whole_way_by_commands(site: Site, run: Run) -> None:
    machine = site.redfish[1].machine
    answers = [enroll(run, site, 1, "whole", "--wait")]
    for words in (
        ("commission", "whole"),
        ("deploy", "whole", "--image", "demo"),
        ("rescue", "whole"),
        ("unrescue", "whole"),
        ("release", "whole"),
        ("retire", "whole"),
    ):
        answers.append(run(*words, "--wait", "--timeout", "90s"))
    assert [a.code for a in answers] == [0] * 7, [a.err for a in answers]
    assert "whole: retire done, now retired" in answers[-1].out
    assert [b.medium_sha256 for b in machine.boots][:2] == [site.images["demo"].sha256, site.images["rescue"].sha256]
    assert not any(drive.holds_data for drive in machine.drives.values())
    assert run("remove", "whole", "--yes").code == 0
    assert run("node", "show", "whole").code == 4
    found = run("erasure", "list", "--node", "whole", "--json").doc["records"]  # they stay
    assert {record["serial"] for record in found} == set(machine.drives)
    told = run("erasure", "show", found[0]["recordId"])
    assert told.code == 0
    assert f"serial: {found[0]['serial']}" in told.out
    assert found[0]["recordId"] in run("erasure", "list", "--serial", found[0]["serial"]).out
    assert run("erasure", "show", "er_" + "0" * 26).code == 4
    proof = site.folder / "proof"
    told = run("erasure", "export", "--node", "whole", "-o", str(proof))
    assert told.code == 0, told.err
    commands = [line for line in (proof / "README.txt").read_text().splitlines() if "-signature records/er_" in line]
    assert len(commands) == len(found)
    for command in commands:  # by openssl alone
        subprocess.run(command.split(), cwd=proof, check=True, timeout=20, capture_output=True)
    assert run("erasure", "export", "er_" + "0" * 26, "--json").code == 4
    assert run("erasure", "export", "--node", "whole", "-o", str(proof)).code == 1, "the folder holds something"


def test_no_password_and_no_key_is_ever_shown(site: Site, run: Run) -> None:
    password = site.redfish[2].password.get_secret_value()
    key = (site.folder / "admin.key").read_text().strip()
    shown = [enroll(run, site, 2, "silent", "--wait")]
    shown += [run(*words) for words in (("node", "show", "silent"), ("node", "list"), ("timeline", "silent"))]
    shown += [
        run("timeline", "silent", "--json"),
        run("audit", "--json"),
        run("why", "silent"),
        run("plan", "inspect", "silent"),
    ]
    shown += [enroll(run, site, 2, "silent")]  # refused: the name is taken
    text = "".join(a.out + a.err for a in shown) + site.daemon.log.read_text()
    assert "silent" in text
    assert password not in text
    assert key not in text
    assert run("remove", "silent", "--yes").code == 0


def test_no_option_takes_a_secret_from_the_command_line(run: Run) -> None:
    for words in (
        ("node", "enroll", "10.0.0.1"),
        ("node", "credentials", "n", "--username", "u"),
        ("credential", "set", "x"),
    ):
        refused = run(*words, "--password", secrets.token_urlsafe(8))
        assert refused.code == 2
        assert "No such option" in refused.err


def test_why_tells_the_state_what_is_allowed_and_the_next_command(run: Run, node: str) -> None:
    said = run("why", node)
    assert said.code == 0, said.err
    assert f"{node} is inspected" in said.out
    allowed = said.out.partition("allowed ")[2].partition("\n")[0]
    assert "commission" in allowed
    assert ", power" in allowed
    assert "setPower" not in allowed
    assert f"next       bcmetal commission {node} --wait" in said.out


def test_json_is_one_document_for_every_reading_command(run: Run, node: str) -> None:
    for words in (
        ("why", node),
        ("node", "show", node),
        ("timeline", node),
        ("inventory", node),
        ("plan", "commission", node),
    ):
        answer = run(*words, "--json")
        assert answer.code == 0, answer.err
        assert len(answer.doc["results"]) == 1
    assert node in [v["name"] for v in run("node", "list", "--json").doc["nodes"]]
    assert run("audit", "--node", node, "--json").doc["entries"]
    assert "freezes" in run("freeze", "list", "--json").doc


def test_a_plan_names_steps_and_does_nothing(run: Run, node: str) -> None:
    before = view_of(run, node)["generation"]
    said = run("plan", "commission", node)
    assert "is allowed, leads to available" in said.out
    assert "erase_the_drives" in said.out
    refused = run("plan", "deploy", node, "--image", "demo")
    assert "is NOT allowed" in refused.out
    assert "power is allowed" in run("plan", "power", "off", node).out
    assert view_of(run, node)["generation"] == before


def test_a_verb_that_the_table_does_not_allow_says_what_it_does_allow(run: Run, node: str) -> None:
    refused = run("rescue", node)
    assert refused.code == 1
    assert "INVALID_STATE" in refused.err
    assert "commission" in refused.err.partition("allowed now:")[2]


def test_every_fault_of_an_input_is_said_at_once_with_its_path(run: Run, site: Site) -> None:
    bmc = site.redfish[0]
    refused = run(
        *(
            "node",
            "enroll",
            bmc.address,
            "--name",
            "Not A Name",
            "--boot-mac",
            "zz",
            "--username",
            "u",
            "--password-file",
            "-",
        ),
        stdin="x" * 9 + "\n",
    )
    assert refused.code == 2
    assert "INVALID_INPUT" in refused.err
    assert "  name: must be lower-case letters, digits and hyphens only, at most 63" in refused.err
    assert "  bootMac: must be a MAC address such as 3c:" in refused.err


def test_one_refusal_does_not_stop_the_others(run: Run, node: str) -> None:
    answer = run("refresh", "nobody", node, "--wait", "--timeout", "60s")
    assert answer.code == 4
    assert "nobody: NOT_FOUND" in answer.err
    assert "asked: tenant platform, pool demo\n" in answer.err
    assert f"{node}: refresh done" in answer.out
    doc = run("refresh", "nobody", node, "--json").doc
    assert doc["ok"] is False
    assert [r["outcome"] for r in doc["results"]] == ["refused", "accepted"]


def test_a_pattern_that_matches_nothing_is_a_usage_error(run: Run) -> None:
    assert run("refresh", "no-such-*").code == 2


def test_a_pattern_finds_its_nodes(run: Run, node: str) -> None:
    answer = run("why", "node-*", "--json")
    assert node in [r["name"] for r in answer.doc["results"]]


def power_of(site: Site) -> str:
    return site.redfish[0].machine.power.value


def test_power_is_switched_and_waited_for(run: Run, site: Site, node: str) -> None:
    on = run("power", "on", node, "--wait", "--timeout", "60s")
    assert on.code == 0, on.err
    assert power_of(site) == "on"
    assert run("node", "power", "off", node, "--wait", "--timeout", "60s").code == 0
    assert power_of(site) == "off"


def test_the_same_idempotency_key_asks_once(run: Run, node: str) -> None:
    key = secrets.token_hex(8)
    first = run("refresh", node, "--idempotency-key", key, "--json").doc["results"][0]
    again = run("refresh", node, "--idempotency-key", key, "--json").doc["results"][0]
    assert first["operationId"] == again["operationId"]
    other = run("power", "off", node, "--idempotency-key", key)
    assert other.code == 1
    assert "CONFLICT" in other.err


def test_a_stale_generation_is_refused(run: Run, node: str) -> None:
    refused = run("inspect", node, "--if-generation", "0")
    assert refused.code == 1
    assert "CONFLICT" in refused.err


def test_maintenance_and_protection_hold_and_are_shown(run: Run, node: str) -> None:
    assert run("node", "maintenance", "on", node).code == 2  # a reason is needed
    assert run("node", "maintenance", "on", node, "--reason", "new DIMM", "--until", "2h").code == 0
    assert "maintenance: new DIMM until" in run("why", node).out
    assert run("node", "maintenance", "off", node).code == 0
    assert run("node", "protect", "on", node, "--reason", "only copy").code == 0
    refused = run("commission", node)
    assert refused.code == 1
    assert "only copy" in refused.err
    assert run("node", "protect", "off", node).code == 0


def test_what_is_recorded_can_be_changed(run: Run, node: str) -> None:
    answer = run("node", "update", node, "--label", "owner=team-a", "--rack", "r3", "--asset-tag", "A-1")
    assert answer.code == 0, answer.err
    view = view_of(run, node)
    assert view["labels"] == {"owner": "team-a"}
    assert view["assetTag"] == "A-1"
    assert run("node", "list", "--label", "owner=team-a", "--json").doc["nodes"][0]["name"] == node
    assert run("node", "update", node).code == 2


def test_new_credentials_are_proven_before_they_count(run: Run, site: Site, node: str) -> None:
    bmc = site.redfish[0]
    right = run(
        *(
            "node",
            "credentials",
            node,
            "--username",
            bmc.username,
            "--password-file",
            "-",
            "--wait",
            "--timeout",
            "60s",
        ),
        stdin=bmc.password.get_secret_value() + "\n",
    )
    assert right.code == 0, right.err
    wrong = run(
        *(
            "node",
            "credentials",
            node,
            "--username",
            bmc.username,
            "--password-file",
            "-",
            "--wait",
            "--timeout",
            "60s",
        ),
        stdin=secrets.token_urlsafe(12) + "\n",
    )
    assert wrong.code == 1
    said = run("why", node).out
    assert "node credentials failed" in said
    assert f"bcmetal node credentials {node}" in said
    assert run("refresh", node, "--wait", "--timeout", "60s").code == 0, "the old ones are kept"


def test_a_freeze_holds_and_is_lifted(run: Run, node: str) -> None:
    assert run("freeze", "set", "pool/demo", "--reason", "incident 12").code == 0
    assert "incident 12" in run("freeze", "list").out
    held = run("commission", node, "--wait", "--timeout", "2s")
    assert held.code == 1
    assert "timeout" in held.err
    assert run("abort", node, "--wait", "--timeout", "60s").code in (0, 1)
    assert run("power", "on", node, "--wait", "--timeout", "2s").code == 1
    assert "power waits: frozen: incident 12" in run("why", node).out
    assert run("freeze", "lift", "pool/demo").code == 0
    assert run("freeze", "list").out == ""


def test_an_ipmi_machine_is_refused_a_deploy_in_words(run: Run, site: Site) -> None:
    bmc = site.ipmi[0]
    words = ["--pool", IPMI_POOL, "node", "enroll", bmc.address, "--name", "ipmi", "--username", bmc.username, "--wait"]
    enrolled = run(*words, "--password-file", "-", stdin=bmc.password.get_secret_value() + "\n")
    assert enrolled.code == 0, enrolled.err
    assert run("adopt", "ipmi", "--pool", IPMI_POOL).code == 0
    refused = run("deploy", "ipmi", "--image", "demo", "--rebuild", "--confirm-erase", "x", "--pool", IPMI_POOL)
    assert refused.code in (1, 2)
    assert run("remove", "ipmi", "--pool", IPMI_POOL, "--yes").code == 0


def test_a_failed_operation_gives_exit_code_one_and_its_hint(run: Run, site: Site) -> None:
    bmc = site.redfish[2]
    words = ["node", "enroll", bmc.address, "--name", "wrong-pw", "--username", bmc.username, "--password-file", "-"]
    failed = run(*words, "--fingerprint", bmc.fingerprint, "--wait", "--timeout", "60s", stdin=secrets.token_urlsafe(9))
    assert failed.code == 1
    assert "bmc-credentials-rejected" in failed.err
    assert "bcmetal node credentials wrong-pw" in failed.err
    words = ["node", "credentials", "wrong-pw", "--username", bmc.username, "--password-file", "-", "--wait"]
    right = run(*words, stdin=bmc.password.get_secret_value() + "\n")
    assert right.code == 0, right.err
    assert "bmc-credentials-rejected" not in right.err, "the error of the inspect is none of this operation"
    removed = run("remove", "wrong-pw", "--yes")
    assert removed.code == 0
    assert "it is gone" in removed.out


def test_a_bmc_gets_a_password_of_its_own_once_the_vault_can_be_recovered(
    site: Site, run: Run, node: str, tmp_path: Path
) -> None:
    bmc, file, config = site.redfish[0], tmp_path / "recovery.json", str(site.config)
    before = bmc.password.get_secret_value()
    refused = run("node", "rotate-credentials", node, "--wait")
    assert refused.code != 0
    assert "bcmetal vault recovery export" in refused.err
    code = run("vault", "recovery", "export", str(file), "--config", config)
    assert code.code == 0, code.err
    proven = run("vault", "recovery", "verify", str(file), "--config", config, stdin=code.out)
    assert proven.code == 0, proven.err
    rotated = run("node", "rotate-credentials", node, "--wait", "--timeout", "60s", "--json")
    assert (rotated.code, rotated.doc["results"][0]["outcome"]) == (0, "done"), rotated.err
    after = bmc.password.get_secret_value()
    assert after != before
    told = run("vault", "reveal", node, "--reason", "a test", "--config", config)
    assert told.out == f"current\t{bmc.username}\t{after}\n"
    assert after not in rotated.out + rotated.err + run("timeline", node, "--json").out + run("audit", "--json").out
    powered = run("node", "power", "off", node, "--wait", "--timeout", "60s")
    assert powered.code == 0, powered.err
    assert found_in_the_clear(site, before, after) == []


def found_in_the_clear(site: Site, *secrets_: str) -> list[str]:
    """Where these stand in what the daemon keeps and says, and in what every process on this host shows to everybody."""
    kept = [one for one in (*site.folder.glob("db*"), site.daemon.log, site.config) if one.is_file()]
    assert len(kept) >= 3
    found = [str(one) for one in kept if any(secret.encode() in one.read_bytes() for secret in secrets_)]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if any(secret.encode() in process.read_bytes() for secret in secrets_):
                found.append(str(process))
    return found


def test_a_revoked_key_is_refused_at_once(site: Site, tmp_path: Path) -> None:
    key = create_key(site.config, "leaver", "platform", None)
    (tmp_path / "admin.key").touch(mode=0o600)
    (tmp_path / "admin.key").write_text(key.secret.get_secret_value())
    (tmp_path / "client.toml").write_text(site.profile_file.read_text())
    profile = ("--profile", str(tmp_path / "client.toml"))
    refused = invoke(*profile, "node", "list")
    assert refused.code == 4
    assert "PERMISSION_DENIED" in refused.err  # it is known, and has no grant
    revoke_key(site.config, "leaver")
    gone = invoke(*profile, "node", "list")
    assert gone.code == 4
    assert "UNAUTHENTICATED" in gone.err


def test_no_daemon_there_is_exit_code_three(site: Site, tmp_path: Path) -> None:
    text = site.profile_file.read_text().replace(site.daemon.address, "https://127.0.0.1:1")
    (tmp_path / "client.toml").write_text(text)
    (tmp_path / "admin.key").touch(mode=0o600)
    (tmp_path / "admin.key").write_text(secrets.token_urlsafe(32))
    away = invoke("--profile", str(tmp_path / "client.toml"), "node", "list", "--json")
    assert away.code == 3
    assert away.doc["error"]["code"] == "UNREACHABLE"


def test_a_profile_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert invoke("--profile", str(tmp_path / "none.toml"), "node", "list").code == 2


def test_in_a_pipe_the_answer_is_plain_text_and_progress_goes_to_the_other_stream(
    site: Site, run: Run, node: str
) -> None:
    command = [sys.executable, "-m", "bcmetal.cli", "--profile", str(site.profile_file), "refresh", node, "--wait"]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "TERM": "xterm"}
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == f"{node}: refresh done, now inspected"
    assert "\x1b" not in ran.stdout + ran.stderr


def test_a_document_never_shares_its_stream(site: Site, run: Run, node: str) -> None:
    command = [
        sys.executable,
        "-m",
        "bcmetal.cli",
        "--profile",
        str(site.profile_file),
        "inspect",
        node,
        "--wait",
        "--json",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["results"][0]["outcome"] == "done"
    assert ran.stderr == ""


# ---------------------------------------------------------------- the BMC itself


def test_sensors_events_light_console_and_restart(run: Run, site: Site, node: str) -> None:
    table = run("node", "sensors", node)
    assert table.code == 0, table.err
    assert "Inlet Temp" in table.out
    assert "draws " in table.out
    sensors = json.loads(run("--json", "node", "sensors", node, "--last").out)
    assert {one["name"] for one in sensors["sensors"]} >= {"Inlet Temp", "Fan 1"}
    assert run("node", "events", node, "--last").out == f"events of {node} were never read: leave out --last\n"
    assert "the log is empty" in run("node", "events", node).out
    assert run("node", "clear-events", node, "--wait").code == 0
    assert "The event log was cleared." in run("node", "events", node, "--limit", "5").out
    assert run("node", "identify", node, "--wait").code == 0
    ways = run("console", node)
    assert ways.code == 0, ways.err
    assert f"USER@{site.redfish[0].host}" in ways.out
    assert json.loads(run("--json", "console", node, "--last").out)["ways"][0]["kind"] == "ssh"
