from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bcmetal.boot.fetch import FetchPolicy, ImageFault, ImageSource
from bcmetal.boot.shelf import AT_ONCE, Fetching, Ready, Shelf
from boot.origin import Exchange, Origin, a_file, an_origin, held, sha256, sha512, status, until

BODY = os.urandom(500_000)


@pytest.fixture
def origin() -> Iterator[Origin]:
    with an_origin() as server:
        yield server


@pytest.fixture
def a_shelf(tmp_path: Path) -> Iterator[Callable[[], Shelf]]:
    """Shelves over one folder, as one daemon after another has them."""
    shelves: list[Shelf] = []

    def build(idle_s: float = 900.0, spare_s: float = 0.0) -> Shelf:
        policy = FetchPolicy(("127.0.0.1/32",), 10_000_000)
        shelves.append(Shelf(tmp_path / "images", lambda: policy, idle_s=idle_s, spare_s=spare_s))
        return shelves[-1]

    yield build
    for shelf in shelves:
        shelf.close()


def settled(shelf: Shelf, source: ImageSource, by: str = "") -> Ready:
    """Looks until the image is there, or its fault is raised."""
    end = time.monotonic() + 10
    while isinstance(look := shelf.look(source, by), Fetching):
        assert time.monotonic() < end
        time.sleep(0.005)
    return look


def fault_of(shelf: Shelf, source: ImageSource, by: str = "") -> str:
    with pytest.raises(ImageFault) as caught:
        settled(shelf, source, by)
    return caught.value.code


def test_forty_machines_fetch_once(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    gate = threading.Event()
    origin.pages["/a.iso"] = held(BODY, 100_000, gate)
    shelf, source = a_shelf(), ImageSource(origin.url("/a.iso"), sha256(BODY))
    looks = [shelf.look(source, f"op_{n}") for n in range(40)]
    assert all(isinstance(look, Fetching) for look in looks)
    until(lambda: shelf.look(source) == Fetching(100_000, len(BODY)))
    gate.set()
    ready = {settled(shelf, source, f"op_{n}") for n in range(40)}
    assert len(ready) == 1
    (one,) = ready
    assert (one.path.read_bytes(), one.size, one.sha256) == (BODY, len(BODY), sha256(BODY))
    assert len(origin.asked) == 1


def test_forty_threads_fetch_once(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    shelf, source = a_shelf(), ImageSource(origin.url("/a.iso"), sha256(BODY))
    start, found = threading.Barrier(40), list[Ready]()

    def look() -> None:
        start.wait(10)
        found.append(settled(shelf, source))

    threads = [threading.Thread(target=look) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(found), len(origin.asked)) == (40, 1)


def test_the_same_checksum_at_two_addresses_is_fetched_once(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    shelf = a_shelf()
    first = settled(shelf, ImageSource(origin.url("/a.iso"), sha256(BODY)))
    assert settled(shelf, ImageSource(origin.url("/b.iso"), sha256(BODY).upper())) == first
    assert origin.paths() == ["/a.iso"]


def test_at_most_four_are_fetched_at_once(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    gate = threading.Event()
    bodies = [os.urandom(1000) for _ in range(AT_ONCE + 3)]
    for n, body in enumerate(bodies):
        origin.pages[f"/{n}"] = held(body, 10, gate)
    shelf = a_shelf()
    sources = [ImageSource(origin.url(f"/{n}"), sha256(body)) for n, body in enumerate(bodies)]
    waiting = [shelf.look(source) for source in sources]
    assert waiting[-1] == Fetching(0, None)
    until(lambda: sum(shelf.look(source) == Fetching(10, 1000) for source in sources) == AT_ONCE)
    assert len(origin.asked) == AT_ONCE
    gate.set()
    assert {settled(shelf, source).sha256 for source in sources} == {sha256(body) for body in bodies}


def test_a_failed_fetch_is_told_once_and_the_next_look_starts_anew(
    origin: Origin, a_shelf: Callable[[], Shelf]
) -> None:
    origin.pages["/a.iso"] = status(404)
    shelf, source = a_shelf(), ImageSource(origin.url("/a.iso"), sha256(BODY))
    assert fault_of(shelf, source) == "image-not-found"
    origin.pages["/a.iso"] = a_file(BODY)
    assert isinstance(shelf.look(source), Fetching)
    assert settled(shelf, source).size == len(BODY)


def test_each_operation_that_waited_is_told_and_nothing_is_fetched_again_for_it(
    origin: Origin, a_shelf: Callable[[], Shelf]
) -> None:
    origin.pages["/a.iso"] = a_file(BODY[1:])
    shelf, source = a_shelf(), ImageSource(origin.url("/a.iso"), sha256(BODY))
    waiting = [f"op_{n}" for n in range(10)]
    for name in waiting:
        shelf.look(source, name)
    assert [fault_of(shelf, source, name) for name in waiting] == ["image-checksum"] * 10
    assert len(origin.asked) == 1
    assert isinstance(shelf.look(source, "op_0"), Fetching)


def test_a_fault_of_one_address_is_not_told_to_who_named_another(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    gate = threading.Event()
    origin.pages |= {"/wrong": held(BODY[1:] + b"x", 10, gate), "/right": a_file(BODY)}
    shelf = a_shelf()
    wrong, right = (ImageSource(origin.url(path), sha256(BODY)) for path in ("/wrong", "/right"))
    shelf.look(wrong, "op_1")
    shelf.look(right, "op_2")
    gate.set()
    assert settled(shelf, right, "op_2").sha256 == sha256(BODY)
    assert origin.paths() == ["/wrong", "/right"]


def test_an_image_without_a_checksum_is_a_fault_at_once(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    with pytest.raises(ImageFault):
        a_shelf().look(ImageSource(origin.url("/a.iso")))


def test_after_a_restart_what_lies_there_is_read_through_and_believed(
    origin: Origin, a_shelf: Callable[[], Shelf]
) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    source = ImageSource(origin.url("/a.iso"), None, sha512(BODY))
    shelf = a_shelf()
    first = settled(shelf, source)
    shelf.close()
    again = a_shelf()
    assert isinstance(again.look(source), Fetching)
    assert settled(again, source) == first
    assert len(origin.asked) == 1


def test_after_a_restart_what_was_changed_is_not_believed(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    source = ImageSource(origin.url("/a.iso"), sha256(BODY))
    shelf = a_shelf()
    path = settled(shelf, source).path
    shelf.close()
    path.write_bytes(BODY[:-1] + b"!")
    again = a_shelf()
    assert settled(again, source).path.read_bytes() == BODY
    assert len(origin.asked) == 2


def test_what_was_changed_under_a_running_daemon_is_not_believed(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    source = ImageSource(origin.url("/a.iso"), sha256(BODY))
    shelf = a_shelf()
    path = settled(shelf, source).path
    path.write_bytes(BODY[:-1] + b"!!")
    assert settled(shelf, source).path.read_bytes() == BODY
    path.unlink()
    assert settled(shelf, source).path.read_bytes() == BODY
    assert len(origin.asked) == 3


def test_a_checksum_that_was_never_compared_is_not_believed(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    shelf = a_shelf()
    settled(shelf, ImageSource(origin.url("/a.iso"), sha256(BODY)))
    assert fault_of(shelf, ImageSource(origin.url("/a.iso"), sha256(BODY), os.urandom(64).hex())) == "image-checksum"


def test_a_daemon_that_stops_in_a_fetch_goes_on_after_its_restart(origin: Origin, a_shelf: Callable[[], Shelf]) -> None:
    origin.pages["/a.iso"] = held(BODY, 300_000, threading.Event())
    source = ImageSource(origin.url("/a.iso"), sha256(BODY))
    shelf = a_shelf()
    until(lambda: shelf.look(source) == Fetching(300_000, len(BODY)))
    begun = time.monotonic()
    shelf.close()
    assert time.monotonic() - begun < 5
    origin.pages["/a.iso"] = a_file(BODY)
    assert settled(a_shelf(), source).size == len(BODY)
    assert [fields.get("range") for _, fields in origin.asked] == [None, "bytes=300000-"]


def test_a_fetch_that_nobody_looks_at_is_stopped_and_resumed_by_the_next_look(
    origin: Origin, a_shelf: Callable[..., Shelf]
) -> None:
    hung_up = threading.Event()

    def waits_for_the_end(x: Exchange) -> None:
        x.head(200, Content_Length=len(BODY), ETag='"one"')
        x.wfile.write(BODY[:300_000])
        if x.connection.recv(1) == b"":
            hung_up.set()

    origin.pages["/a.iso"] = waits_for_the_end
    shelf, source = a_shelf(idle_s=0.3), ImageSource(origin.url("/a.iso"), sha256(BODY))
    assert isinstance(shelf.look(source), Fetching)
    assert hung_up.wait(10)
    origin.pages["/a.iso"] = a_file(BODY)
    assert settled(shelf, source).size == len(BODY)
    assert origin.asked[-1][1]["range"] == "bytes=300000-"


def test_what_nobody_needs_is_pruned(origin: Origin, a_shelf: Callable[..., Shelf], tmp_path: Path) -> None:
    bodies = [os.urandom(1000) for _ in range(4)]
    gate = threading.Event()
    for n, body in enumerate(bodies):
        origin.pages[f"/{n}"] = a_file(body)
    origin.pages["/held"] = held(BODY, 10, gate)
    shelf = a_shelf(spare_s=0.0)
    by256, by512, needless, by_name = (
        settled(shelf, source).path
        for source in (
            ImageSource(origin.url("/0"), sha256(bodies[0])),
            ImageSource(origin.url("/1"), None, sha512(bodies[1])),
            ImageSource(origin.url("/2"), sha256(bodies[2])),
            ImageSource(origin.url("/3"), sha256(bodies[3])),
        )
    )
    under_way = ImageSource(origin.url("/held"), sha256(BODY))
    until(lambda: shelf.look(under_way) == Fetching(10, len(BODY)))
    stale = tmp_path / "images" / f"sha256-{os.urandom(32).hex()}.iso.part"
    stale.write_bytes(b"x")
    foreign = tmp_path / "images" / "README"
    foreign.write_bytes(b"x")
    shelf.prune({sha256(bodies[0]), sha256(bodies[1]), by_name.name})
    assert [path.exists() for path in (by256, by512, by_name, foreign)] == [True] * 4
    assert not needless.exists()
    assert not stale.exists()
    gate.set()
    assert settled(shelf, under_way).size == len(BODY)
    assert isinstance(shelf.look(ImageSource(origin.url("/2"), sha256(bodies[2]))), Fetching)


def test_what_was_just_looked_at_is_spared(origin: Origin, a_shelf: Callable[..., Shelf]) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    shelf = a_shelf(spare_s=60.0)
    path = settled(shelf, ImageSource(origin.url("/a.iso"), sha256(BODY))).path
    shelf.prune(set())
    assert path.exists()
