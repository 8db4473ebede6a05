"""Which disk the system goes to.

Never a BMC's virtual medium, never a shared disk, a removable or a read-only one, and none that cannot be named afterwards: a disk
without a serial, or one that serial, size and WWN do not tell from another.

Without hints it is the smallest disk of at least `LEAST_BYTES`: makers put the system on the small one and data on the large ones. Of
several that size a solid one comes before a rotating one, then the first slot (by-path), then the first serial: so the choice is the
same at each deploy, which kernel names such as sda would not give. Ironic's default is the smallest of at least 4 GiB too, and then the first by name.

With hints exactly one disk has to agree with all of them. Where several do, none is taken (Ironic takes the first).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from bcmetal.comparing.spelling import same_model, same_serial, same_wwn
from bcmetal_agent.wire_inventory import Disk

LEAST_BYTES: Final = 4 * 2**30
_SHOWN: Final = 24


@dataclass(frozen=True, slots=True)
class Hints:
    """What is None does not matter. `by_path`: with or without /dev/disk/by-path/. `transport`: as in the inventory (nvme, ata, sas …)."""

    serial: str | None = None
    wwn: str | None = None
    model: str | None = None
    min_size_bytes: int | None = None
    max_size_bytes: int | None = None
    rotational: bool | None = None
    by_path: str | None = None
    transport: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Hints:
        """From JSON with camelCase or snake_case names. Raises ValueError for a name that is no hint: a hint is never passed over."""
        snake = {re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name): value for name, value in (given or {}).items()}
        unknown = sorted(set(snake) - {one.name for one in fields(cls)})
        if unknown:
            raise ValueError(f"no hint for a root device: {', '.join(unknown)}")
        return cls(**snake)

    def __str__(self) -> str:
        told = ((one.name.replace("_", "-"), getattr(self, one.name)) for one in fields(self))
        return ", ".join(f"{name} {_word(value)}" for name, value in told if value is not None)


@dataclass(frozen=True, slots=True)
class NoRootDevice:
    """`message` names what was there and why none of it was taken."""

    message: str


def root_device(
    disks: Sequence[Disk], hints: Hints | None = None, least_bytes: int = LEAST_BYTES
) -> Disk | NoRootDevice:
    """`least_bytes`: what the disk has to hold, such as the unpacked image."""
    wanted = hints or Hints()
    if not disks:
        return NoRootDevice("the machine has no disk")
    unfit = {one.name: why for one in disks if (why := _unfit(one, disks, least_bytes)) is not None}
    agreeing = [one for one in disks if _agrees(one, wanted)]
    fit = [one for one in agreeing if one.name not in unfit]
    if wanted == Hints():
        return min(fit, key=_order) if fit else NoRootDevice(f"no disk can take the system: {_told(disks, unfit)}")
    if len(fit) == 1:
        return fit[0]
    if fit:
        return NoRootDevice(
            f"{len(fit)} disks agree with the hints ({wanted}); name one by serial, wwn or by-path: {_told(fit, {})}"
        )
    if agreeing:
        return NoRootDevice(f"what agrees with the hints ({wanted}) cannot take the system: {_told(agreeing, unfit)}")
    return NoRootDevice(f"no disk agrees with the hints ({wanted}); there is: {_told(disks, unfit)}")


def _unfit(one: Disk, disks: Sequence[Disk], least_bytes: int) -> str | None:
    if one.virtual_medium:
        return "a BMC's virtual medium"
    if one.shared:
        return "shared with other machines"
    if one.removable:
        return "removable"
    if one.read_only:
        return "read-only"
    if one.size_bytes < least_bytes:
        return f"smaller than {_size(least_bytes)}"
    if not (one.serial or "").strip():
        return "tells no serial"
    if any(other is not one and _not_told_apart(other, one) for other in disks):
        return "has the serial of another disk"
    return None


def _not_told_apart(one: Disk, other: Disk) -> bool:
    """An NVMe controller's namespaces have its serial, and each its own WWN or size."""
    if not same_serial(one.serial, other.serial) or one.size_bytes != other.size_bytes:
        return False
    return one.wwn is None or other.wwn is None or same_wwn(one.wwn, other.wwn)


def _agrees(one: Disk, hints: Hints) -> bool:
    return (
        (hints.serial is None or same_serial(hints.serial, one.serial))
        and (hints.wwn is None or same_wwn(hints.wwn, one.wwn))
        and (hints.model is None or same_model(hints.model, one.model))
        and (hints.min_size_bytes is None or one.size_bytes >= hints.min_size_bytes)
        and (hints.max_size_bytes is None or one.size_bytes <= hints.max_size_bytes)
        and (hints.rotational is None or one.rotational is hints.rotational)
        and (hints.by_path is None or _path(hints.by_path) == _path(one.by_path))
        and (hints.transport is None or hints.transport.casefold() == (one.transport or "").casefold())
    )


def _path(path: str | None) -> str:
    return (path or "").rpartition("/")[2]


def _order(one: Disk) -> tuple[int, bool, list[tuple[int, int, str]], str]:
    return one.size_bytes, one.rotational is True, _natural(_path(one.by_path) or "~"), one.serial or ""


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]{1,18})", text)]


def _told(disks: Sequence[Disk], unfit: Mapping[str, str]) -> str:
    shown = "; ".join(_named(one, unfit.get(one.name)) for one in disks[:_SHOWN])
    return shown + (f"; and {len(disks) - _SHOWN} more" if len(disks) > _SHOWN else "")


def _named(one: Disk, why_not: str | None) -> str:
    words = [
        one.name,
        one.model,
        _size(one.size_bytes),
        f"serial {one.serial}" if one.serial else None,
        f"wwn {one.wwn}" if one.wwn else None,
        _path(one.by_path) or None,
        f"({why_not})" if why_not else None,
    ]
    return " ".join(word for word in words if word)


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
