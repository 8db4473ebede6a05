#!/bin/sh
# Makes the virtual environment: pinned dependencies by their hashes, then our three distributions from this tree.
# With `copy` as second argument they are copied, so that the tree may move or go.
set -eu
venv=$1
case ${2:-} in copy) ours="./drivers ./agent ./reconciler" ;; *) ours="-e drivers -e agent -e reconciler" ;; esac
python=${PYTHON:-python3}
packages() {
    command -v apt-get >/dev/null 2>&1 || { echo "setup: $python lacks what is needed: install Python 3.11 or newer with its venv and ensurepip modules" >&2; exit 1; }
    [ "$(id -u)" = 0 ] || { echo "setup: missing packages. Run 'apt-get install $*' as root, then start again" >&2; exit 1; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
}

if ! command -v "$python" >/dev/null 2>&1; then
    packages python3 python3-venv
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $("$python" --version) is too old: Python 3.11 or newer is needed (PYTHON=/path/to/python make …)" >&2; exit 1; }
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    packages python3-venv
fi
[ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null || { rm -rf "$venv"; "$python" -m venv "$venv"; }
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index $ours
