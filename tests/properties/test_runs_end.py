"""Every run ends, whatever its steps hand back, whoever aborts, and however long its BMC stays away."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bcmetal.decisions import SECOND, Again, Ended, EndStatus, Micros, Outcome, Run, Trouble, settle
from bcmetal.settling import LONGEST_WAIT_S
from bcmetal.states import AWAY_UNCOUNTED_S, BACKS_ALLOWED, CLEANUP_BUDGET_S, WORKFLOWS, State, Verb
from properties.runs import CLEANUP, START, STEPS, a_run, backs, later, outcomes, runnable, unfinished


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(runnable),
    st.lists(st.one_of(unfinished, backs), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.floats(20, 60),
)
def test_a_run_that_is_never_done_ends_by_its_budget_and_a_day(
    start: tuple[Verb, State], answers: list[Outcome], touched: bool, away: bool, work_s: float
) -> None:
    verb, origin = start
    settled: Run | Ended = replace(a_run(verb, origin), touched=touched, away_since=START if away else None)
    budget_s = WORKFLOWS[verb].budget_s
    waited_for_s = AWAY_UNCOUNTED_S if away and touched and verb is not Verb.INSPECT else 0
    # A settle may count only half of what passed (the work's own time); each wait may overshoot once.
    limit = later(START, waited_for_s + 2 * budget_s + 2 * CLEANUP_BUDGET_S + 10 * LONGEST_WAIT_S)
    now, turn = START, 0
    while isinstance(settled, Run):
        now = later(max(now, settled.wake_at), work_s)
        assert now <= limit
        settled = settle(settled, answers[turn % len(answers)], now)
        turn += 1
    assert settled.status is EndStatus.FAILED
    assert settled.error is not None


class AnyRun(RuleBasedStateMachine):
    """One run under everything that can happen to it, in any order."""

    def ended(self) -> bool:
        return isinstance(self.settled, Ended)

    @initialize(start=st.sampled_from(runnable))
    def begin(self, start: tuple[Verb, State]) -> None:
        self.first: Run = a_run(*start)
        self.settled: Run | Ended = self.first
        self.now: Micros = START
        self.aborted = False

    @precondition(ended)
    @rule(start=st.sampled_from(runnable))
    def begin_another(self, start: tuple[Verb, State]) -> None:
        self.begin(start)

    def running(self) -> bool:
        return isinstance(self.settled, Run)

    def run(self) -> Run:
        assert isinstance(self.settled, Run)
        return self.settled

    @precondition(running)
    @rule(outcome=outcomes, late_s=st.floats(0, 4000))
    def step(self, outcome: Outcome, late_s: float) -> None:
        before = self.run()
        self.now = later(max(self.now, before.wake_at), late_s)
        self.settled = settle(before, outcome, self.now)
        if isinstance(self.settled, Run):
            assert self.settled.wake_at >= self.now
            assert self.settled.backs >= before.backs
            assert self.settled.cleaning >= before.cleaning
            if self.settled.cleaning == before.cleaning:
                assert self.settled.budget_used_us >= before.budget_used_us
                assert self.settled.budget_us == before.budget_us
            if self.settled.step != before.step and not before.cleaning and not self.settled.cleaning:
                forward = STEPS.index(self.settled.step) == STEPS.index(before.step) + 1
                assert forward or self.settled.backs == before.backs + 1

    @precondition(running)
    @rule()
    def touch(self) -> None:
        self.settled = replace(self.run(), touched=True)

    @precondition(running)
    @rule()
    def abort(self) -> None:
        self.aborted = True
        self.settled = replace(self.run(), abort=True)

    @precondition(running)
    @rule(held=st.booleans())
    def hold(self, held: bool) -> None:
        self.settled = replace(self.run(), held=held)

    @precondition(running)
    @rule(away=st.booleans())
    def lose_the_bmc(self, away: bool) -> None:
        self.settled = replace(self.run(), away_since=self.now if away else None)

    @invariant()
    def a_run_stands_on_a_step_of_its_own(self) -> None:
        settled = getattr(self, "settled", None)
        if isinstance(settled, Run):
            assert settled.step in (CLEANUP if settled.cleaning else STEPS)
            assert settled.backs <= BACKS_ALLOWED
            assert settled.touched or not settled.cleaning
            assert settled.budget_used_us >= 0

    @invariant()
    def an_end_is_one_that_the_table_knows(self) -> None:
        settled = getattr(self, "settled", None)
        if not isinstance(settled, Ended):
            return
        row = WORKFLOWS[settled.verb]
        assert (settled.error is None) == (settled.status is EndStatus.DONE)
        if settled.status is EndStatus.ABORTED:
            assert self.aborted
            assert row.abortable
        if not settled.touched and settled.status is not EndStatus.DONE and row.verb is not Verb.INSPECT:
            assert settled.state is self.first.origin

    def teardown(self) -> None:
        """Left alone with a BMC that answers nothing useful, what is still under way ends."""
        settled = getattr(self, "settled", None)
        turns = 0
        while isinstance(settled, Run):
            settled = replace(settled, held=False, away_since=None)
            self.now = later(max(self.now, settled.wake_at), 60)
            settled = settle(settled, a_failing_answer(turns), self.now)
            turns += 1
            assert turns <= self.first.budget_us // (30 * SECOND) + 100


def a_failing_answer(turn: int) -> Outcome:
    return Again("the BMC boots", 60.0) if turn % 2 else Trouble("bmc-timeout", "no answer", 60.0)


TestAnyRun = AnyRun.TestCase
TestAnyRun.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
