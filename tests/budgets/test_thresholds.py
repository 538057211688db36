"""Soft thresholds make one event per meter, period, unit and percent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from budgets.keys import MeterKey, MeterKind
from budgets.meters import at_period
from budgets.models import ThresholdCrossing
from budgets.money import Usd
from budgets.reservations import settle
from budgets.thresholds import mark_told, note_missed_crossings, untold_crossings
from providers.messages import Usage
from tests.factories.budgets import NOON, limit, make_hold, make_payers

pytestmark = pytest.mark.django_db

USAGE = Usage(input_uncached=10, output=10)


def spend(meters: tuple[MeterKey, ...], usd: int) -> None:
    settle(make_hold(meters, usd).reservation_id, cost=Usd(usd), usage=USAGE, rates=None)


def crossed() -> list[tuple[str, int]]:
    return sorted(ThresholdCrossing.objects.values_list("meter__kind", "percent"))


def test_each_threshold_is_noted_once() -> None:
    meters = make_payers()
    limit(meters[0], Usd(1_000_000))
    spend(meters, 499_999)
    assert crossed() == []
    spend(meters, 1)
    assert crossed() == [("change", 50)]
    spend(meters, 100)
    assert crossed() == [("change", 50)]
    spend(meters, 499_900)
    assert crossed() == [("change", 50), ("change", 80), ("change", 100)]
    row = ThresholdCrossing.objects.get(percent=100)
    assert (row.limit, row.spent, row.unit) == (1_000_000, 1_000_000, "usd")


def test_calls_have_thresholds_too_and_a_new_period_has_its_own() -> None:
    meters = make_payers()
    daily = next(key for key in meters if key.kind is MeterKind.DAILY_CALLS)
    limit(daily, 2)
    spend(meters, 1)
    assert crossed() == [("daily_calls", 50)]
    tomorrow = at_period(meters, now=NOON + timedelta(days=1))
    spend(tomorrow, 1)
    assert crossed() == [("daily_calls", 50), ("daily_calls", 50)]


def test_the_percents_are_configurable(settings: object) -> None:
    settings.BUDGET_THRESHOLDS = (10, 90)  # type: ignore[attr-defined]
    meters = make_payers()
    limit(meters[0], Usd(1_000))
    spend(meters, 500)
    assert crossed() == [("change", 10)]


def test_a_crossing_that_a_crash_lost_is_found_by_the_sweep() -> None:
    meters = make_payers()
    limit(meters[0], Usd(1_000))
    spend(meters, 850)
    ThresholdCrossing.objects.all().delete()
    note_missed_crossings(NOON, (50, 80, 100))
    note_missed_crossings(NOON, (50, 80, 100))
    assert crossed() == [("change", 50), ("change", 80)]


def test_the_domain_tells_each_crossing_once() -> None:
    meters = make_payers()
    limit(meters[0], Usd(1_000))
    spend(meters, 500)
    (crossing,) = untold_crossings()
    assert mark_told(crossing, now=NOON)
    assert not mark_told(crossing, now=NOON)
    assert untold_crossings() == []


def test_a_limit_that_is_lowered_below_a_threshold_is_noticed_by_the_sweep() -> None:
    meters = make_payers()
    limit(meters[0], Usd(1_000))
    spend(meters, 400)
    limit(meters[0], Usd(500))
    note_missed_crossings(NOON, (50, 80, 100))
    assert crossed() == [("change", 50), ("change", 80)]
    limit(meters[0], Usd(0))
    note_missed_crossings(NOON, (50, 80, 100))
    assert crossed() == [("change", 50), ("change", 80)], "of nothing there is no percentage"


def test_the_sweep_reads_no_meter_whose_thresholds_are_written(django_assert_num_queries: Any) -> None:
    """Meters of Changes live for ever: a sweep that took up each of them again would read more every day."""
    for _ in range(3):
        meters = make_payers()
        limit(meters[0], Usd(1_000))
        spend(meters, 600)
    with django_assert_num_queries(1):
        note_missed_crossings(NOON, (50, 80, 100))
    assert len(crossed()) == 3


def test_one_charge_that_crosses_them_all_writes_each_once_with_two_sweeps_beside_it() -> None:
    meters = make_payers()
    limit(meters[0], Usd(1_000))
    spend(meters, 1_000)
    for _ in range(2):
        note_missed_crossings(NOON, (50, 80, 100))
    assert crossed() == [("change", 50), ("change", 80), ("change", 100)]
