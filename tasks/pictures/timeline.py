"""Timelines: a run's calls, tools and waits on one axis, and a budget's burn-down. Pure.

Horizontal positions are whole thousandths of the width, vertical ones of the height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from budgets.money import ZERO, Usd

SCALE = 1_000
# A span that took no time is still there to be seen and clicked.
SPAN_WIDTH_MIN = 4
AXIS_MARKS_MAX = 6
AXIS_STEPS_SECONDS = (
    0.1,
    0.25,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    1_800,
    3_600,
    7_200,
    21_600,
    86_400,
)
# A pause that nobody would notice is none.
WAIT_SECONDS_MIN = 1.0
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
    x1 = share_of_span(span.start, start=start, end=end)
    x2 = share_of_span(span.end or end, start=start, end=end)
    width = max(x2 - x1, SPAN_WIDTH_MIN)
    return Placed(span, min(x1, SCALE - width), width)


def waits(spans: Sequence[Span], *, start: datetime, end: datetime) -> tuple[Span, ...]:
    """The times in which nothing of `spans` went on: for held money, for another try, for a machine."""
    found, free_from = [], start
    for span in sorted(spans, key=lambda span: span.start):
        if (span.start - free_from).total_seconds() >= WAIT_SECONDS_MIN:
            found.append(_wait(free_from, span.start))
        free_from = max(free_from, span.end or end)
    if (end - free_from).total_seconds() >= WAIT_SECONDS_MIN:
        found.append(_wait(free_from, end))
    return tuple(found)


def _wait(start: datetime, end: datetime) -> Span:
    return Span("wait", f"nothing went on for {(end - start).total_seconds():.0f} s", start, end)


@dataclass(frozen=True, slots=True)
class Mark:
    """A label of the axis, in seconds since the start."""

    x: int
    label: str


def seconds_axis(start: datetime, end: datetime) -> tuple[Mark, ...]:
    """Four to six round marks, such as 0 s, 5 s, 10 s or 0 min, 2 min, 4 min."""
    seconds = max((end - start).total_seconds(), 0.001)
    step = next(
        (step for step in AXIS_STEPS_SECONDS if seconds / step <= AXIS_MARKS_MAX), AXIS_STEPS_SECONDS[-1]
    )
    marks = range(min(int(seconds / step), 2 * AXIS_MARKS_MAX) + 1)
    return tuple(Mark(min(int(n * step * SCALE / seconds), SCALE), _age(n * step)) for n in marks)


def climb(charges: Sequence[tuple[datetime, Usd]], *, start: datetime, end: datetime) -> str:
    """What was charged so far, as an SVG line of steps from the bottom to the whole at the top; "" for nothing."""
    whole = sum((amount for _, amount in charges), ZERO)
    if whole <= ZERO:
        return ""
    points, so_far = [(0, SCALE)], ZERO
    for at, amount in sorted(charges, key=lambda charge: charge[0]):
        x = share_of_span(at, start=start, end=end)
        points.append((x, SCALE - so_far.micro * SCALE // whole.micro))
        so_far += amount
        points.append((x, SCALE - so_far.micro * SCALE // whole.micro))
    points.append((SCALE, 0))
    return _points(points)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnDown:
    """Money left over time. `line` and `ahead` are SVG point lists; `stops_at` is where the projection meets zero."""

    line: str
    ahead: str
    stops_at: datetime | None
    top: Usd  # the height of the picture: the highest limit there was


def limit_steps(
    changes: Sequence[tuple[datetime, Usd | None, Usd | None]], *, start: datetime, now: datetime, limit: Usd
) -> tuple[tuple[datetime, Usd], ...]:
    """From when each limit stood, in order; the last is `limit`, the one of now.

    `changes` are moments with the limit before and after. None, no limit, has no height: what came next stands there.
    """
    told = [(start, changes[0][1])] if changes else []
    told += [(at, after) for at, _, after in changes]
    steps = [(at, each) for at, each in told if each is not None]
    if not steps or steps[-1][1] != limit:
        steps.append((now, limit))
    return tuple(steps)


def burn_down(
    spent: Sequence[tuple[datetime, Usd]],
    *,
    limits: Sequence[tuple[datetime, Usd]],
    start: datetime,
    end: datetime,
    now: datetime,
) -> BurnDown:
    """The budget less what was spent, as steps from `start` to `now`, then a straight guess to `end`.

    `limits` say from when each limit stood, so that what was left then is drawn as it was; the first stands from
    `start`. `spent` are single charges in order of time. The guess goes on at the pace of the last
    `PROJECTION_WINDOW_HOURS`; without a charge in them there is none.
    """
    top = max(limit for _, limit in limits)
    left = limits[0][1]
    points = [(0, _height(left, top))]
    raised = [(at, after - before) for (_, before), (at, after) in pairwise(limits)]
    moves = [*((at, ZERO - amount) for at, amount in spent), *raised]
    for at, by in sorted(moves, key=lambda move: move[0]):
        x = share_of_span(at, start=start, end=end)
        points.append((x, _height(left, top)))
        left += by
        points.append((x, _height(left, top)))
    here = (share_of_span(now, start=start, end=end), _height(left, top))
    points.append(here)
    stops_at = _projected_stop(spent, left=left, start=start, now=now)
    ahead = ""
    if stops_at is not None and left > ZERO:
        ahead = _points([here, (share_of_span(stops_at, start=start, end=end), SCALE)])
        if stops_at > end:
            fall = (SCALE - here[1]) * int((end - now) / timedelta(seconds=1))
            drop = fall // max(int((stops_at - now) / timedelta(seconds=1)), 1)
            ahead = _points([here, (SCALE, here[1] + drop)])
    return BurnDown(line=_points(points), ahead=ahead, stops_at=stops_at, top=top)


def _projected_stop(
    spent: Sequence[tuple[datetime, Usd]], *, left: Usd, start: datetime, now: datetime
) -> datetime | None:
    since = max(start, now - timedelta(hours=PROJECTION_WINDOW_HOURS))
    recent = [(at, amount) for at, amount in spent if since <= at <= now]
    pace = sum((amount for _, amount in recent), ZERO)
    if pace <= ZERO:
        return None
    if left <= ZERO:
        return now
    seconds = max(int((now - since).total_seconds()), 1)
    return now + timedelta(seconds=left.micro * seconds // pace.micro)


def share_of_span(at: datetime, *, start: datetime, end: datetime) -> int:
    """Where a moment stands between two others, in thousandths; outside is the nearer edge."""
    whole = max(int((end - start) / timedelta(milliseconds=1)), 1)
    part = int((at - start) / timedelta(milliseconds=1))
    return max(0, min(part * SCALE // whole, SCALE))


def _age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3_600 else f"{seconds / 3_600:g} h"


def _height(left: Usd, top: Usd) -> int:
    if top <= ZERO:
        return SCALE
    return max(0, min(SCALE - left.micro * SCALE // top.micro, SCALE))


def _points(points: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
