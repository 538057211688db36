"""A wake: "something is due", on a queue, after commit. It may be lost, doubled or late; the rows decide."""

from __future__ import annotations

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

DELIVER_JOB = "webhooks.deliver"
# A nudge that nobody took by then is worthless: the beat has sent another.
WAKE_SECONDS_MAX = 30

log = logging.getLogger(__name__)


def wake_deliveries() -> None:
    """Nudge the workers to deliver what is due. A lost nudge costs one beat."""
    transaction.on_commit(_send)


def _send() -> None:
    """A broker that is away must not undo what is already committed: the sweep finds the rows."""
    try:
        current_app.send_task(DELIVER_JOB, ignore_result=True, retry=False, expires=WAKE_SECONDS_MAX)
    except (OperationalError, OSError) as error:
        log.warning("wake lost, the next sweep finds what is due: %s (%s)", DELIVER_JOB, error)
