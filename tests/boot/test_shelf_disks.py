"""Images that agents write to disks: raw and qcow2, and whose they are."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bcmetal.boot.fetch import FetchPolicy, ImageFault, ImageSource
from bcmetal.boot.shelf import Fetching, Ready, Shelf, owner_tag
from boot.origin import Origin, a_file, an_origin, sha256

DISK = os.urandom(300_000) + bytes(3_000_000) + b"text" * 50_000 + bytes(544)
LIMIT = 2_000_000


@pytest.fixture
def origin() -> Iterator[Origin]:
    with an_origin() as server:
        yield server


@pytest.fixture
def a_shelf(tmp_path: Path) -> Iterator[Callable[[], Shelf]]:
    shelves: list[Shelf] = []

    def build() -> Shelf:
        policy = FetchPolicy(("127.0.0.1/32",), LIMIT)
        shelves.append(Shelf(tmp_path / "images", lambda: policy, spare_s=0.0))
        return shelves[-1]

    yield build
    for shelf in shelves:
        shelf.close()


@pytest.fixture(scope="module")
def qcow2(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    if shutil.which("qemu-img") is None:
        pytest.skip("no qemu-img: sh scripts/machine-packages.sh")
    folder = tmp_path_factory.mktemp("qcow2")
    (folder / "disk").write_bytes(DISK)
    command = ["qemu-img", "convert", "-c", "-O", "qcow2", str(folder / "disk"), str(folder / "image")]
    subprocess.run(command, check=True, timeout=30)
    return (folder / "image").read_bytes()


def settled(shelf: Shelf, source: ImageSource, by: str = "") -> Ready:
    end = time.monotonic() + 10
    while isinstance(look := shelf.look(source, by), Fetching):
        assert time.monotonic() < end
        time.sleep(0.005)
    return look


def code_of(shelf: Shelf, source: ImageSource) -> str:
    with pytest.raises(ImageFault) as caught:
        settled(shelf, source)
    return caught.value.code


def test_forty_machines_fetch_and_convert_a_qcow2_once(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    origin.pages["/disk.qcow2"] = a_file(qcow2)
    shelf, source = a_shelf(), ImageSource(origin.url("/disk.qcow2"), sha256(qcow2), format="qcow2")
    for n in range(40):
        shelf.look(source, f"op_{n}")
    (one,) = {settled(shelf, source, f"op_{n}") for n in range(40)}
    assert one.path.read_bytes() == DISK
    assert one == Ready(one.path, len(DISK), sha256(DISK), "none", len(DISK))
    assert one.path.stat().st_blocks * 512 < len(DISK) // 2
    assert len(origin.asked) == 1


@pytest.mark.parametrize(("compression", "pack"), [("none", bytes), ("gzip", gzip.compress), ("xz", lzma.compress)])
def test_a_raw_image_is_kept_as_it_was_packed(
    origin: Origin, a_shelf: Callable[[], Shelf], compression: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(DISK[-1_000_000:])
    origin.pages["/disk"] = a_file(body)
    ready = settled(a_shelf(), ImageSource(origin.url("/disk"), sha256(body), format="raw"))
    assert (ready.path.read_bytes(), ready.size, ready.sha256) == (body, len(body), sha256(body))
    assert (ready.compression, ready.raw_bytes) == (compression, len(body) if compression == "none" else None)


def test_a_qcow2_that_is_packed_as_a_whole_is_unpacked_first(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    body = lzma.compress(qcow2)
    origin.pages["/disk"] = a_file(body)
    ready = settled(a_shelf(), ImageSource(origin.url("/disk"), sha256(body), format="qcow2"))
    assert (ready.path.read_bytes(), ready.compression) == (DISK, "none")
    assert not list(ready.path.parent.glob("*.unpacked"))


def test_the_checksum_is_compared_before_the_image_is_looked_into(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    origin.pages["/disk"] = a_file(b"QFI\xfb" + bytes(100))
    shelf = a_shelf()
    assert code_of(shelf, ImageSource(origin.url("/disk"), sha256(qcow2), format="qcow2")) == "image-checksum"
    assert list(shelf.folder.iterdir()) == []


def test_a_format_that_is_not_the_one_that_was_said_is_told(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    origin.pages["/disk"] = a_file(qcow2)
    shelf = a_shelf()
    assert code_of(shelf, ImageSource(origin.url("/disk"), sha256(qcow2), format="raw")) == "image-format"
    assert code_of(shelf, ImageSource(origin.url("/disk"), sha256(qcow2), format="iso")) == "image-format"
    assert settled(shelf, ImageSource(origin.url("/disk"), sha256(qcow2), format="qcow2")).size == len(DISK)


@pytest.mark.parametrize("packed", [False, True])
def test_a_disk_that_is_larger_than_the_site_takes_is_told(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes, packed: bool
) -> None:
    big = qcow2[:24] + (2**30).to_bytes(8, "big") + qcow2[32:]
    body = gzip.compress(qcow2 + bytes(5 * LIMIT)) if packed else big
    origin.pages["/disk"] = a_file(body)
    shelf = a_shelf()
    assert code_of(shelf, ImageSource(origin.url("/disk"), sha256(body), format="qcow2")) == "image-too-large"
    assert {path.suffix for path in shelf.folder.iterdir()} == {".qcow2"}


def test_after_a_restart_a_qcow2_is_read_again_and_not_fetched(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    origin.pages["/disk"] = a_file(qcow2)
    source = ImageSource(origin.url("/disk"), sha256(qcow2), format="qcow2")
    shelf = a_shelf()
    first = settled(shelf, source)
    shelf.close()
    first.path.write_bytes(bytes(len(DISK)))
    assert settled(a_shelf(), source) == first
    assert first.path.read_bytes() == DISK
    assert len(origin.asked) == 1


def test_what_a_tenant_named_serves_that_tenant_alone(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    body = DISK[:1000]
    origin.pages["/disk"] = a_file(body)
    shelf = a_shelf()
    sources = [
        ImageSource(origin.url("/disk"), sha256(body), format="raw", tenant=who) for who in (None, "a/../b", "c")
    ]
    paths = {settled(shelf, source).path for source in sources}
    assert (len(paths), len(origin.asked)) == (3, 3)
    assert {path.parent for path in paths} == {shelf.folder}
    assert [entry.owner for entry in shelf.entries()] == [None, *sorted((owner_tag("a/../b"), owner_tag("c")))]


def test_entries_tell_what_is_there(origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes) -> None:
    origin.pages |= {"/disk": a_file(qcow2), "/iso": a_file(DISK[:1000])}
    shelf = a_shelf()
    disk = ImageSource(origin.url("/disk"), sha256(qcow2), format="qcow2")
    ready = settled(shelf, disk)
    settled(shelf, ImageSource(origin.url("/iso"), sha256(DISK[:1000])))
    by_format = {entry.format: entry for entry in shelf.entries()}
    assert by_format["qcow2"].checksums == {"sha256": sha256(qcow2)}
    assert (by_format["qcow2"].state, by_format["qcow2"].ready) == ("ready", ready)
    assert by_format["qcow2"].on_disk_bytes >= len(qcow2)
    assert by_format["iso"].name == f"sha256-{sha256(DISK[:1000])}.iso"
    shelf.close()
    assert {entry.state for entry in a_shelf().entries()} == {"kept"}


def test_a_raw_file_that_an_agent_reads_keeps_its_whole_entry(
    origin: Origin, a_shelf: Callable[[], Shelf], qcow2: bytes
) -> None:
    origin.pages["/disk"] = a_file(qcow2)
    shelf, source = a_shelf(), ImageSource(origin.url("/disk"), sha256(qcow2), format="qcow2")
    raw = settled(shelf, source).path
    assert shelf.prune({raw.name}) == []
    assert shelf.prune({hashlib.sha256(DISK).hexdigest()}) == []
    assert shelf.prune(set(), only=lambda key: False) == []
    assert [one.name for one in shelf.prune(set())] == [raw.name.removesuffix(".raw"), raw.name]
    assert list(shelf.folder.iterdir()) == []
