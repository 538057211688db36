"""Pure rules about money: periods, room on a meter, a Task's share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from budgets.keys import COUNTS_CALLS, MeterKey, MeterKind
from budgets.money import AMOUNT_MICRO_MAX, ZERO, Usd

TOKENS_MAX = 1_000_000_000_000
CALLS_PER_RESERVATION_MAX = 1_000
CALLS_LIMIT_MAX = 1_000_000_000


class Unit(StrEnum):
    """What is counted. Money is whole micro-dollars."""

    USD = "usd"
    TOKENS = "tokens"
    CALLS = "calls"


# The name of the stop that a refusal causes: the words of `routing.words.EndReason` (rows 22, 143).
STOP_OF: dict[MeterKind, str] = {
    MeterKind.CHANGE: "change_budget",
    MeterKind.PROJECT: "project_budget",
    MeterKind.USER: "user_budget",
    MeterKind.ORGANIZATION: "monthly_budget",
    MeterKind.DAILY_CALLS: "daily_call_cap",
    MeterKind.CLASSIFIER_CALLS: "daily_call_cap",
    MeterKind.EMBEDDINGS: "daily_call_cap",
    MeterKind.PROVIDER: "monthly_budget",
    MeterKind.PLATFORM: "monthly_budget",
}
assert STOP_OF.keys() == set(MeterKind)
_ORDER = {kind: place for place, kind in enumerate(MeterKind)}


@dataclass(frozen=True, slots=True)
class Amount:
    """What a call may cost at worst. `usd` is None when no price is known; a limit in money then refuses."""

    usd: Usd | None
    tokens: int
    calls: int = 1

    def __post_init__(self) -> None:
        if self.usd is not None and not 0 <= self.usd.micro <= AMOUNT_MICRO_MAX:
            raise ValueError(
                f"a hold is between 0 and {AMOUNT_MICRO_MAX} micro-dollars, not {self.usd.micro}"
            )
        if type(self.tokens) is not int or not 0 <= self.tokens <= TOKENS_MAX:
            raise ValueError(f"a hold is between 0 and {TOKENS_MAX} tokens, not {self.tokens!r}")
        if type(self.calls) is not int or not 0 <= self.calls <= CALLS_PER_RESERVATION_MAX:
            raise ValueError(f"a hold is between 0 and {CALLS_PER_RESERVATION_MAX} calls, not {self.calls!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterReading:
    """A meter at one moment. A limit of None is unlimited, 0 is nothing."""

    key: MeterKey
    limit_usd: Usd | None = None
    limit_tokens: int | None = None
    limit_calls: int | None = None
    spent_usd: Usd = ZERO
    spent_tokens: int = 0
    spent_calls: int = 0
    held_usd: Usd = ZERO
    held_tokens: int = 0
    held_calls: int = 0

    @property
    def ends_at(self) -> datetime | None:
        return end_of(self.key.period)

    @property
    def left_usd(self) -> Usd | None:
        """What may still be held; below zero after a late report or a lowered limit. None: unlimited."""
        return None if self.limit_usd is None else self.limit_usd - self.spent_usd - self.held_usd

    @property
    def left_calls(self) -> int | None:
        return None if self.limit_calls is None else self.limit_calls - self.spent_calls - self.held_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One meter that said no, in one unit. Amounts of money are `Usd`, all others whole numbers.

    `amount` is None when the price is unknown. `waits`: the amount fits what is spent, and only held
    money stands in the way, so the caller waits for holds to end instead of stopping.
    """

    kind: MeterKind
    subject: str
    period: str
    unit: Unit
    limit: Usd | int
    spent: Usd | int
    held: Usd | int
    amount: Usd | int | None
    ends_at: datetime | None
    waits: bool

    @property
    def stop(self) -> str:
        """The name of the stop: equal to the text of an `EndReason`."""
        return STOP_OF[self.kind]

    def as_data(self) -> dict[str, Any]:
        """For JSON columns and events. Money is whole micro-dollars when `unit` is "usd"."""
        return {
            "kind": str(self.kind),
            "subject": self.subject,
            "period": self.period,
            "unit": str(self.unit),
            "limit": _plain(self.limit),
            "spent": _plain(self.spent),
            "held": _plain(self.held),
            "amount": _plain(self.amount),
            "ends_at": self.ends_at.isoformat() if self.ends_at else None,
            "waits": self.waits,
            "stop": self.stop,
        }


def why_refused(readings: Iterable[MeterReading], amount: Amount) -> tuple[Refusal, ...]:
    """Every meter and unit without room, in the settled order; empty when all have room (rows 22, 143).

    An exact fit is allowed. A limit of 0 means no calls, also for a call that costs nothing. An unknown
    price is refused by every limit in money.
    """
    ordered = sorted(readings, key=lambda reading: (_ORDER[reading.key.kind], reading.key))
    return tuple(refusal for reading in ordered for refusal in _refusals_of(reading, amount))


def refuses(*, limit: int | None, spent: int, held: int, wanted: int | None) -> bool:
    """One limit's rule, in plain numbers of its unit; the function on PostgreSQL says the same in SQL."""
    if limit is None:
        return False
    return limit == 0 or wanted is None or spent + held + wanted > limit


def period_of(kind: MeterKind, now: datetime) -> str:
    """The UTC month or day that `now` falls in; empty for a meter for life."""
    assert now.tzinfo is not None, "a period needs a moment with its zone"
    if kind is MeterKind.CHANGE:
        return ""
    day = now.astimezone(UTC).date().isoformat()
    return day if kind in COUNTS_CALLS else day[: len("2026-11")]


def ends_at(kind: MeterKind, now: datetime) -> datetime | None:
    """The first moment of the next period; None for a meter for life."""
    return end_of(period_of(kind, now))


def end_of(period: str) -> datetime | None:
    """The first moment after a period: half-open, UTC."""
    if not period:
        return None
    if len(period) == len("2026-11"):
        year, month = int(period[:4]), int(period[5:])
        return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return datetime.fromisoformat(period).replace(tzinfo=UTC) + timedelta(days=1)


def unit_of(kind: MeterKind) -> Unit:
    """The unit in which people limit such a meter."""
    return Unit.CALLS if kind in COUNTS_CALLS else Unit.USD


def task_share(budget: Usd, spent: Usd, open_tasks: int) -> Usd:
    """A Task's part of what is left of its Change, rounded down to 1 micro-dollar (row 17)."""
    assert open_tasks >= 1, "the Task that asks is open itself"
    return Usd(max(0, (budget - spent).micro) // open_tasks)


def fits_share(share: Usd | None, *, spent: Usd, estimate: Usd | None) -> bool:
    """Whether the next call of a run stays within the Task's share (row 51). No share: no cap."""
    if share is None:
        return True
    return estimate is not None and spent + estimate <= share


def thresholds_passed(*, limit: int | None, spent: int, percents: Iterable[int]) -> tuple[int, ...]:
    """The soft thresholds that `spent` has reached, in percent of the limit."""
    if not limit:  # unlimited, or nothing may be spent at all
        return ()
    return tuple(sorted(percent for percent in percents if spent * 100 >= percent * limit))


def _refusals_of(reading: MeterReading, amount: Amount) -> list[Refusal]:
    units: list[tuple[Unit, Usd | int | None, Usd | int, Usd | int, Usd | int | None]] = [
        (Unit.USD, reading.limit_usd, reading.spent_usd, reading.held_usd, amount.usd),
        (Unit.TOKENS, reading.limit_tokens, reading.spent_tokens, reading.held_tokens, amount.tokens),
        (Unit.CALLS, reading.limit_calls, reading.spent_calls, reading.held_calls, amount.calls),
    ]
    return [
        Refusal(
            kind=reading.key.kind,
            subject=reading.key.subject,
            period=reading.key.period,
            unit=unit,
            limit=limit,
            spent=spent,
            held=held,
            amount=wanted,
            ends_at=reading.ends_at,
            waits=_count(limit) > 0
            and wanted is not None
            and _count(spent) + _count(wanted) <= _count(limit),
        )
        for unit, limit, spent, held, wanted in units
        if limit is not None
        and refuses(limit=_count(limit), spent=_count(spent), held=_count(held), wanted=_plain(wanted))
    ]


def _count(value: Usd | int) -> int:
    return value.micro if isinstance(value, Usd) else value


def _plain(value: Usd | int | None) -> int | None:
    return None if value is None else _count(value)
