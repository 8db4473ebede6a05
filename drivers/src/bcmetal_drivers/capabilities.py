"""What a BMC can do, as small Protocols. The values that go in and out are in `resources`, how to reach a BMC in `connection`.

A driver's methods are synchronous and block; the daemon calls them in threads, one call at a time for each BMC. Each raises only
`bcmetal_drivers.errors.DriverError`. An acknowledgement is never the proof: a method that writes returns once the BMC took the
request (and, where that is cheap, once the new state was read back); the caller reads the state again before it believes it.

Being in the class is not support by the model: a method may still raise `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import SecretStr

from bcmetal_drivers.connection import BmcAddress
from bcmetal_drivers.errors import Unsupported
from bcmetal_drivers.resources import (
    Account,
    AccountPolicy,
    BiosState,
    BiosValue,
    BmcEvent,
    BmcInfo,
    BmcInterface,
    BootDevice,
    BootMode,
    BootOverride,
    ConsoleAccess,
    Drive,
    FirmwareComponent,
    HostWay,
    Identity,
    Inventory,
    Job,
    KeyReset,
    LogEntry,
    PowerAction,
    PowerState,
    Reading,
    SecureBootMode,
    Sensor,
    Slot,
    Volume,
    VolumeWanted,
)


class Bmc(Protocol):
    """An open conversation with one BMC (and one of its systems). Not for use by two threads at once."""

    @property
    def address(self) -> BmcAddress: ...
    def close(self) -> None:
        """End the session at the BMC, best effort, within a few seconds; never raises."""


@runtime_checkable
class Power(Protocol):
    def power_state(self) -> PowerState:
        """What the BMC says now. A word that no standard knows, or null, is UNKNOWN: never OFF."""
        ...

    def set_power(self, action: PowerAction) -> None:
        """Ask for a power action once; being there already is success. Does not wait for the machine to get there."""
        ...


@runtime_checkable
class Readings(Protocol):
    def reading(self) -> Reading: ...


@runtime_checkable
class BootOnce(Protocol):
    def boot_once(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """Arm a one-time override, and read it back: raises NotAsAsked when the BMC shows another."""
        ...

    def boot_override(self) -> BootOverride: ...
    def clear_boot_override(self) -> None: ...


@runtime_checkable
class BootModes(Protocol):
    def boot_mode(self) -> BootMode | None: ...
    def set_boot_mode(self, mode: BootMode) -> None: ...


@runtime_checkable
class SecureBoot(Protocol):
    def secure_boot(self) -> bool | None: ...
    def set_secure_boot(self, on: bool) -> None: ...


@runtime_checkable
class VirtualMedia(Protocol):
    def insert(self, url: str) -> Slot:
        """Eject what a CD slot holds, insert `url`, read it back: raises NotAsAsked when the slot shows another."""
        ...

    def eject(self) -> None:
        """Empty every slot that holds something, for a CD or not, and read back: still inserted is NotAsAsked. Empty slots are success.

        A slot in doubt is sent the eject as well, and whatever comes of that is success.
        """
        ...

    def inserted(self) -> tuple[Slot, ...]:
        """The slots that can hold a CD, filled or empty, and others that are filled."""
        ...


@runtime_checkable
class Inventories(Protocol):
    def inventory(self) -> Inventory: ...


@runtime_checkable
class Identifies(Protocol):
    def identity(self) -> Identity: ...
    def bmc_info(self) -> BmcInfo: ...


@runtime_checkable
class Accounts(Protocol):
    def accounts(self) -> tuple[Account, ...]: ...
    def set_password(self, username: str, password: SecretStr, slot: str | None = None) -> None:
        """Change one account's password at the BMC. The open session may end by it.

        `slot` chooses the account by its id; Refused when that one has another name by now. The own account's new password is proven by
        a login: NotAsAsked when the BMC acknowledged it and refuses that login, MaybeSent when the answer was lost and the login fails.
        """
        ...


@runtime_checkable
class DriveErase(Protocol):
    def drives(self) -> tuple[Drive, ...]: ...
    def erase(self, serial: str) -> Job:
        """Start the BMC's own erase of one drive (Redfish Drive.SecureErase)."""
        ...

    def erase_job(self, ref: str) -> Job:
        """How that erase stands. A Task that the BMC no longer knows is UNKNOWN."""
        ...


@runtime_checkable
class Baseline(Protocol):
    def baseline(self) -> Mapping[str, object]:
        """What must be the same when a tenant hands the machine back: accounts, network, firmware, boot settings. Plain JSON."""
        ...


@runtime_checkable
class BaselineMends(Protocol):
    """Put back single settings of what `baseline` shows. Each is read back; raises Unsupported where the BMC has no such setting."""

    def set_directory(self, name: str, enabled: bool, addresses: tuple[str, ...]) -> None:
        """A directory of users (LDAP, ActiveDirectory, …). Of one that is off, the addresses do not matter."""
        ...

    def remove_subscription(self, destination: str) -> None:
        """All event subscriptions to this destination."""
        ...

    def set_service(self, name: str, on: bool) -> None:
        """A network protocol of the BMC (HTTPS, SSH, IPMI, …)."""
        ...

    def set_boot_order(self, order: tuple[str, ...]) -> None: ...

    def end_other_sessions(self) -> tuple[str, ...]:
        """All but our own: one may outlive its account. The user names of those that the BMC keeps."""
        ...


@runtime_checkable
class BootAlways(Protocol):
    def boot_always(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """A lasting override, read back: raises NotAsAsked when the BMC shows another, Unsupported where it knows none."""
        ...


@runtime_checkable
class SecureBootKeys(Protocol):
    def secure_boot_mode(self) -> SecureBootMode | None:
        """None: the BMC does not say."""
        ...

    def reset_secure_boot_keys(self, to: KeyReset) -> None:
        """Ask for it once; in force from the next boot on, when `secure_boot_mode` shows it."""
        ...


@runtime_checkable
class Jobs(Protocol):
    def job(self, ref: str) -> Job:
        """How a job stands that one of the methods here began. One that the BMC no longer knows is UNKNOWN."""
        ...


@runtime_checkable
class Bios(Protocol):
    def bios(self) -> BiosState: ...
    def set_bios(self, attributes: Mapping[str, BiosValue]) -> None:
        """Write to the Settings resource; pending until the next boot. Raises Refused naming attributes that do not exist or are read-only."""
        ...

    def reset_bios(self) -> None:
        """To the maker's defaults, from the next boot on."""
        ...


@runtime_checkable
class TpmClear(Protocol):
    def clear_tpm(self) -> None:
        """Ask for it; carried out by the next boot. Raises Unsupported where the firmware offers no way."""
        ...

    def tpm_clear_waits(self) -> bool:
        """Whether it still waits for a boot."""
        ...


@runtime_checkable
class Firmware(Protocol):
    def firmware(self) -> tuple[FirmwareComponent, ...]: ...
    def update_firmware(self, url: str, targets: tuple[str, ...] = ()) -> Job:
        """The BMC fetches the image itself (UpdateService.SimpleUpdate). `targets`: refs; empty: the BMC finds out."""
        ...

    def push_firmware(
        self, image: Path, targets: tuple[str, ...] = (), told: Callable[[float], None] | None = None
    ) -> Job:
        """Send the image (MultipartHttpPushUri, else HttpPushUri), which may take longer than `Limits.total_s` while it goes on.

        `told` is called from the same thread with how much went out, until all did (below 1); what it raises ends the push, of which nothing is begun then.
        `wire.CutShort` says with it whether the BMC may still be written to, to tidy up. One that the BMC stopped taking is Busy.
        """
        ...


@runtime_checkable
class Volumes(Protocol):
    def volumes(self) -> tuple[Volume, ...]: ...
    def create_volume(self, wanted: VolumeWanted) -> Job: ...
    def delete_volume(self, ref: str) -> Job:
        """Destroys what is on it."""
        ...


@runtime_checkable
class Sensors(Protocol):
    def sensors(self) -> tuple[Sensor, ...]: ...
    def power_draw_w(self) -> float | None:
        """What the machine draws now; None: the BMC does not say."""
        ...


@runtime_checkable
class EventLog(Protocol):
    def event_log(self, limit: int = 100) -> tuple[LogEntry, ...]:
        """The newest `limit` entries, oldest first."""
        ...

    def clear_event_log(self) -> None: ...


@runtime_checkable
class Indicator(Protocol):
    def identified(self) -> bool | None: ...
    def identify(self, on: bool) -> None: ...


@runtime_checkable
class AccountControl(Protocol):
    """Accounts by `slot` (their id), for names may be changed. What is written is read back: NotAsAsked.

    The account that the conversation itself logs in with is neither switched off nor deleted: Refused.
    """

    def account_policy(self) -> AccountPolicy: ...
    def set_account_policy(self, policy: AccountPolicy) -> None:
        """Only what is not None."""
        ...

    def create_account(self, username: str, password: SecretStr, role: str) -> Account: ...
    def enable_account(self, slot: str, on: bool) -> None: ...
    def delete_account(self, slot: str) -> None:
        """Where accounts are fixed slots: emptied, else disabled."""
        ...


@runtime_checkable
class BmcReset(Protocol):
    def reset_bmc(self, hard: bool = False) -> None:
        """Restart the BMC, not the machine. It answers nothing for minutes afterwards."""
        ...


@runtime_checkable
class BmcClock(Protocol):
    def bmc_clock(self) -> str | None:
        """RFC 3339; None: the BMC does not say."""
        ...

    def set_bmc_clock(self, at: datetime) -> None: ...


@runtime_checkable
class BmcNetwork(Protocol):
    def bmc_network(self) -> tuple[BmcInterface, ...]: ...


@runtime_checkable
class Console(Protocol):
    def consoles(self) -> tuple[ConsoleAccess, ...]:
        """The ways that are switched on, best first."""
        ...


class ConsoleStream(Protocol):
    """An open serial console, for one thread. Each method raises a DriverError when it was taken away or the BMC is gone."""

    def read(self, timeout_s: float) -> bytes:
        """What the machine wrote; empty when it wrote nothing for so long."""
        ...

    def write(self, data: bytes) -> None:
        """Type this; returns when the BMC has it. Raises TimedOut when it does not take it: the machine may be off."""
        ...

    def send_break(self) -> None:
        """The serial line's break: SysRq for a kernel that listens to it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ConsoleStreams(Protocol):
    def open_console(self) -> ConsoleStream:
        """The console itself, in a session of its own; whoever had it loses it. Raises Unsupported where it is switched off."""
        ...


@runtime_checkable
class Events(Protocol):
    def events(self, wait_s: float, after: str | None = None) -> tuple[BmcEvent, ...]:
        """What came within `wait_s`: by server-sent events where the BMC offers them, else by reading its log. `after`: a ref."""
        ...


class EventStream(Protocol):
    """What a BMC tells as it happens. One thread reads and closes it."""

    def events(self) -> Iterator[BmcEvent]:
        """Until it ends, which it does by itself now and then. Raises DriverError for what is no stream of events."""
        ...

    def hang_up(self) -> None:
        """From any thread: `events` ends."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class EventStreams(Protocol):
    def open_events(self) -> EventStream | None:
        """On a connection of its own, in the driver's session: it ends with the driver. None where the BMC offers no stream."""
        ...


@runtime_checkable
class HostWays(Protocol):
    def host_ways(self) -> tuple[HostWay, ...]: ...
    def close_host_way(self, name: str) -> None:
        """Close one, and read it back. Raises Unsupported where the maker offers no way to."""
        ...


@runtime_checkable
class NetworkWays(Protocol):
    """What is open to whoever reaches the BMC's network, accounts apart: `cipher-0`, `unencrypted-suites`, `ipmi-1.5`, `null-user`, `ipmi-over-lan`."""

    def network_ways(self) -> tuple[HostWay, ...]: ...
    def close_network_way(self, name: str) -> None:
        """Close one, and read it back: raises NotAsAsked when it shows open still, Unsupported where there is no way to."""
        ...


@runtime_checkable
class Remembers(Protocol):
    def learned(self) -> Mapping[str, object]:
        """What was found out about this BMC, as plain JSON to be given to `open_bmc` the next time. Holds no secret.

        None stands for what was known before and turned out wrong. Asks the BMC nothing.
        """
        ...


C = TypeVar("C")


def need(bmc: object, capability: type[C]) -> C:
    """The BMC, seen as one that has this capability; raises Unsupported when its driver does not."""
    if not isinstance(bmc, capability):
        raise Unsupported(f"{getattr(bmc, 'address', bmc)}: this driver does not offer {capability.__name__}")
    return bmc


def offers(bmc: object, capability: type) -> bool:
    """Whether the driver has the capability (its model may still not)."""
    return isinstance(bmc, capability)
