"""The rescue account: with dropbear itself; one test logs in, which takes root and a mount namespace."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from agent.task_doing import Kept
from bcmetal_agent import wire, wire_tasks
from bcmetal_agent.ssh_keys import fingerprint, key_line, password_hash
from bcmetal_agent.tasks.doing import Stopped, TaskFailed
from bcmetal_agent.tasks.rescue import Places, end, rescue, tend
from bcmetal_agent.wire_tasks import RescueParams

with_dropbear = pytest.mark.skipif(
    shutil.which("dropbear", path="/usr/sbin:/usr/bin") is None, reason="dropbear is not installed"
)


def a_key() -> tuple[str, str]:
    """Private and public, as OpenSSH writes them."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def a_hash(password: str) -> str:
    made = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=password, capture_output=True, text=True)
    return made.stdout.strip()


def a_free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as door:
        return int(door.getsockname()[1])


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "shadow").write_text("root:!:19000:0:99999:7:::\n")
    found = Places(etc, tmp_path / "rescue", tmp_path / "no-cgroup", "127.0.0.1", a_free_port())
    yield found
    end(found)


def banner(where: Places) -> bytes:
    with socket.create_connection((where.host, where.port), 5) as line:
        return line.recv(4)


def until(true: Callable[[], bool], within_s: float = 10) -> None:
    end_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@with_dropbear
def test_the_server_runs_only_while_there_is_an_account(places: Places) -> None:
    _, public = a_key()
    with pytest.raises(ConnectionRefusedError):
        banner(places)
    ready = rescue(RescueParams((f"{public} somebody@somewhere",), None, 600, "helper"), Kept(), places)
    assert banner(places) == b"SSH-"
    assert (places.etc / "passwd").read_text().splitlines()[1].startswith("helper:x:0:0:")
    assert (places.etc / "shadow").read_text().splitlines()[1].startswith("helper:!:")
    kept = places.folder / "home/.ssh/authorized_keys"
    assert kept.read_text() == public + "\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [line.split()[0] for line in ready.host_keys] == ["ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert ready.fingerprints == tuple(fingerprint(line) for line in ready.host_keys)
    assert (ready.user, ready.port) == ("helper", places.port)
    wire.read_doc(wire_tasks.RescueReady, wire.to_doc(ready))
    end(places)
    with pytest.raises(ConnectionRefusedError):
        banner(places)
    assert "helper" not in (places.etc / "passwd").read_text() + (places.etc / "shadow").read_text()
    assert not places.folder.exists()


@with_dropbear
def test_it_ends_by_itself_when_its_time_is_over_and_not_before(places: Places) -> None:
    rescue(RescueParams((a_key()[1],), None, 1), Kept(), places)
    assert tend(places) is None
    until(lambda: tend(places) == "the rescue's time is over: the account rescue and its sessions have ended")
    with pytest.raises(ConnectionRefusedError):
        banner(places)
    assert tend(places) is None


@with_dropbear
def test_it_ends_whatever_its_guest_wrote_into_the_accounts(places: Places) -> None:
    rescue(RescueParams((a_key()[1],), None, 1), Kept(), places)
    with (places.etc / "passwd").open("ab") as file:
        file.write(b"guest\xff:x:0:0::/:/bin/sh\n")
    until(lambda: tend(places) is not None)
    with pytest.raises(ConnectionRefusedError):
        banner(places)
    assert b"rescue" not in (places.etc / "passwd").read_bytes()


@with_dropbear
def test_the_same_again_goes_on_and_other_keys_replace_it(places: Places) -> None:
    one, other = a_key()[1], a_key()[1]
    first = rescue(RescueParams((one,), None, 1), Kept(), places)
    again = rescue(RescueParams((one,), None, 600), Kept(), places)
    assert again.host_keys == first.host_keys
    until(lambda: tend(places) is None, 2)
    with socket.create_connection((places.host, places.port), 5) as session:
        session.settimeout(10)
        session.recv(4)
        replaced = rescue(RescueParams((other,), None, 600, "other"), Kept(), places)
        assert set(replaced.host_keys).isdisjoint(first.host_keys)
        while session.recv(4096):  # the session of the one before has ended
            pass
    assert (places.folder / "home/.ssh/authorized_keys").read_text() == other + "\n"
    assert "rescue:" not in (places.etc / "passwd").read_text()


@with_dropbear
def test_a_port_that_is_taken_leaves_no_account_behind(places: Places) -> None:
    with socket.create_server((places.host, places.port)) as other:
        other.settimeout(0)
        with pytest.raises(TaskFailed, match="does not answer") as failed:
            rescue(RescueParams((a_key()[1],), None, 600), Kept(), places)
    assert failed.value.code == "rescue-ssh"
    assert "rescue" not in (places.etc / "passwd").read_text()
    assert not places.folder.exists()


@with_dropbear
def test_a_rescue_that_is_stopped_leaves_nothing_behind(places: Places) -> None:
    doing = Kept()
    doing.stopped = True
    with pytest.raises(Stopped):
        rescue(RescueParams((a_key()[1],), None, 600), doing, places)
    assert not places.folder.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda public: f'command="id" {public}',
        lambda public: f"no-pty {public}",
        lambda public: f"{public}\nssh-ed25519 {public.split()[1]}",
        lambda public: public.replace("ssh-ed25519", "ssh-rsa"),
        lambda public: f"{public} a\0b",
        lambda public: public[:-8],
        lambda public: public.replace(" ", "\t"),
        lambda public: "",
        lambda public: "sk-ssh-ed25519@openssh.com " + public.split()[1],
    ],
    ids=["command", "no-pty", "two lines", "another type", "a zero", "cut", "a tab", "empty", "no sk"],
)
def test_a_key_in_any_other_form_is_refused_and_not_shown(wrong: Callable[[str], str], places: Places) -> None:
    text = wrong(a_key()[1])
    with pytest.raises(TaskFailed) as refused:
        rescue(RescueParams((text,), None, 600), Kept(), places)
    assert refused.value.code == "bad-params"
    assert not text or text.split()[-1] not in str(refused.value)
    assert not places.folder.exists()


def test_keys_of_every_usual_type_are_taken_and_weak_ones_are_not() -> None:
    def public(key: Any) -> str:
        text: bytes = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return text.decode()

    of_security_key = b"".join(
        len(one).to_bytes(4, "big") + one for one in (b"sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:")
    )
    taken = [public(ec.generate_private_key(ec.SECP384R1())), public(rsa.generate_private_key(65537, 2048))]
    taken.append(f"sk-ssh-ed25519@openssh.com {base64.b64encode(of_security_key).decode()}")
    for text in taken:
        assert key_line(text) == text
    bits = 1024
    for weak in (public(rsa.generate_private_key(65537, bits)), "ssh-dss " + "A" * 64):
        with pytest.raises(ValueError):
            key_line(weak)


@pytest.mark.parametrize("user", ["root", "", "a:b", "Upper", "a\nb", "-x", "x" * 33])
def test_an_account_that_is_no_name_or_is_root_is_refused(user: str, places: Places) -> None:
    with pytest.raises(TaskFailed):
        rescue(RescueParams((a_key()[1],), None, 600, user), Kept(), places)


def test_a_hash_is_of_a_strong_kind_and_nothing_else_fits_into_its_line() -> None:
    good = a_hash(token_urlsafe(12))
    assert password_hash(good) == good
    yescrypt = f"$y$j9T${token_hex(11)}${token_hex(21)}x"
    assert password_hash(yescrypt) == yescrypt
    for bad in ("", "x", good + ":0", good + "\n", good.replace("$6$", "$1$"), f"{good} ", "!"):
        with pytest.raises(ValueError) as refused:
            password_hash(bad)
        assert good[10:] not in str(refused.value)


def test_without_keys_and_password_nothing_is_opened(places: Places) -> None:
    with pytest.raises(TaskFailed, match="needs SSH keys or a password"):
        rescue(RescueParams(), Kept(), places)


# ---------------------------------------------------------------- logging in

_INSIDE = """
import json, sys
from pathlib import Path
from agent.task_doing import Kept
from bcmetal_agent import wire
from bcmetal_agent.tasks.rescue import Places, end, rescue, tend
from bcmetal_agent.wire_tasks import RescueParams
folder, port, cgroup = sys.argv[1:]
places = Places(Path("/etc"), Path(folder), Path(cgroup), "127.0.0.1", int(port))
for line in sys.stdin:
    doc = json.loads(line)
    ready = rescue(wire.read_doc(RescueParams, doc), Kept(), places) if doc else end(places)
    print(json.dumps(wire.to_doc(ready) if doc else {}), flush=True)
"""


CGROUPS = next(
    (
        path
        for path in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
        if (path / "cgroup.controllers").exists()
    ),
    Path("/nowhere"),
)


class Machine:
    """A process whose /etc is a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.port = a_free_port()
        etc = folder / "etc"
        etc.mkdir()
        for name, text in (
            ("passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("shadow", "root:!:19000:0:99999:7:::\n"),
            ("group", "root:x:0:\n"),
            ("shells", "/bin/sh\n"),
            ("nsswitch.conf", "passwd: files\nshadow: files\n"),
        ):
            (etc / name).write_text(text)
        command = [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'mount --bind {etc} /etc && exec "$0" "$@"',
            sys.executable,
            "-c",
            _INSIDE,
        ]
        self._process = subprocess.Popen(
            [*command, str(folder / "rescue"), str(self.port), str(CGROUPS / f"bcmetal-test-{token_hex(4)}")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            text=True,
        )

    def ask(self, doc: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(doc) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self.ask({})
        self._process.communicate(timeout=20)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("a mount namespace takes root")
    made = Machine(tmp_path)
    yield made
    made.close()


def ssh(machine: Machine, ready: dict[str, Any], folder: Path, what: str, *options: str, **more: str) -> Any:
    known = folder / "known_hosts"
    known.write_text("".join(f"[127.0.0.1]:{machine.port} {line}\n" for line in ready["hostKeys"]))
    command = ["ssh", "-F", "none", "-p", str(machine.port), "-o", f"UserKnownHostsFile={known}"]
    command += ["-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10", *options]
    command += [f"{ready['user']}@127.0.0.1", what]
    env = {**os.environ, **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=env, stdin=subprocess.DEVNULL)


@with_dropbear
@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_one_logs_in_with_the_key_or_the_password_and_what_one_leaves_behind_ends(
    machine: Machine, tmp_path: Path
) -> None:
    private, public = a_key()
    (tmp_path / "key").write_text(private)
    (tmp_path / "key").chmod(0o600)
    with_key = ("-i", str(tmp_path / "key"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes")
    ready = machine.ask({"sshKeys": [public], "expiresInS": 600})
    done = ssh(machine, ready, tmp_path, "id -u; nohup sleep 100 >/dev/null 2>&1 & echo $!", *with_key)
    assert done.stdout.split()[0] == "0", done.stderr
    left = Path("/proc") / done.stdout.split()[1]

    password = token_urlsafe(12)
    asking = tmp_path / "asking"
    asking.write_text(f"#!/bin/sh\nprintf %s {password}\n")
    asking.chmod(0o700)
    by_word = ("-o", "PreferredAuthentications=password", "-o", "NumberOfPasswordPrompts=1")
    answers = {"SSH_ASKPASS": str(asking), "SSH_ASKPASS_REQUIRE": "force"}
    assert ssh(machine, ready, tmp_path, "id -u", *by_word, **answers).returncode != 0

    ready = machine.ask({"passwordHash": a_hash(password), "expiresInS": 600, "user": "boss"})
    assert ssh(machine, ready, tmp_path, "id -u", *by_word, **answers).stdout == "0\n"
    assert ssh(machine, ready, tmp_path, "id -u", *with_key).returncode != 0
    if os.access(CGROUPS / "cgroup.procs", os.W_OK):
        until(lambda: not left.exists())
