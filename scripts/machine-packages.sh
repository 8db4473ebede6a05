#!/bin/sh
# What the whole-machine tests drive: qemu with UEFI firmware, and the tools that build a ramdisk and a disk image for it.
# Where something cannot be installed (no root, no apt), those tests are skipped, and say so.
set -eu
missing=""
lacks() { command -v "$1" >/dev/null 2>&1 || PATH=/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
lacks qemu-system-x86_64 qemu-system-x86
lacks qemu-img qemu-utils
[ -e /usr/share/OVMF/OVMF_CODE_4M.fd ] || missing="$missing ovmf"
lacks swtpm swtpm
lacks xorriso xorriso
lacks mformat mtools
lacks mkfs.ext4 e2fsprogs
lacks sfdisk fdisk
lacks sgdisk gdisk
lacks blkid util-linux
lacks efibootmgr efibootmgr
lacks busybox busybox-static
lacks cpio cpio
lacks depmod kmod
lacks zstd zstd
lacks dropbear dropbear-bin
lacks ssh-keygen openssh-client
lacks dnsmasq dnsmasq-base
lacks ip iproute2
[ -e /usr/lib/ipxe/ipxe.efi ] || missing="$missing ipxe"
lacks dpkg-deb dpkg
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "tests: missing$missing (needs root and apt): the tests of a whole machine are skipped" >&2
    fi
fi
