"""The Redfish driver: what `capabilities` asks for, each method one call through the door.

Each method reads the tree anew; nothing of a machine's state is kept between calls. What is kept is what was learned about the BMC:
how it logs in, where its system is, which payload its slots take, whether its ETags are worth anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from bcmetal_drivers import (
    doors,
    redfish_account_control,
    redfish_accounts,
    redfish_baseline,
    redfish_bios,
    redfish_boot,
    redfish_drives,
    redfish_firmware,
    redfish_identity,
    redfish_inventory,
    redfish_media,
    redfish_power,
    redfish_push,
    redfish_secure_boot,
    redfish_sessions,
    redfish_tpm,
    redfish_volumes,
)
from bcmetal_drivers.capabilities import (
    AccountControl,
    Accounts,
    Baseline,
    BaselineMends,
    Bios,
    Bmc,
    BootAlways,
    BootModes,
    BootOnce,
    DriveErase,
    Firmware,
    Identifies,
    Inventories,
    Jobs,
    Power,
    Readings,
    Remembers,
    SecureBoot,
    SecureBootKeys,
    TpmClear,
    VirtualMedia,
    Volumes,
)
from bcmetal_drivers.connection import BmcAddress, Credential, Limits, Trust
from bcmetal_drivers.door import Door
from bcmetal_drivers.learned import OF_THE_DOOR, read
from bcmetal_drivers.redfish_document import health
from bcmetal_drivers.redfish_tree import Tree
from bcmetal_drivers.redfish_upkeep import Upkeep
from bcmetal_drivers.resources import (
    Account,
    AccountPolicy,
    BiosState,
    BiosValue,
    BmcInfo,
    BootDevice,
    BootMode,
    BootOverride,
    Drive,
    FirmwareComponent,
    Identity,
    Inventory,
    Job,
    KeyReset,
    PowerAction,
    PowerState,
    Reading,
    SecureBootMode,
    Slot,
    Volume,
    VolumeWanted,
)


class RedfishBmc(Upkeep):
    """An open conversation with one Redfish BMC about one of its systems. Connects and logs in at the first call."""

    def __init__(
        self,
        address: BmcAddress,
        credential: Credential,
        trust: Trust,
        limits: Limits,
        learned: Mapping[str, object] | None = None,
        door: Door | None = None,
    ) -> None:
        """`learned` is what `learned()` gave before; `door` one of its own, in place of the one that is shared.

        Raises InsecureTransport for plain HTTP without a trust of none.
        """
        self._address = address
        self._credential = credential
        known = read(learned)
        of_the_door = {name: known.pop(name) for name in OF_THE_DOOR & known.keys()}
        entered = (
            doors.alone(door, credential) if door else doors.enter(address, credential, trust, limits, of_the_door)
        )
        self._pass = entered
        self._door = self._pass.door
        self._tree = Tree(self._door, address, known)
        self._closed = False

    @property
    def address(self) -> BmcAddress:
        return self._address

    def close(self) -> None:
        """The session ends when nobody else uses this BMC with these credentials."""
        if not self._closed:
            self._closed = True
            self._pass.leave()

    def learned(self) -> Mapping[str, object]:
        return self._tree.lasting()

    @contextmanager
    def _call(self) -> Iterator[Tree]:
        with self._door.call():
            yield self._tree

    # ------------------------------------------------------------ power

    def power_state(self) -> PowerState:
        with self._look() as tree:
            return redfish_power.power_of(tree.system())

    def set_power(self, action: PowerAction) -> None:
        """Raises MaybeSent when the answer was lost and the state does not show it: a restart never shows."""
        with self._call() as tree:
            redfish_power.set_power(tree, action)

    def reading(self) -> Reading:
        with self._look() as tree:
            system = tree.system()
            return Reading(
                redfish_power.power_of(system),
                redfish_boot.mode_of(system),
                health(system),
                redfish_power.boot_progress_of(system),
            )

    # ------------------------------------------------------------ boot

    def boot_once(self, device: BootDevice, mode: BootMode | None = None) -> None:
        with self._call() as tree:
            redfish_boot.boot_once(tree, device, mode)

    def boot_always(self, device: BootDevice, mode: BootMode | None = None) -> None:
        """By the boot order where the BMC knows no lasting override; `boot_override` does not show that."""
        with self._call() as tree:
            redfish_boot.boot_always(tree, device, mode)

    def boot_override(self) -> BootOverride:
        with self._look() as tree:
            return redfish_boot.boot_override(tree)

    def clear_boot_override(self) -> None:
        with self._call() as tree:
            redfish_boot.clear(tree)

    def boot_mode(self) -> BootMode | None:
        with self._look() as tree:
            return redfish_boot.mode_of(tree.system())

    def set_boot_mode(self, mode: BootMode) -> None:
        with self._call() as tree:
            redfish_boot.set_boot_mode(tree, mode)

    def secure_boot(self) -> bool | None:
        with self._look() as tree:
            return redfish_boot.secure_boot(tree)

    def set_secure_boot(self, on: bool) -> None:
        with self._call() as tree:
            redfish_boot.set_secure_boot(tree, on)

    def secure_boot_mode(self) -> SecureBootMode | None:
        with self._look() as tree:
            return redfish_secure_boot.mode(tree)

    def reset_secure_boot_keys(self, to: KeyReset) -> None:
        with self._call() as tree:
            redfish_secure_boot.reset_keys(tree, to)

    # ------------------------------------------------------------ BIOS settings

    def bios(self) -> BiosState:
        with self._look() as tree:
            return redfish_bios.bios(tree)

    def set_bios(self, attributes: Mapping[str, BiosValue]) -> None:
        with self._call() as tree:
            redfish_bios.set_bios(tree, attributes)

    def reset_bios(self) -> None:
        with self._call() as tree:
            redfish_bios.reset_bios(tree)

    # ------------------------------------------------------------ firmware

    def firmware(self) -> tuple[FirmwareComponent, ...]:
        with self._call() as tree:
            return redfish_firmware.firmware(tree)

    def update_firmware(self, url: str, targets: tuple[str, ...] = ()) -> Job:
        with self._call() as tree:
            return redfish_firmware.update(tree, url, targets)

    def push_firmware(
        self, image: Path, targets: tuple[str, ...] = (), told: Callable[[float], None] | None = None
    ) -> Job:
        with self._call() as tree:
            return redfish_push.push(tree, image, targets, told)

    def job(self, ref: str) -> Job:
        with self._call() as tree:
            return redfish_firmware.job(tree, ref)

    # ------------------------------------------------------------ virtual media

    def insert(self, url: str) -> Slot:
        with self._call() as tree:
            return redfish_media.insert(tree, url)

    def eject(self) -> None:
        with self._call() as tree:
            redfish_media.eject(tree)

    def inserted(self) -> tuple[Slot, ...]:
        with self._look() as tree:
            return tuple(drive.slot for drive in redfish_media.drives(tree))

    # ------------------------------------------------------------ who it is

    def identity(self) -> Identity:
        with self._call() as tree:
            return redfish_identity.identity(tree)

    def bmc_info(self) -> BmcInfo:
        with self._call() as tree:
            return redfish_identity.bmc_info(tree)

    def inventory(self) -> Inventory:
        with self._call() as tree:
            return redfish_inventory.inventory(tree)

    # ------------------------------------------------------------ accounts, baseline

    def accounts(self) -> tuple[Account, ...]:
        with self._call() as tree:
            return redfish_accounts.accounts(tree)

    def set_password(self, username: str, password: SecretStr, slot: str | None = None) -> None:
        """The own account's new password is proven by a login, and used from then on."""
        with self._call() as tree:
            if username == self._credential.username:
                self._pass.keep_to_ourselves()
            self._credential = redfish_accounts.set_password(tree, self._credential, username, password, slot)

    def account_policy(self) -> AccountPolicy:
        with self._call() as tree:
            return redfish_account_control.policy(tree)

    def set_account_policy(self, policy: AccountPolicy) -> None:
        with self._call() as tree:
            redfish_account_control.set_policy(tree, policy)

    def create_account(self, username: str, password: SecretStr, role: str) -> Account:
        with self._call() as tree:
            return redfish_account_control.create(tree, username, password, role)

    def enable_account(self, slot: str, on: bool) -> None:
        with self._call() as tree:
            redfish_account_control.enable(tree, self._credential, slot, on)

    def delete_account(self, slot: str) -> None:
        with self._call() as tree:
            redfish_account_control.delete(tree, self._credential, slot)

    def baseline(self) -> Mapping[str, object]:
        with self._call() as tree:
            return redfish_baseline.baseline(tree)

    def set_directory(self, name: str, enabled: bool, addresses: tuple[str, ...]) -> None:
        with self._call() as tree:
            redfish_baseline.set_directory(tree, name, enabled, addresses)

    def remove_subscription(self, destination: str) -> None:
        with self._call() as tree:
            redfish_baseline.remove_subscription(tree, destination)

    def set_service(self, name: str, on: bool) -> None:
        with self._call() as tree:
            redfish_baseline.set_service(tree, name, on)

    def end_other_sessions(self) -> tuple[str, ...]:
        with self._call() as tree:
            return redfish_sessions.end_others(tree)

    def set_boot_order(self, order: tuple[str, ...]) -> None:
        with self._call() as tree:
            redfish_baseline.set_boot_order(tree, order)

    def clear_tpm(self) -> None:
        with self._call() as tree:
            redfish_tpm.clear(tree)

    def tpm_clear_waits(self) -> bool:
        with self._look() as tree:
            return redfish_tpm.waits(tree)

    # ------------------------------------------------------------ drives

    def drives(self) -> tuple[Drive, ...]:
        with self._call() as tree:
            return redfish_drives.drives(tree)

    def erase(self, serial: str) -> Job:
        """An erase of that drive that runs already is found, not started again."""
        with self._call() as tree:
            return redfish_drives.erase(tree, serial)

    def erase_job(self, ref: str) -> Job:
        with self._call() as tree:
            return redfish_drives.erase_job(tree, ref)

    # ------------------------------------------------------------ RAID volumes

    def volumes(self) -> tuple[Volume, ...]:
        with self._call() as tree:
            return redfish_volumes.volumes(tree)

    def create_volume(self, wanted: VolumeWanted) -> Job:
        with self._call() as tree:
            return redfish_volumes.create(tree, wanted)

    def delete_volume(self, ref: str) -> Job:
        with self._call() as tree:
            return redfish_volumes.delete(tree, ref)


_bmc: type[Bmc] = RedfishBmc
_conforms_remembers: type[Remembers] = RedfishBmc
_conforms_power: type[Power] = RedfishBmc
_conforms_readings: type[Readings] = RedfishBmc
_conforms_boot: type[BootOnce] = RedfishBmc
_conforms_modes: type[BootModes] = RedfishBmc
_conforms_secure_boot: type[SecureBoot] = RedfishBmc
_conforms_media: type[VirtualMedia] = RedfishBmc
_conforms_identity: type[Identifies] = RedfishBmc
_conforms_inventory: type[Inventories] = RedfishBmc
_conforms_accounts: type[Accounts] = RedfishBmc
_conforms_account_control: type[AccountControl] = RedfishBmc
_conforms_erase: type[DriveErase] = RedfishBmc
_conforms_baseline: type[Baseline] = RedfishBmc
_conforms_baseline_mends: type[BaselineMends] = RedfishBmc
_conforms_tpm_clear: type[TpmClear] = RedfishBmc
_conforms_bios: type[Bios] = RedfishBmc
_conforms_always: type[BootAlways] = RedfishBmc
_conforms_keys: type[SecureBootKeys] = RedfishBmc
_conforms_firmware: type[Firmware] = RedfishBmc
_conforms_jobs: type[Jobs] = RedfishBmc
_conforms_volumes: type[Volumes] = RedfishBmc
