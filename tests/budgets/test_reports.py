"""Views of the money read the one ledger."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from budgets.keys import MeterKey
from budgets.meters import read_meters
from budgets.models import Meter, Reservation
from budgets.money import Usd
from budgets.reports import (
    By,
    CacheEffect,
    Narrow,
    by_day,
    by_hour,
    cache_effect,
    cost_of_change,
    csv_rows,
    curve,
    days,
    days_of,
    largest,
    narrow,
    ranked,
    spend_by,
    total,
)
from budgets.reservations import keep, refund, settle
from providers.messages import Usage
from tests.factories.budgets import make_context, make_hold, make_payers
from tests.factories.tenants import make_member, make_organization

pytestmark = pytest.mark.django_db

USAGE = Usage(input_uncached=100, cache_read=300, output=10)
RATES = {"input": "2", "cache_read": "0.10"}


def call(meters: tuple[MeterKey, ...], usd: int = 1_000, **context: object) -> int:
    held = make_hold(meters, 10_000, context=make_context(meters, **context))
    settle(held.reservation_id, cost=Usd(usd), usage=USAGE, rates=RATES)
    return held.reservation_id


def test_the_cost_of_a_change_is_a_known_subtotal_beside_the_unknown_ones() -> None:
    """Row 136: sums are known subtotals; unknown is counted, never 0."""
    meters = make_payers()
    change = UUID(meters[0].subject)
    call(meters, 1_000)
    call(meters, 2_000)
    keep(make_hold(meters, 10_000).reservation_id, reason="timeout")
    refund(make_hold(meters, 10_000).reservation_id, reason="429")
    make_hold(meters, 7_000)
    call(make_payers(), 5_000)
    cost = cost_of_change(change)
    assert (cost.known, cost.unknown_calls, cost.unknown_at_most, cost.held) == (
        Usd(3_000),
        1,
        Usd(10_000),
        Usd(7_000),
    )
    assert cost.coverage == (2, 3)
    (reading,) = read_meters(meters[:1])
    assert (cost.charged, cost.held) == (reading.spent_usd, reading.held_usd), (
        "fault #40050: one set of books"
    )


def test_spending_is_grouped_by_any_of_the_columns() -> None:
    """Row 139: however it is grouped, each call is counted once and the parts are the whole."""
    organization = make_organization()
    meters = make_payers(organization)
    call(meters, 1_000, tier="haiku", purpose="agent")
    call(meters, 2_000, tier="sonnet", purpose="agent")
    call(make_payers(organization), 4_000, tier="sonnet", purpose="planner")
    rows = Reservation.objects.filter(organization=organization)
    assert {key: spend.known.micro for key, spend in spend_by(rows, By.TIER).items()} == {
        ("haiku",): 1_000,
        ("sonnet",): 6_000,
    }
    assert spend_by(rows, By.PURPOSE)[("planner",)].known == Usd(4_000)
    assert {by: sum(one.known.micro for one in spend_by(rows, by).values()) for by in By} == dict.fromkeys(
        By, 7_000
    )
    assert len(spend_by(rows, By.CHANGE)) == 2


def test_days_are_utc_and_the_empty_ones_can_be_shown() -> None:
    first, second = call(make_payers(), 1_000), call(make_payers(), 2_000)
    Reservation.objects.filter(pk=first).update(created_at=datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    Reservation.objects.filter(pk=second).update(created_at=datetime(2026, 12, 1, 0, 0, 1, tzinfo=UTC))
    found = {
        key[0]: spend.known for key, spend in spend_by(Reservation.objects.all(), By.DAY, By.TIER).items()
    }
    assert found == {date(2026, 11, 30): Usd(1_000), date(2026, 12, 1): Usd(2_000)}
    assert list(days(date(2026, 2, 27), date(2026, 3, 1))) == [
        date(2026, 2, 27),
        date(2026, 2, 28),
        date(2026, 3, 1),
    ]


def test_the_ledger_of_one_meter_has_exactly_its_calls() -> None:
    organization = make_organization()
    meters = make_payers(organization)
    mine = call(meters)
    call(make_payers(organization))
    change = Meter.objects.get(name=meters[0].name)
    everything = Reservation.objects.all()
    assert [row.pk for row in narrow(everything, Narrow(meter_id=change.pk))] == [mine]
    shared = Meter.objects.get(kind="organization", organization=organization)
    assert narrow(everything, Narrow(meter_id=shared.pk)).count() == 2


def test_filters_narrow_and_strangers_see_nothing() -> None:
    organization = make_organization()
    member = make_member(organization)
    meters = make_payers(organization)
    pk = call(meters, tier="haiku")
    call(make_payers())
    visible = Reservation.objects.visible_to(member)
    assert [row.pk for row in narrow(visible, Narrow())] == [pk]
    assert narrow(visible, Narrow(tier="opus")).count() == 0
    assert narrow(visible, Narrow(change_id=uuid4())).count() == 0
    row = visible.get()
    assert narrow(visible, Narrow(since=row.created_at)).count() == 1
    assert narrow(visible, Narrow(until=row.created_at)).count() == 0
    assert narrow(Reservation.objects.visible_to(make_member()), Narrow()).count() == 0


def test_the_csv_cannot_start_a_formula_and_shows_unknown_as_empty() -> None:
    meters = make_payers()
    held = make_hold(meters, 10_000, context=make_context(meters, model="=HYPERLINK(1)"))
    keep(held.reservation_id, reason="timeout")
    header, row = csv_rows(narrow(Reservation.objects.all(), Narrow()))
    cells = dict(zip(header, row, strict=True))
    assert cells["model"] == "'=HYPERLINK(1)"
    assert (cells["known_cost_usd_micro"], cells["charged_usd_micro"], cells["state"]) == (
        "",
        "10000",
        "unknown",
    )


def test_the_curve_and_the_cache_are_told() -> None:
    meters = make_payers()
    call(meters, 1_000)
    call(meters, 2_000)
    points = curve(Reservation.objects.all())
    assert [usd for _, usd in points] == [Usd(1_000), Usd(3_000)]
    effect = cache_effect(Reservation.objects.all())
    assert (effect.input_tokens, effect.read_tokens, effect.saved) == (800, 600, Usd(1_140))


def test_only_a_report_that_could_be_charged_by_counts_as_cached() -> None:
    """Fault: one count beyond the books made every sum of the month an error. Row 137."""
    meters = make_payers()
    call(meters)
    burst = make_hold(meters, 10_000)
    settle(
        burst.reservation_id,
        cost=Usd(1),
        usage=Usage(input_uncached=1, cache_read=10**30, output=1),
        rates=RATES,
    )
    unrated = make_hold(meters, 10_000)
    settle(unrated.reservation_id, cost=Usd(1), usage=USAGE, rates={"input": "2", "cache_read": None})
    effect = cache_effect(Reservation.objects.all())
    assert (effect.input_tokens, effect.read_tokens, effect.saved) == (800, 600, Usd(570))


def test_the_largest_are_ranked_and_the_rest_is_what_remains() -> None:
    meters = make_payers()
    for number in range(1, 5):
        call(meters, number * 1_000, change_id=uuid4(), tier=str(number))
    call(meters, 500, change_id=None, tier="0")
    rows = Reservation.objects.all()
    by_change = largest(rows, By.CHANGE, top=2, whole=total(rows))
    few = ranked({key: each for (key,), each in spend_by(rows, By.TIER).items()}, top=2)
    for found, more, rest in (by_change, few):
        assert [each.charged for _, each in found] == [Usd(4_000), Usd(3_000)]
        assert (more, rest.charged, rest.calls) == (3, Usd(3_500), 3)
    days_and_tiers = days_of(rows)
    assert sum(row.spend.calls for row in days_and_tiers if row.of_change) == 4
    assert sum((row.effect for row in days_and_tiers), CacheEffect(0, 0, 0)) == cache_effect(rows)


def test_a_day_is_charged_when_its_last_call_ended_and_never_after_its_end() -> None:
    """D7, the burn-down: a bill that came a week late belongs to the day on which its call was held."""
    meters = make_payers()
    first, late, second = call(meters, 1_000), call(meters, 2_000), call(meters, 4_000)
    for pk, day, closed in (
        (first, datetime(2026, 5, 1, 9, tzinfo=UTC), datetime(2026, 5, 1, 9, 1, tzinfo=UTC)),
        (late, datetime(2026, 5, 1, 8, tzinfo=UTC), datetime(2026, 5, 8, 8, tzinfo=UTC)),
        (second, datetime(2026, 5, 2, 7, tzinfo=UTC), datetime(2026, 5, 2, 7, 30, tzinfo=UTC)),
    ):
        Reservation.objects.filter(pk=pk).update(created_at=day, closed_at=closed)
    make_hold(meters, 10_000)  # of today, and open: no charge yet
    rows = days_of(Reservation.objects.all())
    points = by_day(rows)
    assert points == [
        (datetime(2026, 5, 2, tzinfo=UTC), Usd(3_000)),
        (datetime(2026, 5, 2, 7, 30, tzinfo=UTC), Usd(4_000)),
    ]
    hours = by_hour(Reservation.objects.all())
    assert sum((usd for _, usd in points), Usd(0)) == sum((usd for _, usd in hours), Usd(0))


def test_an_empty_ledger_is_nothing_not_an_error() -> None:
    empty = total(Reservation.objects.filter(created_at__gt=datetime.now(UTC) + timedelta(days=1)))
    assert (empty.known, empty.calls, empty.coverage) == (Usd(0), 0, (0, 0))
