from __future__ import annotations

import hashlib
import os
import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bcmetal.boot.formats import WrongFormat
from bcmetal.boot.hops import FetchCancelled
from bcmetal.boot.qcow2 import Converted, TooLarge, convert, read_header

MIB = 2**20
LIMIT = 64 * MIB
CLUSTER = 1 << 16

needs_qemu = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: sh scripts/machine-packages.sh")


def patched(head: bytes, offset: int, form: str, value: int) -> bytes:
    return head[:offset] + struct.pack(form, value) + head[offset + struct.calcsize(form) :]


def a_header(size: int = CLUSTER * 4, version: int = 3, bits: int = 16) -> bytes:
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", version, 0, 0, bits, size, 0, 1, 1 << bits, 0, 0, 0, 0)
    return head + struct.pack(">QQQII", 0, 0, 0, 4, 104) if version == 3 else head


def an_image(path: Path, l2: list[int], data: bytes = b"", l1: int = 0x20000, **more: int) -> Path:
    """Four clusters of tables (header, first, second, one free), then `data` from 0x30000 on."""
    tables = [a_header(**more), struct.pack(">Q", l1), struct.pack(f">{len(l2)}Q", *l2)]
    path.write_bytes(b"".join(one.ljust(CLUSTER, b"\0") for one in tables) + data)
    return path


def converted(path: Path, limit: int = LIMIT, cancelled: Callable[[], bool] = lambda: False) -> Converted:
    return convert(path, path.with_suffix(".out"), limit, lambda done, total: None, cancelled)


def a_disk(path: Path, seed: int) -> bytes:
    """Eleven and a half megabytes: noise, text that packs well, holes, and a short end."""
    draw = random.Random(seed)
    pieces = [draw.choice((draw.randbytes(n), b"text " * (n // 5), bytes(n))) for n in (70_000, 1, 300_000) * 31]
    body = b"".join(pieces)
    body += bytes(-len(body) % 512)
    path.write_bytes(body)
    return body


def qemu(*arguments: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True, timeout=60)


@needs_qemu
@pytest.mark.parametrize(
    "options",
    [
        ("-o", "compat=0.10"),
        ("-o", "cluster_size=512"),
        ("-o", "cluster_size=2M,lazy_refcounts=on"),
        ("-c",),
        ("-c", "-o", "compression_type=zstd"),
        ("-c", "-o", "cluster_size=4k"),
        ("-o", "preallocation=metadata"),
    ],
)
def test_what_qemu_wrote_is_read_as_qemu_reads_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    body = a_disk(tmp_path / "disk", 4)
    image, judge = tmp_path / "disk.qcow2", tmp_path / "judge"
    qemu("convert", "-O", "qcow2", *options, tmp_path / "disk", image)
    qemu("snapshot", "-c", "before", image)
    qemu("convert", "-O", "raw", image, judge)
    found = converted(image)
    assert judge.read_bytes() == body
    assert image.with_suffix(".out").read_bytes() == body
    assert found == Converted(len(body), hashlib.sha256(body).hexdigest())


@needs_qemu
def test_holes_stay_holes(tmp_path: Path) -> None:
    image = tmp_path / "disk.qcow2"
    qemu("create", "-f", "qcow2", image, "48M")
    found = converted(image)
    out = image.with_suffix(".out").stat()
    assert (out.st_size, found.size) == (48 * MIB, 48 * MIB)
    assert out.st_blocks * 512 < MIB
    assert found.sha256 == hashlib.sha256(bytes(48 * MIB)).hexdigest()


@needs_qemu
def test_what_names_other_files_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(MIB))
    qemu("create", "-f", "qcow2", "-b", secret, "-F", "raw", tmp_path / "backed.qcow2")
    qemu("create", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}", tmp_path / "elsewhere.qcow2", "1M")
    with pytest.raises(WrongFormat, match="backing file"):
        converted(tmp_path / "backed.qcow2")
    with pytest.raises(WrongFormat, match="another file"):
        converted(tmp_path / "elsewhere.qcow2")
    assert not list(tmp_path.glob("*.out*"))


@pytest.mark.parametrize(
    ("offset", "form", "value", "why"),
    [
        (0, ">I", 0x51464900, "no qcow2"),
        (4, ">I", 4, "version 4"),
        (8, ">Q", 104, "backing file"),
        (20, ">I", 8, "cluster size"),
        (20, ">I", 22, "cluster size"),
        (24, ">Q", 0, "disk size"),
        (24, ">Q", CLUSTER + 1, "disk size"),
        (32, ">I", 2, "encrypted"),
        (36, ">I", 0, "first table"),
        (36, ">I", 2**32 - 1, "first table"),
        (40, ">Q", 0, "first table"),
        (40, ">Q", CLUSTER + 8, "first table"),
        (40, ">Q", 2**63, "first table"),
        (72, ">Q", 1, "not closed"),
        (72, ">Q", 2, "damaged"),
        (72, ">Q", 4, "another file"),
        (72, ">Q", 8, "packed in a way"),
        (72, ">Q", 16, "features"),
        (72, ">Q", 1 << 63, "features"),
        (100, ">I", 72, "length"),
    ],
)
def test_a_header_that_is_not_ours_to_read_is_refused(offset: int, form: str, value: int, why: str) -> None:
    with pytest.raises(WrongFormat, match=why):
        read_header(patched(a_header(), offset, form, value), 10 * CLUSTER, LIMIT)


def test_sizes_beyond_reason_are_refused() -> None:
    with pytest.raises(TooLarge):
        read_header(a_header(size=2**63), 10 * CLUSTER, LIMIT)
    with pytest.raises(WrongFormat, match="too many clusters"):
        read_header(a_header(size=2**40, bits=9), 10 * CLUSTER, 2**41)
    for cut in (0, 4, 71, 72, 103):
        with pytest.raises(WrongFormat):
            read_header(a_header()[:cut], 10 * CLUSTER, LIMIT)


PACKED = 1 << 62
AT = 0x30000


@pytest.mark.parametrize(
    ("l1", "l2", "why"),
    [
        (0x20001, 0, "first table has bits"),
        (0x20200, 0, "between its clusters"),
        (0x7000_0000, 0, "outside"),
        (0x20000, AT + 2, "second table has bits"),
        (0x20000, AT + 512, "between its clusters"),
        (0x20000, 1 << 55, "outside"),
        (0x20000, 1 << 60, "second table has bits"),
        (0x20000, PACKED | AT, "damaged"),
        (0x20000, PACKED, "outside"),
        (0x20000, PACKED | (1 << 53), "outside"),
    ],
)
def test_a_table_that_points_astray_is_refused(tmp_path: Path, l1: int, l2: int, why: str) -> None:
    image = an_image(tmp_path / "hostile.qcow2", [l2], b"\xff" * CLUSTER, l1)
    with pytest.raises(WrongFormat, match=why):
        converted(image)
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.qcow2"]


def test_a_packed_cluster_gives_one_cluster_and_no_more(tmp_path: Path) -> None:
    def packed(size: int) -> bytes:
        stream = zlib.compressobj(9, wbits=-12)
        return stream.compress(b"a" * size) + stream.flush()

    word = PACKED | (3 << (62 - 8)) | AT
    bomb = an_image(tmp_path / "bomb.qcow2", [word], packed(100 * MIB)[:2048])
    converted(bomb)
    assert bomb.with_suffix(".out").read_bytes() == b"a" * CLUSTER + bytes(3 * CLUSTER)
    with pytest.raises(WrongFormat, match="too short"):
        converted(an_image(tmp_path / "short.qcow2", [word], packed(CLUSTER - 1)))


def test_zeros_are_marked_in_version_3_alone(tmp_path: Path) -> None:
    image = an_image(tmp_path / "zeros.qcow2", [AT | 1, AT], b"b" * 1000)
    converted(image)
    assert image.with_suffix(".out").read_bytes() == bytes(CLUSTER) + b"b" * 1000 + bytes(3 * CLUSTER - 1000)
    with pytest.raises(WrongFormat):
        converted(an_image(tmp_path / "old.qcow2", [AT | 1], b"b" * 1000, version=2))


@needs_qemu
def test_noise_over_a_good_image_ends_in_a_refusal_or_a_disk_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(b"text " * 60_000 + bytes(340_000 - 300_000 + 48))
    qemu("convert", "-c", "-O", "qcow2", tmp_path / "disk", tmp_path / "good.qcow2")
    good = (tmp_path / "good.qcow2").read_bytes()
    draw, refused = random.Random(11), 0
    noisy = tmp_path / "noisy.qcow2"
    for _ in range(150):
        body = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            body[draw.choice((draw.randrange(112), draw.randrange(len(body))))] = draw.randrange(256)
        noisy.write_bytes(body[: draw.choice((len(body), draw.randrange(len(body))))])
        try:
            assert converted(noisy).size <= LIMIT
        except (WrongFormat, TooLarge):
            refused += 1
    assert 30 < refused < 150


@needs_qemu
def test_a_conversion_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    image = tmp_path / "disk.qcow2"
    qemu("create", "-f", "qcow2", image, "48M")
    with pytest.raises(FetchCancelled):
        converted(image, cancelled=lambda: True)
    assert list(tmp_path.iterdir()) == [image]
