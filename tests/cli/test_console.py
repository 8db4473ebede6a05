"""`bcmetal console` in a real terminal: typed into, read, ended; and what of a machine's text reaches the terminal."""

from __future__ import annotations

import base64
import os
import pty
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from bcmetal.cli.terminal import Command, PlainText, Typed
from bcmetal.client import ApiError
from bcmetal.demo.site import IPMI_POOL, POOL, TENANT, Site
from bcmetal_drivers.emulated.ipmi import IpmiFront
from bcmetal_drivers.emulated.ipmi_sol import Serial
from cli.running import Run

WITHIN_S = 15.0


@dataclass
class Person:
    """Somebody at a terminal in which the command runs."""

    terminal: int
    process: subprocess.Popen[bytes]
    seen: bytearray = field(default_factory=bytearray)

    def reads(self, wanted: bytes) -> None:
        until = time.monotonic() + WITHIN_S
        while wanted not in self.seen:
            ended = self.process.poll() is not None
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.seen += os.read(self.terminal, 4096)
            else:
                assert not ended, bytes(self.seen)
                assert time.monotonic() < until, bytes(self.seen)

    def types(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def ends(self) -> int:
        return self.process.wait(WITHIN_S)


@contextmanager
def a_person(*words: str) -> Iterator[Person]:
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "bcmetal.cli", *words]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
            try:
                yield Person(ours, process)
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def serial_of(site: Site) -> Serial:
    front = site.ipmi[0].front
    assert isinstance(front, IpmiFront)
    return front.serial


def typed_at(serial: Serial, wanted: bytes) -> None:
    until = time.monotonic() + WITHIN_S
    while wanted not in serial.typed:
        assert time.monotonic() < until, bytes(serial.typed)
        time.sleep(0.01)


def accesses(site: Site, node: str) -> list[dict[str, object]]:
    with site.client() as client:
        entries = client.call("audit", "list", {"tenantId": TENANT, "poolId": IPMI_POOL, "nodeId": node})["entries"]
    return [
        one["details"]
        for one in entries
        if one["action"] == "compute:metal:openConsole" and one["outcome"] == "allowed"
    ]


@pytest.fixture
def nodes(site: Site, run: Run) -> Iterator[tuple[str, str]]:
    """An IPMI machine and a Redfish one."""
    redfish, ipmi = site.redfish[0], site.ipmi[0]
    trust = ("--fingerprint", redfish.fingerprint)
    given = ((ipmi, "by-ipmi", IPMI_POOL, ()), (redfish, "by-redfish", POOL, trust))
    for bmc, name, pool, more in given:
        words = ("--pool", pool, "node", "enroll", bmc.address, "--name", name, "--username", bmc.username)
        password = bmc.password.get_secret_value() + "\n"
        enrolled = run(*words, "--password-file", "-", "--wait", *more, stdin=password)
        assert enrolled.code == 0, enrolled.err
    yield "by-ipmi", "by-redfish"
    for _, name, pool, _ in given:
        assert run("--pool", pool, "remove", name, "--yes").code == 0


@pytest.mark.slow
def test_a_person_types_into_the_machine_and_leaves_and_all_of_it_is_told(
    site: Site, run: Run, nodes: tuple[str, str]
) -> None:
    serial, profile = serial_of(site), ("--profile", str(site.profile_file))
    by_ipmi, by_redfish = nodes
    where = {"tenantId": TENANT, "poolId": IPMI_POOL, "nodeId": by_ipmi}
    with a_person(*profile, "--pool", IPMI_POOL, "console", by_ipmi) as person:
        person.reads(b"login: ")
        person.types(b"root\r")
        person.reads(b"root\r")
        serial.output(b"\x1b]52;c;aGVsbG8=\x07\x1b[31mred\x1b[0m\r\n")
        person.reads(b"red\r\n")
        with site.client() as client, pytest.raises(ApiError, match=r"key:admin has this console open") as refused:
            client.answering("metal", "openConsole", where)
        assert refused.value.code == "CONFLICT"
        person.types(b"\r~B")
        person.types(b"~~ls\r")
        typed_at(serial, b"~ls\r")
        person.types(b"~.")
        person.reads(b"the console ended: its holder closed it")
        assert person.ends() == 0
        assert b"\x1b" not in person.seen
    assert bytes(serial.typed) == b"root\r\r~ls\r"
    assert serial.breaks == 1
    assert not serial.in_use

    closed, opened = accesses(site, by_ipmi)
    assert (opened["console"], closed["console"], closed["why"]) == ("opened", "closed", "its holder closed it")
    assert closed["typedBytes"] == len(serial.typed)
    assert "ls" not in repr((opened, closed))

    with site.client() as client:  # who hangs up without a word has left too
        with client.answering("metal", "openConsole", where) as answering:
            console_id = next(iter(answering))["consoleId"]
            assert re.fullmatch("cs_.{26}", console_id)
            here = {**where, "consoleId": console_id}
            for typed, offset in (("abc", 0), ("abc", 0), ("bcde", 1)):  # answers that were lost
                data = base64.b64encode(typed.encode()).decode()
                client.call("metal", "typeConsole", {**here, "data": data, "offset": offset})
            typed_at(serial, b"abcde")
            with pytest.raises(ApiError, match="never came"):
                client.call("metal", "typeConsole", {**here, "data": data, "offset": 99})
        assert serial.typed.endswith(b"ls\rabcde")
        until = time.monotonic() + WITHIN_S
        while len(accesses(site, by_ipmi)) < 4 or serial.in_use:
            assert time.monotonic() < until
            time.sleep(0.02)

    with a_person(*profile, "console", by_redfish) as person:
        person.reads(b"the daemon cannot open it")
        person.reads(b"ssh -p")
        assert person.ends() == 0
    piped = run("--pool", IPMI_POOL, "console", by_ipmi, "--json")
    assert [way["kind"] for way in piped.doc["ways"]] == ["ipmi-sol"]
    assert run("console", by_ipmi, "--raw").code == 2


def test_text_of_a_machine_loses_its_escape_sequences_wherever_the_stream_cuts_them() -> None:
    written = "a\x1b[1;31mb\x1b]0;title\x07c\x1b]52;c;eA==\x1b\\d\x1b(Be\x1bPq#1\x1b\\f\x07\x00\x9b31mg\u202eh é\r\n\t\b".encode()
    for size in (1, 2, 3, len(written)):
        plain = PlainText()
        said = "".join(plain.of(written[at : at + size]) for at in range(0, len(written), size))
        assert said == "abcdef31mgh é\r\n\t\b"


def test_a_sequence_that_never_ends_hides_no_more_than_a_few_thousand_characters() -> None:
    assert PlainText().of(b"\x1b]" + b"x" * 5000 + b"\r\nlogin: ").endswith("\r\nlogin: ")


def test_a_tilde_is_a_command_at_the_start_of_a_line_alone() -> None:
    def parts(*typed: bytes) -> list[bytes | Command]:
        reads = Typed()
        return [part for data in typed for part in reads.parts(data)]

    assert parts(b"~", b".", b"never") == [Command.END, b"never"]
    assert parts(b"a~.\r~.b") == [b"a~.\r", Command.END]
    assert parts(b"~~~.\r") == [b"~~.\r"]
    assert parts(b"~a\r~?~B.") == [b"~a\r", Command.HELP, Command.BREAK, b"."]
    text = secrets.token_bytes(64).replace(b"~", b"-")
    assert parts(text) == [text]
