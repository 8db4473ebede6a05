"""Answers of the named actions in whose place a request is not looked at."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.interior import Call
from bcmetal_drivers.emulated.messages import Answer, refusal

HTML: Final = b"<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Gateway Time-out</h1></body></html>"


def faked(call: Call, *, opens_session: bool) -> Answer | None:
    for live in call.rules:
        rule = live.rule
        if live.action == "refuse" and live.fire():
            message = rule.message or "The service is temporarily unavailable."
            return refusal(rule.status or 503, str(rule.code or "ServiceTemporarilyUnavailable"), message, rule.headers)
        if live.action == "session_table_full" and opens_session and live.fire():
            message = rule.message or "The session establishment failed: too many sessions."
            return refusal(rule.status or 503, str(rule.code or "SessionLimitExceeded"), message, rule.headers)
        if live.action == "html" and live.fire():
            body = rule.body.encode() if rule.body is not None else HTML
            return Answer(rule.status or 504, None, dict(rule.headers), body, "text/html")
        if live.action == "garbage" and live.fire():
            body = (rule.body if rule.body is not None else '{"Members": [}{').encode()
            return Answer(rule.status or 200, None, dict(rule.headers), body)
    return None
