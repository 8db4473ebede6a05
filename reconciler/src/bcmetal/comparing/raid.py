"""Which volumes a RAID layout keeps, deletes and makes, given the drives that are there. Pure; the same drives always give the same layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bcmetal_drivers.resources import Drive, Volume, VolumeWanted

ANY: Final = "any"
LEAST: Final = {"RAID0": 1, "RAID1": 2, "RAID5": 3, "RAID6": 4, "RAID10": 4}
NEAR: Final = 0.95  # drives of one volume are at least so alike in size


class Row(Protocol):
    """A row of the profile's layout."""

    @property
    def raid(self) -> str: ...
    @property
    def drives(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def name(self) -> str | None: ...


class NoLayout(Exception):
    """The drives that are there do not make this layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Deleted first, in this order; then made."""

    delete: tuple[Volume, ...]
    make: tuple[VolumeWanted, ...]

    @property
    def is_there(self) -> bool:
        return not self.delete and not self.make


def layout_of(rows: Sequence[Row], drives: Sequence[Drive], volumes: Sequence[Volume]) -> Layout:
    """A volume that is as a row wants it stays; every other volume goes. Raises NoLayout."""
    kinds = {drive.serial: drive for drive in drives}
    kept: list[Volume] = []
    missing: list[Row] = []
    for row in rows:
        found = next((one for one in volumes if one not in kept and _is(row, one, kinds)), None)
        if found is None:
            missing.append(row)
        else:
            kept.append(found)
    delete = tuple(one for one in volumes if one not in kept)
    used = {serial for one in kept for serial in one.drives}
    free = sorted((one for one in drives if one.serial not in used), key=lambda one: one.serial)
    return Layout(delete, tuple(_made(row, free) for row in missing))


def _is(row: Row, volume: Volume, kinds: dict[str, Drive]) -> bool:
    members = [kinds.get(serial) for serial in volume.drives]
    right = all(one is not None and _kind(row, one) for one in members)
    return volume.raid == row.raid and len(members) == row.count and right


def _kind(row: Row, drive: Drive) -> bool:
    return row.drives == ANY or drive.media == row.drives


def _made(row: Row, free: list[Drive]) -> VolumeWanted:
    """Of the drives that are alike in size, the smallest that are enough; they are free no more."""
    for group in _alike([one for one in free if _kind(row, one)]):
        if len(group) >= row.count:
            chosen = group[: row.count]
            for one in chosen:
                free.remove(one)
            return VolumeWanted(row.raid, tuple(one.serial for one in chosen), row.name)
    what = "drives" if row.drives == ANY else f"drives of kind {row.drives}"
    raise NoLayout(f"{row.raid} wants {row.count} {what} alike in size that are in no other volume; they are not there")


def _alike(drives: Sequence[Drive]) -> Iterator[list[Drive]]:
    left = sorted(drives, key=lambda one: (one.capacity_bytes or 0, one.serial))
    while left:
        least = left[0].capacity_bytes or 0
        group = [one for one in left if (one.capacity_bytes or 0) * NEAR <= least]
        yield group
        left = left[len(group) :]
