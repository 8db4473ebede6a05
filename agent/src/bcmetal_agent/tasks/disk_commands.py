"""Commands that a disk answers itself, where sysfs does not hold the answer: SCSI by SG_IO, and IDENTIFY DEVICE of an ATA disk."""

from __future__ import annotations

import ctypes
import fcntl
from typing import Final

_SG_IO: Final = 0x2285  # scsi/sg.h
_SG_DXFER_NONE, _SG_DXFER_FROM_DEV = -1, -3
_HDIO_GET_IDENTITY: Final = 0x030D  # linux/hdreg.h; libata answers it
_INQUIRY: Final = 0x12
_ATA_PASS_THROUGH_16: Final = 0x85  # SAT-4, 12.2.2
_TIMEOUT_MS: Final = 10_000


class _SgIoHdr(ctypes.Structure):
    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("dxfer_direction", ctypes.c_int),
        ("cmd_len", ctypes.c_ubyte),
        ("mx_sb_len", ctypes.c_ubyte),
        ("iovec_count", ctypes.c_ushort),
        ("dxfer_len", ctypes.c_uint),
        ("dxferp", ctypes.c_void_p),
        ("cmdp", ctypes.c_void_p),
        ("sbp", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte),
        ("sb_len_wr", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("resid", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


def scsi_read(fd: int, cdb: bytes, size: int) -> bytes | None:
    """What the device sends for this command; None when it refuses it, or does not speak SCSI."""
    data = ctypes.create_string_buffer(size)
    sense = ctypes.create_string_buffer(64)
    command = ctypes.create_string_buffer(cdb, len(cdb))
    header = _SgIoHdr(
        interface_id=ord("S"),
        dxfer_direction=_SG_DXFER_FROM_DEV,
        cmd_len=len(cdb),
        mx_sb_len=len(sense),
        dxfer_len=size,
        dxferp=ctypes.addressof(data),
        cmdp=ctypes.addressof(command),
        sbp=ctypes.addressof(sense),
        timeout=_TIMEOUT_MS,
    )
    try:
        fcntl.ioctl(fd, _SG_IO, header)
    except OSError:
        return None
    if header.status or header.host_status or header.driver_status:
        return None
    return data.raw[: max(0, size - header.resid)]


def vital_product_data(fd: int, page: int) -> bytes | None:
    """A VPD page (SPC-5, 7.7), as sysfs would hold it."""
    size = 512
    found = scsi_read(fd, bytes([_INQUIRY, 1, page, size >> 8, size & 0xFF, 0]), size)
    return found if found is not None and len(found) >= 4 and found[1] == page else None


def ata_identity(fd: int) -> bytes | None:
    """The 512 bytes of IDENTIFY DEVICE (ACS-4, 7.13): by libata, or through a translator (SAT)."""
    data = bytearray(512)
    try:
        fcntl.ioctl(fd, _HDIO_GET_IDENTITY, data)
    except OSError:
        # PIO data-in, one sector, length in the sector count
        cdb = bytes([_ATA_PASS_THROUGH_16, 4 << 1, 0x0E, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xEC, 0])
        return scsi_read(fd, cdb, 512)
    return bytes(data)
