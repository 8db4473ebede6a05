"""The agent in the product's own ramdisk, without a rack: clock in 1970, token from the medium, boot entry, rescue, power off."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.ramdisk_door import Door, a_task, a_token
from agent.test_rescue import a_free_port, a_key
from bcmetal.join import ca
from bcmetal_agent import boot_token
from machine.virtual_machine import why_no_machine
from machine_images import OVMF_CODE, OVMF_VARS, os_image, small_ramdisk
from machine_images import why_no_machine as why_no_images

NO_MACHINE = why_no_machine() or why_no_images() or (None if shutil.which("ssh") else "not installed: ssh")
pytestmark = [pytest.mark.skipif(NO_MACHINE is not None, reason=str(NO_MACHINE)), pytest.mark.timeout(600)]
HOST = "10.0.2.2"  # this host, in the network that qemu makes up
DISK = "QM0001"
DISK_BYTES = 128 << 20
BOOT_S = 240


@contextmanager
def a_machine(folder: Path, medium: Path, disk: Path, ssh_port: int) -> Iterator[subprocess.Popen[bytes]]:
    shutil.copy(OVMF_VARS, folder / "vars.fd")
    command = ["qemu-system-x86_64", "-M", "q35", "-m", "1024", "-display", "none", "-nodefaults"]
    command += ["-serial", f"file:{folder}/console", "-rtc", "base=1970-01-02T00:00:00"]
    command += ["-drive", f"if=pflash,format=raw,readonly=on,file={OVMF_CODE}"]
    command += ["-drive", f"if=pflash,format=raw,file={folder}/vars.fd"]
    command += ["-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=cd,bootindex=0"]
    command += ["-drive", f"if=none,id=cd,media=cdrom,format=raw,readonly=on,file={medium}"]
    command += ["-drive", f"if=none,id=disk,format=raw,file={disk}", "-device", f"nvme,drive=disk,serial={DISK}"]
    command += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{ssh_port}-:22", "-device", "virtio-net-pci,netdev=net"]
    with subprocess.Popen(command) as qemu:
        try:
            yield qemu
        finally:
            qemu.kill()


def done(door: Door, kind: str, within_s: float = 120, /, **params: Any) -> dict[str, Any]:
    """The result of a task that is handed out now."""
    task = a_task(kind, params)
    door.tasks.append(task)
    door.wait_for(lambda: door.ended(task["taskId"]), within_s)
    last = door.told[task["taskId"]].last
    assert last is not None
    assert last.state == "done", last
    return last.result or {}


def test_a_machine_whose_clock_is_in_1970_says_hello_and_does_what_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    private, public = a_key()
    key, known, port = tmp_path / "key", tmp_path / "known_hosts", a_free_port()
    key.write_text(private)
    key.chmod(0o600)
    with Door(tmp_path / "door", a_token()) as door:
        door.use_certificate(ca.IssuerKind.SERVER, (HOST,))
        built = small_ramdisk(tmp_path / "ramdisk", f"https://{HOST}:{door.port}", door.root_pem)
        with built.iso.open("r+b") as medium:
            medium.seek(built.token_offset)
            medium.write(boot_token.render(door.token))
        disk = os_image(tmp_path)
        with disk.open("r+b") as file:
            file.truncate(DISK_BYTES)
        before = disk.read_bytes()

        with a_machine(tmp_path, built.iso, disk, port) as qemu:
            door.wait_for(lambda: bool(door.hellos), BOOT_S)
            boot = done(door, "setBoot", disk={"serial": DISK, "sizeBytes": DISK_BYTES})
            ready = done(door, "rescue", sshKeys=[public], expiresInS=600)
            known.write_text("".join(f"[127.0.0.1]:{port} {line}\n" for line in ready["hostKeys"]))
            ssh = ["ssh", "-F", "none", "-p", str(port), "-i", str(key), "-o", f"UserKnownHostsFile={known}"]
            ssh += ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"]
            ssh += [f"{ready['user']}@127.0.0.1"]
            inside = subprocess.run(
                [*ssh, "id -u; efibootmgr; grep -c /dev/nvme /proc/mounts"], capture_output=True, text=True, timeout=60
            )
            lines = inside.stdout.splitlines()
            assert lines[0] == "0", inside.stderr
            assert lines[-1] == "0"  # nothing of the disk is mounted
            assert any(line.startswith(f"BootOrder: {boot['entry']},") for line in lines)
            assert any(line.startswith(f"Boot{boot['entry']}* bcmetal") for line in lines)

            again = done(door, "rescue", sshKeys=[public], expiresInS=1)
            assert again["hostKeys"] == ready["hostKeys"]
            end_s = time.monotonic() + 30
            while subprocess.run([*ssh, "true"], capture_output=True, timeout=60).returncode == 0:
                assert time.monotonic() < end_s
            done(door, "poweroff")
            assert qemu.wait(60) == 0
    assert disk.read_bytes() == before
    console = (tmp_path / "console").read_text(errors="replace")
    assert "the boot token is from /dev/sr0" in console
    assert "set to the day this ramdisk was built" in console
    assert door.token.partition(".")[2] not in console
