"""Views of the money. All of them read the reservations: there is no second set of books.

Callers bring the rows that they may see (`Reservation.objects.visible_to(user)`), narrowed by `narrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Max, Q, QuerySet, Sum, Window
from django.db.models.functions import TruncDate, TruncHour

from budgets.models import Reservation, ReservationState
from budgets.models.meter import ZERO_USD
from budgets.models.reservation import NANO_PER_MICRO
from budgets.money import ZERO, Usd

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

    def __sub__(self, other: Spend) -> Spend:
        """What remains of a whole; `other` is a part of it."""
        return Spend(
            known=self.known - other.known,
            unknown_calls=self.unknown_calls - other.unknown_calls,
            unknown_at_most=self.unknown_at_most - other.unknown_at_most,
            unpriced_calls=self.unpriced_calls - other.unpriced_calls,
            held=self.held - other.held,
            calls=self.calls - other.calls,
        )


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """How much of the input was read from a cache, and what that saved by the rates stored with each call."""

    input_tokens: int
    read_tokens: int
    saved_nano: int  # thousandths of a micro-dollar, so that a sum is rounded once

    @property
    def saved(self) -> Usd:
        return Usd(-(-self.saved_nano // NANO_PER_MICRO))

    def __add__(self, other: CacheEffect) -> CacheEffect:
        return CacheEffect(
            self.input_tokens + other.input_tokens,
            self.read_tokens + other.read_tokens,
            self.saved_nano + other.saved_nano,
        )


@dataclass(frozen=True, slots=True)
class DaySpend:
    """What one tier cost for one purpose on one UTC day: of Changes, or of what belongs to none."""

    day: date
    tier: str
    purpose: str
    of_change: bool
    spend: Spend
    effect: CacheEffect
    last: datetime | None  # when the last of these calls ended; None: none has


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


def largest(
    calls: QuerySet[Reservation], by: By, *, top: int, whole: Spend
) -> tuple[list[tuple[Any, Spend]], int, Spend]:
    """The `top` groups by what is charged, how many more there are, and what those come to together.

    Ranked by the database: an organization may have a hundred thousand Changes. `whole` is the total of these calls.
    """
    name = str(by)
    groups = calls.order_by().values(name).annotate(charged=Sum("usd"))
    ranked = groups.annotate(groups=Window(Count("*"))).order_by(F("charged").desc(nulls_last=True), name)
    rows = list(ranked[:top])
    keys = [row[name] for row in rows]
    of_these = Q(**{f"{name}__in": [key for key in keys if key is not None]})
    if None in keys:
        of_these |= Q(**{f"{name}__isnull": True})
    # A call may end between the two: then its group is charged a little more than it was ranked by.
    spent = spend_by(calls.filter(of_these), by)
    found = [(key, spent.get((key,), Spend())) for key in keys]
    more = rows[0]["groups"] - len(rows) if rows else 0
    return found, more, whole - sum((each for _, each in found), Spend())


def ranked(spent: Mapping[Any, Spend], *, top: int) -> tuple[list[tuple[Any, Spend]], int, Spend]:
    """As `largest`, of groups that are few and known already."""
    rows = sorted(spent.items(), key=lambda row: (-row[1].charged.micro, row[0] is None, str(row[0])))
    rest = sum((each for _, each in rows[top:]), Spend())
    return rows[:top], max(len(rows) - top, 0), rest


def days_of(calls: QuerySet[Reservation]) -> list[DaySpend]:
    """Each UTC day, tier and purpose, those of Changes apart, with the effect of the cache: one pass for all."""
    rows: Any = (
        calls.order_by()
        .annotate(
            day=TruncDate("created_at", tzinfo=UTC),
            of_change=ExpressionWrapper(Q(change_id__isnull=False), output_field=BooleanField()),
        )
        .values("day", "tier", "purpose", "of_change")
        .annotate(**_SUMS, **_CACHE, last=Max("closed_at"))
    )
    return [
        DaySpend(
            day=row["day"],
            tier=row["tier"],
            purpose=row["purpose"],
            of_change=bool(row["of_change"]),
            spend=_spend(row),
            effect=_effect(row),
            last=row["last"],
        )
        for row in rows
    ]


def by_run(calls: QuerySet[Reservation]) -> tuple[str, tuple[Any, ...]]:
    """SQL and its values: one row an attempt, with `run_id` and the columns of `SUMS`.

    For whoever knows what became of the attempts: their rows lie above the ledger, and no key leads there.
    """
    rows = calls.order_by().filter(run_id__isnull=False).values("run_id").annotate(**_SUMS)
    return rows.query.sql_with_params()


def spend_of(sums: Sequence[Any]) -> Spend:
    """Plain sums in the order of `SUMS`."""
    numbers = {name: int(value or 0) for name, value in zip(SUMS, sums, strict=True)}
    money = {name: Usd(numbers[name]) for name in SUMS if name.endswith("_usd")}
    return _spend({**numbers, **money})


def by_hour(calls: QuerySet[Reservation]) -> list[tuple[datetime, Usd]]:
    """What was charged in each hour in which a call ended, at the last of its moments: points for a picture."""
    ended = calls.order_by().filter(closed_at__isnull=False, usd__gt=ZERO_USD)
    hours = ended.annotate(hour=TruncHour("closed_at", tzinfo=UTC)).values("hour")
    rows = hours.annotate(last=Max("closed_at"), charged=Sum("usd")).order_by("hour")
    return [(row["last"], row["charged"]) for row in rows]


def by_day(rows: Iterable[DaySpend]) -> list[tuple[datetime, Usd]]:
    """What was charged for the calls of each day: points for a picture of the days that are over.

    At the moment at which the last of them ended; a bill that came days later counts at its own day's end.
    """
    charged: dict[date, Usd] = {}
    last: dict[date, datetime] = {}
    for row in rows:
        if row.last is not None:
            end = datetime.combine(row.day + timedelta(days=1), time(), tzinfo=UTC)
            charged[row.day] = charged.get(row.day, ZERO) + row.spend.charged
            last[row.day] = min(end, max(row.last, last.get(row.day, row.last)))
    return [(last[day], amount) for day, amount in sorted(charged.items())]


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
    return _effect(calls.order_by().aggregate(**_CACHE))


def days(first: date, last: date) -> Iterator[date]:
    """Every UTC day of a span, so that a figure shows the empty ones, too."""
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        yield date.fromordinal(ordinal)


def csv_rows(calls: Iterable[Reservation]) -> Iterator[tuple[str, ...]]:
    """The ledger as rows of text, the header first. Money is whole micro-dollars; an unknown cost is empty."""
    yield CSV_COLUMNS
    for call in calls:
        yield tuple(_cell(value) for value in _values(call))


# A call that is held has no charge yet, and one that was refunded costs nothing: the table's own constraints. So these
# look at what is null and compare few words, which took a month of calls a quarter longer.
_ENDED = Q(usd__isnull=False) & ~Q(state=ReservationState.REFUNDED)
_WITHOUT_COST = Q(cost__isnull=True)
# Only columns of the index `reservation_sums`, also where rows are counted: it alone answers.
_SUMS: dict[str, Any] = {
    "known_usd": Sum("cost"),
    "unknown_count": Count("state", filter=_WITHOUT_COST & _ENDED),
    "unknown_usd": Sum("usd", filter=_WITHOUT_COST),
    "unpriced_count": Count("state", filter=_WITHOUT_COST & Q(priced=False) & _ENDED),
    "held_usd": Sum("hold_usd", filter=Q(usd__isnull=True)),
    "ended_count": Count("state", filter=_ENDED),
}
SUMS = tuple(_SUMS)
# The database has read the stored usage and rates of each call already.
_CACHE: dict[str, Any] = {
    "input": Sum("input_tokens"),
    "cached": Sum("cached_tokens"),
    "saved": Sum("saved_nano_usd"),
}


def _effect(row: dict[str, Any]) -> CacheEffect:
    return CacheEffect(int(row["input"] or 0), int(row["cached"] or 0), int(row["saved"] or 0))


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
