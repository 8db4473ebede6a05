"""The ramdisk that machines boot, made from Debian's packages without root and without a chroot; x86-64.

The way through: `apt` finds and fetches signed packages, `tree` reads them into memory, `modules` picks the kernel's drivers,
`bytecode` compiles, `base` makes of it the part that every site shares (cached), and `build` adds the site and makes the media.
"""
