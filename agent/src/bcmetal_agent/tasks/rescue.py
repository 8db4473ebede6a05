"""`rescue`: an account with root's rights, and the SSH server that lets it in; both end by themselves when their time is over.

The server is dropbear, started now and not before, with host keys that are made now. The disks stay as they are: nothing is mounted
and nothing is assembled. What was opened is written down in /run, so that an agent that was killed and started again ends it in time.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bcmetal_agent import ssh_keys, wire
from bcmetal_agent.state import write_file
from bcmetal_agent.tasks import sessions
from bcmetal_agent.tasks.doing import Doing, TaskFailed
from bcmetal_agent.tasks.tools import find, run
from bcmetal_agent.wire_tasks import RescueParams, RescueReady

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_HOST_KEYS: Final = {"ed25519": (), "ecdsa": ("-s", "256")}
_ADDRESS: Final = re.compile(r"\binet6? ([0-9a-f.:]+)/\d+")
_BANNER_S: Final = 10.0


@dataclass(frozen=True)
class Places:
    """`etc`: where passwd and shadow are. `host` empty: every address of the machine."""

    etc: Path = Path("/etc")
    folder: Path = Path("/run/bcmetal/rescue")
    cgroup: Path = Path("/sys/fs/cgroup/bcmetal-rescue")
    host: str = ""
    port: int = 22


@dataclass(frozen=True)
class _Opened:
    """`digest`: of what was asked for. `ends_s`: by the clock that counts from the machine's start; 0: with the machine."""

    digest: str
    user: str
    server: sessions.Process
    ends_s: float
    result: wire.Json


_NONE: Final = sessions.Process(0, 0)


def rescue(params: RescueParams, doing: Doing, places: Places | None = None) -> RescueReady:
    """Asked for again with the same keys, it only goes on for longer; with others, the former account and its sessions end first.

    `expires_in_s` 0: until the machine is started anew.
    """
    where = places or Places()
    user, keys, secret = _checked(params)
    digest = hashlib.sha256(json.dumps([user, keys, secret]).encode()).hexdigest()
    ends_s = _now_s() + params.expires_in_s if params.expires_in_s else 0.0
    before = _read(where)
    if before is not None and before.digest == digest and before.server.alive():
        _write(where, _Opened(digest, user, before.server, ends_s, before.result))
        doing.log("the account is open already: its end is set anew\n")
        return replace(wire.read_doc(RescueReady, before.result), addresses=_addresses())
    end(where)
    doing.progress(100, "making host keys")
    where.folder.mkdir(mode=0o700, parents=True)
    _write(where, _Opened(digest, user, _NONE, ends_s, {}))  # first: whatever comes now has an end
    try:
        lines = _make_host_keys(where, doing)
        doing.check()
        _make_account(where, user, keys, secret)
        server = _start(where, with_password=secret is not None)
        ready = RescueReady(
            addresses=_addresses(),
            port=where.port,
            user=user,
            host_keys=tuple(lines),
            fingerprints=tuple(ssh_keys.fingerprint(line) for line in lines),
        )
        _write(where, _Opened(digest, user, server, ends_s, wire.to_doc(ready)))
        _await_banner(where, server)
        doing.check()
    except BaseException:
        end(where)
        raise
    doing.log(f"SSH as {user} on port {where.port}, host keys {' '.join(ready.fingerprints)}\n")
    return ready


def tend(places: Places | None = None) -> str | None:
    """End what is past its time; called every few seconds. What to tell people, if anything was ended."""
    where = places or Places()
    opened = _read(where)
    if opened is None or not opened.ends_s or _now_s() < opened.ends_s:
        return None
    end(where)
    return f"the rescue's time is over: the account {opened.user} and its sessions have ended"


def end(places: Places | None = None) -> None:
    """The server, the sessions and all that they started, the account, the host keys. Nothing there: nothing to do."""
    where = places or Places()
    opened = _read(where)
    if opened is not None:
        try:
            _drop_account(where, opened.user)  # first: nobody comes in while the sessions end
        finally:
            sessions.end(opened.server, where.cgroup)
    shutil.rmtree(where.folder, ignore_errors=True)


# ---------------------------------------------------------------- what was asked for


def _checked(params: RescueParams) -> tuple[str, list[str], str | None]:
    if not _NAME.fullmatch(params.user) or params.user == "root":
        raise TaskFailed("bad-params", "the account's name has lower-case letters, digits, - and _, and is not root")
    try:
        keys = [ssh_keys.key_line(line) for line in params.ssh_keys]
        secret = None if params.password_hash is None else ssh_keys.password_hash(params.password_hash)
    except ValueError as error:
        raise TaskFailed("bad-params", str(error)) from None
    if not keys and secret is None:
        raise TaskFailed("bad-params", "a rescue needs SSH keys or a password's hash")
    return params.user, keys, secret


# ---------------------------------------------------------------- account


def _make_account(where: Places, user: str, keys: Sequence[str], secret: str | None) -> None:
    home = where.folder / "home"
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    write_file(home / ".ssh" / "authorized_keys", "".join(f"{line}\n" for line in keys))
    # A second name for user 0: there is no sudo in the ramdisk, and whoever rescues a machine needs all of it.
    _edit(where.etc / "passwd", user, f"{user}:x:0:0:{user}:{home}:/bin/sh\n", 0o644)
    _edit(where.etc / "shadow", user, f"{user}:{secret or '!'}:19000:0:99999:7:::\n", 0o600)


def _drop_account(where: Places, user: str) -> None:
    for name, mode in (("shadow", 0o600), ("passwd", 0o644)):
        with contextlib.suppress(FileNotFoundError):
            _edit(where.etc / name, user, "", mode)


def _edit(path: Path, user: str, line: str, mode: int) -> None:
    """Replace the account's line, by one rename. Whoever had the account was root, and may have left anything in the file."""
    lines = path.read_text("utf-8", "surrogateescape").splitlines(keepends=True)
    kept = [one for one in lines if one.split(":", 1)[0] != user]
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("".join([*kept, line]))
    fresh.chmod(mode)
    os.replace(fresh, path)


# ---------------------------------------------------------------- server


def _make_host_keys(where: Places, doing: Doing) -> list[str]:
    lines = []
    for kind, size in _HOST_KEYS.items():
        file = str(where.folder / f"host-{kind}")
        run(["dropbearkey", "-t", kind, *size, "-f", file], deadline_s=60, doing=doing)
        said = run(["dropbearkey", "-y", "-f", file], deadline_s=20, doing=doing).text.splitlines()
        line = next((one for one in said if one.startswith(("ssh-", "ecdsa-"))), "")
        try:
            lines.append(ssh_keys.key_line(line))
        except ValueError as error:
            raise TaskFailed("rescue-ssh", f"dropbearkey made no key: {error}") from None
    return lines


def _start(where: Places, *, with_password: bool) -> sessions.Process:
    """In the foreground, in a session of its own; it outlives this agent. No forwarding: it is a shell for the hardware's sake."""
    program = find("dropbear")
    argv = [program, "-F", "-m", "-j", "-k", "-T", "6", "-K", "60", "-P", str(where.folder / "pid")]
    argv += ["-p", f"{where.host}:{where.port}" if where.host else str(where.port)]
    argv += [] if with_password else ["-s"]
    for kind in _HOST_KEYS:
        argv += ["-r", str(where.folder / f"host-{kind}")]
    return sessions.start(argv, where.cgroup)


def _await_banner(where: Places, server: sessions.Process) -> None:
    until = time.monotonic() + _BANNER_S
    while time.monotonic() < until and server.alive():
        with contextlib.suppress(OSError), socket.create_connection((where.host or "127.0.0.1", where.port), 2) as line:
            if line.recv(8).startswith(b"SSH-2.0"):
                return
        time.sleep(0.1)
    raise TaskFailed("rescue-ssh", f"the SSH server does not answer on port {where.port}: is another one there?")


def _addresses() -> tuple[str, ...]:
    said = run(["ip", "-o", "addr", "show", "scope", "global"], deadline_s=10, expect=None).text
    found = []
    for text in _ADDRESS.findall(said):
        with contextlib.suppress(ValueError):
            found.append(ipaddress.ip_address(text))
    return tuple(dict.fromkeys(str(one) for one in sorted(found, key=lambda one: one.version)))[:64]


# ---------------------------------------------------------------- what is written down


def _write(where: Places, opened: _Opened) -> None:
    doc: dict[str, Any] = {
        "digest": opened.digest,
        "user": opened.user,
        "pid": opened.server.pid,
        "started": opened.server.started,
        "endsS": opened.ends_s,
        "result": opened.result,
    }
    write_file(where.folder / "opened.json", json.dumps(doc))


def _read(where: Places) -> _Opened | None:
    try:
        doc = json.loads((where.folder / "opened.json").read_text())
        server = sessions.Process(int(doc["pid"]), int(doc["started"]))
        return _Opened(str(doc["digest"]), str(doc["user"]), server, float(doc["endsS"]), dict(doc["result"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _now_s() -> float:
    """Seconds since the machine's start, the time that it slept included; no clock that is set changes them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
