"""What can go wrong while a ramdisk is built."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# The program and Debian's package that has it.
_PACKAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "apt-get": "apt",
        "apt-cache": "apt",
        "dpkg-deb": "dpkg",
        "depmod": "kmod",
        "zstd": "zstd",
        "mformat": "mtools",
        "mmd": "mtools",
        "mcopy": "mtools",
        "xorriso": "xorriso",
        "mkfs.ext4": "e2fsprogs",
    }
)


class BuildFailed(Exception):
    """The ramdisk could not be built. `hint` is what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def tool(name: str) -> str:
    """Where this program of the host lies; BuildFailed names the package to install."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        package = _PACKAGES.get(name, name)
        raise BuildFailed(f"{name} is not on this host", f"apt-get install {package}")
    return found
