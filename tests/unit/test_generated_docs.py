"""The generated pages of docs/ are those that the present code makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = ("states.md", "errors.md", "cli.md", "api.md", "machines-api.md")


def generate(*arguments: str, seed: str = "0", columns: str = "80") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "generate_docs.py"), *arguments],
        env={**os.environ, "PYTHONHASHSEED": seed, "COLUMNS": columns},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_generated_pages_are_fresh() -> None:
    checked = generate("--check")
    assert checked.returncode == 0, f"{checked.stderr}{checked.stdout}"


@pytest.mark.parametrize("page", ["states.md", "errors.md", "cli.md"])
def test_a_stale_page_is_named(page: str, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    changed = tmp_path / "docs" / page
    changed.write_text(changed.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    checked = generate("--check", "--docs", str(tmp_path / "docs"))
    assert checked.returncode == 1
    assert page in checked.stderr
    assert changed.read_text(encoding="utf-8").endswith("more\n"), "a check writes nothing"


def test_the_pages_do_not_depend_on_the_hash_seed_or_the_terminal(tmp_path: Path) -> None:
    assert generate("--docs", str(tmp_path), seed="1", columns="200").returncode == 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made <= set(PAGES)
    assert made >= {"states.md", "errors.md", "cli.md"}
    for name in made:
        assert (tmp_path / name).read_text(encoding="utf-8") == (REPOSITORY / "docs" / name).read_text(encoding="utf-8")


def test_the_index_of_the_documentation_lists_every_page() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    for page in sorted((REPOSITORY / "docs").rglob("*.md")):
        if page.name != "index.md":
            assert f"]({page.relative_to(REPOSITORY / 'docs').as_posix()})" in index, page.name
