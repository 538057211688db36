"""The active time of one attempt: who claims has it all, and what is not given back is gone (row 231)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.active_time import Claimed, Exhausted, claim, given_back

times = st.integers(min_value=0, max_value=10_000_000)


def test_worked_example_23a() -> None:
    """Budget 60,000 ms: 20,000 and a pause leave 40,000; a dead worker leaves 0; the third finds nothing."""
    first = claim(60_000)
    assert first == Claimed(60_000)
    left = given_back(first.ms, 20_000)
    assert left == 40_000
    second = claim(left)
    assert second == Claimed(40_000)
    abandoned = left - second.ms  # nobody gives it back
    assert abandoned == 0
    assert claim(abandoned) == Exhausted()


@given(times, st.lists(st.tuples(times, st.booleans()), max_size=8))
def test_no_more_than_the_budget_is_ever_worked(budget: int, parts: list[tuple[int, bool]]) -> None:
    """Whatever pauses and deaths come: the time of all orderly parts, each cut at its claim, fits the budget."""
    left, worked = budget, 0
    for elapsed, dies in parts:
        verdict = claim(left)
        if isinstance(verdict, Exhausted):
            assert left == 0
            break
        assert verdict.ms == left, "a claim takes everything"
        worked += min(elapsed, verdict.ms)
        left = 0 if dies else given_back(verdict.ms, elapsed)
        assert 0 <= left <= verdict.ms
        assert worked + left <= budget


@given(times, times)
def test_what_is_given_back_is_the_rest(claimed: int, elapsed: int) -> None:
    assert given_back(claimed, elapsed) == max(0, claimed - elapsed)


@given(times, st.integers(max_value=-1))
def test_a_clock_that_went_back_gives_nothing_extra(claimed: int, elapsed: int) -> None:
    assert given_back(claimed, elapsed) == claimed
