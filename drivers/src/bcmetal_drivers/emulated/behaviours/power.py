"""Power that lags, lies, or is not told."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import NULL, Reply

SYSTEM: Final = r"/redfish/v1/Systems/[^/]+$"
RESET: Final = r"ComputerSystem\.Reset$"
AFTER: Final = {"since/ComputerSystem.Reset": 40.0}
WORD: Final = "body/ResetType"


def _offers(*words: str) -> dict[str, object]:
    action = {"ResetType@Redfish.AllowableValues": list(words)}
    return {SYSTEM.removesuffix("$"): {"Actions": {"#ComputerSystem.Reset": action}}}


BEHAVIOURS: Final = (
    Behaviour(
        name="power-lags",
        about="A reset shows half a minute later; until then the state is PoweringOn or PoweringOff.",
        quirks={"power_lag_s": 30.0},
    ),
    Behaviour(
        name="power-null",
        about="For forty seconds after a reset the power state is null.",
        rules=(Rule(method="GET", path=SYSTEM, when=When(under=AFTER), answer=Reply(merge={"PowerState": NULL})),),
    ),
    Behaviour(
        name="power-word-unknown",
        about="For forty seconds after a reset the power state is a word of no standard.",
        rules=(Rule(method="GET", path=SYSTEM, when=When(under=AFTER), answer=Reply(merge={"PowerState": "Reset"})),),
    ),
    Behaviour(
        name="power-absent",
        about="For forty seconds after a reset there is no power state.",
        rules=(Rule(method="GET", path=SYSTEM, when=When(under=AFTER), answer=Reply(merge={"PowerState": None})),),
    ),
    Behaviour(
        name="power-never-told",
        about="There is no power state at all.",
        overlay={SYSTEM.removesuffix("$"): {"PowerState": None}},
    ),
    Behaviour(
        name="powering-on-until-told",
        about="A machine that was started by hand shows PoweringOn until it is reset.",
        rules=(
            Rule(
                method="GET", path=SYSTEM, when=When(equals={"power": "on"}, lacks=("since/ComputerSystem.Reset",)),
                answer=Reply(merge={"PowerState": "PoweringOn"}),
            ),
        ),
    ),
    Behaviour(
        name="powering-on-for-ever",
        about="A machine that is on shows PoweringOn, and nothing else.",
        rules=(Rule(method="GET", path=SYSTEM, when=When(equals={"power": "on"}), answer=Reply(merge={"PowerState": "PoweringOn"})),),
    ),
    Behaviour(
        name="power-read-fails",
        about="Twelve times, every third look at the system is answered 500.",
        rules=(Rule(method="GET", path=SYSTEM, every=3, times=12, answer=Reply(status=500, code="Base.1.8.InternalError", message="Try later.")),),
    ),
    Behaviour(
        name="already-there-409",
        about="A reset to the state that the machine is in is answered 409.",
        quirks={"refuse_same_power": True},
    ),
    Behaviour(
        name="already-there-400",
        about="A reset to the state that the machine is in is answered 400.",
        rules=(
            Rule(
                method="POST", path=RESET, when=When(equals={"power": "on", WORD: "On"}),
                answer=Reply(status=400, code="Base.1.8.PropertyValueConflict", message="The machine is on."),
            ),
            Rule(
                method="POST", path=RESET, when=When(equals={"power": "off", WORD: "ForceOff"}),
                answer=Reply(status=400, code="Base.1.8.PropertyValueConflict", message="The machine is off."),
            ),
        ),
    ),
    Behaviour(
        name="on-refused-after-off",
        about="On is answered 409 for twenty seconds after an off.",
        rules=(
            Rule(
                method="POST", path=RESET, when=When(equals={WORD: "On"}, under={"since/ComputerSystem.Reset": 20.0}),
                answer=Reply(status=409, code="Base.1.8.ResourceInUse", message="The machine is in transition."),
            ),
        ),
    ),
    Behaviour(
        name="on-does-nothing-twice",
        about="The first two Ons are accepted, and nothing happens.",
        rules=(
            Rule(method="POST", path=RESET, when=When(equals={WORD: "On"}), times=2, answer=Reply(status=204)),
        ),
    ),
    Behaviour(
        name="on-does-nothing",
        about="On is accepted, and the machine never starts.",
        rules=(Rule(method="POST", path=RESET, when=When(equals={WORD: "On"}), answer=Reply(status=204)),),
    ),
    Behaviour(
        name="graceful-shutdown-ignored",
        about="A graceful shutdown is taken and ignored.",
        quirks={"ignores_soft_off": True},
    ),
    Behaviour(
        name="no-restart-offered",
        about="Neither GracefulRestart nor PowerCycle nor ForceRestart is offered: a machine is cycled by off and on.",
        overlay=_offers("On", "ForceOff", "GracefulShutdown"),
        rules=(
            Rule(
                method="POST", path=RESET, when=When(matches={WORD: "Restart|PowerCycle"}),
                answer=Reply(status=400, code="Base.1.8.ActionParameterNotSupported", message="That reset is not supported."),
            ),
        ),
    ),
    Behaviour(
        name="force-on-only",
        about="A machine is switched on by ForceOn, there is no On.",
        overlay=_offers("ForceOn", "ForceOff", "ForceRestart", "GracefulShutdown"),
        rules=(
            Rule(
                method="POST", path=RESET, when=When(equals={WORD: "On"}),
                answer=Reply(status=400, code="Base.1.8.ActionParameterNotSupported", message="That reset is not supported."),
            ),
        ),
    ),
)  # fmt: skip
