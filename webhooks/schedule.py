"""When a delivery is tried again, and when it is given up. Pure.

Nine tries over about a day: at once, then after 10 s, 40 s, 3 min, 11 min, 43 min, 3 h, 10 h and 10 h.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

ATTEMPTS_MAX = 9
RETRY_FIRST_SECONDS = 10
RETRY_FACTOR = 4
RETRY_SECONDS_MAX = 36_000
# Each wait is shortened or lengthened by up to so much, so that many deliveries do not come back at once.
JITTER_PERCENT = 20
# A receiver that asks for more in `Retry-After` is asked again after this.
RETRY_AFTER_SECONDS_MAX = 86_400
# However many tries are left: what is older than this since it was queued is given up at its next failure.
DELIVERY_HOURS_MAX = 72
# An endpoint that answered nothing well for so long, and so often, is switched off.
FAILING_DAYS_MAX = 5
FAILURES_MIN = 10
# After failures in a row the endpoint as a whole rests, so that a backlog does not hammer a broken receiver.
REST_FIRST_SECONDS = 2
REST_SECONDS_MAX = 60
assert RETRY_FIRST_SECONDS < RETRY_SECONDS_MAX <= RETRY_AFTER_SECONDS_MAX
assert timedelta(seconds=RETRY_AFTER_SECONDS_MAX) < timedelta(hours=DELIVERY_HOURS_MAX)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request. `status` None: no answer came, `problem` says why."""

    status: int | None
    problem: str = ""
    milliseconds: int = 0
    text: str = ""
    retry_after: str = ""

    @property
    def is_good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Delivered:
    """A 2xx: done."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try once more after so many seconds."""

    seconds: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No more tries by itself; a person may resend."""

    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """410: the receiver wants nothing more, ever."""


Verdict = Delivered | Again | GiveUp | Gone


def verdict(answer: Answer, *, tries: int, queued_at: datetime, now: datetime, shake: float) -> Verdict:
    """What follows the `tries`-th try. `shake` lies in [0, 1): where in its jitter the wait falls."""
    if answer.is_good:
        return Delivered()
    if answer.status == 410:
        return Gone()
    if tries >= ATTEMPTS_MAX:
        return GiveUp("tries_used_up")
    if now - queued_at > timedelta(hours=DELIVERY_HOURS_MAX):
        return GiveUp("too_old")
    return Again(max(_wait(tries, shake), _asked(answer.retry_after, now)))


def rest_seconds(failures: int) -> int:
    """How long an endpoint rests after so many failures in a row; the first one costs nothing."""
    rest: int = REST_FIRST_SECONDS ** min(failures - 1, 10)
    return 0 if failures < 2 else min(REST_SECONDS_MAX, rest)


def is_hopeless(*, failing_since: datetime, failures: int, now: datetime) -> bool:
    """Days of nothing but failures, and more than a few: switch it off."""
    return failures >= FAILURES_MIN and now - failing_since >= timedelta(days=FAILING_DAYS_MAX)


def _wait(tries: int, shake: float) -> int:
    plain: int = min(RETRY_SECONDS_MAX, RETRY_FIRST_SECONDS * RETRY_FACTOR ** (tries - 1))
    return max(1, round(plain * (1 + JITTER_PERCENT / 100 * (2 * shake - 1))))


def _asked(retry_after: str, now: datetime) -> int:
    """`Retry-After` as seconds or as a date; nonsense asks for nothing."""
    said = retry_after.strip()[:100]
    if said.isascii() and said.isdecimal():
        return min(int(said), RETRY_AFTER_SECONDS_MAX)
    try:
        at = parsedate_to_datetime(said)
    except (
        ValueError,
        TypeError,
        IndexError,
        OverflowError,
    ):  # a stranger's text: its numbers may be of any size
        return 0
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return min(max(0, round((at - now).total_seconds())), RETRY_AFTER_SECONDS_MAX)
