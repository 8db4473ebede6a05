"""A virtual machine under qemu's TCG: UEFI firmware with variables of its own, a software TPM, disks, one NIC, a CD drive.

It knows nothing of BMCs. Its owner is asked what to boot from at each start, those included that the guest asked for itself: then the
machine stands still until it is answered, so that an override is used up by exactly one boot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from machine.console import Console
from machine.disks import Disk, arguments, disk_of, make_file
from machine.qmp import Event, Qmp, QmpFault

OVMF: Final = Path("/usr/share/OVMF")
PROGRAMS: Final = ("qemu-system-x86_64", "swtpm", "setpriv")
ENDS_WITHIN_S: Final = 10.0
CPU_MODEL: Final = "Contoso virtual CPU"
BIOS_VERSION: Final = "2.14.1"  # what the emulated BMCs say
# `setpriv --pdeathsig` ends qemu with the thread that started it, so that thread has to live as long as the process
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts qemu")


class Source(StrEnum):
    """What the firmware can boot from."""

    CD = "cd"
    DISK = "disk"
    NET = "net"


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """`tap` None: no network beyond the NIC itself. `namespace`: the file of the network namespace that the tap is in. `clock` is qemu's `-rtc base`: `utc`, or a date such as 1970-01-02T00:00:00."""

    name: str
    uuid: str
    serial: str
    mac: str
    disks: tuple[Disk, ...] = ()
    tap: str | None = None
    namespace: str | None = None
    chassis_serial: str = ""
    manufacturer: str = "Contoso"
    model: str = "3500RX"
    memory_mib: int = 1024
    tpm: bool = True
    clock: str = "utc"
    boots_from: tuple[Source, ...] = (Source.DISK,)  # when nothing is armed

    def doc(self) -> dict[str, Any]:
        return asdict(self)


def spec_of(doc: dict[str, Any]) -> MachineSpec:
    disks = tuple(disk_of(disk) for disk in doc["disks"])
    return MachineSpec(**{**doc, "disks": disks, "boots_from": tuple(Source(one) for one in doc["boots_from"])})


def why_no_machine() -> str | None:
    """Why no machine can be had here; None when it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return None if (OVMF / "OVMF_CODE_4M.fd").exists() else "no UEFI firmware (package ovmf)"


def kvm() -> bool:
    """/dev/kvm proves nothing: it is there where nothing answers behind it."""
    return any(Path("/sys/module", name).exists() for name in ("kvm_intel", "kvm_amd")) and os.access(
        "/dev/kvm", os.W_OK
    )


@dataclass(slots=True)
class _Run:
    """From a start to the end of the process."""

    qemu: subprocess.Popen[bytes]
    tpm: subprocess.Popen[bytes] | None
    qmp: Qmp
    serial: socket.socket  # our end of its line
    over: threading.Event = field(default_factory=threading.Event)


class VirtualMachine:
    """One machine, all of it in `folder`. Thread-safe; `reboots` is called from a thread of its own when the guest resets itself."""

    def __init__(self, spec: MachineSpec, folder: Path, reboots: Callable[[], Sequence[Source]] | None = None) -> None:
        self.spec = spec
        self.folder = folder
        self.console = Console(folder / "console")
        self._reboots = reboots or (lambda: spec.boots_from)
        self._lock = threading.RLock()
        self._run: _Run | None = None
        self._medium: Path | None = None
        self.pulled: set[str] = set()  # serials of disks that are left out at the next start
        folder.mkdir(parents=True, exist_ok=True)
        for disk in spec.disks:
            make_file(disk, self.disk_file(disk.serial))
        if not self._vars.exists():
            shutil.copy(OVMF / "OVMF_VARS_4M.fd", self._vars)

    @property
    def _vars(self) -> Path:
        return self.folder / "vars.fd"

    def disk_file(self, serial: str) -> Path:
        """What is on the disk, to be searched."""
        return self.folder / f"disk-{serial}"

    @property
    def pid(self) -> int | None:
        """qemu's; None when the machine is off."""
        run = self._run
        return run.qemu.pid if run is not None and run.qemu.poll() is None else None

    def is_on(self) -> bool:
        return self.pid is not None

    # ------------------------------------------------------------ power

    def power_on(self, order: Sequence[Source]) -> None:
        """Nothing, where it is on. Raises QmpFault with what qemu said when it does not start."""
        with self._lock:
            if not self.is_on():
                self._end()
                self._run = _STARTER.submit(self._start, order).result()

    def power_off(self) -> None:
        with self._lock:
            self._end()

    def reset(self, order: Sequence[Source]) -> None:
        """As its button would."""
        with self._lock:
            qmp = self._qmp()
            self._aim(qmp, order)
            _reset(qmp)

    def press_reset_button(self) -> None:
        """As a person at the machine does: it boots what it boots by itself."""
        self.reset(self._reboots())

    def kill_all(self) -> None:
        """The kernel kills every process but the first, as the magic SysRq key `i` on the serial line; for a ramdisk that `small_ramdisk` made."""
        with self._lock:
            qmp = self._qmp()
            assert self._run is not None
            qmp.ask("chardev-send-break", id="serial")
            self._run.serial.sendall(b"i")

    def press_power_button(self) -> None:
        """ACPI: what comes of it is the guest's."""
        self._qmp().ask("system_powerdown")

    def nmi(self) -> None:
        self._qmp().ask("inject-nmi")

    def stop(self) -> None:
        """Freeze it, as a machine that hangs."""
        self._qmp().ask("stop")

    def go_on(self) -> None:
        self._qmp().ask("cont")

    # ------------------------------------------------------------ what is in it

    def change_medium(self, path: Path | None) -> None:
        """Live, whether the guest locked the tray or not; None takes it out."""
        with self._lock:
            self._medium = path
            if self.is_on():
                self._load(self._qmp())

    def _load(self, qmp: Qmp) -> None:
        if self._medium is None:
            qmp.ask("eject", id="cd", force=True)
        else:
            name = str(self._medium)
            qmp.ask(
                "blockdev-change-medium", id="cd", filename=name, format="raw", force=True, read_only_mode="read-only"
            )

    def ask(self, command: str, **arguments: Any) -> Any:
        """Any command of qemu's monitor."""
        return self._qmp().ask(command, **arguments)

    # ------------------------------------------------------------ qemu

    def _qmp(self) -> Qmp:
        run = self._run
        if run is None or run.qemu.poll() is not None:
            raise QmpFault(f"{self.spec.name} is off")
        return run.qmp

    def _devices(self, source: Source) -> list[str]:
        if source is Source.DISK:
            return [f"disk{n}" for n, disk in enumerate(self.spec.disks) if disk.serial not in self.pulled]
        return [source.value]

    def _aim(self, qmp: Qmp, order: Sequence[Source]) -> None:
        """The firmware reads the order anew at each reset."""
        everything = [device for source in Source for device in self._devices(source)]
        chosen = [device for source in order for device in self._devices(source)]
        for device, index in [(device, -1) for device in everything] + [(device, n) for n, device in enumerate(chosen)]:
            qmp.ask("qom-set", path=f"/machine/peripheral/{device}", property="bootindex", value=index)

    def _start(self, order: Sequence[Source]) -> _Run:
        ours, theirs = socket.socketpair()
        tpm_ours, tpm_theirs = socket.socketpair()
        line, line_end = socket.socketpair()
        tpm = None
        with theirs, tpm_ours, tpm_theirs, line_end:
            fds = [theirs.fileno(), line_end.fileno()]
            more: list[str] = []
            if self.spec.tpm:
                tpm = self._start_tpm(tpm_theirs)
                fds.append(tpm_ours.fileno())
                more = ["-chardev", f"socket,id=tpm,fd={tpm_ours.fileno()}", "-tpmdev", "emulator,id=tpm0,chardev=tpm"]
                more += ["-device", "tpm-crb,tpmdev=tpm0"]
            said = self.folder / "qemu.log"
            with said.open("ab") as log:
                there = ["nsenter", f"--net={self.spec.namespace}", "--"] if self.spec.namespace else []
                qemu = subprocess.Popen(
                    [*there, "setpriv", "--pdeathsig", "KILL", "--", *self._arguments(theirs.fileno(), line_end.fileno()), *more],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=fds,
                )  # fmt: skip
        run = _Run(qemu, tpm, Qmp(ours, lambda event: self._heard(run, event)), line)
        threading.Thread(target=_drain, args=(line,), daemon=True).start()
        try:
            run.qmp.open()
            self._aim(run.qmp, order)
            if self._medium is not None:
                self._load(run.qmp)
            _reset(run.qmp)  # qemu tells the firmware of the order at a reset, and the first one was before it was set
        except QmpFault as e:
            _finish(run)
            raise QmpFault(f"{self.spec.name}: {e}: {said.read_text()[-500:]}") from e
        return run

    def _start_tpm(self, line: socket.socket) -> subprocess.Popen[bytes]:
        state = self.folder / "tpm"
        state.mkdir(exist_ok=True)
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}",
             "--ctrl", f"type=unixio,clientfd={line.fileno()}", "--terminate", "--flags", "not-need-init"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[line.fileno()],
        )  # fmt: skip

    def _arguments(self, qmp_fd: int, serial_fd: int) -> list[str]:
        spec = self.spec
        network = f"tap,id=wire,ifname={spec.tap},script=no,downscript=no" if spec.tap else "user,id=wire,restrict=on"
        disks = [
            argument
            for n, disk in enumerate(spec.disks)
            if disk.serial not in self.pulled
            for argument in arguments(disk, n, self.disk_file(disk.serial))
        ]
        return [
            "qemu-system-x86_64", "-name", spec.name, "-nodefaults", "-no-user-config", "-display", "none", "-S",
            "-machine", "q35,smm=off", "-accel", "kvm" if kvm() else "tcg", "-cpu", f"max,model-id={CPU_MODEL}", "-smp", "1",
            "-m", str(spec.memory_mib), "-rtc", f"base={spec.clock}", "-no-shutdown", "-action", "reboot=shutdown",
            "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={OVMF}/OVMF_CODE_4M.fd",
            "-drive", f"if=pflash,format=raw,unit=1,file={self._vars}",
            "-smbios", f"type=0,vendor={spec.manufacturer},version={BIOS_VERSION},uefi=on",
            "-smbios", f"type=1,manufacturer={spec.manufacturer},product={spec.model},serial={spec.serial},uuid={spec.uuid}",
            "-smbios", f"type=3,manufacturer={spec.manufacturer},serial={spec.chassis_serial or spec.serial}",
            "-chardev", f"socket,id=serial,fd={serial_fd},logfile={self.console.path},logappend=on", "-serial", "chardev:serial",
            "-chardev", f"socket,id=qmp,fd={qmp_fd}", "-mon", "chardev=qmp,mode=control",
            "-device", "virtio-scsi-pci,id=scsi", "-device", "scsi-cd,id=cd,bus=scsi.0,scsi-id=0",
            "-netdev", network, "-device", f"virtio-net-pci,id=net,netdev=wire,mac={spec.mac},romfile=",
            *disks,
        ]  # fmt: skip

    def _heard(self, run: _Run, event: Event) -> None:
        """The guest switched itself off, or resets itself."""
        if event["event"] != "SHUTDOWN" or not event["data"]["guest"]:
            return
        if event["data"]["reason"] != "guest-reset":
            run.qmp.ask("quit")
            return
        order = self._reboots()
        with self._lock:
            if self._run is run:
                self.reset(order)

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            _finish(run)


def _reset(qmp: Qmp) -> None:
    """Reset it and let it run. A reset of the guest's own stops it (`-action reboot=shutdown`), so that it may be aimed before; ours must not."""
    qmp.ask("stop")
    qmp.ask("set-action", reboot="reset")
    qmp.ask("system_reset")
    ends_s = time.monotonic() + ENDS_WITHIN_S
    while qmp.ask("query-status")["status"] != "prelaunch" and time.monotonic() < ends_s:
        time.sleep(0.01)
    qmp.ask("set-action", reboot="shutdown")
    qmp.ask("cont")


def _drain(line: socket.socket) -> None:
    """What the guest says is in the console's file; here it only has to go on."""
    with contextlib.suppress(OSError):
        while line.recv(65536):
            pass


def _finish(run: _Run) -> None:
    with contextlib.suppress(ProcessLookupError):
        run.qemu.kill()
    run.qemu.wait(ENDS_WITHIN_S)
    run.qmp.close()
    with contextlib.suppress(OSError):
        run.serial.shutdown(socket.SHUT_RDWR)
    run.serial.close()
    if run.tpm is not None:  # it goes by itself once qemu is gone
        try:
            run.tpm.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            run.tpm.kill()
            run.tpm.wait(ENDS_WITHIN_S)
