"""How one Redfish BMC of the rack differs from a well-behaved one, changeable while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(slots=True)
class Quirks:
    erase: bool = True  # drives offer SecureErase
    erase_s: float = 0.0  # how long an erase takes
    erase_oem: bool = False  # the erase is an action of the maker's
    erase_kinds: tuple[str, ...] = ()  # SanitizationTypes, one of which must be named
    erase_lie: str | None = None  # "visible": completed and still shows data; "hidden": looks erased and is not
    basic: bool = True  # HTTP Basic is accepted
    session_service: bool = True  # there is one
    session_limit: int = 8
    session_timeout_s: float = 1800.0
    lock_after: int | None = None  # failed logins in a row
    lock_s: float = 60.0
    account_slots: int = 0  # accounts are so many fixed slots, written and never made; 0: made by POST
    password_shortest: int = 1
    password_longest: int = 64
    password_days: int | None = None  # after which it must be changed, as is shown; nothing expires by it here
    sensors: str = "both"  # or "collection", "legacy" (Thermal, Power), "subsystem", "none"
    expand: bool = False  # `$expand` is known, for sensors
    log_order: str = "oldest"  # or "newest": which entry comes first
    log_inline: bool = True  # entries are in the collection; else links to them
    events_stream: bool = True  # server-sent events
    light: str = (
        "active"  # which property the identify light has: "active", "led", "lit" (an LED that is never off), "none"
    )
    without_bmc_resets: tuple[str, ...] = ()  # ResetTypes of the manager that it does not offer
    bmc_reset_s: float = 0.0  # how long it answers nothing after its restart
    clock_set: bool = True  # the manager's clock can be set
    oem_kcs: bool = False  # a maker's setting opens and closes KCS
    etag: bool = False  # PATCH demands If-Match
    etag_form: str = "strong"  # or "weak", "empty", "absent"
    page: int | None = None  # members a page
    media_at: str = "systems"  # or "managers", "both"
    media_insert: str = "action"  # or "patch": no actions, the slot is written
    cd_name: str = "Cd"  # or "UsbCd", "absent": what the virtual one is called in the boot override
    boot_settings: bool = False  # the override must be written to the Settings resource
    continuous: bool = True  # BootSourceOverrideEnabled knows Continuous
    mode_shown: bool = True  # BootSourceOverrideMode is there
    mode_writable: bool = True  # else it is changed by the BIOS settings alone
    boot_order: str = (
        "system"  # where it is written: "system", "settings" (which holds nothing else), or "none": there is none
    )
    without_resets: tuple[str, ...] = ()  # ResetTypes that it does not offer
    refuse_same_power: bool = False  # a reset to the state that it is in is answered 409
    boot_progress: str | None = (
        None  # BootProgress.LastState of a machine that is on; None: the resource has no BootProgress
    )
    clock_skew_s: float = 0.0  # how far its clock is ahead
    controllers: int = 1  # that share the drives out among them
    raid_kinds: tuple[str, ...] = ("RAID0", "RAID1", "RAID5", "RAID6", "RAID10")  # that they make
    volume_form: str = "raid"  # RAIDType with Links.Drives, or "type": VolumeType with Drives, as before Volume v1.4
    volume_capabilities: bool = False  # they say what a new volume takes: a DisplayName, and no Name
    volume_times: tuple[str, ...] = ()  # when it may be done, as they offer it
    volume_time_demanded: bool = False
    volume_task: bool = True  # it is answered 202 with a Task, else 201 or 204
    volume_s: float = 0.0  # how long it takes
    secure_boot_keys: str = "resource"  # who resets them: "resource", "databases", or "none"
    volumes_shown: bool = True  # drives tell which volumes are on them
    update_forms: tuple[str, ...] = ("simple", "multipart", "push")  # ways to give it firmware
    update_protocol: str = (
        "optional"  # SimpleUpdate's TransferProtocol: or "demanded", "refused", "bare" (and no scheme in the URI)
    )
    push_form: str = "plain"  # HttpPushUri takes the image alone; or "staged" (it is the inventory), "session-form"
    push_oem_demanded: bool = False  # a multipart push must bring AMI's OemParameters
    push_bytes_s: int | None = None  # how fast an image is taken
    install_by: str = "simple"  # a staged image: by SimpleUpdate, or "oem", a maker's action
    update_time_demanded: bool = False  # a multipart push must say when
    update_task_named: bool = True  # an update is answered 202 with its Task, else 200 and nothing more
    update_largest: int | None = None  # MaxImageSizeBytes
    update_s: float = 0.0  # how long an update takes
    update_bios_at_boot: bool = True  # a BIOS is another one after the next boot, else when its Task ends
    update_restart_s: float = 0.0  # how long the BMC is away after an update of its own
    update_flaps: int = 0  # how often it then comes and goes
    update_lie: str | None = None  # "unchanged": the Task completes, the version stays
    bios: bool = True  # BIOS settings are there
    bios_settings: str = (
        "pending"  # what the Settings resource shows: "pending", "all", or "none" (no attributes at all)
    )
    bios_settings_at: str = "Settings"  # or "SD", "Pending"
    bios_settings_linked: bool = True  # the Bios resource names its Settings resource
    bios_apply_time: str = "ignored"  # the apply time of a change: offered, and "demanded" (else nothing comes of it) or "refused" all the same
    bios_registry: bool = True  # there is an attribute registry
    bios_rejects: tuple[str, ...] = ()  # attributes that a boot does not take
    bios_lie: str | None = None  # "lost": what waits is forgotten by the boot
    bios_job: bool = False  # a change is answered with a Task that ends at the next boot
    bios_post_s: float = 0.0  # for how long after a boot begins they are answered 500
    failed_logins_take_room: bool = False  # in the session table, until they expire
    shuffles_members: bool = False  # collections in another order at each read
    padding_bytes: int = 0  # how much a firmware entry is longer than it need be
    image_shown: str = "url"  # or "name": a filled slot's Image is the file's name
    settings_name: str = "Settings"  # or "SD": where `boot_settings` has the override written
    other_cd: str | None = None  # another word of the boot override, for a drive that nobody has any more
    boot_change_halts: bool = False  # a machine with a system halts after a change of the override
    empty_when_off: bool = False  # no CPUs and no memory are reported of a machine that is off
    misses_a_drive: bool = False  # the last one is not shown until the BMC is reset

    def set(self, name: str, value: object) -> None:
        """Raises ValueError for a name that is not one of the fields."""
        if name not in {field.name for field in fields(self)}:
            raise ValueError(f"a Redfish BMC of the rack has no setting {name!r}")
        setattr(self, name, value)

    def snapshot(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, doc: Mapping[str, Any]) -> None:
        for name, value in doc.items():
            self.set(name, value)
