"""Which of the kernel's modules go into the ramdisk: patterns over their paths below `kernel/`, without `.ko`."""

from __future__ import annotations

from typing import Final

# What must be there in every flavour, built in or as a module; a kernel without it is refused.
REQUIRED: Final = ("isofs", "sr_mod", "sd_mod", "nvme", "virtio_net", "loop", "efivarfs", "vfat")

WANTED: Final = (
    # disks
    "drivers/nvme/host/nvme",
    "drivers/ata/*",
    "drivers/scsi/*",
    "drivers/message/fusion/mpt*",
    "drivers/block/virtio_blk",
    "drivers/block/xen-blkfront",
    "drivers/block/loop",
    "drivers/block/mtip32xx/*",
    "drivers/mmc/*",
    "drivers/cdrom/*",
    # what a BMC's virtual media and keyboard are
    "drivers/usb/host/*",
    "drivers/usb/storage/usb-storage",
    "drivers/usb/storage/uas",
    "drivers/hid/hid-generic",
    "drivers/hid/usbhid/usbhid",
    "fs/isofs/*",
    "fs/fat/*",
    "fs/efivarfs/*",
    "fs/nls/nls_ascii",
    "fs/nls/nls_cp437",
    "fs/nls/nls_utf8",
    "fs/nls/nls_iso8859-1",
    # networks
    "drivers/net/ethernet/*",
    "drivers/net/phy/*",
    "drivers/net/mdio/*",
    "drivers/net/virtio_net",
    "drivers/net/vmxnet3/*",
    "drivers/net/hyperv/*",
    "drivers/net/xen-netfront",
    "drivers/net/bonding/*",
    "net/8021q/*",
    "net/packet/*",
    "net/ipv6/ipv6",
    # the platform
    "drivers/virtio/*",
    "drivers/hv/*",
    "drivers/firmware/qemu_fw_cfg",
    "drivers/firmware/efi/*",
    "drivers/char/ipmi/*",
    "drivers/acpi/acpi_ipmi",
    "drivers/char/tpm/*",
    "drivers/char/hw_random/*",
    "drivers/edac/*",
    "drivers/hwmon/coretemp",
    "drivers/hwmon/k10temp",
    "drivers/hwmon/drivetemp",
    "drivers/hwmon/jc42",
    "drivers/i2c/busses/i2c-i801",
    "drivers/i2c/busses/i2c-piix4",
    "drivers/misc/eeprom/ee1004",
    "drivers/watchdog/iTCO_wdt",
    "drivers/pci/controller/vmd",
    "drivers/dax/*",
    "drivers/nvdimm/*",
    "drivers/acpi/nfit/*",
    "arch/x86/kernel/msr",
    "arch/x86/kernel/cpuid",
    "crypto/crc32c_generic",
)

# Fibre Channel, iSCSI and NVMe over fabrics: storage that others may share is never written, so it is not even seen.
# The rest has no place in a server of this century.
UNWANTED: Final = (
    "drivers/scsi/*fc*",
    "drivers/scsi/qla2xxx/*",
    "drivers/scsi/lpfc/*",
    "drivers/scsi/bfa/*",
    "drivers/scsi/fnic/*",
    "drivers/scsi/csiostor/*",
    "drivers/scsi/qedf/*",
    "drivers/scsi/qedi/*",
    "drivers/scsi/bnx2fc/*",
    "drivers/scsi/bnx2i/*",
    "drivers/scsi/cxgbi/*",
    "drivers/scsi/be2iscsi/*",
    "drivers/scsi/qla4xxx/*",
    "drivers/scsi/*iscsi*",
    "drivers/scsi/elx/*",
    "drivers/scsi/fcoe/*",
    "drivers/scsi/libfc/*",
    "drivers/scsi/pcmcia/*",
    "drivers/scsi/scsi_debug",
    "drivers/message/fusion/mptfc",
    "drivers/message/fusion/mptctl",
    "drivers/message/fusion/mptlan",
    "drivers/block/drbd/*",
    "drivers/ata/pata_[!a]*",
    "drivers/net/ethernet/*/*pcmcia*",
    "drivers/net/ethernet/8390/*_cs",
    "drivers/net/ethernet/mellanox/mlxsw/*",
    "drivers/usb/host/*hcd-test",
    "drivers/edac/*_test*",
)

# Only with the full kernel, for the person in a rescue shell, who loads them by name: nothing loads them by itself.
BY_NAME_ONLY: Final = (
    "fs/ext4/ext4",
    "fs/xfs/xfs",
    "fs/btrfs/btrfs",
    "drivers/md/dm-mod",
    "drivers/md/dm-crypt",
    "drivers/md/dm-mirror",
    "drivers/md/dm-snapshot",
    "drivers/md/dm-thin-pool",
    "drivers/md/md-mod",
    "drivers/md/linear",
    "drivers/md/raid0",
    "drivers/md/raid1",
    "drivers/md/raid10",
    "drivers/md/raid456",
)
