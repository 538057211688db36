"""Budget bars and stacked days: where each rectangle of the picture stands. Pure.

All positions are whole thousandths of the picture's width or height, so that a
template only writes attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from budgets.money import MICRO_PER_USD, ZERO, Usd

SCALE = 1_000
# A part that exists is never drawn thinner than this: unseen money is the wrong kind of honest.
SLIVER = 6
TICKS_MAX = 4
DAY_LABELS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyBar:
    """Spent (solid), held (hatched) and left, side by side. `left` is None without a limit."""

    limit: Usd | None
    spent: Usd
    held: Usd
    left: Usd | None
    spent_width: int
    held_width: int
    over: bool  # spent alone is above the limit


def money_bar(*, limit: Usd | None, spent: Usd, held: Usd) -> MoneyBar:
    """The bar of one meter. A limit of zero is a full bar; no limit is measured against itself."""
    used = spent + held
    whole = max(limit or ZERO, used)
    spent_width, held_width = _share(spent, whole), _share(held, whole)
    if spent_width + held_width > SCALE:  # slivers may not push the bar over its end
        spent_width = SCALE - held_width
    left = None if limit is None else max(limit - used, ZERO)
    return MoneyBar(
        limit=limit,
        spent=spent,
        held=held,
        left=left,
        spent_width=spent_width,
        held_width=held_width,
        over=limit is not None and spent > limit,
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """One colour of one day: `y` from the top, both in thousandths of the height."""

    series: str
    amount: Usd
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class DayColumn:
    day: date
    total: Usd
    x: int
    width: int
    slices: tuple[Slice, ...]
    labelled: bool  # a few days along the axis, evenly apart

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


@dataclass(frozen=True, slots=True)
class Tick:
    amount: Usd
    y: int


@dataclass(frozen=True, slots=True)
class DayChart:
    columns: tuple[DayColumn, ...]
    ticks: tuple[Tick, ...]


def day_chart(days: Sequence[tuple[date, Mapping[str, Usd]]], series: Sequence[str]) -> DayChart:
    """Spend per day, stacked in the order of `series` from the bottom; amounts of other series are refused."""
    totals = [sum(amounts.values(), ZERO) for _, amounts in days]
    top = _round_top(max(totals, default=ZERO))
    columns = []
    slot = SCALE / max(len(days), 1)
    apart = max(len(days) // DAY_LABELS, 1)
    for index, ((day, amounts), total) in enumerate(zip(days, totals, strict=True)):
        assert amounts.keys() <= set(series), f"unknown series {amounts.keys() - set(series)}"
        slices, base = [], 0
        for name in series:
            amount = amounts.get(name, ZERO)
            if amount > ZERO:
                height = max(amount.micro * SCALE // top.micro, 2)
                slices.append(Slice(name, amount, SCALE - base - height, height))
                base += height
        x, width = int(index * slot + slot / 8), max(int(slot * 3 / 4), 1)
        is_labelled = (len(days) - 1 - index) % apart == 0
        columns.append(DayColumn(day, total, x, width, tuple(slices), is_labelled))
    return DayChart(tuple(columns), _ticks(top))


def _share(part: Usd, whole: Usd) -> int:
    if part <= ZERO:
        return 0
    return max(SLIVER, min(part.micro * SCALE // whole.micro, SCALE))


def _round_top(highest: Usd) -> Usd:
    """The next 1, 2 or 5 times a power of ten: an axis that people can read."""
    if highest <= ZERO:
        return Usd(MICRO_PER_USD)
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= highest.micro:
                return Usd(factor * step)
        step *= 10


def _ticks(top: Usd) -> tuple[Tick, ...]:
    marks = range(TICKS_MAX + 1)
    return tuple(Tick(Usd(top.micro * n // TICKS_MAX), SCALE - SCALE * n // TICKS_MAX) for n in marks)
