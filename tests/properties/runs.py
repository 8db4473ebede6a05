"""Runs of workflows, and what their steps may hand back."""

from __future__ import annotations

from hypothesis import strategies as st

from bcmetal.decisions import SECOND, Again, Back, Done, Failed, Micros, Outcome, Run, Trouble
from bcmetal.states import WORKFLOWS, State, Verb

START = Micros(1_800_000_000_000_000)
STEPS = ("look", "act", "wait", "verify")
CLEANUP = ("power_off", "eject", "clear")


def a_run(verb: Verb = Verb.DEPLOY, origin: State | None = None) -> Run:
    """A fresh run with its workflow's own budget, from a state where the table allows it."""
    row = WORKFLOWS[verb]
    return Run(
        operation_id="op_1",
        node_id="nd_1",
        verb=verb,
        origin=origin or min(row.allowed_from),
        steps=STEPS,
        cleanup=CLEANUP,
        step=STEPS[0],
        budget_us=row.budget_s * SECOND,
        counted_at=START,
    )


def later(now: int, seconds: float) -> Micros:
    return Micros(now + int(seconds * SECOND))


waits = st.one_of(st.floats(0, 120), st.sampled_from([0.0, -5.0, 1e12, float("inf"), float("nan")]))
whys = st.sampled_from(["the BMC boots", "the drive is erased", "the agent has not called"])
unfinished: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Again, whys, waits, st.one_of(st.none(), st.floats(0, 1))),
    st.builds(Trouble, st.just("bmc-timeout"), whys, st.one_of(st.none(), waits)),
)
backs: st.SearchStrategy[Outcome] = st.builds(Back, st.sampled_from([*STEPS, "no_such_step"]), whys)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Done()), unfinished, backs, st.builds(Failed, st.just("power-not-reached"), whys)
)
runnable = [(row.verb, origin) for row in WORKFLOWS.values() for origin in sorted(row.allowed_from)]
