"""Views of the money. All of them read the reservations: there is no second set of books.

Callers bring the rows that they may see (`Reservation.objects.visible_to(user)`), narrowed by `narrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField, Count, F, Max, Q, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, TruncDate, TruncHour

from budgets.models import Reservation, ReservationState
from budgets.models.meter import ZERO_USD
from budgets.money import ZERO, Usd
from budgets.prices import saved_by_cache

# Whole words at the start of a cell that a spreadsheet would run as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
CSV_COLUMNS = (
    "id",
    "held_at",
    "closed_at",
    "state",
    "purpose",
    "tier",
    "model",
    "connector",
    "project",
    "user",
    "change",
    "task",
    "run",
    "hold_usd_micro",
    "charged_usd_micro",
    "known_cost_usd_micro",
    "charged_tokens",
    "overrun",
    "usage_quality",
)


class By(StrEnum):
    """What spending is grouped by. A day is the UTC day on which the call was held."""

    DAY = "day"
    TIER = "tier"
    PROJECT = "project_id"
    USER = "user_id"
    CHANGE = "change_id"
    PURPOSE = "purpose"
    MODEL = "model"
    CONNECTOR = "connector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """Filters of the ledger; None or empty: all."""

    meter_id: int | None = None
    state: str = ""
    project_id: UUID | None = None
    user_id: UUID | None = None
    change_id: UUID | None = None
    task_id: UUID | None = None
    run_id: UUID | None = None
    purpose: str = ""
    tier: str = ""
    model: str = ""
    since: datetime | None = None  # inclusive
    until: datetime | None = None  # exclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What one group cost. `known` is a subtotal: `unknown_calls` are not in it, and cost at most `unknown_at_most`.

    Of these, `unpriced_calls` have no price at all: nobody knows what they cost even at most.
    """

    known: Usd = ZERO
    unknown_calls: int = 0
    unknown_at_most: Usd = ZERO
    unpriced_calls: int = 0
    held: Usd = ZERO
    calls: int = 0  # that may have cost something: refunded ones are left out

    @property
    def charged(self) -> Usd:
        """What the meters count as spent."""
        return self.known + self.unknown_at_most

    @property
    def coverage(self) -> tuple[int, int]:
        """Calls with a known cost, of all that ended."""
        return self.calls - self.unknown_calls, self.calls

    @property
    def known_calls(self) -> int:
        return self.coverage[0]

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            known=self.known + other.known,
            unknown_calls=self.unknown_calls + other.unknown_calls,
            unknown_at_most=self.unknown_at_most + other.unknown_at_most,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            held=self.held + other.held,
            calls=self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """How much of the input was read from a cache, and what that saved by the rates stored with each call."""

    input_tokens: int
    read_tokens: int
    saved: Usd


def narrow(calls: QuerySet[Reservation], by: Narrow) -> QuerySet[Reservation]:
    """These calls, filtered, newest first."""
    equal = {
        "state": by.state,
        "project_id": by.project_id,
        "user_id": by.user_id,
        "change_id": by.change_id,
        "task_id": by.task_id,
        "run_id": by.run_id,
        "purpose": by.purpose,
        "tier": by.tier,
        "model": by.model,
        "meters__has": by.meter_id,
        "created_at__gte": by.since,
        "created_at__lt": by.until,
    }
    return calls.filter(**{name: value for name, value in equal.items() if value not in (None, "")}).order_by(
        "-created_at", "-pk"
    )


def total(calls: QuerySet[Reservation]) -> Spend:
    """All of them in one figure."""
    return _spend(calls.order_by().aggregate(**_SUMS))


def spend_by(calls: QuerySet[Reservation], *groups: By) -> dict[tuple[Any, ...], Spend]:
    """Spending by one or more groups, such as day and tier; keys are dates, texts and ids, in order."""
    assert groups, "group by something, or ask for the total"
    if By.DAY in groups:
        calls = calls.annotate(day=TruncDate("created_at", tzinfo=UTC))
    names = [str(group) for group in groups]
    rows = calls.order_by(*names).values(*names).annotate(**_SUMS)
    return {tuple(row[name] for name in names): _spend(row) for row in rows}


def largest(calls: QuerySet[Reservation], by: By, *, top: int) -> tuple[list[tuple[Any, Spend]], int, Spend]:
    """The `top` groups by what is charged, how many more there are, and what those come to together.

    Ranked by the database: an organization may have a hundred thousand Changes.
    """
    name = str(by)
    groups = calls.order_by().values(name)
    ranked = groups.annotate(**_SUMS, charged=Sum("usd", filter=_ENDED)).order_by(
        F("charged").desc(nulls_last=True), name
    )
    found = [(row[name], _spend(row)) for row in ranked[: top + 1]]
    if len(found) <= top:
        return found, 0, Spend()
    keys = [key for key, _ in found[:top]]
    rest = calls.exclude(**{f"{name}__in": [key for key in keys if key is not None]})
    if None in keys:
        rest = rest.exclude(**{f"{name}__isnull": True})
    return found[:top], groups.distinct().count() - top, total(rest)


def by_hour(calls: QuerySet[Reservation]) -> list[tuple[datetime, Usd]]:
    """What was charged in each hour in which a call ended, at the last of its moments: points for a picture."""
    ended = calls.order_by().filter(closed_at__isnull=False, usd__gt=ZERO_USD)
    hours = ended.annotate(hour=TruncHour("closed_at", tzinfo=UTC)).values("hour")
    rows = hours.annotate(last=Max("closed_at"), charged=Sum("usd")).order_by("hour")
    return [(row["last"], row["charged"]) for row in rows]


def cost_of_change(change_id: UUID, calls: QuerySet[Reservation] | None = None) -> Spend:
    """What a Change has cost so far: the known subtotal, and the count of unknown ones beside it."""
    rows: QuerySet[Reservation] = Reservation.objects.all() if calls is None else calls
    return total(rows.filter(change_id=change_id))


def curve(calls: QuerySet[Reservation]) -> list[tuple[datetime, Usd]]:
    """How the charge grew: each moment at which a call ended, with the sum so far."""
    so_far, points = ZERO, []
    ended = calls.filter(closed_at__isnull=False).order_by("closed_at", "pk")
    for at, usd in ended.values_list("closed_at", "usd").iterator():
        if at is not None:
            so_far += usd or ZERO
            points.append((at, so_far))
    return points


def cache_effect(calls: QuerySet[Reservation]) -> CacheEffect:
    """The share of cached input and the money it saved."""
    inputs, reads, saved = 0, 0, ZERO
    reported = calls.filter(usage__isnull=False).order_by().values("rates")
    sums = {name: Sum(Cast(KT(f"usage__{name}"), BigIntegerField())) for name in _INPUTS}
    cards: Any = reported.annotate(**sums)
    for row in cards:  # as many rows as there were price cards, not as calls
        read = row["cache_read"] or 0
        inputs += sum(row[name] or 0 for name in _INPUTS)
        reads += read
        saved += saved_by_cache({"cache_read": read}, row["rates"] or {})
    return CacheEffect(inputs, reads, saved)


def days(first: date, last: date) -> Iterator[date]:
    """Every UTC day of a span, so that a figure shows the empty ones, too."""
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        yield date.fromordinal(ordinal)


def csv_rows(calls: Iterable[Reservation]) -> Iterator[tuple[str, ...]]:
    """The ledger as rows of text, the header first. Money is whole micro-dollars; an unknown cost is empty."""
    yield CSV_COLUMNS
    for call in calls:
        yield tuple(_cell(value) for value in _values(call))


_INPUTS = ("input_uncached", "cache_write_5m", "cache_write_1h", "cache_read")
_ENDED = ~Q(state__in=[ReservationState.HELD, ReservationState.REFUNDED])
_SUMS: dict[str, Any] = {
    "known_usd": Sum("cost", filter=_ENDED),
    "unknown_count": Count("pk", filter=_ENDED & Q(cost__isnull=True)),
    "unknown_usd": Sum("usd", filter=Q(cost__isnull=True) & _ENDED),
    "unpriced_count": Count("pk", filter=_ENDED & Q(cost__isnull=True, priced=False)),
    "held_usd": Sum("hold_usd", filter=Q(state=ReservationState.HELD)),
    "ended_count": Count("pk", filter=_ENDED),
}


def _spend(row: dict[str, Any]) -> Spend:
    return Spend(
        known=row["known_usd"] or ZERO,
        unknown_calls=row["unknown_count"],
        unknown_at_most=row["unknown_usd"] or ZERO,
        unpriced_calls=row["unpriced_count"],
        held=row["held_usd"] or ZERO,
        calls=row["ended_count"],
    )


def _values(call: Reservation) -> tuple[Any, ...]:
    return (
        call.pk,
        call.created_at,
        call.closed_at,
        call.state,
        call.purpose,
        call.tier,
        call.model,
        call.connector,
        call.project_id,
        call.user_id,
        call.change_id,
        call.task_id,
        call.run_id,
        call.hold_usd,
        call.usd,
        call.cost,
        call.tokens,
        call.overrun,
        call.usage_quality,
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Usd):
        return str(value.micro)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
