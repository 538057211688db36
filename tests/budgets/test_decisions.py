"""Pure rules about money: periods, shares, room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from budgets.decisions import (
    Amount,
    MeterReading,
    Unit,
    ends_at,
    fits_share,
    period_of,
    task_share,
    thresholds_passed,
    why_refused,
)
from budgets.keys import MeterKey, MeterKind
from budgets.money import Usd
from routing.words import EndReason

ORG = uuid4()


def reading(kind: MeterKind = MeterKind.CHANGE, **figures: object) -> MeterReading:
    return MeterReading(key=MeterKey(kind, ORG, "subject", ""), **figures)  # type: ignore[arg-type]


def test_the_task_share_counts_the_conflict_review_as_spent() -> None:
    """Row 17, acceptance 2a."""
    runs, review = Usd.dollars("2.35"), Usd.dollars("0.05")
    assert task_share(Usd.dollars("6.00"), runs + review, 3) == Usd(1_200_000)
    assert task_share(Usd.dollars("6.00"), runs, 3) == Usd(1_216_666)  # what ignoring it would give


def test_a_share_of_nothing_is_nothing() -> None:
    """Row 18, acceptance 2c: spent to the last cent, also beyond it."""
    assert task_share(Usd.dollars("1.00"), Usd.dollars("1.00"), 2) == Usd(0)
    assert task_share(Usd.dollars("1.00"), Usd.dollars("1.20"), 2) == Usd(0)


@pytest.mark.parametrize(("estimate", "dispatched"), [(260_000, False), (240_000, True), (240_001, False)])
def test_the_next_call_must_fit_the_task_share(estimate: int, dispatched: bool) -> None:
    """Row 51, acceptance 4b; an exact fit is allowed."""
    assert fits_share(Usd(300_000), spent=Usd(60_000), estimate=Usd(estimate)) is dispatched


def test_an_unknown_price_never_fits_a_share_but_no_share_is_no_cap() -> None:
    assert not fits_share(Usd(300_000), spent=Usd(0), estimate=None)
    assert fits_share(None, spent=Usd(0), estimate=None)


@pytest.mark.parametrize(
    ("moment", "month", "day"),
    [
        (datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC), "2026-11", "2026-11-30"),
        (datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC), "2026-12", "2026-12-01"),
        (datetime(2028, 2, 29, 12, tzinfo=UTC), "2028-02", "2028-02-29"),
        (datetime(2027, 1, 1, 3, tzinfo=timezone(timedelta(hours=5))), "2026-12", "2026-12-31"),
        (datetime(2026, 12, 31, 20, tzinfo=timezone(timedelta(hours=-5))), "2027-01", "2027-01-01"),
    ],
)
def test_periods_are_utc_whatever_the_zone_of_the_clock(moment: datetime, month: str, day: str) -> None:
    """Row 140; fault C56: no window turns one time-zone offset late."""
    assert period_of(MeterKind.PROJECT, moment) == month
    assert period_of(MeterKind.DAILY_CALLS, moment) == day
    assert period_of(MeterKind.CHANGE, moment) == ""


@pytest.mark.parametrize(
    ("moment", "month_ends", "day_ends"),
    [
        (
            datetime(2026, 12, 31, 23, tzinfo=UTC),
            datetime(2027, 1, 1, tzinfo=UTC),
            datetime(2027, 1, 1, tzinfo=UTC),
        ),
        (
            datetime(2027, 1, 31, 1, tzinfo=UTC),
            datetime(2027, 2, 1, tzinfo=UTC),
            datetime(2027, 2, 1, tzinfo=UTC),
        ),
        (
            datetime(2027, 2, 28, 1, tzinfo=UTC),
            datetime(2027, 3, 1, tzinfo=UTC),
            datetime(2027, 3, 1, tzinfo=UTC),
        ),
        (
            datetime(2028, 2, 28, 1, tzinfo=UTC),
            datetime(2028, 3, 1, tzinfo=UTC),
            datetime(2028, 2, 29, tzinfo=UTC),
        ),
        (
            datetime(2028, 2, 29, 1, tzinfo=UTC),
            datetime(2028, 3, 1, tzinfo=UTC),
            datetime(2028, 3, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_period_ends_where_the_next_one_begins(
    moment: datetime, month_ends: datetime, day_ends: datetime
) -> None:
    """Fault C56: half-open, through leap days and year ends; the first of the month, not the same date."""
    assert ends_at(MeterKind.ORGANIZATION, moment) == month_ends
    assert ends_at(MeterKind.CLASSIFIER_CALLS, moment) == day_ends
    assert ends_at(MeterKind.CHANGE, moment) is None


def test_every_refusing_meter_is_named_in_the_settled_order() -> None:
    """Rows 22 and 143: change, project, user, organization, daily, provider, platform."""
    kinds = [
        MeterKind.PLATFORM,
        MeterKind.DAILY_CALLS,
        MeterKind.PROVIDER,
        MeterKind.USER,
        MeterKind.CHANGE,
        MeterKind.ORGANIZATION,
        MeterKind.PROJECT,
    ]
    full = [reading(kind, limit_usd=Usd(5), spent_usd=Usd(5)) for kind in kinds]
    named = [
        refusal.kind for refusal in why_refused([*full, reading(MeterKind.EMBEDDINGS)], Amount(Usd(1), 1))
    ]
    assert named == [
        MeterKind.CHANGE,
        MeterKind.PROJECT,
        MeterKind.USER,
        MeterKind.ORGANIZATION,
        MeterKind.DAILY_CALLS,
        MeterKind.PROVIDER,
        MeterKind.PLATFORM,
    ]


def test_stop_names_are_the_words_of_the_engine() -> None:
    refusals = [
        why_refused([reading(kind, limit_usd=Usd(0))], Amount(Usd(1), 1))[0].stop for kind in MeterKind
    ]
    assert {EndReason(stop) for stop in refusals} >= {
        EndReason.CHANGE_BUDGET,
        EndReason.PROJECT_BUDGET,
        EndReason.USER_BUDGET,
        EndReason.MONTHLY_BUDGET,
        EndReason.DAILY_CALL_CAP,
    }


def test_an_exact_fit_is_allowed_and_one_more_is_not() -> None:
    meter = reading(limit_usd=Usd(10), spent_usd=Usd(3), held_usd=Usd(2))
    assert why_refused([meter], Amount(Usd(5), 1)) == ()
    refusal = why_refused([meter], Amount(Usd(6), 1))[0]
    assert (refusal.unit, refusal.limit, refusal.spent, refusal.held, refusal.amount) == (
        Unit.USD,
        Usd(10),
        Usd(3),
        Usd(2),
        Usd(6),
    )
    assert refusal.waits, "3 + 6 fits 10: only held money stands in the way"
    assert not why_refused([meter], Amount(Usd(8), 1))[0].waits, "3 + 8 never fits"


@pytest.mark.parametrize("limits", [{"limit_usd": Usd(0)}, {"limit_tokens": 0}, {"limit_calls": 0}])
def test_a_limit_of_zero_means_no_calls_also_for_free_ones(limits: dict[str, Any]) -> None:
    """Faults C43 and PR #41997: 0 is nothing, None is unlimited."""
    refusals = why_refused([reading(**limits)], Amount(Usd(0), 0, 0))
    assert len(refusals) == 1
    assert not refusals[0].waits
    assert why_refused([reading()], Amount(Usd(10**12), 10**12, 1000)) == ()


def test_an_unknown_price_is_refused_by_every_limit_in_money_and_by_no_other() -> None:
    """Faults C49, #25874: unknown is not $0."""
    money, calls = reading(limit_usd=Usd(10**9)), reading(MeterKind.DAILY_CALLS, limit_calls=5)
    refusals = why_refused([money, calls], Amount(None, 100))
    assert [(refusal.kind, refusal.amount, refusal.waits) for refusal in refusals] == [
        (MeterKind.CHANGE, None, False)
    ]


@pytest.mark.parametrize(
    "bad",
    [
        (Usd(-1), 1, 1),
        (Usd(10**12 + 1), 1, 1),
        (Usd(1), -1, 1),
        (Usd(1), 1, -1),
        (Usd(1), 1, 1001),
        (Usd(1), 1.5, 1),
    ],
)
def test_an_impossible_amount_is_no_amount(bad: tuple[Usd, int, int]) -> None:
    with pytest.raises(ValueError, match="a hold is between"):
        Amount(*bad)


def test_thresholds_are_reached_exactly() -> None:
    percents = (50, 80, 100)
    assert thresholds_passed(limit=1_000, spent=499, percents=percents) == ()
    assert thresholds_passed(limit=1_000, spent=500, percents=percents) == (50,)
    assert thresholds_passed(limit=1_000, spent=1_200, percents=percents) == (50, 80, 100)
    assert thresholds_passed(limit=None, spent=5, percents=percents) == ()
    assert thresholds_passed(limit=0, spent=5, percents=percents) == ()
