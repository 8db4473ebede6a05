"""The unit, the DaemonSet and the page say what the command understands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bcmetal_agent.cli import _parser

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "systemd/bcmetal-agent.service"
DAEMON_SET = REPOSITORY / "config/kubernetes/bcmetal-agent.yaml"
PAGE = REPOSITORY / "docs/joining.md"
PIN = "sha256:" + "0" * 64


def parsed(arguments: list[str]) -> dict[str, object]:
    return vars(_parser().parse_args(arguments))


def test_the_units_command_line_is_understood() -> None:
    text = UNIT.read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (options,) = re.findall(r'BCMETAL_AGENT_OPTIONS="(.*)"', text)
    words = shlex.split(line.replace("$BCMETAL_AGENT_OPTIONS", options.replace("HOST", "h").replace("sha256:…", PIN)))
    found = parsed(words[1:])
    assert found["token_file"] == "credential:join-token"
    assert str(found["server"]) == "https://h:8445"
    assert "LoadCredential=join-token:/etc/bcmetal-agent/token" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/bcmetal-agent", "/bin/true"))
    said = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False, timeout=60)
    assert (said.returncode, [line for line in said.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_daemon_sets_arguments_are_understood_and_it_asks_for_no_privilege() -> None:
    text = DAEMON_SET.read_text()
    arguments = re.findall(r"^ +- (run|--\S+)$", text, re.MULTILINE)
    found = parsed(arguments)
    assert str(found["root"]) == "/host"
    assert "privileged: false" in text
    assert 'drop: ["ALL"]' in text
    assert "hostNetwork" not in text
    assert re.search(r"mountPath: /host/sys\n +readOnly: true", text)


def test_the_pages_join_line_is_understood() -> None:
    (line,) = re.findall(r"^    (bcmetal-agent join (?:.*\\\n)?.*)$", PAGE.read_text(), re.MULTILINE)
    words = shlex.split(line.replace("\\\n", " ").replace("HOST", "h").replace("sha256:PIN", PIN))
    assert parsed(words[1:])["token_file"] == "/etc/bcmetal-agent/token"
