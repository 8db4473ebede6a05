#!/bin/sh
# What some tests drive besides: ipmitool, OpenIPMI's ipmi_sim, and a software TPM (swtpm) with the library to speak to it, which is
# compiled into the virtual environment here. Where something cannot be installed (no root, no apt), its tests are skipped, and say so.
set -eu
python=${1:-.venv}/bin/python
missing=""
command -v ipmitool >/dev/null 2>&1 || missing="$missing ipmitool"
command -v ipmi_sim >/dev/null 2>&1 || missing="$missing openipmi"
command -v swtpm >/dev/null 2>&1 || missing="$missing swtpm"
command -v swtpm_setup >/dev/null 2>&1 || missing="$missing swtpm-tools"
command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
[ -e /usr/include/tss2/tss2_esys.h ] || missing="$missing libtss2-dev"
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing="$missing python3-dev"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "tests: missing$missing (needs root and apt): the tests of IPMI or TPM that need them are skipped" >&2
    fi
fi
if command -v pkg-config >/dev/null 2>&1 && pkg-config --exists tss2-esys; then
    # Built with what constraints.txt has pinned, never with what an isolated build would fetch.
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-build-isolation -r constraints-tpm.txt ||
        echo "tests: tpm2-pytss could not be built: the TPM tests are skipped" >&2
fi
