"""What an outcome does: budgets, waits, ends, cleanup, abort."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bcmetal.decisions import (
    SECOND,
    Again,
    Back,
    Done,
    Ended,
    EndStatus,
    Failed,
    Micros,
    Outcome,
    Run,
    Trouble,
    backoff_s,
    counted_us,
    settle,
)
from bcmetal.settling import (
    BACKOFF_FIRST_S,
    BACKOFF_LAST_S,
    CLEANUP_ATTEMPTS,
    LONGEST_RETRY_AFTER_S,
    LONGEST_WAIT_S,
    REPEATED_WAIT_S,
    UNASKED_S,
)
from bcmetal.states import (
    AWAY_UNCOUNTED_S,
    BACKS_ALLOWED,
    BY_BUSY,
    CLEANUP_BUDGET_S,
    TABLE,
    WORKFLOWS,
    State,
    Verb,
    failure_of,
    success_of,
)
from properties.runs import CLEANUP, START, STEPS, a_run, later, outcomes, runnable, unfinished

each_run = st.sampled_from(runnable).map(lambda pair: a_run(*pair))
DAY_S = 24 * 3600


def still(settled: Run | Ended) -> Run:
    assert isinstance(settled, Run)
    return settled


def over(settled: Run | Ended) -> Ended:
    assert isinstance(settled, Ended)
    return settled


# ---------------------------------------------------------------- the budget


@given(each_run, st.integers(0, 10**12), st.floats(0, 600))
def test_a_settle_counts_the_time_since_the_last_at_most_twice_the_wait_that_was_asked(
    run: Run, elapsed: int, asked_s: float
) -> None:
    run = replace(run, asked_wait_us=int(asked_s * SECOND))
    counted = counted_us(run, Micros(START + elapsed))
    assert counted <= elapsed
    assert counted <= max(2 * int(asked_s * SECOND), UNASKED_S * SECOND)
    assert counted in (elapsed, 2 * run.asked_wait_us, UNASKED_S * SECOND)


def test_a_daemon_that_was_down_for_a_day_costs_a_run_no_day() -> None:
    waiting = still(settle(a_run(), Again("the BMC boots", 120.0), START))
    woken = still(settle(waiting, Again("the BMC boots", 120.0), later(START, DAY_S)))
    assert woken.budget_used_us == 240 * SECOND


@given(each_run, st.integers(0, 10**9))
def test_a_clock_that_steps_back_counts_nothing(run: Run, back: int) -> None:
    assert counted_us(run, Micros(START - back)) == 0


@given(each_run, st.booleans(), st.booleans(), outcomes, st.floats(0, DAY_S))
def test_maintenance_and_freeze_count_nothing(
    run: Run, touched: bool, away: bool, outcome: Outcome, elapsed_s: float
) -> None:
    run = replace(run, held=True, touched=touched, away_since=START if away else None)
    assert counted_us(run, later(START, elapsed_s)) == 0
    settled = settle(run, outcome, later(START, elapsed_s))
    if isinstance(settled, Run):
        assert settled.budget_used_us == 0


def test_a_touched_run_waits_a_day_for_a_bmc_that_is_away_and_then_counts_on() -> None:
    run = replace(a_run(Verb.DEPLOY), touched=True, away_since=START)
    assert counted_us(run, later(START, AWAY_UNCOUNTED_S - 1)) == 0
    assert counted_us(run, later(START, AWAY_UNCOUNTED_S)) == UNASKED_S * SECOND
    assert AWAY_UNCOUNTED_S == DAY_S


@given(each_run, st.floats(1, 10 * DAY_S))
def test_an_untouched_run_counts_even_while_its_bmc_is_away(run: Run, elapsed_s: float) -> None:
    assert counted_us(replace(run, away_since=START), later(START, elapsed_s)) > 0


@given(st.booleans(), st.floats(1, 10 * DAY_S))
def test_an_inspect_always_counts(touched: bool, elapsed_s: float) -> None:
    run = replace(a_run(Verb.INSPECT), touched=touched, away_since=START)
    assert counted_us(run, later(START, elapsed_s)) > 0


@given(each_run, unfinished)
def test_a_used_up_budget_fails_and_says_what_it_waited_for(run: Run, outcome: Outcome) -> None:
    run = replace(run, budget_used_us=run.budget_us)
    ended = over(settle(run, outcome, START))
    assert ended.error is not None
    assert ended.error.code == "deadline"
    assert not isinstance(outcome, Done)
    assert outcome.why in ended.error.message


@given(each_run)
def test_work_that_is_done_counts_as_done_however_late(run: Run) -> None:
    late = replace(run, budget_used_us=run.budget_us, step=STEPS[-1], touched=True)
    assert over(settle(late, Done(), START)).status is EndStatus.DONE


# ---------------------------------------------------------------- waits


@given(each_run, outcomes, st.integers(0, 10**10))
def test_nobody_is_woken_in_the_past_or_asked_to_wait_for_ever(run: Run, outcome: Outcome, elapsed: int) -> None:
    now = Micros(START + elapsed)
    settled = settle(run, outcome, now)
    if isinstance(settled, Run):
        assert now <= settled.wake_at <= later(now, LONGEST_WAIT_S)
        assert settled.asked_wait_us >= 0
        assert settled.counted_at == now


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 10_000))
def test_backoff_doubles_from_two_seconds_to_a_minute_give_or_take_a_quarter(
    operation_id: str, step: str, attempt: int
) -> None:
    wait_s = backoff_s(operation_id, step, attempt)
    middle = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(max(attempt - 1, 0), 10))
    assert 0.75 * middle <= wait_s <= 1.25 * middle
    assert wait_s == backoff_s(operation_id, step, attempt)


def test_forty_machines_do_not_come_back_at_once() -> None:
    assert len({round(backoff_s(f"op_{n}", "look", 5), 2) for n in range(40)}) > 30


@given(each_run, st.floats(0, 10_000))
def test_a_bmc_that_names_its_wait_gets_it_up_to_ten_minutes(run: Run, named_s: float) -> None:
    waiting = still(settle(run, Trouble("bmc-busy", "a full session table", named_s), START))
    assert waiting.asked_wait_us >= int(min(named_s, LONGEST_RETRY_AFTER_S) * SECOND)


def test_attempts_count_transient_errors_in_a_row() -> None:
    run = a_run()
    for attempt in (1, 2, 3):
        run = still(settle(run, Trouble("bmc-timeout", "no answer"), START))
        assert run.attempt == attempt
        assert run.error is not None
        assert run.error.code == "bmc-timeout"
    run = still(settle(run, Again("the BMC boots", 1.0), START))
    assert (run.attempt, run.error) == (0, None)


def test_a_step_may_look_again_at_once_but_not_twice_for_the_same_reason() -> None:
    first = still(settle(a_run(), Again("looks whether the medium is out", 0.0), START))
    second = still(settle(first, Again("looks whether the medium is out", 0.0), START))
    assert first.asked_wait_us == 0
    assert second.asked_wait_us == REPEATED_WAIT_S * SECOND


def test_a_wait_for_one_reason_has_one_beginning() -> None:
    first = still(settle(a_run(), Again("the BMC boots", 5.0), START))
    second = still(settle(first, Again("the BMC boots", 5.0), later(START, 5)))
    other = still(settle(second, Again("the agent has not called", 5.0), later(START, 10)))
    assert (first.waiting_since, second.waiting_since, other.waiting_since) == (START, START, later(START, 10))


# ---------------------------------------------------------------- going on, going back, ending


@pytest.mark.parametrize(("verb", "origin"), runnable)
def test_a_run_whose_steps_are_all_done_ends_in_its_success(verb: Verb, origin: State) -> None:
    settled: Run | Ended = a_run(verb, origin)
    for step in STEPS:
        assert still(settled).step == step
        settled = settle(still(settled), Done(), START)
    ended = over(settled)
    assert (ended.status, ended.state, ended.error) == (EndStatus.DONE, success_of(WORKFLOWS[verb], origin), None)


def test_a_step_may_lose_its_ground_three_times_and_no_more() -> None:
    run = a_run()
    for count in range(1, BACKS_ALLOWED + 1):
        run = still(settle(run, Back("look", "the agent vanished"), START))
        assert (run.backs, run.step) == (count, "look")
        run = still(settle(run, Done(), START))
    ended = over(settle(run, Back("look", "the agent vanished"), START))
    assert BACKS_ALLOWED == 3
    assert ended.error is not None
    assert ended.error.code == "ground-lost"


@pytest.mark.parametrize(("verb", "origin"), runnable)
def test_an_untouched_failure_returns_the_node_to_where_it_came_from(verb: Verb, origin: State) -> None:
    ended = over(settle(a_run(verb, origin), Failed("image-not-found", "404"), START))
    assert ended.status is EndStatus.FAILED
    assert ended.state is (State.INSPECT_FAILED if verb is Verb.INSPECT else origin)
    assert ended.error is not None


@pytest.mark.parametrize(("verb", "origin"), runnable)
def test_a_touched_failure_cleans_up_and_ends_in_the_failed_state(verb: Verb, origin: State) -> None:
    settled = settle(replace(a_run(verb, origin), touched=True), Failed("media-not-fetched", "never asked for"), START)
    for step in CLEANUP:
        run = still(settled)
        assert (run.cleaning, run.step) == (True, step)
        settled = settle(run, Done(), START)
    ended = over(settled)
    assert ended.state is failure_of(WORKFLOWS[verb], origin)
    assert ended.error is not None
    assert ended.error.code == "media-not-fetched"


@given(each_run, outcomes)
def test_cleanup_runs_only_for_a_run_that_touched_its_machine(run: Run, outcome: Outcome) -> None:
    settled = settle(run, outcome, START)
    assert not isinstance(settled, Run) or not settled.cleaning


@given(each_run, outcomes, st.booleans())
def test_an_abort_is_looked_at_after_every_step(run: Run, outcome: Outcome, touched: bool) -> None:
    assume(WORKFLOWS[run.verb].abortable)
    settled = settle(replace(run, abort=True, touched=touched), outcome, START)
    if touched:
        settled = over_after_cleanup(still(settled))
    ended = over(settled)
    assert ended.status is EndStatus.ABORTED
    assert ended.state is (failure_of(WORKFLOWS[run.verb], run.origin) if touched else run.origin)


def over_after_cleanup(run: Run) -> Run | Ended:
    settled: Run | Ended = run
    for _ in CLEANUP:
        settled = settle(still(settled), Done(), START)
    return settled


@given(each_run, outcomes)
def test_a_release_or_retire_goes_on_whatever_the_flag_says(run: Run, outcome: Outcome) -> None:
    assume(run.verb in (Verb.RELEASE, Verb.RETIRE))
    assert settle(replace(run, abort=True), outcome, START) == with_flag(settle(run, outcome, START))


def with_flag(settled: Run | Ended) -> Run | Ended:
    return replace(settled, abort=True) if isinstance(settled, Run) else settled


# ---------------------------------------------------------------- cleanup


def a_cleaning_run(verb: Verb = Verb.DEPLOY) -> Run:
    return still(settle(replace(a_run(verb), touched=True), Failed("erase-failed", "the drive is dead"), START))


def test_a_cleanup_waits_for_a_machine_that_takes_its_time_to_power_off() -> None:
    run = a_cleaning_run()
    for second in range(0, 60, 2):
        run = still(settle(run, Again("waits for the machine to power off", 2.0), later(START, second)))
        assert run.step == CLEANUP[0]


def test_a_cleanup_passes_over_a_bmc_that_does_not_answer() -> None:
    run, settles = a_cleaning_run(), 0
    settled: Run | Ended = run
    while isinstance(settled, Run):
        settled = settle(settled, Trouble("bmc-unreachable", "no route"), settled.wake_at)
        settles += 1
    assert settles == CLEANUP_ATTEMPTS * len(CLEANUP)
    assert settled.error is not None
    assert settled.error.code == "erase-failed", "the reason of the failure outlives the cleanup's own troubles"


@given(st.sampled_from([row.verb for row in TABLE]), st.booleans())
def test_a_cleanup_that_only_waits_is_over_within_its_own_budget(verb: Verb, away: bool) -> None:
    run = a_cleaning_run(verb)
    settled: Run | Ended = replace(run, away_since=START if away else None)
    now = START
    while isinstance(settled, Run):
        now = Micros(max(settled.wake_at, later(now, 1)))
        settled = settle(settled, Again("the fan still turns", 10.0), now)
        assert now <= later(START, CLEANUP_BUDGET_S + 30 * len(CLEANUP))


@given(each_run, outcomes, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10**10))
def test_settling_is_deterministic(
    run: Run, outcome: Outcome, touched: bool, abort: bool, away: bool, elapsed: int
) -> None:
    run = replace(run, touched=touched, abort=abort, away_since=START if away else None)
    now = Micros(START + elapsed)
    assert repr(settle(run, outcome, now)) == repr(settle(run, outcome, now))


@given(each_run, outcomes, st.booleans(), st.booleans())
def test_a_step_that_this_version_does_not_know_ends_the_run_in_words(
    run: Run, outcome: Outcome, touched: bool, cleaning: bool
) -> None:
    settled = settle(replace(run, step="renamed", touched=touched, cleaning=cleaning), outcome, START)
    if isinstance(settled, Ended):
        assert settled.state in {run.origin, *(row.failure for row in BY_BUSY.values())}
