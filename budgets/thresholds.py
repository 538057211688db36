"""Soft thresholds: one row per meter, unit and percent, which the domain turns into an event."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.utils import timezone

from budgets.decisions import MeterReading, Unit, thresholds_passed
from budgets.keys import MeterKind
from budgets.ledger.words import THRESHOLDS_PERCENT
from budgets.models import Meter, ThresholdCrossing

TOLD_AT_ONCE_MAX = 200
# Of the meters whose row is missing, per sweep.
NOTED_AT_ONCE_MAX = 1_000


def note_crossings(meter_ids: Iterable[int], percents: Iterable[int] = THRESHOLDS_PERCENT) -> None:
    """Write down which thresholds these meters have passed; one that is written already stays as it is.

    A crash between the charge and this costs nothing: the sweep looks again.
    """
    now = timezone.now()
    rows = [
        row
        for meter in Meter.objects.filter(pk__in=list(meter_ids))
        for row in _crossings(meter, tuple(percents), now)
    ]
    ThresholdCrossing.objects.bulk_create(rows, ignore_conflicts=True)


def note_missed_crossings(now: datetime, percents: Iterable[int]) -> None:
    """Look again at the meters of the open periods: a crash may have lost a row, or a limit was lowered.

    Only those without a row that is due are read: of the meters for life there are as many as Changes.
    """
    missing = Q(pk=None)
    for percent in percents:
        for unit in Unit:
            written = ThresholdCrossing.objects.filter(meter=OuterRef("pk"), unit=unit, percent=percent)
            passed = {
                f"limit_{unit}__gt": Value(0),
                f"spent_{unit}__gte": F(f"limit_{unit}") * percent / 100,
            }
            missing |= Q(~Exists(written), **passed)
    month, day = f"{now:%Y-%m}", f"{now:%Y-%m-%d}"
    found = Meter.objects.filter(missing, period__in=("", month, day)).order_by("pk")
    note_crossings(found.values_list("pk", flat=True)[:NOTED_AT_ONCE_MAX], percents)


def untold_crossings() -> list[ThresholdCrossing]:
    """The oldest crossings of which the domain has made no event yet; told with `mark_told`."""
    found = (
        ThresholdCrossing.objects.filter(told_at__isnull=True).select_related("meter").order_by("at", "pk")
    )
    return list(found[:TOLD_AT_ONCE_MAX])


def mark_told(crossing: ThresholdCrossing, *, now: datetime) -> bool:
    """True for the one caller that may make the event; in its transaction, so that both happen or none."""
    moved = ThresholdCrossing.objects.filter(pk=crossing.pk, told_at__isnull=True).update(told_at=now)
    return bool(moved)


def open_crossings(
    crossings: QuerySet[ThresholdCrossing], *, changes: Iterable[str], now: datetime
) -> list[ThresholdCrossing]:
    """Of each meter and unit the highest one that still holds under its limit of now, newest first.

    Of the open periods, and of those Changes: the meter of a Change never ends by itself.
    """
    month, day = f"{now:%Y-%m}", f"{now:%Y-%m-%d}"
    of_changes = Q(meter__kind=MeterKind.CHANGE, meter__subject__in=list(changes))
    found = crossings.filter(Q(meter__period__in=(month, day)) | of_changes).select_related("meter")
    highest: dict[tuple[int, str], ThresholdCrossing] = {}
    for crossing in found.order_by("percent"):
        reached = {str(unit): (limit, spent) for unit, limit, spent in _units(crossing.meter.reading())}
        limit, spent = reached[crossing.unit]
        if thresholds_passed(limit=limit, spent=spent, percents=(crossing.percent,)):
            highest[crossing.meter_id, crossing.unit] = crossing
    return sorted(highest.values(), key=lambda one: one.at, reverse=True)


def _crossings(meter: Meter, percents: tuple[int, ...], now: datetime) -> list[ThresholdCrossing]:
    return [
        ThresholdCrossing(
            organization_id=meter.organization_id,
            meter=meter,
            unit=unit,
            percent=percent,
            limit=limit,
            spent=spent,
            at=now,
        )
        for unit, limit, spent in _units(meter.reading())
        if limit
        for percent in thresholds_passed(limit=limit, spent=spent, percents=percents)
    ]


def _units(reading: MeterReading) -> list[tuple[Unit, int | None, int]]:
    limit_usd = None if reading.limit_usd is None else reading.limit_usd.micro
    return [
        (Unit.USD, limit_usd, reading.spent_usd.micro),
        (Unit.TOKENS, reading.limit_tokens, reading.spent_tokens),
        (Unit.CALLS, reading.limit_calls, reading.spent_calls),
    ]
