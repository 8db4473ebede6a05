from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from bcmetal_agent.notify import Notifier
from bcmetal_agent.pace import LONGEST_ASKED_S, LONGEST_S, Pace

DRAWS = st.floats(0, 1, exclude_max=True)


@given(draws=st.lists(DRAWS, min_size=1, max_size=40))
def test_backoff_has_full_jitter_below_a_doubling_ceiling(draws: list[float]) -> None:
    left = list(draws)
    pace = Pace(lambda: left.pop(0))
    for n, draw in enumerate(draws):
        ceiling = min(LONGEST_S, float(2**n))
        assert pace.after(None) == draw * ceiling


@given(draw=DRAWS, asked=st.floats(0, 1e18))
def test_what_the_server_asks_for_is_kept_to_within_reason(draw: float, asked: float) -> None:
    waited = Pace(lambda: draw).after(asked)
    assert min(max(asked, 1.0), LONGEST_ASKED_S) <= waited <= LONGEST_ASKED_S + 30


def test_an_answer_starts_the_backoff_anew() -> None:
    pace = Pace(lambda: 1.0)
    assert [pace.after(None) for _ in range(3)] == [1.0, 2.0, 4.0]
    pace.after(10)
    assert pace.after(None) == 1.0


def test_the_watchdog_is_fed_at_half_its_time_and_only_for_this_process() -> None:
    assert Notifier.from_environment({"WATCHDOG_USEC": "30000000"}).tick_s == 15
    assert Notifier.from_environment({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).tick_s == 60
    assert Notifier.from_environment({"WATCHDOG_USEC": "x"}).tick_s == 60


def test_a_long_sleep_is_slept_in_ticks() -> None:
    slept: list[float] = []

    class Counting:
        def now(self) -> datetime:
            return datetime.now(UTC)

        def monotonic(self) -> float:
            return sum(slept)

        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    Notifier(tick_s=10).sleep(Counting(), 25)
    assert slept == [10, 10, 5]
