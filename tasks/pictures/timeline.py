"""Timelines: a run's calls, tools and waits on one axis, and a budget's burn-down. Pure.

Horizontal positions are whole thousandths of the width, vertical ones of the height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from budgets.money import ZERO, Usd

SCALE = 1_000
# A span that took no time is still there to be seen and clicked.
SPAN_WIDTH_MIN = 4
# How much of the recent past a projection is drawn from.
PROJECTION_WINDOW_HOURS = 24


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time: a call, a tool. `end` is None while it runs."""

    lane: str
    label: str
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class Placed:
    span: Span
    x: int
    width: int


def timeline(spans: Sequence[Span], *, start: datetime, end: datetime) -> tuple[Placed, ...]:
    """Each span between `start` and `end`; what lies outside is cut at the edge."""
    return tuple(_placed(span, start=start, end=end) for span in spans)


def _placed(span: Span, *, start: datetime, end: datetime) -> Placed:
    x1 = _share(span.start, start=start, end=end)
    x2 = _share(span.end or end, start=start, end=end)
    width = max(x2 - x1, SPAN_WIDTH_MIN)
    return Placed(span, min(x1, SCALE - width), width)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnDown:
    """Money left over time. `line` and `ahead` are SVG point lists; `stops_at` is where the projection meets zero."""

    line: str
    ahead: str
    stops_at: datetime | None


def burn_down(
    spent: Sequence[tuple[datetime, Usd]],
    *,
    limit: Usd,
    start: datetime,
    end: datetime,
    now: datetime,
) -> BurnDown:
    """The budget `limit` less what was spent, as steps from `start` to `now`, then a straight guess to `end`.

    `spent` are single charges in order of time. The guess goes on at the pace of the
    last `PROJECTION_WINDOW_HOURS`; without a charge in them there is none.
    """
    points, left = [(0, _height(limit, limit))], limit
    for at, amount in spent:
        x = _share(at, start=start, end=end)
        points.append((x, _height(left, limit)))
        left -= amount
        points.append((x, _height(left, limit)))
    here = (_share(now, start=start, end=end), _height(left, limit))
    points.append(here)
    stops_at = _projected_stop(spent, left=left, now=now)
    ahead = ""
    if stops_at is not None and left > ZERO:
        ahead = _points([here, (_share(stops_at, start=start, end=end), SCALE)])
        if stops_at > end:
            fall = (SCALE - here[1]) * int((end - now) / timedelta(seconds=1))
            drop = fall // max(int((stops_at - now) / timedelta(seconds=1)), 1)
            ahead = _points([here, (SCALE, here[1] + drop)])
    return BurnDown(line=_points(points), ahead=ahead, stops_at=stops_at)


def _projected_stop(spent: Sequence[tuple[datetime, Usd]], *, left: Usd, now: datetime) -> datetime | None:
    since = now - timedelta(hours=PROJECTION_WINDOW_HOURS)
    recent = [(at, amount) for at, amount in spent if since <= at <= now]
    pace = sum((amount for _, amount in recent), ZERO)
    if pace <= ZERO:
        return None
    if left <= ZERO:
        return now
    seconds = max(int((now - recent[0][0]).total_seconds()), 1)
    return now + timedelta(seconds=left.micro * seconds // pace.micro)


def _share(at: datetime, *, start: datetime, end: datetime) -> int:
    whole = max(int((end - start) / timedelta(milliseconds=1)), 1)
    part = int((at - start) / timedelta(milliseconds=1))
    return max(0, min(part * SCALE // whole, SCALE))


def _height(left: Usd, limit: Usd) -> int:
    if limit <= ZERO:
        return SCALE
    return max(0, min(SCALE - left.micro * SCALE // limit.micro, SCALE))


def _points(points: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
