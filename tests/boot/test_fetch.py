from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bcmetal.boot.fetch import FetchCancelled, Fetched, FetchPolicy, ImageFault, ImageSource, fetch
from bcmetal.boot.hops import MAX_REDIRECTS
from boot.origin import (
    Exchange,
    Origin,
    Page,
    a_file,
    an_origin,
    cut_after,
    held,
    raw,
    redirect,
    sha256,
    sha512,
    status,
)

BODY = os.urandom(700_000)
LOOPBACK = ("127.0.0.1/32",)


@pytest.fixture
def origin() -> Iterator[Origin]:
    with an_origin() as server:
        yield server


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "image.iso"


def a_policy(
    allowed: Sequence[str] = LOOPBACK, limit_bytes: int = 10_000_000, stall_s: float = 5.0, connect_s: float = 5.0
) -> FetchPolicy:
    return FetchPolicy(allowed, limit_bytes, stall_s=stall_s, connect_s=connect_s)


def get(
    url: str, dest: Path, policy: FetchPolicy | None = None, body: bytes = BODY, source: ImageSource | None = None
) -> Fetched:
    source = source or ImageSource(url, sha256(body))
    return fetch(source, dest, policy or a_policy(), lambda done, total: None, lambda: False)


def fault_of(url: str, dest: Path, policy: FetchPolicy | None = None, body: bytes = BODY) -> ImageFault:
    with pytest.raises(ImageFault) as caught:
        get(url, dest, policy, body)
    return caught.value


def left(dest: Path) -> list[str]:
    return sorted(path.name for path in dest.parent.iterdir())


# ---------------------------------------------------------------- the plain way


def test_a_good_image_gets_its_name_and_leaves_nothing_beside_it(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    seen: list[tuple[int, int | None]] = []
    source = ImageSource(origin.url("/a.iso"), sha256(BODY).upper())
    found = fetch(source, dest, a_policy(), lambda done, total: seen.append((done, total)), lambda: False)
    assert found == Fetched(len(BODY), sha256(BODY))
    assert dest.read_bytes() == BODY
    assert left(dest) == ["image.iso"]
    assert stat.S_IMODE(dest.stat().st_mode) == 0o600
    assert seen[-1] == (len(BODY), len(BODY))
    assert seen == sorted(seen)


def test_a_body_without_a_length_is_fetched(origin: Origin, dest: Path) -> None:
    def chunked(x: Exchange) -> None:
        x.head(200, Transfer_Encoding="chunked")
        for part in (BODY[:5], BODY[5:]):
            x.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        x.wfile.write(b"0\r\n\r\n")

    def endless(x: Exchange) -> None:
        x.head(200)
        x.wfile.write(BODY)

    origin.pages |= {"/chunked": chunked, "/endless": endless}
    for path in ("/chunked", "/endless"):
        assert get(origin.url(path), dest).size == len(BODY)
        dest.unlink()


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"])
def test_proxy_variables_are_ignored(origin: Origin, dest: Path, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with an_origin("127.0.0.2") as other:
        monkeypatch.setenv(proxy, other.url(""))
        origin.pages["/a.iso"] = a_file(BODY)
        get(origin.url("/a.iso"), dest)
        assert other.connections == 0


# ---------------------------------------------------------------- where a fetch may not go


def test_no_redirect_leads_to_an_address_that_is_not_listed(origin: Origin, dest: Path) -> None:
    with an_origin("127.0.0.2") as victim:
        port = victim.port
        for location in (
            victim.url("/a.iso"),
            f"//127.0.0.2:{port}/a.iso",
            f"http://[::ffff:127.0.0.2]:{port}/a.iso",
            f"http://[::ffff:7f00:2]:{port}/a.iso",
            f"http://[::1]:{port}/a.iso",
            f"http://localhost:{port}/a.iso",
            f"http://0.0.0.0:{port}/a.iso",
            f"http://[::]:{port}/a.iso",
            f"http://2130706434:{port}/a.iso",
            f"http://127.2:{port}/a.iso",
            f"http://x@127.0.0.2:{port}/a.iso",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "http://10.0.0.1/a.iso",
            "ftp://127.0.0.1/a.iso",
            "file:///etc/hostname",
            "http://[::1/",
        ):
            origin.pages["/a.iso"] = redirect(location)
            fault = fault_of(
                origin.url("/a.iso"),
                dest,
                FetchPolicy(LOOPBACK, 10**7, resolver=lambda host, port: ("127.0.0.2",)),
            )
            assert (fault.code, fault.retryable) == ("image-refused", False), location
        assert victim.connections == 0
        assert left(dest) == []


def test_a_name_that_flips_to_another_address_leads_nowhere_else(origin: Origin, dest: Path) -> None:
    with an_origin("127.0.0.2") as victim:
        answers = iter([("127.0.0.1",), ("127.0.0.2",)])
        policy = FetchPolicy(LOOPBACK, 10**7, resolver=lambda host, port: next(answers))
        origin.pages["/a.iso"] = redirect(origin.url("/b.iso", "mirror.example"))
        fault = fault_of(origin.url("/a.iso", "mirror.example"), dest, policy)
        assert fault.code == "image-refused"
        assert (origin.paths(), victim.connections) == (["/a.iso"], 0)


def test_a_name_is_resolved_once_and_that_very_address_is_connected_to(origin: Origin, dest: Path) -> None:
    answers = iter([("127.0.0.2", "127.0.0.1")])  # a second question would fail
    policy = FetchPolicy(LOOPBACK, 10**7, resolver=lambda host, port: next(answers))
    origin.pages["/a.iso"] = a_file(BODY)
    with an_origin("127.0.0.2") as victim:
        get(origin.url("/a.iso", "mirror.example"), dest, policy)
        assert victim.connections == 0
    assert origin.asked[0][1]["host"] == f"mirror.example:{origin.port}"


def test_a_listed_name_does_not_open_loopback(origin: Origin, dest: Path) -> None:
    policy = FetchPolicy(
        ("mirror.example",), 10**7, resolver=lambda host, port: ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    )
    assert fault_of(origin.url("/a.iso", "mirror.example"), dest, policy).code == "image-refused"
    assert origin.connections == 0


def test_a_redirect_loop_ends(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = redirect("/b.iso", 307)
    origin.pages["/b.iso"] = redirect("a.iso", 301)
    assert fault_of(origin.url("/a.iso"), dest).code == "image-refused"
    assert len(origin.asked) == MAX_REDIRECTS + 1


def test_five_redirects_are_followed(origin: Origin, dest: Path) -> None:
    for n in range(MAX_REDIRECTS):
        origin.pages[f"/{n}"] = redirect(f"/{n + 1}")
    origin.pages[f"/{MAX_REDIRECTS}"] = a_file(BODY)
    assert get(origin.url("/0"), dest).size == len(BODY)


def test_a_fault_tells_no_address_and_no_credential(origin: Origin, dest: Path) -> None:
    word = os.urandom(6).hex()
    origin.pages["/a.iso"] = redirect(f"http://user:{word}@10.9.8.7/x?sig={word}")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()[1]
    for url in (origin.url(f"/a.iso?sig={word}"), f"http://10.9.8.7/{word}", f"http://127.0.0.1:{gone}/{word}"):
        text = str(fault_of(url, dest))
        assert word not in text
        assert not any(character.isdigit() for character in text)


# ---------------------------------------------------------------- what servers answer


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        (404, "image-not-found", False),
        (410, "image-not-found", False),
        (401, "image-refused", False),
        (403, "image-refused", False),
        (400, "image-refused", False),
        (204, "image-refused", False),
        (304, "image-refused", False),
        (408, "image-unreachable", True),
        (429, "image-unreachable", True),
        (500, "image-unreachable", True),
        (503, "image-unreachable", True),
        (206, "image-unreachable", True),
    ],
)
def test_an_answer_becomes_a_code(origin: Origin, dest: Path, answer: int, code: str, retryable: bool) -> None:
    origin.pages["/a.iso"] = status(answer)
    fault = fault_of(origin.url("/a.iso"), dest)
    assert (fault.code, fault.retryable) == (code, retryable)


def test_a_server_that_is_not_there_is_unreachable(dest: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert fault_of(f"http://127.0.0.1:{port}/", dest).code == "image-unreachable"


def test_a_server_that_speaks_no_http_is_unreachable(origin: Origin, dest: Path) -> None:
    for garbage in (
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        origin.pages["/a.iso"] = raw(garbage)
        assert fault_of(origin.url("/a.iso"), dest).code == "image-unreachable"


def test_a_body_that_stops_is_a_stall(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = held(BODY, 300_000, threading.Event())
    fault = fault_of(origin.url("/a.iso"), dest, a_policy(stall_s=0.3))
    assert (fault.code, str(fault)) == ("image-unreachable", "the server has stalled")


def dripping(head_first: bool) -> Page:
    def page(x: Exchange) -> None:
        text = b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000
        if head_first:
            x.head(200, Content_Length=len(BODY))
            text = BODY
        for n in range(len(text)):
            if x.server.over.wait(0.02):
                return
            x.wfile.write(text[n : n + 1])

    return page


@pytest.mark.parametrize("head_first", [True, False])
def test_a_server_that_drips_byte_after_byte_is_a_stall(origin: Origin, dest: Path, head_first: bool) -> None:
    origin.pages["/a.iso"] = dripping(head_first)
    fault = fault_of(origin.url("/a.iso"), dest, a_policy(stall_s=0.4, connect_s=0.4))
    assert (fault.code, str(fault)) == ("image-unreachable", "the server has stalled")


def test_a_wrong_checksum_is_told_and_nothing_is_kept(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = a_file(BODY[:-1] + bytes([BODY[-1] ^ 1]))
    fault = fault_of(origin.url("/a.iso"), dest)
    assert (fault.code, fault.retryable) == ("image-checksum", False)
    assert left(dest) == []
    assert len(origin.asked) == 1


def test_every_checksum_that_is_named_must_match(origin: Origin, dest: Path) -> None:
    url = origin.url("/a.iso")
    origin.pages["/a.iso"] = a_file(BODY)
    good256, good512, other = sha256(BODY), sha512(BODY), os.urandom(64).hex()
    for source in (
        ImageSource(url, good256, other),
        ImageSource(url, other[:64], good512),
        ImageSource(url, None, other),
    ):
        with pytest.raises(ImageFault) as caught:
            get(url, dest, source=source)
        assert caught.value.code == "image-checksum"
    for source in (ImageSource(url, None, good512), ImageSource(url, good256, good512)):
        assert get(url, dest, source=source).sha256 == good256


@pytest.mark.parametrize(
    ("first", "second"), [(None, None), ("", ""), ("abc", None), ("g" * 64, None), (None, "0" * 64)]
)
def test_without_a_wellformed_checksum_nothing_is_fetched(
    origin: Origin, dest: Path, first: str | None, second: str | None
) -> None:
    with pytest.raises(ImageFault) as caught:
        get("", dest, source=ImageSource(origin.url("/a.iso"), first, second))
    assert caught.value.code == "image-checksum"
    assert origin.connections == 0


def test_an_image_over_the_limit_is_refused_at_its_head(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = held(BODY, 0, threading.Event())
    fault = fault_of(origin.url("/a.iso"), dest, a_policy(limit_bytes=len(BODY) - 1))
    assert (fault.code, fault.retryable) == ("image-too-large", False)
    assert left(dest) == []


def test_an_image_that_hides_its_length_is_cut_off_at_the_limit(origin: Origin, dest: Path) -> None:
    def hidden(x: Exchange) -> None:
        x.head(200)
        while not x.server.over.is_set():
            x.wfile.write(BODY)

    origin.pages["/a.iso"] = hidden
    assert fault_of(origin.url("/a.iso"), dest, a_policy(limit_bytes=2_000_000)).code == "image-too-large"
    assert left(dest) == []


def test_a_folder_that_cannot_be_written_is_told_as_such(origin: Origin, tmp_path: Path) -> None:
    origin.pages["/a.iso"] = a_file(BODY)
    fault = fault_of(origin.url("/a.iso"), tmp_path / "gone" / "image.iso")
    assert (fault.code, str(fault)) == ("image-unreachable", "the image cannot be kept here: No such file or directory")


# ---------------------------------------------------------------- resume


def cut(origin: Origin, dest: Path, count: int = 400_000, etag: str | None = '"one"') -> None:
    origin.pages["/a.iso"] = cut_after(count, BODY, etag)
    fault = fault_of(origin.url("/a.iso"), dest)
    assert (fault.code, fault.retryable) == ("image-unreachable", True)
    assert not dest.exists()
    origin.asked.clear()


def test_a_truncated_fetch_goes_on_where_it_ended(origin: Origin, dest: Path) -> None:
    cut(origin, dest)
    origin.pages["/a.iso"] = a_file(BODY)
    assert get(origin.url("/a.iso"), dest).size == len(BODY)
    assert dest.read_bytes() == BODY
    ((_, fields),) = origin.asked
    assert (fields["range"], fields["if-range"]) == ("bytes=400000-", '"one"')
    assert left(dest) == ["image.iso"]


def test_an_image_that_changed_meanwhile_is_fetched_anew(origin: Origin, dest: Path) -> None:
    cut(origin, dest)
    other = os.urandom(300_000)  # shorter than what is there
    origin.pages["/a.iso"] = a_file(other, '"two"')
    assert get(origin.url("/a.iso"), dest, body=other).size == len(other)
    assert dest.read_bytes() == other


@pytest.mark.parametrize("etag", [None, 'W/"one"', '"a\\b"x'])
def test_without_a_strong_validator_a_fetch_begins_anew(origin: Origin, dest: Path, etag: str | None) -> None:
    cut(origin, dest, etag=etag)
    origin.pages["/a.iso"] = a_file(BODY)
    get(origin.url("/a.iso"), dest)
    assert "range" not in origin.asked[0][1]


def test_a_part_from_another_address_is_not_resumed(origin: Origin, dest: Path) -> None:
    cut(origin, dest)
    origin.pages["/b.iso"] = a_file(BODY)
    get(origin.url("/b.iso"), dest)
    assert "range" not in origin.asked[0][1]


def test_a_part_that_a_crash_hurt_does_not_condemn_the_image(origin: Origin, dest: Path) -> None:
    cut(origin, dest)
    part = dest.with_name("image.iso.part")
    part.write_bytes(bytes(part.stat().st_size))
    origin.pages["/a.iso"] = a_file(BODY)
    get(origin.url("/a.iso"), dest)
    assert dest.read_bytes() == BODY
    assert ["range" in fields for _, fields in origin.asked] == [True, False]


def test_a_whole_part_gets_its_name_without_the_server(origin: Origin, dest: Path) -> None:
    dest.with_name("image.iso.part").write_bytes(BODY)
    assert get(origin.url("/a.iso"), dest) == Fetched(len(BODY), sha256(BODY))
    assert (origin.connections, left(dest)) == (0, ["image.iso"])


def test_a_server_that_cannot_go_on_is_asked_anew_the_next_time(origin: Origin, dest: Path) -> None:
    def elsewhere(x: Exchange) -> None:
        x.head(206, Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}", Content_Length=len(BODY))
        x.wfile.write(BODY)

    for page in (elsewhere, status(416), status(206)):
        cut(origin, dest)
        origin.pages["/a.iso"] = page
        assert fault_of(origin.url("/a.iso"), dest).code == "image-unreachable"
        origin.pages["/a.iso"] = a_file(BODY)
        get(origin.url("/a.iso"), dest)
        assert dest.read_bytes() == BODY
        dest.unlink()


def test_the_limit_counts_the_resumed_part(origin: Origin, dest: Path) -> None:
    cut(origin, dest)
    origin.pages["/a.iso"] = a_file(BODY)
    assert fault_of(origin.url("/a.iso"), dest, a_policy(limit_bytes=len(BODY) - 1)).code == "image-too-large"


def test_a_cancelled_fetch_stops_soon_and_keeps_its_part(origin: Origin, dest: Path) -> None:
    origin.pages["/a.iso"] = held(BODY, 300_000, threading.Event())
    stop = threading.Event()

    def progress(done: int, total: int | None) -> None:
        if done == 300_000:
            stop.set()

    with pytest.raises(FetchCancelled):
        fetch(ImageSource(origin.url("/a.iso"), sha256(BODY)), dest, a_policy(stall_s=60), progress, stop.is_set)
    assert dest.with_name("image.iso.part").stat().st_size == 300_000


def test_a_part_that_is_a_link_is_not_written_through(origin: Origin, dest: Path, tmp_path: Path) -> None:
    cut(origin, dest)
    part, aim = dest.with_name("image.iso.part"), tmp_path / "aim"
    part.rename(aim)
    part.symlink_to(aim)
    origin.pages["/a.iso"] = a_file(BODY)
    assert fault_of(origin.url("/a.iso"), dest).code == "image-unreachable"
    assert aim.read_bytes() == BODY[:400_000]
