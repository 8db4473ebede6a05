"""The hardware tests that a task may ask for, and the pass marks that each may be given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# test → pass mark → what counts when it is not given; None: then the figure is told and not judged. Errors are the most that are
# allowed in the test's time; a floor is the least that is wanted.
MARKS: Final[Mapping[str, Mapping[str, float | None]]] = MappingProxyType(
    {
        "cpu": {
            "corrected_errors": 0,  # machine checks and EDAC's, of memory and caches
            "throttled": None,  # times that a core was slowed because of heat
            "max_celsius": None,
        },
        "memory": {
            "corrected_errors": 0,
            "share_percent": 90,  # of the memory that is free; the rest is the ramdisk's to live on
        },
        "smart": {
            "reallocated": 10,  # sectors
            "pending": 0,
            "offline_uncorrectable": 0,
            "uncorrectable": 0,
            "crc_errors": None,  # of the cable, mostly, and never reset
            "grown_defects": 10,
            "read_uncorrected": 0,
            "write_uncorrected": 0,
            "media_errors": 0,
            "percent_used": 90,  # of the wear that the maker warrants
            "power_on_hours": None,
            "temperature_c": None,
        },
        "disk-read": {
            "read_errors": 0,
            "floor_mbps": None,  # megabytes a second, of each disk
            "covered_percent": None,  # the least of each disk that was read in the time
            "slow_reads": None,  # reads of 4 MiB that took longer than 2 s
        },
        "disk-speed": {"floor_mbps": None, "floor_iops": None},
        "network": {
            "links": 1,  # cards with a carrier
            "floor_mbps": None,  # megabits a second, of each link
            "errors": 0,  # of all cards, both ways
            "flaps": 0,  # times that a carrier changed
        },
        "gpu": {
            "count": None,
            "uncorrected_errors": 0,
            "max_celsius": None,
        },
        "clock": {
            "skew_s": 5,  # hardware clock against the daemon's; where `server_time` was given
            "drift_ppm": 500,  # judged after 60 s, for the hardware clock shows whole seconds only
            "server_time": None,  # RFC 3339: the daemon's time when the task was handed out
        },
    }
)
