"""The clocks that bind a call, and which of them is the shortest (rows 114, 124 to 127)."""

from __future__ import annotations

from dataclasses import dataclass

CONNECT_SECONDS = 5.0
RECEIVE_SECONDS = 60.0  # silence between two reads
RECEIVE_SECONDS_MAX = 600.0
STREAM_SECONDS = 60.0  # a stream without a total of its own
STREAM_SECONDS_MAX = 300.0
# A provider that asks to wait longer gets its wait scheduled; no worker sleeps through it (C63).
WAIT_SECONDS_MAX = 60.0
assert CONNECT_SECONDS < RECEIVE_SECONDS <= RECEIVE_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, in seconds. A child can only come earlier (row 126)."""

    at: float

    @classmethod
    def after(cls, seconds: float, *, now: float) -> Deadline:
        return cls(now + seconds)

    def left(self, *, now: float) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self.at - now)

    def narrowed(self, to: Deadline | None) -> Deadline:
        return self if to is None else Deadline(min(self.at, to.at))

    def allows(self, wait: float, *, now: float) -> bool:
        """May a wait of so many seconds begin? One that would reach the deadline may not (row 114)."""
        return wait < self.left(now=now)


def call_seconds(*, receive: float, left: float) -> float:
    """How long one read may be silent: the receive clock, or what is left of the total (row 127)."""
    return min(receive, left)


def total_of_stream(seconds: float | None) -> float:
    """The total of a stream: 60 s when not said, within 1 ms and 300 s (row 125). Raises ValueError."""
    if seconds is None:
        return STREAM_SECONDS
    if not 0.001 <= seconds <= STREAM_SECONDS_MAX:
        raise ValueError(f"a stream's total lies between 1 ms and {STREAM_SECONDS_MAX:g} s")
    return seconds
