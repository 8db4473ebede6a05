#!/bin/sh
# Debian packages that some tests drive: ipmitool and OpenIPMI's ipmi_sim. Without root or apt those tests are skipped, and say so.
set -eu
missing=""
command -v ipmitool >/dev/null 2>&1 || missing="$missing ipmitool"
command -v ipmi_sim >/dev/null 2>&1 || missing="$missing openipmi"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "tests: missing$missing (needs root and apt): the IPMI tests against them are skipped" >&2
fi
