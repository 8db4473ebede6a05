"""A body that is read from a file while it is sent."""

from __future__ import annotations

import secrets
import socket
import threading
from pathlib import Path

import pytest

from bcmetal_drivers.door import Door
from bcmetal_drivers.errors import Refused
from bcmetal_drivers.tcp import Deadline
from bcmetal_drivers.wire import CHUNK, Line, Upload
from raw_bmc import LIMITS, a_door, a_raw_bmc, answer, at, error, get

PUSH = "/redfish/v1/UpdateService/upload"


def an_upload(folder: Path, size: int = 5 * CHUNK + 17) -> Upload:
    image = folder / "image.bin"
    image.write_bytes(secrets.token_bytes(size))
    return Upload("application/octet-stream", image, size, b"before|", b"|after")


def push(door: Door, upload: Upload) -> int:
    with door.call():
        return door.post(PUSH, data=upload).status_code


def test_an_upload_arrives_whole_between_what_stands_around_it(tmp_path: Path) -> None:
    upload = an_upload(tmp_path)
    with a_raw_bmc(at(PUSH, [answer({}, 200)])) as bmc, a_door(bmc) as door:
        assert push(door, upload) == 200
        (asked,) = bmc.seen("POST", PUSH)
    assert asked.body == b"before|" + upload.file.read_bytes() + b"|after"
    assert asked.headers["content-type"] == "application/octet-stream"


def test_an_upload_is_read_piece_by_piece(tmp_path: Path) -> None:
    upload = an_upload(tmp_path)
    pieces = [len(piece) for piece in upload.chunks()]
    assert sum(pieces) == upload.length
    assert max(pieces) <= CHUNK


def test_an_upload_whose_token_had_expired_is_sent_again_from_its_beginning(tmp_path: Path) -> None:
    upload = an_upload(tmp_path)
    expired = error("Base.1.0.NoValidSession", status=401)
    with a_raw_bmc(at(PUSH, [expired], [answer({}, 200)])) as bmc, a_door(bmc) as door:
        get(door)
        assert push(door, upload) == 200
        first, second = bmc.seen("POST", PUSH)
    assert first.body == second.body
    assert first.headers["x-auth-token"] != second.headers["x-auth-token"]


def test_a_file_that_became_shorter_is_not_taken_for_the_image(tmp_path: Path) -> None:
    upload = an_upload(tmp_path)
    upload.file.write_bytes(b"short")
    with pytest.raises(Refused, match="shorter"):
        list(upload.chunks())


def test_a_refusal_before_all_was_taken_is_read(tmp_path: Path) -> None:
    """The BMC says no at the headers and hangs up; what it said counts, not the broken pipe."""

    def refuse(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(1024)
            sock.sendall(answer({}, 413))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,), daemon=True)
        thread.start()
        line = Line("http://127.0.0.1", "127.0.0.1", listener.getsockname()[1], None, LIMITS)
        line.open(Deadline(5))
        got = line.ask("POST", PUSH, {}, an_upload(tmp_path, 512 * CHUNK))
        line.close()
        thread.join(timeout=5)
    assert got.status_code == 413
