"""The boot override: where it is written, what is lost, what the words mean."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import Reply

SYSTEM: Final = r"/redfish/v1/Systems/[^/]+"
TARGET: Final = "body/Boot/BootSourceOverrideTarget"
ENABLED: Final = "body/Boot/BootSourceOverrideEnabled"
MODE: Final = "body/Boot/BootSourceOverrideMode"

BEHAVIOURS: Final = (
    Behaviour(
        name="boot-in-settings",
        about="The boot override is written to the Settings resource, the system refuses it.",
        quirks={"boot_settings": True},
    ),
    Behaviour(
        name="boot-in-sd",
        about="As boot-in-settings; the resource is called SD (AMI MegaRAC).",
        quirks={"boot_settings": True, "settings_name": "SD"},
    ),
    Behaviour(
        name="settings-without-boot",
        about="There is a Settings resource and it has no Boot: the system takes the override.",
        overlay={
            SYSTEM: {"@Redfish.Settings": {"SettingsObject": {"@odata.id": "/redfish/v1/Systems/<system>/Settings"}}},
            f"{SYSTEM}/Settings": {
                "@odata.id": "/redfish/v1/Systems/<system>/Settings",
                "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
                "Id": "Settings",
                "Name": "Settings",
            },
        },
    ),
    Behaviour(
        name="boot-reverts",
        about="A boot override without all three keys is answered 200; then mode and enabled revert (Supermicro, AMI).",
        rules=(
            Rule(
                method="PATCH", path=SYSTEM, when=When(has=(TARGET,), lacks=(MODE,)),
                effect={"boot": {"device": "none", "once": True, "mode": "legacy"}},
            ),
        ),
    ),
    Behaviour(
        name="boot-too-many-keys",
        about="A boot override that names the mode too is answered 400 (HPE iLO).",
        rules=(
            Rule(
                method="PATCH", path=SYSTEM, when=When(has=(TARGET, MODE)),
                answer=Reply(status=400, code="iLO.2.14.UnsupportedOperation", message="Too many properties in one request."),
            ),
        ),
    ),
    Behaviour(
        name="boot-too-few-keys",
        about="An override without its mode is armed, and the mode becomes Legacy (Supermicro, ASRock Rack).",
        rules=(
            Rule(method="PATCH", path=SYSTEM, when=When(has=(TARGET,), lacks=(MODE,)), effect={"boot": {"mode": "legacy"}}),
        ),
    ),
    Behaviour(
        name="boot-mode-absent",
        about="The boot override has no mode.",
        quirks={"mode_shown": False},
    ),
    Behaviour(
        name="boot-continuous-refused",
        about="A lasting boot override is refused.",
        quirks={"continuous": False},
    ),
    Behaviour(
        name="boot-once-used-up",
        about="The machine restarts by itself after a power-on, once; the first start used up the one-time override.",
        quirks={"starts_twice": 1},
    ),
    Behaviour(
        name="cd-is-usbcd",
        about="`Cd` is the physical drive, `UsbCd` the virtual one (Supermicro X11 to X13).",
        setup={"maker": "supermicro"},
        quirks={"cd_name": "UsbCd"},
    ),
    Behaviour(
        name="cd-is-cd",
        about="`UsbCd` is a drive plugged in at the front, `Cd` the virtual one.",
        quirks={"other_cd": "UsbCd"},
    ),
    Behaviour(
        name="no-virtual-cd-in-the-list",
        about="The override's list has no virtual CD: it is armed by Dell's own attribute ServerBoot.1.FirstBootDevice.",
        setup={"maker": "dell"},
        quirks={"cd_name": "absent"},
    ),
    Behaviour(
        name="boot-refused-during-post",
        about="Within a minute of a reset a boot change is answered 400 UnableToModifyDuringSystemPOST (HPE iLO).",
        rules=(
            Rule(
                method="PATCH", path=SYSTEM, when=When(has=("body/Boot",), under={"since/ComputerSystem.Reset": 60.0}),
                answer=Reply(status=400, code="iLO.2.14.UnableToModifyDuringSystemPOST", message="Not during POST."),
            ),
        ),
    ),
    Behaviour(
        name="boot-change-halts-an-installed-machine",
        about="A boot change by the BMC once a system was installed halts the machine at its next start (Lenovo XCC).",
        setup={"maker": "lenovo"},
        quirks={"boot_change_halts": True},
    ),
)  # fmt: skip
