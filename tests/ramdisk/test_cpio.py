from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmetal.boot.cpio import archive, file, folder, link, newc, padded

_PART = st.text("abcXYZ019.-_", min_size=1, max_size=12).filter(lambda part: part.strip("."))
_FILES = st.dictionaries(st.lists(_PART, min_size=1, max_size=3).map("/".join), st.binary(max_size=64), max_size=6)


def read_back(raw: bytes) -> dict[str, tuple[int, bytes]]:
    """A reader of the format's description, not of our writer."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert raw[at : at + 6] == b"070701"
        fields = [int(raw[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = raw[at + 110 : at + 110 + name_size - 1].decode()
        data_at = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            assert not any(raw[data_at:])
            return found
        assert name not in found
        found[name] = (mode, raw[data_at : data_at + size])
        at = (data_at + size + 3) & ~3


@given(_FILES)
def test_files_are_read_back_as_they_were_written(files: dict[str, bytes]) -> None:
    clashing = any(other.startswith(f"{name}/") for name in files for other in files)
    if clashing:
        return
    raw = newc(files)
    assert len(raw) % 512 == 0
    there = read_back(raw)
    assert {name: data for name, (mode, data) in there.items() if mode == 0o100600} == files
    assert all(mode == 0o040755 for name, (mode, _) in there.items() if name not in files)


def test_folders_come_before_what_they_hold() -> None:
    there = list(read_back(newc({"/etc/bcmetal/boot-token": b"x"})))
    assert there == ["etc", "etc/bcmetal", "etc/bcmetal/boot-token"]


@pytest.mark.parametrize("path", ["", "/", "a//b", "../a", "a/../b", "a/.", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        newc({path: b""})


def test_a_file_twice_is_refused_and_a_folder_twice_is_one() -> None:
    with pytest.raises(ValueError):
        b"".join(archive([("a", file(b"1")), ("/a", file(b"2"))]))
    assert list(read_back(b"".join(archive([("a/b", file(b"")), ("a", folder())])))) == ["a", "a/b"]


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
def test_archives_one_after_the_other_are_understood_by_cpio(tmp_path: Path) -> None:
    first = b"".join(archive([("bin", folder(0o700)), ("bin/sh", file(b"#!", 0o755)), ("sh", link("bin/sh"))]))
    assert padded(first) == first
    done = subprocess.run(["cpio", "-idm", "--quiet"], input=first, cwd=tmp_path, capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sh").readlink() == Path("bin/sh")
    assert (tmp_path / "bin/sh").read_bytes() == b"#!"
    assert (tmp_path / "bin/sh").stat().st_mode == 0o100755
