"""The whole way: over the agent's own session, from a door that breaks off, onto a disk."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from agent.ramdisk_door import Door, a_token
from bcmetal_agent import wire_tasks
from bcmetal_agent.session import Session, Site
from fake_control_plane import Answer, Call
from image_bench import MIB, ImageBench, content


def test_an_image_comes_over_the_session_and_goes_on_after_each_cut(bench: ImageBench, tmp_path: Path) -> None:
    raw = random.Random(6).randbytes(3 * MIB + 512)
    folder = tmp_path / "door"
    folder.mkdir()
    with Door(folder, a_token()) as door:
        site, steps = Site.read(door.site_file(tmp_path)), list[float]()
        session = Session(site, door.token, tmp_path / "run", call_s=5, root=tmp_path, clock=steps.append)
        assert isinstance(session.hello(), wire_tasks.Welcome)
        door.image = gzip.compress(raw, 1)
        size = len(door.image)

        def cut(call: Call) -> Answer:
            head = (("Content-Range", f"bytes 0-{size - 1}/{size}"), ("Content-Length", str(size)))
            return Answer(206, door.image[: 2 * MIB], head)

        door.faults[wire_tasks.IMAGE_PATH] = [lambda call: Answer(503, b"{}"), cut]
        disk = bench.disk()
        wrote = bench.write(disk, door.image, session.image, compression="gzip", raw_bytes=len(raw))
    assert content(disk)[: len(raw)] == raw
    assert (wrote.resumed, wrote.downloaded_bytes) == (2, size)
