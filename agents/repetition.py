"""A question is asked again: after a passing error (row 57), and when money that was only held is free again."""

from __future__ import annotations

from collections.abc import Callable

from agents.calls import Answered
from agents.clock import Clock, wait
from agents.errors import CallFailed, StopRun
from agents.spec import CALL_SECONDS_MAX, HELD, Noted, Payers, Supervisor
from agents.tab import Tab
from providers.messages import ModelRequest

RETRY_SECONDS = 2.0
# A hold lasts as long as its call; whoever waits for one asks seldom, and not much longer than that.
HELD_PAUSE_SECONDS = 1.0
HELD_PAUSE_SECONDS_MAX = 10.0
HELD_WAIT_SECONDS_MAX = float(CALL_SECONDS_MAX)


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
        wait(max(RETRY_SECONDS, failed.retry_after_seconds or 0.0), supervisor=supervisor, clock=clock)
    return call(build(2))


def retried(payers: Payers, tab: Tab, *, model: str) -> Noted:
    """The event of that second try; row 119."""
    data = {"call": tab.calls, "connector": payers.connector, "model": model}
    return Noted("model.retry", f"{payers.key}:retry:{tab.calls}", data)


def when_holds_end(
    ask: Callable[[], Answered], *, tab: Tab, supervisor: Supervisor | None, clock: Clock
) -> Answered:
    """Asks, and asks again while only held money stands in the way of a run that has paid for calls already.

    Nothing is held meanwhile, so those it waits for end. To stop and start over would pay for its calls
    again, each time. The first call of a run waits outside, where it holds no worker.
    """
    waited, pause = 0.0, HELD_PAUSE_SECONDS
    while True:
        try:
            return ask()
        except StopRun as end:
            if end.note != HELD or tab.calls == 0 or waited >= HELD_WAIT_SECONDS_MAX:
                raise
        wait(pause, supervisor=supervisor, clock=clock)
        waited, pause = waited + pause, min(pause * 2, HELD_PAUSE_SECONDS_MAX)
