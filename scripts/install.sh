#!/bin/sh
# Installs bcmetal on this host: a virtual environment in PREFIX, `bcmetal` in BINDIR, the unit in UNITDIR. Needs root; starts nothing.
set -eu
prefix=${PREFIX:-/opt/bcmetal}
bindir=${BINDIR:-/usr/local/bin}
unitdir=${UNITDIR:-/etc/systemd/system}
[ "$(id -u)" = 0 ] || { echo "install: needs root: sudo make install" >&2; exit 1; }
umask 022
sh scripts/setup.sh "$prefix" copy
case $(readlink -f "$prefix/bin/python") in /root/* | /home/*)
    echo "install: $prefix uses a Python in a home directory, which the service cannot read: PYTHON=/usr/bin/python3" >&2; exit 1 ;;
esac
mkdir -p "$bindir"
ln -sf "$prefix/bin/bcmetal" "$bindir/bcmetal"
if [ -d "$unitdir" ]; then
    sed "s#/usr/bin/bcmetal#$prefix/bin/bcmetal#" systemd/bcmetald.service >"$unitdir/bcmetald.service"
    [ -d /run/systemd/system ] && systemctl daemon-reload
fi
echo "installed $bindir/bcmetal; next: bcmetal init (README.md)"
