"""What stands in an answer's body: compressed, cut, odd, or an error where a document belongs."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable

import pytest

from bcmetal_drivers.errors import Busy, DriverError, Malformed, ServerFault
from bcmetal_drivers.wire import BODY_LIMIT
from raw_bmc import DOCS, ROOT, SYSTEM, Asked, a_door, a_raw_bmc, answer, at, documents, error, get

SMALL = json.dumps(DOCS[SYSTEM]).encode()
GZIPPED = gzip.compress(SMALL, mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(GZIPPED, "gzip"), (GZIPPED, "x-GZIP"), (zlib.compress(SMALL), "deflate"), (SMALL, "identity"), (SMALL, "")],
)
def test_a_body_that_is_compressed_unasked_is_read(body: bytes, encoding: str) -> None:
    with a_raw_bmc(at(SYSTEM, [answer(body, Content_Encoding=encoding)])) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
        assert {asked.headers["accept-encoding"] for asked in bmc.asked} == {"identity"}


def test_a_little_that_unpacks_to_much_is_not_unpacked_to_its_end() -> None:
    bomb = gzip.compress(b'{"a": "' + b"x" * (4 * BODY_LIMIT) + b'"}')
    assert len(bomb) < BODY_LIMIT // 100
    script = at(SYSTEM, [answer(bomb, Content_Encoding="gzip")])
    with a_raw_bmc(script) as bmc, a_door(bmc) as door, pytest.raises(Malformed, match="longer than"):
        get(door)


@pytest.mark.parametrize(
    ("body", "encoding", "kind"),
    [
        (GZIPPED[:-12], "gzip", ServerFault),
        (SMALL, "gzip", Malformed),
        (SMALL, "br", Malformed),
        (GZIPPED, "gzip, gzip", Malformed),
    ],
)
def test_a_body_that_is_not_what_its_encoding_says_is_an_error(
    body: bytes, encoding: str, kind: type[DriverError]
) -> None:
    script = at(SYSTEM, [answer(body, Content_Encoding=encoding)])
    with a_raw_bmc(script) as bmc, a_door(bmc) as door, pytest.raises(kind, match=SYSTEM):
        get(door)


def test_bytes_that_are_no_text_cost_only_the_text_that_they_are_in() -> None:
    body = b'{"Id": "1", "PartNumber": "\xff\xff\x00\x01", "Serial": "S1", "Big": ' + b"9" * 5000 + b"}"
    with a_raw_bmc(at(SYSTEM, [answer(body)])) as bmc, a_door(bmc) as door:
        found = get(door)
    assert (found["Id"], found["Serial"]) == ("1", "S1")
    assert "Big" not in found


def test_an_error_in_the_place_of_a_document_is_no_document() -> None:
    busy = error("Base.1.0.GeneralError", "something went wrong", status=200)
    with a_raw_bmc(at(SYSTEM, [busy])) as bmc, a_door(bmc) as door, pytest.raises(ServerFault, match="went wrong"):
        get(door)


def test_a_document_that_mentions_an_error_is_a_document() -> None:
    doc = {"@odata.id": SYSTEM, "error": {"code": "Base.1.0.GeneralError", "message": "x"}}
    with a_raw_bmc(at(SYSTEM, [answer(doc)])) as bmc, a_door(bmc) as door:
        assert get(door) == doc


def test_a_service_that_redirects_its_own_root_is_logged_in() -> None:
    def script(asked: Asked) -> Iterable[bytes]:
        if asked.path == ROOT:
            return [answer(None, 308, Location="/redfish/v1")]
        return documents({**DOCS, "/redfish/v1": DOCS[ROOT]})(asked)

    with a_raw_bmc(script) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]


# ---------------------------------------------------------------- patience and pace

NOT_YET = error("Base.1.0.ServiceTemporarilyUnavailable", status=503, Retry_After="0")
SLOWLY = error("Base.1.0.GeneralError", "too many requests", status=429, Retry_After="0")


@pytest.mark.parametrize("refusal", [NOT_YET, SLOWLY], ids=["503", "429"])
def test_a_get_waits_as_long_as_the_bmc_says_and_not_for_ever(refusal: bytes) -> None:
    with a_raw_bmc(at(SYSTEM, [refusal], [refusal], [answer(DOCS[SYSTEM])])) as bmc, a_door(bmc) as door:
        assert get(door) == DOCS[SYSTEM]
        assert len(bmc.seen("GET", SYSTEM)) == 3
    with a_raw_bmc(at(SYSTEM, [refusal])) as bmc, a_door(bmc) as door:
        with pytest.raises(Busy) as raised:
            get(door)
        assert raised.value.retry_after_s == 0
        assert len(bmc.seen("GET", SYSTEM)) == 4


def test_a_write_that_is_answered_503_is_sent_once() -> None:
    with a_raw_bmc(at(SYSTEM, [NOT_YET])) as bmc, a_door(bmc) as door:
        with pytest.raises(Busy), door.call():
            door.patch(SYSTEM, data={"AssetTag": "a"})
        assert len(bmc.seen("PATCH")) == 1


def test_a_bmc_that_says_too_many_requests_is_asked_more_slowly_from_then_on() -> None:
    with a_raw_bmc(at(SYSTEM, [SLOWLY], [SLOWLY], [answer(DOCS[SYSTEM])])) as bmc, a_door(bmc) as door:
        get(door)
        assert door.memory["spacingS"] == pytest.approx(0.2)
        assert 0 < door.pace.wait_s() <= 0.2


def test_the_pace_comes_back_when_nothing_complains() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        for status in [429, 429, *[200] * 100]:
            door.pace.answered(status)
        assert door.memory["spacingS"] == pytest.approx(0.1)
        for _ in range(100):
            door.pace.answered(200)
        assert door.memory["spacingS"] is None
        assert door.pace.wait_s() == 0
        assert get(door) == DOCS[SYSTEM]


def test_the_makers_spacing_is_kept_between_requests() -> None:
    with a_raw_bmc(documents(DOCS)) as bmc, a_door(bmc) as door:
        get(door)
        assert door.pace.wait_s() == 0
        door.pace.spacing_s = 30.0
        assert 29 < door.pace.wait_s() <= 30
        door.pace.spacing_s = 0.0  # or the logout waits, too
