"""A wake at the moment when a limit for a time ends. It may be lost, doubled or late: the sweep is the net."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from functools import partial

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

RETURN_JOB = "budgets.return_limits"
# Each sweep sets the clock for what ends before the one after the next; a later end is a later sweep's.
AHEAD_SECONDS_MAX = 90
# Nobody took it by then: the sweep has.
LATE_SECONDS_MAX = 60
# A timer may ring a hair early, and before its end a limit stands.
_JUST_AFTER = timedelta(milliseconds=5)

log = logging.getLogger(__name__)


def is_soon(ends_at: datetime, *, now: datetime) -> bool:
    """Whether the sweep may come too late to set the clock for this end."""
    return ends_at <= now + timedelta(seconds=AHEAD_SECONDS_MAX)


def wake_at(ends_at: datetime) -> None:
    """Once the transaction is committed, have the limits that end then returned at that moment."""
    transaction.on_commit(partial(_send, ends_at + _JUST_AFTER))


def _send(at: datetime) -> None:
    """A broker that is away must not undo what is already committed."""
    try:
        current_app.send_task(
            RETURN_JOB,
            eta=at,
            expires=at + timedelta(seconds=LATE_SECONDS_MAX),
            ignore_result=True,
            retry=False,
        )
    except (OperationalError, OSError) as error:
        log.warning("wake lost, the next sweep returns what has ended: %s (%s)", RETURN_JOB, error)
