"""`scripts/setup.sh` on a host without what Python needs: it installs the packages, or says which ones to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = "python3 python3-venv"


def run(folder: Path, uid: int, *, apt: bool = True) -> subprocess.CompletedProcess[str]:
    """On a host whose only commands are `id` and, perhaps, an `apt-get` that writes down what it was asked."""
    commands = {"id": f"echo {uid}"} | ({"apt-get": f"echo $* >> {folder / 'asked'}"} if apt else {})
    for name, line in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": str(folder), "PYTHON": "no-such-python"}
    words = ["/bin/sh", "scripts/setup.sh", str(folder / "venv")]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_root_gets_the_packages(tmp_path: Path) -> None:
    run(tmp_path, 0)
    assert (tmp_path / "asked").read_text().splitlines() == ["update -qq", f"install -y -qq {PACKAGES}"]


def test_a_user_is_told_which_packages_to_install(tmp_path: Path) -> None:
    ran = run(tmp_path, 1000)
    assert ran.returncode == 1
    assert f"apt-get install {PACKAGES}" in ran.stderr
    assert not (tmp_path / "asked").exists()


def test_without_apt_it_is_said_what_is_needed(tmp_path: Path) -> None:
    ran = run(tmp_path, 0, apt=False)
    assert ran.returncode == 1
    assert "3.11" in ran.stderr
