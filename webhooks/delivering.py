"""Deliver what is due: take a lane, send a few, give it back; until nothing may be sent."""

from __future__ import annotations

import time

import structlog
from django.utils import timezone

from webhooks.deliveries import note_answer, take_next
from webhooks.lanes import Lane, release, take_lane, waiting
from webhooks.sending import send
from webhooks.wake import wake_deliveries

# A lane is given back after so many or so long: whoever waited longest is next.
DELIVERIES_PER_TURN_MAX = 20
TURN_SECONDS_MAX = 5.0
JOB_SECONDS_MAX = 60.0

log = structlog.get_logger(__name__)


def deliver_due() -> int:
    """Serve lanes until none is waiting, or a minute is over. How many requests left.

    Other lanes that wait get a worker of their own: one slow receiver holds up its own lane only.
    """
    ends_at, sent = time.monotonic() + JOB_SECONDS_MAX, 0
    while time.monotonic() < ends_at:
        lane = take_lane(timezone.now())
        if lane is None:
            return sent
        if waiting(timezone.now()).exists():
            wake_deliveries()
        sent += _serve(lane)
    wake_deliveries()
    return sent


def _serve(lane: Lane) -> int:
    """One turn. It ends early at the first failure: the endpoint may have to rest."""
    ends_at = time.monotonic() + TURN_SECONDS_MAX
    sent = 0
    try:
        while sent < DELIVERIES_PER_TURN_MAX and time.monotonic() < ends_at:
            sending = take_next(lane, timezone.now())
            if sending is None:
                break
            sent += 1
            if not note_answer(sending, send(sending, now=timezone.now()), timezone.now()):
                break
    except Exception:
        # One row's fault stays its own. The lane is not given back: its lease keeps it from breaking again at once.
        log.exception("a delivery broke", endpoint=str(lane.endpoint_id))
        return sent
    release(lane)
    return sent
