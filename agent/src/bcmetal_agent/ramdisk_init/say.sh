# Sourced. `say TEXT` writes one short line to each console that the kernel has (tty0, ttyS0 …): no control characters, no more than 300.
say() {
    line=$*
    line=${line//[![:print:]]/?}
    for console in $(cat /sys/class/tty/console/active 2>/dev/null); do
        printf 'bcmetal: %s\r\n' "${line:0:300}" >"/dev/$console" 2>/dev/null
    done
}
