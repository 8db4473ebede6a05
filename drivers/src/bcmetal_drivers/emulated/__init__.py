"""An emulated rack: BMCs on loopback that behave, and misbehave, like real ones.

    from bcmetal_drivers.emulated.rack import Rack, Rule

    rack = Rack()                                   # Rack(state_dir=…): the same BMCs, ports, accounts and state the next time
    bmc = rack.add_redfish("one", systems=1, drives=2, maker="generic", power_lag_s=0.0)
    with rack:                                      # servers in threads of this process
        bmc.address, bmc.username, bmc.password     # what an admin would enrol; bmc.fingerprint, bmc.ca_pem for TLS
        bmc.machine.plant(serial)                   # data on a drive
        lie = rack.rule(Rule(bmc="one", method="POST", path="SecureErase", action="says_erased", lie="hidden", times=1))
        ...                                         # drive it
        rack.fired(lie)                             # how often it really took effect
        bmc.machine.boots, bmc.machine.would_boot() # the oracle: what it booted, what it would boot now
        bmc.machine.drives[serial].holds_data       # the truth, whatever the BMC shows
        rack.writes                                 # each write that reached a BMC, logins as kind "session"
        bmc.set(session_limit=1)                    # settings of this BMC, while it runs: quirks.Quirks, ipmi.IpmiFront.set
        bmc.behave("supermicro", "flaky")           # what real BMCs do, by name: behaviours.REGISTRY
        bmc.overlay({path: merge_patch})            # over its documents: replies.Overlay

Machines (`machine`) stand behind Redfish (`front`: sushy-tools' own application with a layer of ours) and IPMI (`ipmi`) alike. Rules
are in `faults`. Nothing runs in the background: what is due by `Rack(clock=…)` takes place at the next look.
`Rack.on_write` is called after a write was applied and before it is answered: a test may kill the client there. A write that was
accepted as a Task is recorded when it is accepted; one that was ignored by a rule is not recorded at all.

What a Redfish client reads to know whether a drive holds data: `Links.Volumes` of the Drive, empty after an erase, absent where the
BMC does not tell (`volumes_shown=False`); while an erase runs, `Operations` names its Task.

BMCs bind addresses in 127.77.0.0/16 and download media from loopback only, each from its own address. `python -m
bcmetal_drivers.emulated --state DIR` runs a rack as a process, told and judged through `control.RackClient`.
"""

from __future__ import annotations


def lacking(module: str | None) -> str:
    """What to say where the extra `emulator` is not installed, of which `module` is part."""
    return f"the emulated rack is not installed ({module} is missing): pip install './drivers[emulator]' in the folder of bcmetal's source"
