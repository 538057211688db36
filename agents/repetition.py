"""A question is asked a second time after a passing error: another call, another hold (row 57)."""

from __future__ import annotations

from collections.abc import Callable

from agents.calls import Answered
from agents.clock import Clock
from agents.errors import CallFailed
from agents.spec import Supervisor
from agents.tab import Tab
from providers.messages import ModelRequest

RETRY_SECONDS = 2.0
# While it waits, a run still hears that it was cancelled.
BEAT_SECONDS = 5.0


def ask_again_once(
    build: Callable[[int], ModelRequest],
    call: Callable[[ModelRequest], Answered],
    *,
    tab: Tab,
    supervisor: Supervisor | None,
    clock: Clock,
) -> Answered:
    """One question, asked a second time after a passing error (row 57).

    `build` makes the request of the first or second try: the second is another call of the run and
    another hold, and may well be its last.
    """
    try:
        return call(build(1))
    except CallFailed as failed:
        if not failed.again or tab.calls_left == 0:
            raise
        wait(max(RETRY_SECONDS, failed.retry_after_seconds or 0.0), supervisor, clock)
    return call(build(2))


def wait(seconds: float, supervisor: Supervisor | None, clock: Clock) -> None:
    """Sleeps in short steps, so that a cancelled run is not waited for."""
    left = seconds
    while left > 0:
        step = min(left, BEAT_SECONDS)
        clock.sleep(step)
        left -= step
        if supervisor is not None and left > 0:
            supervisor.beat()
