"""The engine's clock: the one thing about time that a test replaces."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Protocol

from django.utils import timezone

# While it waits, a run still hears that it was cancelled.
BEAT_SECONDS = 5.0


class Clock:
    """Now, and waiting. Doors and jobs use the wall's; a test hands in one that only remembers."""

    def now(self) -> datetime:
        return timezone.now()

    def seconds(self) -> float:
        """For measuring how long something takes: it never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


WALL = Clock()


class Beating(Protocol):
    def beat(self) -> None: ...


def wait(seconds: float, *, supervisor: Beating | None, clock: Clock) -> None:
    """Sleeps in short steps, so that a cancelled run is not waited for."""
    left = seconds
    while left > 0:
        step = min(left, BEAT_SECONDS)
        clock.sleep(step)
        left -= step
        if supervisor is not None and left > 0:
            supervisor.beat()
