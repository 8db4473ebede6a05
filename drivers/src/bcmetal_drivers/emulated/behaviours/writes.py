"""ETags and preconditions of writes."""

from __future__ import annotations

from typing import Final

from bcmetal_drivers.emulated.behaviours.profile import Behaviour
from bcmetal_drivers.emulated.conditions import When
from bcmetal_drivers.emulated.faults import Rule
from bcmetal_drivers.emulated.replies import Reply

WITHOUT: Final = When(lacks=("header/If-Match",))
WITH: Final = When(has=("header/If-Match",))
REFUSED: Final = Reply(status=412, code="PreconditionFailed", message="The ETag supplied did not match.")

BEHAVIOURS: Final = (
    Behaviour(
        name="etag-required",
        about="A PATCH without If-Match is answered 428.",
        quirks={"etag": True},
    ),
    Behaviour(
        name="etag-required-in-silence",
        about="A PATCH without If-Match is answered 200 and dropped.",
        rules=(Rule(method="PATCH", when=WITHOUT, answer=Reply(status=200, body={})),),
    ),
    Behaviour(
        name="etag-refused",
        about="A PATCH with If-Match is answered 412, whatever it says.",
        rules=(Rule(method="PATCH", when=WITH, answer=REFUSED),),
    ),
    Behaviour(
        name="etag-empty",
        about="ETags are empty, and a PATCH wants one.",
        quirks={"etag": True, "etag_form": "empty"},
    ),
    Behaviour(
        name="etag-weak",
        about="ETags are weak, and a PATCH wants the strong form of it.",
        quirks={"etag": True, "etag_form": "weak"},
        rules=(Rule(method="PATCH", when=When(matches={"header/If-Match": "^W/"}), answer=REFUSED),),
    ),
    Behaviour(
        name="etag-by-compression",
        about="A compressed answer has another ETag, which no PATCH is taken with.",
        rules=(
            Rule(
                method="GET", when=When(matches={"header/Accept-Encoding": "gzip|deflate|br"}),
                answer=Reply(headers={"ETag": '"compressed-gzip"'}, applied=True),
            ),
        ),
        quirks={"etag": True},
    ),
    Behaviour(
        name="etag-absent",
        about="There are no ETags, and none is wanted.",
        quirks={"etag_form": "absent"},
    ),
    Behaviour(
        name="etag-changes-at-each-read",
        about="An ETag is new at each read, so that none ever matches; `*` does.",
        rules=(
            Rule(
                method="PATCH", when=When(has=("header/If-Match",), differs={"header/If-Match": "*"}), answer=REFUSED
            ),
            Rule(method="PATCH", when=WITHOUT, answer=Reply(status=428, code="PreconditionRequired")),
        ),
    ),
)  # fmt: skip
