"""Where the parts of the pictures stand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.money import ZERO, Usd
from tasks.pictures.bars import SCALE, day_chart, money_bar
from tasks.pictures.graph import BOX_HEIGHT, BOX_WIDTH, NARROW_WIDTH, lay_out, lay_out_narrow
from tasks.pictures.timeline import Span, burn_down, limit_steps, timeline, waits

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


amounts = st.integers(0, 10**9).map(Usd)


def test_a_bar_shows_spent_held_and_left_in_proportion() -> None:
    bar = money_bar(limit=Usd.dollars("5"), spent=Usd.dollars("3"), held=Usd.dollars("0.5"))
    assert (bar.spent_width, bar.held_width, bar.left) == (600, 100, Usd.dollars("1.5"))
    assert not bar.over


def test_a_limit_lowered_below_what_is_spent_is_a_full_bar_that_says_so() -> None:
    bar = money_bar(limit=Usd.dollars("1"), spent=Usd.dollars("3"), held=ZERO)
    assert (bar.spent_width, bar.left, bar.over) == (SCALE, ZERO, True)


def test_no_limit_leaves_nothing_to_count_down_and_zero_allows_nothing() -> None:
    assert money_bar(limit=None, spent=Usd(5), held=ZERO).left is None
    assert money_bar(limit=ZERO, spent=ZERO, held=ZERO).left == ZERO


@given(st.none() | amounts, amounts, amounts)
def test_a_bar_never_runs_over_its_end_and_hides_no_money(limit: Usd | None, spent: Usd, held: Usd) -> None:
    bar = money_bar(limit=limit, spent=spent, held=held)
    assert bar.spent_width + bar.held_width <= SCALE
    assert (bar.spent_width > 0) == (spent > ZERO)
    assert (bar.held_width > 0) == (held > ZERO)


def test_days_are_stacked_from_the_bottom_under_a_round_top() -> None:
    chart = day_chart(
        [
            (date(2026, 11, 1), {"haiku": Usd.dollars("1"), "sonnet": Usd.dollars("3")}),
            (date(2026, 11, 2), {}),
        ],
        ["haiku", "sonnet", "opus"],
    )
    haiku, sonnet = chart.columns[0].slices
    assert (haiku.y, haiku.height, sonnet.y, sonnet.height) == (800, 200, 200, 600)
    assert [tick.amount for tick in chart.ticks][-1] == Usd.dollars("5")
    assert chart.columns[1].slices == ()


def test_every_arrow_points_right_and_no_two_boxes_overlap() -> None:
    graph = lay_out({"T1": [], "T2": [], "T3": ["T1", "T2"], "T4": ["T3"], "T5": ["T1"]})
    places = {box.key: box for box in graph.boxes}
    for arrow in graph.arrows:
        assert places[arrow.source].x + BOX_WIDTH < places[arrow.target].x
    assert len({(box.x, box.y) for box in graph.boxes}) == 5
    assert all(box.x + BOX_WIDTH <= graph.width and box.y + BOX_HEIGHT <= graph.height for box in graph.boxes)


def test_a_change_without_tasks_has_an_empty_graph() -> None:
    empty: dict[str, list[str]] = {}
    assert lay_out(empty).boxes == ()


def test_a_cycle_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="cycle"):
        lay_out({"T1": ["T2"], "T2": ["T1"]})


def test_spans_keep_their_place_and_an_instant_can_still_be_seen() -> None:
    spans = [
        Span("call", "1", NOON, NOON + HOUR),
        Span("tool", "2", NOON + 4 * HOUR, NOON + 4 * HOUR),
        Span("call", "3", NOON + 2 * HOUR, None),
    ]
    placed = timeline(spans, start=NOON, end=NOON + 4 * HOUR)
    assert [(p.x, p.width) for p in placed] == [(0, 250), (996, 4), (500, 500)]


def test_the_projection_meets_zero_at_the_pace_of_the_last_day() -> None:
    charges = [(NOON - 2 * HOUR, Usd(10)), (NOON - HOUR, Usd(10))]
    picture = burn_down(
        charges, limits=[(NOON, Usd(40))], start=NOON - 4 * HOUR, end=NOON + 4 * HOUR, now=NOON
    )
    assert picture.stops_at == NOON + 4 * HOUR
    assert picture.line.endswith("500,500")
    assert picture.ahead == "500,500 1000,1000"


def test_what_was_left_before_a_raise_is_drawn_as_it_was() -> None:
    """D3 and D7: a Change that stopped at its budget was at the ground then, whatever it may spend since."""
    charges = [(NOON + HOUR, Usd(10)), (NOON + 3 * HOUR, Usd(20))]
    told = [(NOON, None, Usd(10)), (NOON + 2 * HOUR, Usd(10), Usd(50))]
    limits = limit_steps(told, start=NOON, now=NOON + 4 * HOUR, limit=Usd(50))
    picture = burn_down(charges, limits=limits, start=NOON, end=NOON + 4 * HOUR, now=NOON + 4 * HOUR)
    assert picture.line == "0,800 250,800 250,1000 500,1000 500,200 750,200 750,600 1000,600"
    assert picture.top == Usd(50)


def test_a_limit_that_nobody_wrote_down_stands_from_the_start() -> None:
    assert limit_steps([], start=NOON, now=NOON + HOUR, limit=Usd(7)) == ((NOON + HOUR, Usd(7)),)
    told = [(NOON, Usd(3), None), (NOON + HOUR, None, Usd(5))]
    assert limit_steps(told, start=NOON, now=NOON + HOUR, limit=Usd(5)) == (
        (NOON, Usd(3)),
        (NOON + HOUR, Usd(5)),
    )


def test_without_recent_charges_nothing_is_projected() -> None:
    picture = burn_down([], limits=[(NOON, Usd(40))], start=NOON, end=NOON + HOUR, now=NOON + HOUR)
    assert (picture.stops_at, picture.ahead) == (None, "")


def test_the_narrow_graph_has_a_box_a_row_below_what_it_builds_on_and_fits() -> None:
    depends_on: dict[str, list[str]] = {f"T{n}": [f"T{n - 1}"] if n else [] for n in range(30)}
    graph = lay_out_narrow(depends_on | {"X": ["T0", "T29"]})
    place = {box.key: box for box in graph.boxes}
    assert len({box.y for box in graph.boxes}) == len(graph.boxes)
    for arrow in graph.arrows:
        assert place[arrow.source].y + BOX_HEIGHT <= place[arrow.target].y
    assert max(box.x for box in graph.boxes) < NARROW_WIDTH / 2
    assert max(box.y for box in graph.boxes) + BOX_HEIGHT <= graph.height
    assert lay_out_narrow({}).boxes == ()


def test_waits_are_the_times_in_which_nothing_went_on() -> None:
    spans = [
        Span("call", "1", at(0), at(5)),
        Span("tool", "2", at(3), at(8)),
        Span("call", "3", at(8.5), at(10)),
        Span("call", "4", at(20), None),
    ]
    found = [(wait.start, wait.end) for wait in waits(spans, start=at(-3), end=at(30))]
    assert found == [(at(-3), at(0)), (at(10), at(20))]
    assert [(wait.start, wait.end) for wait in waits([], start=at(0), end=at(9))] == [(at(0), at(9))]
