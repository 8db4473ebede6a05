"""Tasks, firmware, BIOS."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import Reply

RESET: Final = r"ComputerSystem\.Reset$"
TASK: Final = r"/TaskService/Task(s|Monitors)/[^/]+$"

BEHAVIOURS: Final = (
    Behaviour(
        name="task-purged",
        about="Resets and inserts are answered by a Task that is gone before anybody can ask how it ended.",
        rules=(Rule(action="task", method="POST", path=r"(Reset|InsertMedia)$", ends="purged"),),
    ),
    Behaviour(
        name="task-fails",
        about="Writes are answered by a Task that ends with an error, every second time.",
        rules=(Rule(action="task", method="POST", path="Reset$", ends="exception", every=2),),
    ),
    Behaviour(
        name="task-completed-with-errors",
        about="Resets and media are answered by a Task that completes with a status of Warning, and did what was asked.",
        rules=(Rule(action="task", method="POST", path=r"(Reset|InsertMedia|EjectMedia)$", ends="warned"),),
    ),
    Behaviour(
        name="erase-completed-with-errors",
        about="The Task of an erase completes with a status of Critical.",
        rules=(Rule(action="task", method="POST", path="SecureErase$", ends="errors"),),
    ),
    Behaviour(
        name="task-404-at-first",
        about="The first look at a Task that was just made is answered 404.",
        rules=(
            Rule(action="task", method="POST", path="/Actions/", seconds=0.0),
            Rule(method="GET", path=TASK, every=2, answer=Reply(status=404, code="Base.1.8.ResourceMissingAtURI", message="No such task.")),
        ),
    ),
    Behaviour(
        name="accepted-without-a-task",
        about="Actions are answered 202 with a number of seconds in Retry-After, and no Task is named.",
        rules=(Rule(method="POST", path=RESET, answer=Reply(status=202, body={}, headers={"Retry-After": "2"}, applied=True)),),
    ),
    Behaviour(
        name="bmc-restarts-after-update",
        about="The BMC restarts after an update of its own, and comes and goes before it stays.",
        quirks={"update_restart_s": 60.0, "update_flaps": 4},
    ),
    Behaviour(
        name="update-changes-nothing",
        about="The Task of an update completes, and the version stays what it was.",
        quirks={"update_lie": "unchanged"},
    ),
    Behaviour(
        name="push-by-form",
        about="A ProLiant that fetches no firmware: it is sent by HPE's form, within a session, and no Task is named.",
        setup={"maker": "hpe"},
        quirks={"update_forms": ("push",), "push_form": "session-form"},
    ),
    Behaviour(
        name="push-then-install",
        about="An iDRAC that fetches no firmware: it is sent to the inventory, and installed from there by an action of the maker's.",
        setup={"maker": "dell"},
        quirks={"update_forms": ("push",), "push_form": "staged", "install_by": "oem"},
    ),
    Behaviour(
        name="push-wants-an-image-type",
        about="AMI's firmware: a push without OemParameters is refused.",
        setup={"maker": "ami"},
        quirks={"update_forms": ("multipart",), "push_oem_demanded": True},
    ),
    Behaviour(
        name="bios-after-a-reboot",
        about="A BIOS change waits for the next boot; meanwhile, and for a minute of that boot, the resource is answered 500.",
        quirks={"bios_post_s": 60.0},
    ),
    Behaviour(
        name="bios-change-lost",
        about="What waits for the next boot is forgotten by it.",
        quirks={"bios_lie": "lost"},
    ),
    Behaviour(
        name="reset-wants-a-body",
        about="An action without a body is answered 415.",
        rules=(
            Rule(
                method="POST", path="/Actions/", when=When(lacks=("header/Content-Type",)),
                answer=Reply(status=415, code="Base.1.8.UnsupportedMediaType", message="A body is expected."),
            ),
        ),
    ),
)  # fmt: skip
