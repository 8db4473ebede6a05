"""Power that lags, lies, or is not told."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour

BEHAVIOURS: Final = (
    Behaviour(
        name="power-lags",
        about="A reset shows half a minute later; until then the state is PoweringOn or PoweringOff.",
        quirks={"power_lag_s": 30.0},
    ),
    Behaviour(
        name="already-there-409",
        about="A reset to the state that the machine is in is answered 409.",
        quirks={"refuse_same_power": True},
    ),
    Behaviour(
        name="graceful-shutdown-ignored",
        about="A graceful shutdown is taken and ignored.",
        quirks={"ignores_soft_off": True},
    ),
)
