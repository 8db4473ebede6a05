"""What a broken or hostile server may answer: each answer has a typed outcome, and the codec knows one error."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcmetal_agent import client, keys, trust, wire
from bcmetal_agent.bearer import Bearer
from bcmetal_agent.calls import RetryLater
from bcmetal_agent.client import Refused
from fake_control_plane import a_token

MESSAGES: tuple[type[Any], ...] = (
    wire.Admitted,
    wire.Challenge,
    wire.Deferred,
    wire.TrustBundle,
    wire.Secrets,
    wire.Join,
    wire.Renew,
    wire.AskSecrets,
)
WORDS = st.sampled_from(
    [
        "status",
        "nodeId",
        "certificate",
        "trustBundle",
        "renewAfter",
        "serverTime",
        "admitted",
        "deferred",
        "challenge",
        "requestId",
        "retryAfterSeconds",
        "roots",
        "secrets",
        "name",
        "value",
        "challengeId",
        "credentialBlob",
        "encryptedSecret",
        "expiresInS",
        "error",
        "code",
        "message",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=8), inner, max_size=6),
    max_leaves=20,
)
BODIES = st.binary(max_size=200) | JSON.map(lambda doc: json.dumps(doc).encode())


@given(kind=st.sampled_from(MESSAGES), raw=BODIES)
@settings(max_examples=400, deadline=None)
def test_the_codec_raises_bad_message_and_nothing_else(kind: type[Any], raw: bytes) -> None:
    with contextlib.suppress(wire.BadMessage):
        assert isinstance(wire.decode(kind, raw), kind)


@given(raw=BODIES)
@settings(max_examples=300, deadline=None)
def test_an_answer_without_a_known_status_is_a_bad_message(raw: bytes) -> None:
    with contextlib.suppress(wire.BadMessage):
        assert isinstance(client.by_status({"deferred": wire.Deferred}, raw), wire.Deferred)


@given(status=st.integers(100, 999), raw=BODIES, after=st.text(max_size=12))
@settings(max_examples=300, deadline=None)
def test_every_other_status_is_a_refusal_or_a_wait_in_clean_words(status: int, raw: bytes, after: str) -> None:
    headers = http.client.HTTPMessage()
    with contextlib.suppress(ValueError):  # what no header can hold
        headers["Retry-After"] = after
    outcome = client._said(status, headers, raw, None)
    said = outcome.message if isinstance(outcome, Refused) else outcome.reason
    assert said
    assert said.isprintable()
    assert len(said) < 400
    if isinstance(outcome, RetryLater) and outcome.after_s is not None:
        assert outcome.after_s >= 0


@given(text=st.text(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_token_is_taken_out_of_whatever_a_server_says(text: str) -> None:
    bearer = Bearer(a_token())
    secret = bearer.value.partition(".")[2]
    assert secret not in bearer.hide_in(f"{text}{bearer.value}{text}{secret}")
    assert secret not in repr(bearer) + str(bearer)


@given(inner=st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n", max_size=300))
@settings(max_examples=200, deadline=None)
def test_what_is_no_certificate_is_a_bad_certificate(inner: str) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{inner}\n-----END CERTIFICATE-----\n"
    with pytest.raises(keys.BadCertificate):
        keys.split_pem(text)


@given(der=st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_a_server_certificate_that_cannot_be_read_is_not_trusted(der: bytes) -> None:
    with pytest.raises(trust.Untrusted):
        trust.check_server(der)


@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_damaged_certificate_raises_nothing_else(flips: list[tuple[int, int]]) -> None:
    der = bytearray(_certificate())
    for at, mask in flips:
        der[at % len(der)] ^= mask
    with contextlib.suppress(keys.BadCertificate):
        keys.facts(keys.load_der(bytes(der)))
    with contextlib.suppress(trust.Untrusted):
        trust.check_server(bytes(der))


_made: list[bytes] = []


def _certificate() -> bytes:
    if not _made:
        import ssl

        from fake_control_plane import a_root

        _made.append(ssl.PEM_cert_to_DER_cert(a_root("Test")))
    return _made[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("0", 0.0), ("-5", None), ("1e9", None), ("9" * 30, None), ("", None), ("soon", None), ("٣", None)],
)
def test_a_retry_after_is_read_or_left(text: str, seconds: float | None) -> None:
    headers = http.client.parse_headers(io.BytesIO(f"Retry-After: {text}\r\n\r\n".encode()))
    assert client._retry_after(headers) == seconds


def test_a_retry_after_may_be_a_date() -> None:
    headers = http.client.HTTPMessage()
    headers["Retry-After"] = "Wed, 21 Oct 2015 07:28:00 GMT"
    assert client._retry_after(headers) == 0.0
