"""Image writing by the agent against `curl | dd`, side by side: python benchmarks/image_writing.py [--json] (root, losetup, curl, openssl).

Both take the same image from the same server on loopback, one after the other in pairs, to the same loop device. `dd` proves nothing. The
agent makes both checksums on the way and flushes (`written`), and then reads all of it back past the cache (`whole`). A pair's ratio is
dd's seconds by the agent's: 1 is as fast, more is faster. The goal is 0.9, `written` against dd. For like with like, `whole` stands against
dd and then `dd | openssl dgst` over the device; and against dd alone, which proves nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from bcmetal_agent.tasks.disks import Where
from bcmetal_agent.tasks.doing import Readable
from bcmetal_agent.tasks.write_image import write_image
from bcmetal_agent.wire_tasks import DiskRef, WriteImageParams
from bcmetal_drivers.emulated.disks import Cabinet, FakeDisk, Kind

MIB: Final = 1 << 20
GOAL: Final = 0.9


class Marks:
    """A Doing that keeps when each message came."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def progress(self, thousandths: int, message: str | None = None) -> None:
        if message is not None:
            self.at[message[:12]] = time.monotonic()

    def log(self, text: str) -> None:
        return None

    def check(self) -> None:
        return None


def serve(path: str, tell: Connection) -> None:
    """The image, to one caller after the other, by sendfile: as cheap as a server can be."""
    with socket.create_server(("127.0.0.1", 0)) as listener, open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        tell.send(listener.getsockname()[1])
        while True:
            caller, _ = listener.accept()
            with caller, contextlib.suppress(OSError):
                request = b""
                while b"\r\n\r\n" not in request and (more := caller.recv(65536)):
                    request += more
                caller.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
                at = 0
                while at < size:
                    at += os.sendfile(caller.fileno(), file.fileno(), at, size - at)


@contextlib.contextmanager
def served(path: Path) -> Iterator[int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(path), theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def loop(size_bytes: int, folder: Path, direct: bool) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        argv = ["losetup", "--find", "--show", f"--direct-io={'on' if direct else 'off'}", file.name]
        node = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        try:
            yield Path(node)
        finally:
            subprocess.run(["losetup", "--detach", node], check=True)


def by_dd(port: int, node: Path) -> float:
    began = time.monotonic()
    with subprocess.Popen(["curl", "-sS", f"http://127.0.0.1:{port}/image"], stdout=subprocess.PIPE) as curl:
        dd = ["dd", f"of={node}", "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync", "status=none"]
        subprocess.run(dd, stdin=curl.stdout, check=True)
    if curl.returncode:
        raise SystemExit("curl failed")
    return time.monotonic() - began


def reading_back(node: Path, size_bytes: int, sha256: str) -> float:
    began = time.monotonic()
    dd = ["dd", f"if={node}", "bs=4M", "iflag=direct,count_bytes", f"count={size_bytes}", "status=none"]
    with subprocess.Popen(dd, stdout=subprocess.PIPE) as reading:
        said = subprocess.run(
            ["openssl", "dgst", "-sha256", "-r"], stdin=reading.stdout, check=True, capture_output=True, text=True
        ).stdout
    if not said.startswith(sha256):
        raise SystemExit("dd wrote something else")
    return time.monotonic() - began


def by_agent(port: int, disk: FakeDisk, where: Where, params: WriteImageParams) -> tuple[float, float]:
    """Seconds with both checksums and flushed, and with the reading back."""

    @contextlib.contextmanager
    def door(offset: int) -> Iterator[Readable]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        with contextlib.closing(connection):
            connection.request("GET", "/image")
            with connection.getresponse() as response:
                if offset or response.status != 200:
                    raise OSError("the server broke off")
                yield response

    marks = Marks()
    began = time.monotonic()
    wrote = write_image(params, marks, door, where)
    whole = time.monotonic() - began
    if wrote.resumed or wrote.read_back_sha256 != params.sha256:
        raise SystemExit("the image was not written in one go")
    return whole - (marks.at["writing the boot"[:12]] - marks.at["reading back"]), whole


def spread(values: list[float]) -> dict[str, float]:
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


def measure(size_bytes: int, pairs: int, folder: Path, direct: bool) -> dict[str, object]:
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        image = scratch / "image"
        digest = hashlib.sha256()
        with image.open("wb") as f:
            for _ in range(size_bytes // MIB):
                piece = os.urandom(MIB)
                digest.update(piece)
                f.write(piece)
        node = stack.enter_context(loop(size_bytes + 64 * MIB, folder, direct))
        cabinet = Cabinet(scratch / "cabinet")
        disk = cabinet.add(Kind.NVME, node, "S1")
        where = Where(cabinet.sys, cabinet.dev, cabinet.proc)
        params = WriteImageParams(DiskRef("S1", disk.size_bytes), digest.hexdigest(), size_bytes)
        port = stack.enter_context(served(image))
        by_dd(port, node)  # whatever the first one pays, neither does
        rows = []
        for pair in range(pairs):
            todo: list[Callable[[], None]] = []
            row: dict[str, float] = {}

            def dd(row: dict[str, float] = row) -> None:
                row["dd"] = by_dd(port, node)
                row["dd_read"] = reading_back(node, size_bytes, params.sha256)

            def agent(row: dict[str, float] = row) -> None:
                row["written"], row["whole"] = by_agent(port, disk, where, params)

            todo = [dd, agent] if pair % 2 == 0 else [agent, dd]
            for one in todo:
                one()
            rows.append(row)
    return {
        "bytes": size_bytes,
        "pairs": pairs,
        "loop_direct_io": direct,
        "dd_s": spread([row["dd"] for row in rows]),
        "dd_and_digest_s": spread([row["dd"] + row["dd_read"] for row in rows]),
        "agent_written_s": spread([row["written"] for row in rows]),
        "agent_whole_s": spread([row["whole"] for row in rows]),
        "ratio_written": spread([row["dd"] / row["written"] for row in rows]),
        "ratio_whole": spread([(row["dd"] + row["dd_read"]) / row["whole"] for row in rows]),
        "ratio_whole_against_dd_alone": spread([row["dd"] / row["whole"] for row in rows]),
        "mb_per_s": {
            "dd": round(size_bytes / 1e6 / statistics.median(row["dd"] for row in rows)),
            "agent_written": round(size_bytes / 1e6 / statistics.median(row["written"] for row in rows)),
            "agent_whole": round(size_bytes / 1e6 / statistics.median(row["whole"] for row in rows)),
        },
        "goal": GOAL,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the disk's file lies")
    parser.add_argument("--buffered", action="store_true", help="let the loop device keep a cache of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("needs root, for a loop device")
    found = measure(options.mib * MIB, options.pairs, options.folder, not options.buffered)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:30} {value}")


if __name__ == "__main__":
    main()
