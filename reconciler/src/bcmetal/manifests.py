"""Lists of labels: the user name and the password that each BMC left its factory with, a line for each machine.

A line is found without a login, by the BMC's MAC or the machine's serial, in what is known of an address: what a person gave with the
enrolment, the address itself, and what the BMC says of itself to everybody. Such hints are nobody's proof. A line is therefore spent on
one machine alone.
"""

from __future__ import annotations

import csv
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from bcmetal.errors import Fault, InvalidInput
from bcmetal.placeholders import normal_serial

COLUMNS: Final = ("bmc_mac", "serial", "username", "password")
BYTES_AT_MOST: Final = 8 * 2**20
LINES_AT_MOST: Final = 50_000
FAULTS_AT_MOST: Final = 100
SERIAL_SHORTEST: Final = 5  # a shorter one is found in anything
_MAC: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{2}(?:([:-]?)[0-9a-f]{2})(?:\1[0-9a-f]{2}){4}(?![0-9a-f])")
_UUID: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{12})(?![0-9a-f])")


@dataclass(frozen=True, slots=True)
class Label:
    """One machine's. `mac` as 12 lower-case hexadecimal digits, `serial` normal; one of them may be missing."""

    line: int
    mac: str | None
    serial: str | None
    username: str
    password: SecretStr

    @property
    def key(self) -> str:
        """What tells it from the others, whatever its line."""
        return self.mac or f"serial:{self.serial}"


def read_manifest(path: Path) -> tuple[Label, ...]:
    """Raises InvalidInput with every fault, each with its line and column."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(BYTES_AT_MOST + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput([Fault("", f"{path} cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise InvalidInput([Fault("", f"{path} is no UTF-8 text")]) from error
    if stat.S_ISREG(mode) and mode & 0o077:
        raise InvalidInput([Fault("", f"others can read {path}, which holds passwords: `chmod 600` it first")])
    if len(raw) > BYTES_AT_MOST:
        raise InvalidInput([Fault("", f"{path} is larger than {BYTES_AT_MOST} bytes")])
    faults: list[Fault] = []
    labels: list[Label] = []
    seen: dict[str, int] = {}
    for one in _read(text):
        if isinstance(one, Fault):
            faults.append(one)
            continue
        for key in (one.mac, one.serial and f"serial:{one.serial}"):
            if key and seen.setdefault(key, one.line) != one.line:
                column = "serial" if key.startswith("serial:") else "bmc_mac"
                faults.append(Fault("", f"line {one.line}, {column}: is that of line {seen[key]} too"))
        labels.append(one)
    if faults:
        raise InvalidInput([Fault("", f"{path}: {fault.message}") for fault in faults[:FAULTS_AT_MOST]])
    return tuple(labels)


def faults_of_manifests(paths: Mapping[str, Path | None]) -> list[Fault]:
    """By the name of the credential."""
    found: list[Fault] = []
    for name, path in paths.items():
        if path is None:
            continue
        try:
            read_manifest(path)
        except InvalidInput as error:
            found += [Fault(f"credentials.{name}.manifest", fault.message) for fault in error.faults]
    return found


def _read(text: str) -> Iterator[Label | Fault]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next((tuple(cell.strip() for cell in row) for row in reader if row), ())
        if sorted(header) != sorted(COLUMNS):
            yield Fault("", f"line 1: must name the columns {', '.join(COLUMNS)}")
            return
        for row in reader:
            if reader.line_num > LINES_AT_MOST:
                yield Fault("", f"has more than {LINES_AT_MOST} lines")
                return
            if row:
                yield _label(reader.line_num, header, row)
    except csv.Error as error:
        yield Fault("", f"line {reader.line_num}: is no CSV: {error}")


def _label(line: int, header: tuple[str, ...], row: list[str]) -> Label | Fault:
    if len(row) != len(header):
        return Fault("", f"line {line}: has {len(row)} cells, and the header {len(header)}")
    cells = dict(zip(header, row, strict=True))
    mac, serial = cells["bmc_mac"].strip().lower(), cells["serial"].strip()
    found = _MAC.fullmatch(mac)
    if mac and found is None:
        return Fault("", f"line {line}, bmc_mac: is no MAC address")
    if serial and (len(serial) < SERIAL_SHORTEST or not serial.isprintable()):
        return Fault("", f"line {line}, serial: is no serial of {SERIAL_SHORTEST} characters or more")
    if not mac and not serial:
        return Fault("", f"line {line}, bmc_mac: is missing, and serial too: one of them finds the machine")
    username, password = cells["username"].strip(), cells["password"]
    for column, value, most in (("username", username, 64), ("password", password, 256)):
        if not value:
            return Fault("", f"line {line}, {column}: is missing")
        if not value.isprintable() or len(value) > most:
            return Fault("", f"line {line}, {column}: has control characters, or more than {most}")
    return Label(line, _digits(mac) or None, normal_serial(serial) or None, username, SecretStr(password))


def _digits(mac: str) -> str:
    return mac.replace(":", "").replace("-", "")


def find_labels(labels: Iterable[Label], hints: Iterable[str]) -> tuple[Label, ...]:
    """Those that the hints speak of: none, one, or several, which is as good as none."""
    said = [hint.casefold() for hint in hints]
    macs = {mac for hint in said for mac in _macs_in(hint)}
    return tuple(
        label
        for label in labels
        if (label.mac is not None and label.mac in macs)
        or (label.serial is not None and any(_speaks_of(hint, label.serial) for hint in said))
    )


def _macs_in(hint: str) -> Iterator[str]:
    """Also the node of a UUID, which many BMCs make of their MAC, and the one in an IPv6 address that was made of it (RFC 4291, appendix A)."""
    yield from (_digits(found.group()) for found in _MAC.finditer(hint))
    yield from (found[1] for found in _UUID.finditer(hint))
    try:
        address = ip_address(hint)
    except ValueError:
        return
    if isinstance(address, IPv6Address):
        low = address.packed[8:]
        if low[3:5] == b"\xff\xfe":
            yield bytes((low[0] ^ 2, *low[1:3], *low[5:])).hex()


def _speaks_of(hint: str, serial: str) -> bool:
    """As a word, or at the end of one: host names such as `ilocz1234567` are made of serials."""
    at = hint.find(serial)
    while at >= 0:
        after = hint[at + len(serial) :][:1]
        before = hint[at - 1 : at] if at else ""
        if not after.isalnum() and not (before.isdigit() and serial[0].isdigit()):
            return True
        at = hint.find(serial, at + 1)
    return False
